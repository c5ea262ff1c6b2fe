/* window.h - a node's experts in turns, where the cache does not hold all of them at once. */
#ifndef SLUICE_GGML_WINDOW_H
#define SLUICE_GGML_WINDOW_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "ggml/kernel.h"

enum { WINDOW_OPEN = 64 }; /* experts held at once, at most */

/*
 * Experts of a block that were in memory when it began: pinned until their turn, so that those that pass
 * through do not push them out. Let go of when nothing else is left to wait for.
 */
struct window_kept {
    uint32_t *slot; /* n entries */
    uint32_t n;     /* slots pinned */
};

/* One per executor; set up anew for each node. */
struct window {
    pthread_mutex_t lock;              /* guards the rest while the node runs */
    uint32_t group;                    /* of the experts */
    uint32_t parts;                    /* of the node, a bit mask */
    enum engine_phase phase;           /* whose counters */
    bool first;                        /* this node counts hits and misses */
    uint8_t *found;                    /* by place: enum engine_found, for the owner; NULL: not wanted */
    struct window_kept *kept;          /* the block's, of the executor */
    uint32_t most;                     /* experts that may be held at once */
    uint32_t open;                     /* experts held */
    uint8_t asked[KERNEL_PLACES];      /* by place: was acquired once */
    int32_t wanted[WINDOW_OPEN];       /* scratch: expert numbers */
    uint32_t place[WINDOW_OPEN];       /* scratch: their places */
    uint8_t found_wanted[WINDOW_OPEN]; /* scratch: found, of wanted */
    uint32_t slot[WINDOW_OPEN];        /* scratch: slots granted or to give back */
    int status;                        /* what an acquire failed with */
    struct sluice_error err;           /* the same in words */
};

void window_init(struct window *w);
void window_destroy(struct window *w);

/* Before the node runs. `want` gives group, parts, phase and first. Nothing is acquired yet. */
void window_begin(struct window *w, struct engine *e, const struct engine_want *want, struct window_kept *kept);

/* Unpin what is kept. True: there was something. */
bool window_let_go(struct window_kept *kept, struct engine *e);

/*
 * From a thread that runs the node: give back the experts that are done and acquire others. Sleeps
 * for slots only when none is held. With `must` it waits its turn, else another thread that is at it
 * is enough. True when something changed. A failure sets the job's.
 */
bool window_roll(struct window *w, struct kernel_job *j, bool must);

/* While locked nothing is given back: slots of places are theirs. */
void window_lock(struct window *w);
void window_unlock(struct window *w);

/* After the node ran: give back what a failure left open. Returns the status of the acquires; *err says why. */
int window_end(struct window *w, struct kernel_job *j, struct sluice_error *err);

#endif
