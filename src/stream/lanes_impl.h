/* lanes_impl.h - shared by the kinds of lanes: their vtable and their queue. Only src/stream/lanes*.c include it. */
#ifndef SLUICE_STREAM_LANES_IMPL_H
#define SLUICE_STREAM_LANES_IMPL_H

#include <pthread.h>
#include <stdbool.h>

#include "stream/lanes.h"

struct lanes_ops {
    enum sluice_io kind;                                                    /* which one it is */
    void (*destroy)(struct lanes *l);                                       /* lanes_destroy */
    int (*submit)(struct lanes *l, const struct lane_request *r, size_t n); /* lanes_submit */
};

/* The beginning of each kind's own struct. */
struct lanes {
    const struct lanes_ops *ops; /* what it is */
    lane_done_fn done;           /* completion callback */
    void *ud;                    /* its argument */
};

/* Requests that wait, a growing ring. Whoever owns it locks. */
struct lane_queue {
    struct lane_request *ring; /* capacity entries, a power of two */
    size_t capacity;           /* entries */
    size_t head;               /* requests taken so far */
    size_t tail;               /* requests queued so far; tail - head wait */
};

/* False: no memory. */
bool lane_queue_init(struct lane_queue *q);
void lane_queue_free(struct lane_queue *q);

/* Append n requests. False: no memory, none was appended. */
bool lane_queue_push(struct lane_queue *q, const struct lane_request *r, size_t n);

/* Take the oldest. False: none waits. */
bool lane_queue_pop(struct lane_queue *q, struct lane_request *r);

/*
 * Start a thread that takes no signals: the host program's are for its own threads, and their
 * handlers must not run on ours. Returns pthread_create's code.
 */
int lane_thread_start(pthread_t *t, void *(*main)(void *), void *arg);

/* lanes_pread.c */
struct lanes *lanes_pread_create(uint32_t n, lane_done_fn done, void *ud, struct sluice_error *err);

/* lanes_uring.c. SLUICE_ERR_ARG in *err: the kernel does not allow it, other lanes would work. */
struct lanes *lanes_uring_create(uint32_t n, lane_done_fn done, void *ud, struct sluice_error *err);
int lanes_uring_check(struct sluice_error *err);

#endif
