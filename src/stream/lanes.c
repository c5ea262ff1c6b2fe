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

/* First in, first out. */
struct lane_ring {
    struct lane_request *entry; /* capacity entries, a power of two */
    size_t capacity;            /* entries */
    size_t head;                /* requests taken so far */
    size_t tail;                /* requests queued so far; tail - head wait */
};

struct lanes {
    pthread_mutex_t lock;      /* guards the rings, n_idle and stop */
    pthread_cond_t work;       /* a ring is not empty, or stop */
    struct lane_ring demand;   /* somebody waits for these */
    struct lane_ring idle;     /* read when demand is empty */
    uint32_t n_idle;           /* lanes that read for the idle ring */
    uint32_t idle_limit;       /* at most so many of them; at least one, else it would never be read */
    bool stop;                 /* threads return */
    lane_done_fn done;         /* completion callback */
    void *ud;                  /* its argument */
    uint32_t n;                /* threads started */
    pthread_t thread[];        /* by lane */
};

static bool lane_ring_empty(const struct lane_ring *r) {
    return r->head == r->tail;
}

static struct lane_request lane_ring_take(struct lane_ring *r) {
    return r->entry[r->head++ & (r->capacity - 1)];
}

/* May one more lane read for the idle ring? */
static bool lane_may_idle(const struct lanes *l) {
    return !lane_ring_empty(&l->idle) && l->n_idle < l->idle_limit;
}

static void *lane_main(void *arg) {
    struct lanes *l = arg;
    bool idle = false; /* the last request was of the idle ring */
    for (;;) {
        pthread_mutex_lock(&l->lock);
        l->n_idle -= idle;
        while (lane_ring_empty(&l->demand) && !lane_may_idle(l) && !l->stop) {
            pthread_cond_wait(&l->work, &l->lock);
        }
        if (lane_ring_empty(&l->demand) && !lane_may_idle(l)) {
            pthread_mutex_unlock(&l->lock);
            return NULL;
        }
        idle = lane_ring_empty(&l->demand);
        l->n_idle += idle;
        const struct lane_request r = lane_ring_take(idle ? &l->idle : &l->demand);
        pthread_mutex_unlock(&l->lock);
        errno = 0;
        const int64_t got = stream_file_read(r.file, r.dst, r.offset, r.len, r.need);
        l->done(l->ud, &r, got, got < 0 ? errno : 0);
    }
}

struct lanes *lanes_create(uint32_t n, lane_done_fn done, void *ud, struct sluice_error *err) {
    struct lanes *l = calloc(1, sizeof *l + n * sizeof l->thread[0]);
    struct lane_request *demand = calloc(LANES_QUEUE_START, sizeof *demand);
    struct lane_request *idle = calloc(LANES_QUEUE_START, sizeof *idle);
    if (!l || !demand || !idle) {
        free(l);
        free(demand);
        free(idle);
        sluice_fail(err, SLUICE_ERR_MEMORY, "read lanes: out of memory");
        return NULL;
    }
    l->demand = (struct lane_ring){.entry = demand, .capacity = LANES_QUEUE_START};
    l->idle = (struct lane_ring){.entry = idle, .capacity = LANES_QUEUE_START};
    l->idle_limit = n / 2 ? n / 2 : 1;
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
    assert(lane_ring_empty(&l->demand) && lane_ring_empty(&l->idle));
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
    free(l->demand.entry);
    free(l->idle.entry);
    free(l);
}

/* Double the ring until n more fit. Caller holds the lock. */
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

static int lanes_queue(struct lanes *l, struct lane_ring *ring, const struct lane_request *r, size_t n) {
    pthread_mutex_lock(&l->lock);
    if (!lane_ring_reserve(ring, n)) {
        pthread_mutex_unlock(&l->lock);
        return SLUICE_ERR_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        ring->entry[ring->tail++ & (ring->capacity - 1)] = r[i];
    }
    if (n == 1) {
        pthread_cond_signal(&l->work);
    } else {
        pthread_cond_broadcast(&l->work);
    }
    pthread_mutex_unlock(&l->lock);
    return SLUICE_OK;
}

int lanes_submit(struct lanes *l, const struct lane_request *r, size_t n) {
    return lanes_queue(l, &l->demand, r, n);
}

int lanes_submit_idle(struct lanes *l, const struct lane_request *r, size_t n) {
    return lanes_queue(l, &l->idle, r, n);
}

void lanes_recall(struct lanes *l, void (*recall)(void *ud, const struct lane_request *r), void *ud) {
    pthread_mutex_lock(&l->lock);
    bool begun = true; /* the entries so far continue something that a lane has begun */
    while (!lane_ring_empty(&l->idle)) {
        const struct lane_request r = lane_ring_take(&l->idle);
        begun = begun && r.follows;
        if (begun && lane_ring_reserve(&l->demand, 1)) {
            l->demand.entry[l->demand.tail++ & (l->demand.capacity - 1)] = r;
            pthread_cond_signal(&l->work);
        } else if (begun) {
            l->idle.head--; /* no memory: it stays where it is, and so does the rest */
            break;
        } else {
            recall(ud, &r);
        }
    }
    pthread_mutex_unlock(&l->lock);
}
