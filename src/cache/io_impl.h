/* io_impl.h - shared by the kinds of lanes: their vtable and their queue. Only src/cache/io*.c include it. */
#ifndef SLUICE_CACHE_IO_IMPL_H
#define SLUICE_CACHE_IO_IMPL_H

#include <pthread.h>
#include <stdbool.h>

#include "cache/io.h"

struct io_ops {
    enum sluice_io kind;           /* which one it is */
    void (*destroy)(struct io *l); /* io_destroy */
    /* io_submit, and with idle io_submit_idle */
    int (*submit)(struct io *l, const struct io_request *r, size_t n, bool idle);
    void (*recall)(struct io *l, void (*recalled)(void *ud, const struct io_request *r), void *ud);
};

/* The beginning of each kind's own struct. */
struct io {
    const struct io_ops *ops; /* what it is */
    io_done_fn done;          /* completion callback */
    void *ud;                 /* its argument */
};

/* First in, first out; grows. */
struct io_ring {
    struct io_request *entry; /* capacity entries, a power of two */
    size_t capacity;          /* entries */
    size_t head;              /* requests taken so far */
    size_t tail;              /* requests queued so far; tail - head wait */
};

/* Requests that wait. Whoever owns it locks. */
struct io_queue {
    struct io_ring demand; /* somebody waits for these */
    struct io_ring idle;   /* taken when there is no demand */
    uint32_t n_idle;       /* of those taken from idle, how many have not ended */
    uint32_t idle_limit;   /* at most so many */
};

/* For lanes that keep n in flight. False: no memory. */
bool io_queue_init(struct io_queue *q, uint32_t n);
void io_queue_free(struct io_queue *q);

/* Append n requests. False: no memory, none was appended. */
bool io_queue_push(struct io_queue *q, const struct io_request *r, size_t n, bool idle);

/* Take the oldest demand, else, if the limit allows, the oldest idle one (*idle tells). False: none may be taken. */
bool io_queue_pop(struct io_queue *q, struct io_request *r, bool *idle);

/* One that was taken as idle has ended. */
void io_queue_ended(struct io_queue *q);

/* Does nothing wait? */
bool io_queue_empty(const struct io_queue *q);

/* io_recall on the queue. True: some joined the demand. */
bool io_queue_recall(struct io_queue *q, void (*recalled)(void *ud, const struct io_request *r), void *ud);

/*
 * Start a thread that takes no signals: the host program's are for its own threads, and their
 * handlers must not run on ours. Returns pthread_create's code.
 */
int io_thread_start(pthread_t *t, void *(*main)(void *), void *arg);

/* io_pread.c */
struct io *io_pread_create(uint32_t n, io_done_fn done, void *ud, struct sluice_error *err);

/*
 * io_uring.c, or io_no_uring.c in builds without liburing. SLUICE_ERR_ARG in *err: the kernel does not allow it,
 * other lanes would work.
 */
struct io *io_uring_create(uint32_t n, io_done_fn done, void *ud, struct sluice_error *err);
int io_uring_check(struct sluice_error *err);

#endif
