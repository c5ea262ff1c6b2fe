/* engine_impl.h - shared by the parts of the engine. Only src/cache/engine*.c include it. */
#ifndef SLUICE_CACHE_ENGINE_IMPL_H
#define SLUICE_CACHE_ENGINE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "cache/engine.h"
#include "cache/event.h"
#include "cache/io.h"

enum { ENGINE_AHEAD = 32 }; /* bundles read ahead at once, at most */

/* Counters that reader threads add to. */
struct engine_read_count {
    _Atomic uint64_t bytes; /* read */
    _Atomic uint64_t reads; /* requests ended well */
};

/* What was read ahead, and whether that pays. Under the lock. */
struct engine_foresight {
    uint32_t group;                 /* whose next block is foreseen; UINT32_MAX: none */
    uint32_t slot[ENGINE_AHEAD];    /* placed for it */
    uint32_t n;                     /* entries */
    bool recalled;                  /* demand came: those that were not begun are taken back, the others counted */
    bool wide;                      /* guessed from a batch of many tokens */
    float begun;                    /* bundles whose reading began, of those placed: a running mean */
    float useful;                   /* of those begun, how many were used: a running mean, 0..1 */
    uint32_t pause;                 /* blocks to come without foresight */
    uint32_t missed;                /* blocks since one of generation missed something, saturating */
    struct sluice_foresee_stats st; /* counters */
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
    struct io_request *requests;                    /* scratch of acquire, grows */
    size_t requests_cap;                            /* entries of it */

    struct event changed;                             /* a part's state or a pin changed */
    _Atomic uint32_t pins;                            /* of all slots */
    _Atomic uint32_t inflight;                        /* requests of all slots */
    _Atomic uint32_t cuts;                            /* arenas cut so far */
    struct engine_read_count read[ENGINE_PHASES + 1]; /* by phase; the last: ahead of use */
    struct engine_foresight foresight;                /* reading ahead of use */

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

/* Undo the planned requests [0, n): they were not submitted. */
void engine_unplan(struct engine *e, size_t n);

/* engine_ahead.c; the lock is held */

/* Demand is there: take back what was foreseen and not begun, and forget bundles of which nothing was read. */
void engine_recall(struct engine *e);

/* The foreseen block has acquired what it wants. */
void engine_foreseen_done(struct engine *e);

/* With nothing under way: slots are about to change, so nothing of them may be remembered. */
void engine_forget_foreseen(struct engine *e);

#endif
