/* lanes_impl.h - shared by the kinds of lanes: their vtable and their queue. Only src/stream/lanes*.c include it. */
#ifndef SLUICE_STREAM_LANES_IMPL_H
#define SLUICE_STREAM_LANES_IMPL_H

#include <pthread.h>
#include <stdbool.h>

#include "stream/lanes.h"

struct lanes_ops {
    enum sluice_io kind;              /* which one it is */
    void (*destroy)(struct lanes *l); /* lanes_destroy */
    /* lanes_submit, and with idle lanes_submit_idle */
    int (*submit)(struct lanes *l, const struct lane_request *r, size_t n, bool idle);
    void (*recall)(struct lanes *l, void (*recalled)(void *ud, const struct lane_request *r), void *ud);
};

/* The beginning of each kind's own struct. */
struct lanes {
    const struct lanes_ops *ops; /* what it is */
    lane_done_fn done;           /* completion callback */
    void *ud;                    /* its argument */
};

/* First in, first out; grows. */
struct lane_ring {
    struct lane_request *entry; /* capacity entries, a power of two */
    size_t capacity;            /* entries */
    size_t head;                /* requests taken so far */
    size_t tail;                /* requests queued so far; tail - head wait */
};

/* Requests that wait. Whoever owns it locks. */
struct lane_queue {
    struct lane_ring demand; /* somebody waits for these */
    struct lane_ring idle;   /* taken when there is no demand */
    uint32_t n_idle;         /* of those taken from idle, how many have not ended */
    uint32_t idle_limit;     /* at most so many */
};

/* For lanes that keep n in flight. False: no memory. */
bool lane_queue_init(struct lane_queue *q, uint32_t n);
void lane_queue_free(struct lane_queue *q);

/* Append n requests. False: no memory, none was appended. */
bool lane_queue_push(struct lane_queue *q, const struct lane_request *r, size_t n, bool idle);

/* Take the oldest demand, else, if the limit allows, the oldest idle one (*idle tells). False: none may be taken. */
bool lane_queue_pop(struct lane_queue *q, struct lane_request *r, bool *idle);

/* One that was taken as idle has ended. */
void lane_queue_ended(struct lane_queue *q);

/* Does nothing wait? */
bool lane_queue_empty(const struct lane_queue *q);

/* lanes_recall on the queue. True: some joined the demand. */
bool lane_queue_recall(struct lane_queue *q, void (*recalled)(void *ud, const struct lane_request *r), void *ud);

/*
 * Start a thread that takes no signals: the host program's are for its own threads, and their
 * handlers must not run on ours. Returns pthread_create's code.
 */
int lane_thread_start(pthread_t *t, void *(*main)(void *), void *arg);

/* lanes_pread.c */
struct lanes *lanes_pread_create(uint32_t n, lane_done_fn done, void *ud, struct sluice_error *err);

/*
 * lanes_uring.c, or lanes_no_uring.c in builds without liburing. SLUICE_ERR_ARG in *err: the kernel does not allow it,
 * other lanes would work.
 */
struct lanes *lanes_uring_create(uint32_t n, lane_done_fn done, void *ud, struct sluice_error *err);
int lanes_uring_check(struct sluice_error *err);

#endif
