/*
 * io.c - I/O threads: reads in the background.
 *
 * A disk needs several requests in flight to reach its bandwidth. A blocking pread per thread is the simplest way to
 * have them, and works on any kernel and in any container. The threads sleep on a condition variable when there is
 * nothing to read, so they take no core from the compute threads. One thread with an io_uring was tried instead: it
 * took two thirds of the processor time per read, but no run was faster for it and some were slower
 * (docs/benchmarks.md, "Threads or io_uring").
 *
 * Two queues, each first in, first out: demand, for which somebody waits, and idle, for reads that may turn out
 * useless. Idle ones are begun only when there is no demand. The caller submits in the order in which it will consume.
 * The queues are growing rings under one mutex that is held for a few instructions. The compute path takes it once per
 * block, not once per expert, and never waits on it: completion is signalled by the callback, through atomics (see
 * engine.c).
 */
#include "cache/io.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cache/check.h"
#include "cache/error.h"

enum { IO_QUEUE_START = 256 }; /* requests; doubles when full */

/* First in, first out; grows. */
struct io_ring {
    struct io_request *entry; /* capacity entries, a power of two */
    size_t capacity;          /* entries */
    size_t head;              /* requests taken so far */
    size_t tail;              /* requests queued so far; tail - head wait */
};

struct io {
    io_done_fn done;       /* completion callback */
    void *ud;              /* its argument */
    pthread_mutex_t lock;  /* guards all below */
    pthread_cond_t work;   /* there is something to take, or stop */
    struct io_ring demand; /* somebody waits for these */
    struct io_ring idle;   /* taken when there is no demand */
    uint32_t n_idle;       /* of those taken from idle, how many have not ended */
    uint32_t idle_limit;   /* at most so many */
    bool stop;             /* threads return */
    uint32_t n;            /* threads started */
    pthread_t thread[];    /* n of them */
};

/* ---- the queues ------------------------------------------------------------------------------ */

static bool io_ring_empty(const struct io_ring *r) {
    return r->head == r->tail;
}

static struct io_request io_ring_take(struct io_ring *r) {
    return r->entry[r->head++ & (r->capacity - 1)];
}

/* Double it until n more fit. */
static bool io_ring_reserve(struct io_ring *r, size_t n) {
    size_t capacity = r->capacity;
    while (capacity - (r->tail - r->head) < n) {
        if (capacity > SIZE_MAX / 2 / sizeof *r->entry) {
            return false;
        }
        capacity *= 2;
    }
    if (capacity != r->capacity) {
        struct io_request *entry = calloc(capacity, sizeof *entry);
        if (!entry) {
            return false;
        }
        for (size_t i = r->head; i != r->tail; i++) {
            entry[i & (capacity - 1)] = r->entry[i & (r->capacity - 1)];
        }
        free(r->entry);
        r->entry = entry;
        r->capacity = capacity;
    }
    return true;
}

static bool io_ring_push(struct io_ring *r, const struct io_request *from, size_t n) {
    if (!io_ring_reserve(r, n)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        r->entry[r->tail++ & (r->capacity - 1)] = from[i];
    }
    return true;
}

/* Take the oldest demand, else, if the limit allows, the oldest idle one (*idle tells). False: none may be taken. */
static bool io_take(struct io *l, struct io_request *r, bool *idle) {
    assert(check_held(&l->lock));
    *idle = io_ring_empty(&l->demand);
    if (*idle && (io_ring_empty(&l->idle) || l->n_idle == l->idle_limit)) {
        return false;
    }
    *r = io_ring_take(*idle ? &l->idle : &l->demand);
    l->n_idle += *idle;
    return true;
}

static int io_push(struct io *l, struct io_ring *to, const struct io_request *r, size_t n) {
    check_lock(&l->lock);
    const bool ok = io_ring_push(to, r, n);
    if (ok && n == 1) {
        pthread_cond_signal(&l->work);
    } else if (ok) {
        pthread_cond_broadcast(&l->work);
    }
    check_unlock(&l->lock);
    return ok ? SLUICE_OK : SLUICE_ERR_MEMORY;
}

int io_submit(struct io *l, const struct io_request *r, size_t n) {
    return io_push(l, &l->demand, r, n);
}

int io_submit_idle(struct io *l, const struct io_request *r, size_t n) {
    return io_push(l, &l->idle, r, n);
}

void io_recall(struct io *l, bool (*selects)(void *ud, const struct io_request *r),
               void (*recalled)(void *ud, const struct io_request *r), void *ud) {
    check_lock(&l->lock);
    bool begun = true, joined = false; /* all seen so far continues something that is begun: it is at the head */
    for (size_t n = l->idle.tail - l->idle.head; n > 0; n--) {
        const struct io_request r = io_ring_take(&l->idle);
        begun = begun && r.follows;
        if (!selects(ud, &r)) {
            io_ring_push(&l->idle, &r, 1); /* where there is room: one was taken */
        } else if (!begun) {
            recalled(ud, &r);
        } else if (io_ring_push(&l->demand, &r, 1)) {
            joined = true;
        } else {
            io_ring_push(&l->idle, &r, 1); /* no memory: it stays */
        }
    }
    if (joined) {
        pthread_cond_broadcast(&l->work); /* several may have joined */
    }
    check_unlock(&l->lock);
}

/* ---- the threads ----------------------------------------------------------------------------- */

static void *io_main(void *arg) {
    struct io *l = arg;
    bool idle = false; /* the last one was an idle one */
    for (;;) {
        struct io_request r;
        check_lock(&l->lock);
        l->n_idle -= idle;
        bool took;
        while (!(took = io_take(l, &r, &idle)) && !l->stop) {
            pthread_cond_wait(&l->work, &l->lock);
        }
        check_unlock(&l->lock);
        if (!took) {
            return NULL;
        }
        errno = 0;
        const int64_t got = stream_file_read(r.file, r.dst, r.offset, r.len, r.need);
        l->done(l->ud, &r, got, got < 0 ? errno : 0);
    }
}

/* Start a thread that takes no signals: a host program's handlers must not run on ours. Returns pthread_create's code.
 */
static int io_thread_start(pthread_t *t, struct io *l) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    const int rc = pthread_create(t, NULL, io_main, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

struct io *io_create(uint32_t n, io_done_fn done, void *ud, struct sluice_error *err) {
    struct io *l = calloc(1, sizeof *l + n * sizeof l->thread[0]);
    if (!l) {
        sluice_fail(err, SLUICE_ERR_MEMORY, "I/O threads: out of memory");
        return NULL;
    }
    l->done = done;
    l->ud = ud;
    l->idle_limit = n / 2 ? n / 2 : 1; /* at least one, else they would never be read */
    l->demand.capacity = l->idle.capacity = IO_QUEUE_START;
    l->demand.entry = calloc(IO_QUEUE_START, sizeof *l->demand.entry);
    l->idle.entry = calloc(IO_QUEUE_START, sizeof *l->idle.entry);
    check_mutex_init(&l->lock);
    pthread_cond_init(&l->work, NULL);
    const char *why = l->demand.entry && l->idle.entry ? NULL : "out of memory";
    while (l->n < n && !why) {
        const int rc = io_thread_start(&l->thread[l->n], l);
        if (rc && l->n) {
            break; /* fewer threads are slower, not wrong */
        }
        why = rc ? strerror(rc) : NULL;
        l->n += rc == 0;
    }
    if (why) {
        io_destroy(l);
        sluice_fail(err, SLUICE_ERR_MEMORY, "cannot start the I/O threads: %s", why);
        return NULL;
    }
    sluice_ok(err);
    return l;
}

void io_destroy(struct io *l) {
    if (!l) {
        return;
    }
    check_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    check_unlock(&l->lock);
    for (uint32_t i = 0; i < l->n; i++) {
        pthread_join(l->thread[i], NULL);
    }
    SLUICE_CHECK(io_ring_empty(&l->demand) && io_ring_empty(&l->idle));
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
    free(l->demand.entry);
    free(l->idle.entry);
    free(l);
}
