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
    return l->ops->submit(l, r, n);
}

/* ---- the queue ------------------------------------------------------------------------------- */

bool lane_queue_init(struct lane_queue *q) {
    *q = (struct lane_queue){.ring = calloc(LANES_QUEUE_START, sizeof *q->ring), .capacity = LANES_QUEUE_START};
    return q->ring != NULL;
}

void lane_queue_free(struct lane_queue *q) {
    free(q->ring);
}

/* Double the ring until n more fit. */
static bool lane_queue_reserve(struct lane_queue *q, size_t n) {
    size_t capacity = q->capacity;
    while (capacity - (q->tail - q->head) < n) {
        if (capacity > SIZE_MAX / 2 / sizeof *q->ring) {
            return false;
        }
        capacity *= 2;
    }
    if (capacity != q->capacity) {
        struct lane_request *ring = calloc(capacity, sizeof *ring);
        if (!ring) {
            return false;
        }
        for (size_t i = q->head; i != q->tail; i++) {
            ring[i & (capacity - 1)] = q->ring[i & (q->capacity - 1)];
        }
        free(q->ring);
        q->ring = ring;
        q->capacity = capacity;
    }
    return true;
}

bool lane_queue_push(struct lane_queue *q, const struct lane_request *r, size_t n) {
    if (!lane_queue_reserve(q, n)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        q->ring[q->tail++ & (q->capacity - 1)] = r[i];
    }
    return true;
}

bool lane_queue_pop(struct lane_queue *q, struct lane_request *r) {
    if (q->head == q->tail) {
        return false;
    }
    *r = q->ring[q->head++ & (q->capacity - 1)];
    return true;
}

int lane_thread_start(pthread_t *t, void *(*main)(void *), void *arg) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    const int rc = pthread_create(t, NULL, main, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}
