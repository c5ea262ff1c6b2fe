/*
 * lanes.c - reader threads.
 *
 * A disk needs several requests in flight to reach its bandwidth, and a blocking pread per thread
 * is the simplest way to have them. The lanes sleep on a condition variable when there is nothing
 * to read, so they take no core from the compute threads. The queue is first in, first out: the
 * caller submits in the order in which it will consume.
 *
 * The queue is a growing ring under a mutex that is held for a few instructions. The compute path
 * takes it once per block, not once per expert, and never waits on it: completion is signalled by
 * the callback, through atomics (see engine.c).
 */
#include "stream/lanes.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "stream/error.h"

enum { LANES_QUEUE_START = 256 }; /* requests; doubles when full */

struct lanes {
    pthread_mutex_t lock;      /* guards the ring and stop */
    pthread_cond_t work;       /* the ring is not empty, or stop */
    struct lane_request *ring; /* capacity entries, a power of two */
    size_t capacity;           /* entries */
    size_t head;               /* requests taken so far */
    size_t tail;               /* requests queued so far; tail - head wait */
    bool stop;                 /* threads return */
    lane_done_fn done;         /* completion callback */
    void *ud;                  /* its argument */
    uint32_t n;                /* threads started */
    pthread_t thread[];        /* by lane */
};

static void *lane_main(void *arg) {
    struct lanes *l = arg;
    for (;;) {
        pthread_mutex_lock(&l->lock);
        while (l->head == l->tail && !l->stop) {
            pthread_cond_wait(&l->work, &l->lock);
        }
        if (l->head == l->tail) {
            pthread_mutex_unlock(&l->lock);
            return NULL;
        }
        const struct lane_request r = l->ring[l->head++ & (l->capacity - 1)];
        pthread_mutex_unlock(&l->lock);
        errno = 0;
        const int64_t got = stream_file_read(r.file, r.dst, r.offset, r.len, r.need);
        l->done(l->ud, &r, got, got < 0 ? errno : 0);
    }
}

struct lanes *lanes_create(uint32_t n, lane_done_fn done, void *ud, struct sluice_error *err) {
    struct lanes *l = calloc(1, sizeof *l + n * sizeof l->thread[0]);
    struct lane_request *ring = calloc(LANES_QUEUE_START, sizeof *ring);
    if (!l || !ring) {
        free(l);
        free(ring);
        sluice_fail(err, SLUICE_ERR_MEMORY, "read lanes: out of memory");
        return NULL;
    }
    l->ring = ring;
    l->capacity = LANES_QUEUE_START;
    l->done = done;
    l->ud = ud;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    /* The host program's signals are for its own threads: a lane must not run its handlers. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    while (l->n < n) {
        const int rc = pthread_create(&l->thread[l->n], NULL, lane_main, l);
        if (rc) {
            if (l->n) {
                break; /* fewer lanes are slower, not wrong */
            }
            pthread_sigmask(SIG_SETMASK, &before, NULL);
            lanes_destroy(l);
            sluice_fail(err, SLUICE_ERR_MEMORY, "read lanes: cannot start a thread: %s", strerror(rc));
            return NULL;
        }
        l->n++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return l;
}

void lanes_destroy(struct lanes *l) {
    if (!l) {
        return;
    }
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (uint32_t i = 0; i < l->n; i++) {
        pthread_join(l->thread[i], NULL);
    }
    assert(l->head == l->tail);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
    free(l->ring);
    free(l);
}

/* Double the ring until n more fit. Caller holds the lock. */
static bool lanes_reserve(struct lanes *l, size_t n) {
    size_t capacity = l->capacity;
    while (capacity - (l->tail - l->head) < n) {
        if (capacity > SIZE_MAX / 2 / sizeof *l->ring) {
            return false;
        }
        capacity *= 2;
    }
    if (capacity != l->capacity) {
        struct lane_request *ring = calloc(capacity, sizeof *ring);
        if (!ring) {
            return false;
        }
        for (size_t i = l->head; i != l->tail; i++) {
            ring[i & (capacity - 1)] = l->ring[i & (l->capacity - 1)];
        }
        free(l->ring);
        l->ring = ring;
        l->capacity = capacity;
    }
    return true;
}

int lanes_submit(struct lanes *l, const struct lane_request *r, size_t n) {
    pthread_mutex_lock(&l->lock);
    if (!lanes_reserve(l, n)) {
        pthread_mutex_unlock(&l->lock);
        return SLUICE_ERR_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        l->ring[l->tail++ & (l->capacity - 1)] = r[i];
    }
    if (n == 1) {
        pthread_cond_signal(&l->work);
    } else {
        pthread_cond_broadcast(&l->work);
    }
    pthread_mutex_unlock(&l->lock);
    return SLUICE_OK;
}
