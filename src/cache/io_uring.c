/*
 * io_uring.c - lanes that are one thread with an io_uring.
 *
 * The thread hands requests to the kernel, sleeps in one system call until any of them has ended,
 * and calls back. It sleeps there when idle too: a read of an eventfd is always in the ring, and
 * whoever submits writes to it, but only when the thread may be asleep with room in the ring. So
 * under load nobody is woken to learn of new requests, and nothing ever spins.
 *
 * The same steps decide what a result means as in the other kind (stream_file_read_step): short
 * reads go on, the odd tail of a file comes through the page cache, errors are errno's.
 *
 * Reads through the page cache are handed to the kernel's worker threads (IOSQE_ASYNC). Otherwise
 * the copy out of the page cache runs inside the submitting call, on our one thread, one after
 * another. So are reads into memory that was never written to: making its pages happens inside the
 * submitting call too, and one thread made them at 0.5 GiB/s where the workers, or four reader threads,
 * kept the disk's 1.8 (docs/benchmarks.md). And so is a direct read for which the kernel found no
 * resources (EAGAIN): its worker may wait for them.
 *
 * If the ring stops working after it has worked (a host program that installs a seccomp filter once
 * it is up), reader threads take over: what the kernel has is waited for, the rest is handed on.
 *
 * Not used: registered files and registered buffers, see docs/benchmarks.md, "Lanes". Polled
 * completions and a polling kernel thread want a core of their own, which the compute threads need.
 *
 * Kernel 5.7 or later (IORING_FEAT_FAST_POLL): before, the sleeping read of the eventfd took a
 * kernel worker.
 */
#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "cache/error.h"
#include "cache/io_impl.h"

enum {
    URING_BATCH = 16,           /* completions looked at in one go */
    URING_NAP_NS = 1000 * 1000, /* between tries, when the kernel has no memory for a request */
};

/* ThreadSanitizer does not see what the kernel writes; tell it, so that a race on a slot's bytes is found here too. */
#ifdef __SANITIZE_THREAD__
void __tsan_write_range(void *p, unsigned long n);
#define URING_WROTE(p, n) __tsan_write_range(p, n)
#else
#define URING_WROTE(p, n) ((void)0)
#endif

/* A request on its way. */
struct uring_op {
    struct io_request request; /* as submitted */
    bool idle;                 /* it was an idle one */
    struct file_read read;     /* how far it is */
    bool wait;                 /* the kernel's workers issue it: it may block */
    struct uring_op *next;     /* in the list of free ones */
};

struct uring {
    struct io base;        /* kind and callback */
    pthread_mutex_t lock;  /* guards the five that follow */
    struct io_queue queue; /* requests that have no op yet */
    bool stop;             /* the thread returns */
    bool hungry;           /* it may be asleep with room in the ring: write to wake_fd */
    bool over;             /* the ring broke */
    struct io *instead;    /* then: where requests go; NULL: there was no memory for those either */

    int wake_fd;           /* eventfd */
    pthread_t thread;      /* the only one that touches what follows */
    struct io_uring ring;  /* depth ops and the read of wake_fd */
    uint64_t wake_count;   /* what that read returns */
    bool armed;            /* that read is in the ring */
    bool stopping;         /* stop, as last seen */
    uint32_t idle_ended;   /* idle ones that ended since the queue was last looked at */
    int broken;            /* errno of a ring that can be used no more; 0 */
    uint32_t in_flight;    /* ops in the ring */
    struct uring_op *idle; /* the others */
    uint32_t depth;        /* ops */
    struct uring_op op[];  /* all */
};

/* A ring of so many entries, or SLUICE_ERR_ARG: other lanes would work. */
static int uring_open(struct io_uring *ring, unsigned entries, struct sluice_error *err) {
    const int rc = io_uring_queue_init(entries, ring, 0);
    if (rc) {
        return sluice_fail(err, SLUICE_ERR_ARG, "io=uring: the kernel or container refuses io_uring (%s)",
                           strerror(-rc));
    }
    if (!(ring->features & IORING_FEAT_FAST_POLL)) {
        io_uring_queue_exit(ring);
        return sluice_fail(err, SLUICE_ERR_ARG, "io=uring: this kernel's io_uring is too old (before 5.7)");
    }
    return sluice_ok(err);
}

int io_uring_check(struct sluice_error *err) {
    struct io_uring ring;
    const int rc = uring_open(&ring, 2, err);
    if (rc == SLUICE_OK) {
        io_uring_queue_exit(&ring);
    }
    return rc;
}

/* There is always room: depth ops and one wake-up fit, and each is in the ring once. */
static struct io_uring_sqe *uring_sqe(struct uring *l) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&l->ring);
    assert(sqe);
    return sqe;
}

static void uring_arm(struct uring *l) {
    struct io_uring_sqe *sqe = uring_sqe(l);
    io_uring_prep_read(sqe, l->wake_fd, &l->wake_count, sizeof l->wake_count, 0);
    io_uring_sqe_set_data(sqe, NULL);
    l->armed = true;
}

/* Put the next read of an op into the ring. */
static void uring_push(struct uring *l, struct uring_op *op) {
    const struct file_read *r = &op->read;
    struct io_uring_sqe *sqe = uring_sqe(l);
    io_uring_prep_read(sqe, r->fd, r->dst + r->got, (unsigned)(r->len - r->got), r->offset + r->got);
    io_uring_sqe_set_data(sqe, op);
    if (op->wait || r->fd == r->file->fd) {
        io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
    }
    l->in_flight++;
}

static void uring_end(struct uring *l, struct uring_op *op, enum file_step step) {
    const bool done = step == FILE_DONE;
    l->base.done(l->base.ud, &op->request, done ? (int64_t)op->read.got : -1, done ? 0 : op->read.error);
    l->idle_ended += op->idle;
    op->next = l->idle;
    l->idle = op;
}

/* What an op's read returned. True: it goes on. */
static bool uring_step(struct uring *l, struct uring_op *op, int result) {
    l->in_flight--;
    if (result > 0) {
        URING_WROTE(op->read.dst + op->read.got, (unsigned long)result);
    }
    if (result == -EAGAIN && !op->wait) {
        op->wait = true;
        return true;
    }
    const enum file_step step = stream_file_read_step(&op->read, result);
    if (step != FILE_MORE) {
        uring_end(l, op, step);
    }
    return step == FILE_MORE;
}

/* Give waiting requests to idle ops, up to the depth, and note whether a wake-up will be needed. */
static void uring_fill(struct uring *l) {
    pthread_mutex_lock(&l->lock);
    for (; l->idle_ended; l->idle_ended--) {
        io_queue_ended(&l->queue);
    }
    while (l->idle && io_queue_pop(&l->queue, &l->idle->request, &l->idle->idle)) {
        struct uring_op *op = l->idle;
        const struct io_request *r = &op->request;
        l->idle = op->next;
        op->wait = r->fresh;
        stream_file_read_begin(&op->read, r->file, r->dst, r->offset, r->len, r->need);
        uring_push(l, op);
    }
    l->hungry = l->idle != NULL;
    l->stopping = l->stop;
    pthread_mutex_unlock(&l->lock);
}

/* Submit what is in the ring and sleep until something ended. False: the ring is of no use any more. */
static bool uring_enter(struct uring *l) {
    const int rc = io_uring_submit_and_wait(&l->ring, 1);
    if (rc == -EAGAIN || rc == -EBUSY) {
        /* No memory for a request now. It stays in the ring and is tried again. */
        const struct timespec nap = {.tv_nsec = URING_NAP_NS};
        nanosleep(&nap, NULL);
    } else if (rc < 0 && rc != -EINTR) {
        l->broken = -rc;
    }
    return !l->broken;
}

/* Look at what ended, without sleeping. */
static void uring_reap(struct uring *l) {
    struct io_uring_cqe *cqe[URING_BATCH];
    unsigned n;
    while ((n = io_uring_peek_batch_cqe(&l->ring, cqe, URING_BATCH)) > 0) {
        for (unsigned i = 0; i < n; i++) {
            struct uring_op *op = io_uring_cqe_get_data(cqe[i]);
            if (op && uring_step(l, op, cqe[i]->res)) {
                uring_push(l, op);
            } else if (!op) {
                l->armed = false;
                l->broken = cqe[i]->res < 0 && cqe[i]->res != -EINTR ? -cqe[i]->res : l->broken;
            }
        }
        io_uring_cq_advance(&l->ring, n);
    }
}

/* ---- when the ring breaks -------------------------------------------------------------------- */

/* An op that the kernel does not have goes to the reader threads, from its beginning. */
static void uring_hand_on(struct uring *l, struct uring_op *op) {
    if (!l->instead || io_submit(l->instead, &op->request, 1)) {
        op->read.error = l->broken;
        uring_end(l, op, FILE_FAILED);
    }
}

/*
 * The kernel may still write where the reads that it has go: those are waited for, by looking, as
 * there is no call left to sleep in. All others, and those that come, go to reader threads. Without
 * the memory for those, requests fail.
 */
static void uring_give_up(struct uring *l) {
    struct io *instead = io_pread_create(l->depth, l->base.done, l->base.ud, NULL);
    struct io_request r;
    pthread_mutex_lock(&l->lock);
    l->over = true;
    l->instead = instead;
    pthread_mutex_unlock(&l->lock);
    const struct io_uring_sq *sq = &l->ring.sq;
    for (unsigned i = sq->sqe_tail - io_uring_sq_ready(&l->ring); i != sq->sqe_tail; i++) {
        struct uring_op *op = (struct uring_op *)(uintptr_t)sq->sqes[i & sq->ring_mask].user_data;
        if (op) {
            l->in_flight--;
            uring_hand_on(l, op);
        }
    }
    l->queue.idle_limit = UINT32_MAX;
    bool idle;
    for (;;) { /* nobody appends any more, but they may be recalled */
        pthread_mutex_lock(&l->lock);
        const bool more = io_queue_pop(&l->queue, &r, &idle);
        pthread_mutex_unlock(&l->lock);
        if (!more) {
            break;
        }
        if (!instead || io_submit(instead, &r, 1)) {
            l->base.done(l->base.ud, &r, -1, l->broken);
        }
    }
    while (l->in_flight) {
        struct io_uring_cqe *cqe;
        if (io_uring_peek_batch_cqe(&l->ring, &cqe, 1)) {
            struct uring_op *op = io_uring_cqe_get_data(cqe);
            const int result = cqe->res;
            io_uring_cq_advance(&l->ring, 1);
            if (op && uring_step(l, op, result)) {
                uring_hand_on(l, op);
            }
        } else {
            const struct timespec nap = {.tv_nsec = URING_NAP_NS};
            nanosleep(&nap, NULL);
        }
    }
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void *uring_main(void *arg) {
    struct uring *l = arg;
    for (;;) {
        uring_fill(l);
        if (!l->armed && !l->stopping) {
            uring_arm(l);
        }
        if (!l->armed && l->in_flight == 0) {
            return NULL;
        }
        const bool entered = uring_enter(l);
        if (entered) {
            uring_reap(l);
        }
        if (l->broken) {
            uring_give_up(l);
            return NULL;
        }
    }
}

static void uring_wake(struct uring *l) {
    const uint64_t one = 1;
    ssize_t n;
    do {
        n = write(l->wake_fd, &one, sizeof one);
    } while (n < 0 && errno == EINTR);
    assert(n == sizeof one); /* it would take 2^64 - 1 unread ones to block */
}

static int uring_submit(struct io *base, const struct io_request *r, size_t n, bool idle) {
    struct uring *l = (struct uring *)base;
    pthread_mutex_lock(&l->lock);
    if (l->over) {
        struct io *instead = l->instead;
        pthread_mutex_unlock(&l->lock);
        return instead ? instead->ops->submit(instead, r, n, idle) : SLUICE_ERR_MEMORY;
    }
    const bool ok = io_queue_push(&l->queue, r, n, idle), wake = ok && l->hungry;
    l->hungry = l->hungry && !wake; /* one is enough, until it looked again */
    pthread_mutex_unlock(&l->lock);
    if (wake) {
        uring_wake(l);
    }
    return ok ? SLUICE_OK : SLUICE_ERR_MEMORY;
}

static void uring_destroy(struct io *base) {
    struct uring *l = (struct uring *)base;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_mutex_unlock(&l->lock);
    uring_wake(l);
    pthread_join(l->thread, NULL);
    assert(l->in_flight == 0 && io_queue_empty(&l->queue));
    io_destroy(l->instead);
    io_uring_queue_exit(&l->ring);
    close(l->wake_fd);
    pthread_mutex_destroy(&l->lock);
    io_queue_free(&l->queue);
    free(l);
}

static void uring_recall(struct io *base, void (*recalled)(void *ud, const struct io_request *r), void *ud) {
    struct uring *l = (struct uring *)base;
    pthread_mutex_lock(&l->lock);
    struct io *instead = l->over ? l->instead : NULL;
    const bool wake = io_queue_recall(&l->queue, recalled, ud) && l->hungry;
    l->hungry = l->hungry && !wake;
    pthread_mutex_unlock(&l->lock);
    if (wake) {
        uring_wake(l);
    }
    if (instead) {
        io_recall(instead, recalled, ud);
    }
}

static const struct io_ops uring_ops = {
    .kind = SLUICE_IO_URING, .destroy = uring_destroy, .submit = uring_submit, .recall = uring_recall};

struct io *io_uring_create(uint32_t n, io_done_fn done, void *ud, struct sluice_error *err) {
    struct uring *l = calloc(1, sizeof *l + n * sizeof l->op[0]);
    if (!l || !io_queue_init(&l->queue, n)) {
        free(l);
        sluice_fail(err, SLUICE_ERR_MEMORY, "read lanes: out of memory");
        return NULL;
    }
    l->base = (struct io){.ops = &uring_ops, .done = done, .ud = ud};
    l->depth = n;
    for (uint32_t i = n; i-- > 0;) {
        l->op[i].next = l->idle;
        l->idle = &l->op[i];
    }
    l->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (l->wake_fd < 0) {
        sluice_fail(err, SLUICE_ERR_MEMORY, "read lanes: %s", strerror(errno));
        goto no_fd;
    }
    if (uring_open(&l->ring, n + 1, err)) {
        goto no_ring;
    }
    pthread_mutex_init(&l->lock, NULL);
    const int rc = io_thread_start(&l->thread, uring_main, l);
    if (rc) {
        sluice_fail(err, SLUICE_ERR_MEMORY, "read lanes: cannot start a thread: %s", strerror(rc));
        goto no_thread;
    }
    sluice_ok(err);
    return &l->base;
no_thread:
    pthread_mutex_destroy(&l->lock);
    io_uring_queue_exit(&l->ring);
no_ring:
    close(l->wake_fd);
no_fd:
    io_queue_free(&l->queue);
    free(l);
    return NULL;
}
