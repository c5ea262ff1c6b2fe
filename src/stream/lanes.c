/*
 * lanes.c - the two kinds of read lanes behind one interface, and what they share.
 *
 * A disk needs several requests in flight to reach its bandwidth. Threads that each sit in a
 * blocking pread have them everywhere (lanes_pread.c); one thread with an io_uring has them with
 * two thirds of the processor time (lanes_uring.c), where the kernel allows that: containers often do not (seccomp
 * profiles refuse io_uring_setup, kernel.io_uring_disabled). Whole runs were no faster for it, and some
 * slower (docs/benchmarks.md, "Lanes"); so auto means threads.
 *
 * Both work off a queue that is first in, first out: the caller submits in the order in which it
 * will consume. It is a growing ring under a mutex that is held for a few instructions. The compute
 * path takes it once per block, not once per expert, and never waits on it: completion is signalled
 * by the callback, through atomics (see engine.c).
 */
#include "stream/lanes.h"

#include <signal.h>
#include <stdlib.h>

#include "stream/error.h"
#include "stream/lanes_impl.h"

enum { LANES_QUEUE_START = 256 }; /* requests; doubles when full */

int lanes_choose(enum sluice_io want, enum sluice_io *got, struct sluice_error *err) {
    *got = want == SLUICE_IO_AUTO ? SLUICE_IO_PREAD : want;
    return *got == SLUICE_IO_URING ? lanes_uring_check(err) : sluice_ok(err);
}

struct lanes *lanes_create(enum sluice_io io, uint32_t n, lane_done_fn done, void *ud, struct sluice_error *err) {
    return io == SLUICE_IO_URING ? lanes_uring_create(n, done, ud, err) : lanes_pread_create(n, done, ud, err);
}

enum sluice_io lanes_kind(const struct lanes *l) {
    return l->ops->kind;
}

void lanes_destroy(struct lanes *l) {
    if (l) {
        l->ops->destroy(l);
    }
}

int lanes_submit(struct lanes *l, const struct lane_request *r, size_t n) {
    return l->ops->submit(l, r, n, false);
}

int lanes_submit_idle(struct lanes *l, const struct lane_request *r, size_t n) {
    return l->ops->submit(l, r, n, true);
}

void lanes_recall(struct lanes *l, void (*recalled)(void *ud, const struct lane_request *r), void *ud) {
    l->ops->recall(l, recalled, ud);
}

/* ---- the queue ------------------------------------------------------------------------------- */

static bool lane_ring_empty(const struct lane_ring *r) {
    return r->head == r->tail;
}

static struct lane_request lane_ring_take(struct lane_ring *r) {
    return r->entry[r->head++ & (r->capacity - 1)];
}

/* Double it until n more fit. */
static bool lane_ring_reserve(struct lane_ring *r, size_t n) {
    size_t capacity = r->capacity;
    while (capacity - (r->tail - r->head) < n) {
        if (capacity > SIZE_MAX / 2 / sizeof *r->entry) {
            return false;
        }
        capacity *= 2;
    }
    if (capacity != r->capacity) {
        struct lane_request *entry = calloc(capacity, sizeof *entry);
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

static bool lane_ring_push(struct lane_ring *r, const struct lane_request *from, size_t n) {
    if (!lane_ring_reserve(r, n)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        r->entry[r->tail++ & (r->capacity - 1)] = from[i];
    }
    return true;
}

bool lane_queue_init(struct lane_queue *q, uint32_t n) {
    *q = (struct lane_queue){
        .demand = {.entry = calloc(LANES_QUEUE_START, sizeof *q->demand.entry), .capacity = LANES_QUEUE_START},
        .idle = {.entry = calloc(LANES_QUEUE_START, sizeof *q->idle.entry), .capacity = LANES_QUEUE_START},
        .idle_limit = n / 2 ? n / 2 : 1, /* at least one, else they would never be read */
    };
    if (!q->demand.entry || !q->idle.entry) {
        lane_queue_free(q);
        return false;
    }
    return true;
}

void lane_queue_free(struct lane_queue *q) {
    free(q->demand.entry);
    free(q->idle.entry);
}

bool lane_queue_push(struct lane_queue *q, const struct lane_request *r, size_t n, bool idle) {
    return lane_ring_push(idle ? &q->idle : &q->demand, r, n);
}

bool lane_queue_pop(struct lane_queue *q, struct lane_request *r, bool *idle) {
    *idle = lane_ring_empty(&q->demand);
    if (*idle && (lane_ring_empty(&q->idle) || q->n_idle == q->idle_limit)) {
        return false;
    }
    *r = lane_ring_take(*idle ? &q->idle : &q->demand);
    q->n_idle += *idle;
    return true;
}

void lane_queue_ended(struct lane_queue *q) {
    q->n_idle--;
}

bool lane_queue_empty(const struct lane_queue *q) {
    return lane_ring_empty(&q->demand) && lane_ring_empty(&q->idle);
}

bool lane_queue_recall(struct lane_queue *q, void (*recalled)(void *ud, const struct lane_request *r), void *ud) {
    bool begun = true, joined = false; /* what was taken so far continues something that is begun */
    while (!lane_ring_empty(&q->idle)) {
        const struct lane_request r = lane_ring_take(&q->idle);
        begun = begun && r.follows;
        if (!begun) {
            recalled(ud, &r);
        } else if (lane_ring_push(&q->demand, &r, 1)) {
            joined = true;
        } else {
            q->idle.head--; /* no memory: it stays, and what is behind it */
            break;
        }
    }
    return joined;
}

int lane_thread_start(pthread_t *t, void *(*main)(void *), void *arg) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    const int rc = pthread_create(t, NULL, main, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}
