/* engine_impl.h - shared by the parts of the engine. Only src/cache/engine*.c include it. */
#ifndef SLUICE_CACHE_ENGINE_IMPL_H
#define SLUICE_CACHE_ENGINE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "cache/check.h"
#include "cache/engine.h"
#include "cache/event.h"
#include "cache/io.h"

/* Counters that reader threads add to. */
struct engine_read_count {
    _Atomic uint64_t bytes; /* read */
    _Atomic uint64_t reads; /* requests ended well */
};

struct engine {
    struct sluice_settings settings; /* as created */
    engine_budget_fn budget_fn;      /* decides the budget */
    void *budget_ud;                 /* its argument */

    pthread_mutex_t lock;                           /* guards all that follows, but the atomics */
    struct expert_index index;                      /* the catalog */
    struct slots slots;                             /* the arena, once cut */
    struct io *lanes;                               /* the readers, once started */
    bool cut;                                       /* slots match the expert index */
    uint64_t budget;                                /* bytes of cache; 0: none, slots are staging */
    uint64_t evictions;                             /* so far */
    uint64_t submits, queue_sum;                    /* see sluice_stats */
    uint32_t queue_max;                             /* see engine_take_queue_max */
    uint32_t quiescing;                             /* threads that wait for all blocks to end: no new block starts */
    struct sluice_phase_stats phase[ENGINE_PHASES]; /* counters under the lock */
    struct engine_prefetcher *prefetchers;          /* of the contexts that prefetch, a list */
    struct sluice_foresee_stats prefetched;         /* counters of all of them; read_bytes is in read[] */
    struct io_request *requests;                    /* scratch of acquire, grows */
    size_t requests_cap;                            /* entries of it */

    struct event changed;                             /* a part's state or a pin changed */
    _Atomic uint32_t pins;                            /* of all slots */
    _Atomic uint32_t inflight;                        /* requests of all slots */
    _Atomic uint32_t cuts;                            /* arenas cut so far */
    struct engine_read_count read[ENGINE_PHASES + 1]; /* by phase; the last: ahead of use */

    pthread_mutex_t error_lock;     /* guards the next */
    struct sluice_error read_error; /* the last failed read */
};

/* engine.c */

/* Sleep, letting go of the lock, until something changed since `seen`. */
void engine_sleep(struct engine *e, uint32_t seen);

/* With the lock held, by a caller without pins: let those pass who wait to cut the arena; cut it if that is due. */
int engine_ready(struct engine *e, struct sluice_error *err);

/* engine_acquire.c; the lock is held */

/* Append the requests that read part p of the slot, split into chunks, to e->requests. False: no memory. */
bool engine_plan_part(struct engine *e, uint32_t slot, uint32_t p, uint32_t phase, size_t *n);

/* The most bundles of a class that a block may bring in at once. */
uint32_t engine_staging_of(const struct engine *e, const struct slot_class *c);

/* Undo a planned request that nobody begins. */
void engine_unplan(struct engine *e, const struct io_request *r);

/* engine_prefetch.c; the lock is held */

/*
 * Demand is there: take back what `own` guessed and was not begun, and forget experts of which nothing was read; of
 * other contexts' guesses take back the reads of what is wanted, so that they are demand. Either may be NULL. Once per
 * guess of `own`: who cannot be served comes here again and again.
 */
void engine_recall(struct engine *e, struct engine_prefetcher *own, const struct engine_want *want);

/* Take back all that nobody has begun. True: slots became free. */
bool engine_recall_all(struct engine *e);

/* What was prefetched into the slot is used for the first time. */
void engine_prefetch_used(struct engine *e, uint32_t slot);

/* The block that was guessed at has acquired what it wants. */
void engine_prefetch_done(struct engine *e, struct engine_prefetcher *p);

/* With nothing under way: slots are about to change, so no guess may remember any. */
void engine_prefetch_forget(struct engine *e);

#endif
