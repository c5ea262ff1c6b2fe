/*
 * hold.h - the experts of a block's routing, pinned in one engine: all at once, or in turns.
 *
 * One per executor and engine. From hold_begin on it belongs to one block; experts are named by their place in the
 * routing (route.h). A thread that has pinned something never waits for more, see hold.c.
 */
#ifndef SLUICE_GGML_HOLD_H
#define SLUICE_GGML_HOLD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ggml/route.h"
#include "cache/engine.h"

enum { HOLD_MOST = 64 }; /* experts that are pinned at once while they pass in turns, at most */

/* How far an expert has come with the node that is being computed. */
enum hold_stage {
    HOLD_WAITING, /* not acquired yet */
    HOLD_OPEN,    /* acquired */
    HOLD_DONE     /* computed: its slot may be given back, unless all are held */
};

/* One expert of the routing. */
struct hold_expert {
    _Atomic uint32_t slot; /* pinned; UINT32_MAX: none */
    _Atomic uint8_t stage; /* enum hold_stage */
};

struct hold {
    struct engine *engine;                /* of the experts; NULL: there are none */
    struct engine_prefetcher *prefetcher; /* of the context whose demand this is; NULL: nothing is prefetched */
    pthread_mutex_t lock;                 /* guards `open`, the scratch and slots while experts pass in turns */

    /* The block. */
    const struct route *route;  /* its experts; the owner's */
    uint32_t group;             /* of the experts */
    enum engine_phase phase;    /* whose counters */
    bool counted;               /* its hits and misses are counted: some node was computed, or all is held */
    bool all;                   /* all experts are pinned, until hold_release */
    struct hold_expert *expert; /* by place */
    uint8_t *found;             /* by place: enum engine_found, from the first acquire of the expert */
    uint32_t *granted;          /* scratch, by place: slots */
    uint32_t *kept;             /* slots of experts that were in memory: pinned until their turn */
    uint32_t n_kept;            /* entries */
    uint32_t cap;               /* entries allocated of the four */

    /* The node whose experts pass in turns. */
    uint32_t parts;                  /* that it computes, a bit mask */
    double *slept_s;                 /* seconds of sleep for slots are added here; NULL: somebody else counts them */
    uint32_t most;                   /* experts that may be pinned at once */
    uint32_t open;                   /* experts that are */
    int32_t wanted[HOLD_MOST];       /* scratch: expert numbers */
    uint32_t place[HOLD_MOST];       /* scratch: their places */
    uint8_t found_wanted[HOLD_MOST]; /* scratch: what was found of them */
    uint32_t slot[HOLD_MOST];        /* scratch: slots granted, or to give back */
    _Atomic int status;              /* what an acquire failed with */
    struct sluice_error err;         /* the same in words */
};

void hold_init(struct hold *h, struct engine *e, struct engine_prefetcher *p);
void hold_free(struct hold *h);

/* A block begins, and maybe a batch with it, with these experts of `group`. Nothing is pinned. Fails like
 * engine_begin_block. */
int hold_begin(struct hold *h, const struct route *route, uint32_t group, enum engine_phase phase, bool begins,
               struct sluice_error *err);

/*
 * Pin all experts and have these parts of them read. h->all says whether they could be held at once; that they cannot
 * is no failure. `leave`: which may be left out (engine_want); NULL: none. Sleeps for slots, if nothing is pinned.
 */
int hold_all(struct hold *h, uint32_t parts, const uint8_t *leave, double *slept_s, struct sluice_error *err);

/* The routing was renumbered by route_set_aside: do likewise. aside[] is by place, as they were. */
void hold_set_aside(struct hold *h, const uint8_t *aside);

/* The experts will pass in turns: pin those that are in memory until their turn. */
void hold_keep(struct hold *h);

/* A node begins that computes these parts of all experts. */
void hold_node(struct hold *h, uint32_t parts, double *slept_s);

/*
 * Where experts pass in turns: give back what is computed of that node, and acquire others. From any thread that
 * computes it; sleeps for slots only when nothing is pinned. With `must` it waits for its turn at the lock, else
 * another thread that is at it is enough. True when something changed. Afterwards something is pinned that is not done,
 * unless there is no more or hold_failed.
 */
bool hold_roll(struct hold *h, bool must);

/* The node was computed, or has failed: give back what passed and is still pinned. Returns h->status; *err says why. */
int hold_node_end(struct hold *h, struct sluice_error *err);

/* The block is over, or begins anew: unpin everything. */
void hold_release(struct hold *h);

/* The slot of a place, UINT32_MAX: none. */
static inline uint32_t hold_slot(const struct hold *h, uint32_t place) {
    return atomic_load_explicit(&h->expert[place].slot, memory_order_acquire);
}

static inline enum hold_stage hold_stage(const struct hold *h, uint32_t place) {
    return atomic_load_explicit(&h->expert[place].stage, memory_order_acquire);
}

/* Could experts that were to pass not be acquired? */
static inline bool hold_failed(const struct hold *h) {
    return atomic_load_explicit(&h->status, memory_order_relaxed) != SLUICE_OK;
}

/* Nothing reads the slot of a place any more, for the node that is being computed. */
static inline void hold_done(struct hold *h, uint32_t place) {
    atomic_store_explicit(&h->expert[place].stage, HOLD_DONE, memory_order_release);
}

#endif
