/*
 * lanes.c - the two kinds of read lanes behind one interface, and what they share.
 *
 * A disk needs several requests in flight to reach its bandwidth. Threads that each sit in a
 * blocking pread have them everywhere (io_pread.c); one thread with an io_uring has them with
 * two thirds of the processor time (io_uring.c), where the kernel allows that: containers often do not (seccomp
 * profiles refuse io_uring_setup, kernel.io_uring_disabled). Whole runs were no faster for it, and some
 * slower (docs/benchmarks.md, "Lanes"); so auto means threads.
 *
 * Both work off a queue that is first in, first out: the caller submits in the order in which it
 * will consume. It is a growing ring under a mutex that is held for a few instructions. The compute
 * path takes it once per block, not once per expert, and never waits on it: completion is signalled
 * by the callback, through atomics (see engine.c).
 */
#include "cache/io.h"

#include <signal.h>
#include <stdlib.h>

#include "cache/error.h"
#include "cache/io_impl.h"

enum { IO_QUEUE_START = 256 }; /* requests; doubles when full */

int io_choose(enum sluice_io want, enum sluice_io *got, struct sluice_error *err) {
    *got = want == SLUICE_IO_AUTO ? SLUICE_IO_PREAD : want;
    return *got == SLUICE_IO_URING ? io_uring_check(err) : sluice_ok(err);
}

struct io *io_create(enum sluice_io io, uint32_t n, io_done_fn done, void *ud, struct sluice_error *err) {
    return io == SLUICE_IO_URING ? io_uring_create(n, done, ud, err) : io_pread_create(n, done, ud, err);
}

enum sluice_io io_kind(const struct io *l) {
    return l->ops->kind;
}

void io_destroy(struct io *l) {
    if (l) {
        l->ops->destroy(l);
    }
}

int io_submit(struct io *l, const struct io_request *r, size_t n) {
    return l->ops->submit(l, r, n, false);
}

int io_submit_idle(struct io *l, const struct io_request *r, size_t n) {
    return l->ops->submit(l, r, n, true);
}

void io_recall(struct io *l, void (*recalled)(void *ud, const struct io_request *r), void *ud) {
    l->ops->recall(l, recalled, ud);
}

/* ---- the queue ------------------------------------------------------------------------------- */

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

bool io_queue_init(struct io_queue *q, uint32_t n) {
    *q = (struct io_queue){
        .demand = {.entry = calloc(IO_QUEUE_START, sizeof *q->demand.entry), .capacity = IO_QUEUE_START},
        .idle = {.entry = calloc(IO_QUEUE_START, sizeof *q->idle.entry), .capacity = IO_QUEUE_START},
        .idle_limit = n / 2 ? n / 2 : 1, /* at least one, else they would never be read */
    };
    if (!q->demand.entry || !q->idle.entry) {
        io_queue_free(q);
        return false;
    }
    return true;
}

void io_queue_free(struct io_queue *q) {
    free(q->demand.entry);
    free(q->idle.entry);
}

bool io_queue_push(struct io_queue *q, const struct io_request *r, size_t n, bool idle) {
    return io_ring_push(idle ? &q->idle : &q->demand, r, n);
}

bool io_queue_pop(struct io_queue *q, struct io_request *r, bool *idle) {
    *idle = io_ring_empty(&q->demand);
    if (*idle && (io_ring_empty(&q->idle) || q->n_idle == q->idle_limit)) {
        return false;
    }
    *r = io_ring_take(*idle ? &q->idle : &q->demand);
    q->n_idle += *idle;
    return true;
}

void io_queue_ended(struct io_queue *q) {
    q->n_idle--;
}

bool io_queue_empty(const struct io_queue *q) {
    return io_ring_empty(&q->demand) && io_ring_empty(&q->idle);
}

bool io_queue_recall(struct io_queue *q, void (*recalled)(void *ud, const struct io_request *r), void *ud) {
    bool begun = true, joined = false; /* what was taken so far continues something that is begun */
    while (!io_ring_empty(&q->idle)) {
        const struct io_request r = io_ring_take(&q->idle);
        begun = begun && r.follows;
        if (!begun) {
            recalled(ud, &r);
        } else if (io_ring_push(&q->demand, &r, 1)) {
            joined = true;
        } else {
            q->idle.head--; /* no memory: it stays, and what is behind it */
            break;
        }
    }
    return joined;
}

int io_thread_start(pthread_t *t, void *(*main)(void *), void *arg) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    const int rc = pthread_create(t, NULL, main, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}
