/*
 * engine.h - the stream engine: expert weights in, on demand, within a budget.
 *
 * One engine serves all models and contexts of a process. A caller that is about to compute an MoE
 * block names the experts it needs, gets them pinned, waits for the parts in the order in which it
 * wants to compute, and releases them. Every function is safe from any thread.
 */
#ifndef SLUICE_CACHE_ENGINE_H
#define SLUICE_CACHE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sluice.h"
#include "cache/expert_index.h"
#include "cache/slots.h"

struct engine;

/*
 * Decides the cache budget when the arena is cut: *budget in bytes, 0 for no cache, from the
 * settings, the expert index's demand and what the machine has left. `held` is slot memory that there is and
 * that would be given back. SLUICE_ERR_BUDGET with the numbers in *err refuses. Must not call the
 * engine.
 */
typedef int (*engine_budget_fn)(void *ud, const struct expert_index *b, uint64_t held, uint64_t *budget,
                                struct sluice_error *err);

enum engine_phase { ENGINE_PROMPT, ENGINE_GENERATION, ENGINE_PHASES };

/* A new engine without tensors; I/O threads and arena start with the first acquire. NULL with *err set: no memory. */
struct engine *engine_create(const struct sluice_settings *s, engine_budget_fn budget, void *ud,
                             struct sluice_error *err);

/* Free everything. No caller may be inside and all tensors must be removed. */
void engine_destroy(struct engine *e);

/*
 * index_add_file, index_drop_file and index_add_tensor, locked. The arena is cut anew before the next use; until then
 * it keeps what is cached, but gives back at once what is beyond the budget, which is asked for at each tensor.
 */
int engine_add_file(struct engine *e, int fd, const char *path, uint32_t *file, struct sluice_error *err);
void engine_drop_file(struct engine *e, uint32_t file);
int engine_add_tensor(struct engine *e, uint32_t file, uint64_t owner, const char *name, uint64_t offset,
                      uint64_t slice, uint32_t n_expert, uint32_t top_k, uint32_t *tensor, struct sluice_error *err);

/* The file behind an index of engine_add_file. Stays until that reference is dropped. */
const struct stream_file *engine_file(struct engine *e, uint32_t file);

/*
 * Remove tensors that nobody will ask for again (their model is being freed). Waits for reads into
 * their bundles, which are forgotten; others' stay. With the last tensor the arena and the lanes end too.
 */
void engine_remove_tensors(struct engine *e, const uint32_t *tensor, size_t n);

/*
 * Ask the budget function whether this index can be served, without allocating. An arena that is cut serves it; one
 * that is to be cut anew gives back what is beyond the budget.
 */
int engine_check(struct engine *e, struct sluice_error *err);

/* The slot memory that a budget would become: at least that of a block, whatever it is. SLUICE_ERR_MEMORY. */
int engine_measure(struct engine *e, uint64_t budget, uint64_t *bytes, struct sluice_error *err);

/*
 * Ask the budget function again and make the arena as large as it says, between blocks: waits until
 * no block runs and no read is under way. What is cached stays, as far as it fits. On failure all is
 * as it was. Without an arena yet, nothing happens: it will be cut by the budget function anyway.
 * The caller holds no pins.
 */
int engine_resize(struct engine *e, struct sluice_error *err);

/* What a caller must know of a tensor. */
struct engine_tensor_info {
    uint32_t group;    /* its group */
    uint32_t part;     /* its part in the group's bundles */
    uint32_t n_expert; /* experts */
};
struct engine_tensor_info engine_tensor(struct engine *e, uint32_t tensor);

/* Weight bytes of one bundle of a group. */
uint64_t engine_bundle_bytes(struct engine *e, uint32_t group);

/* How an expert was found by the first acquire of a block. */
enum engine_found {
    ENGINE_FOUND_NOT,  /* it, or a part of it, had to be read */
    ENGINE_FOUND,      /* in memory, or on its way */
    ENGINE_PREFETCHED, /* the same, because it was read ahead of this, its first use */
    ENGINE_LEFT,       /* left out, and it would have had to be read */
    ENGINE_LEFT_THERE  /* left out, although it is in memory or on its way */
};

/* May an expert be left out? */
enum engine_leave {
    ENGINE_TAKE,        /* no */
    ENGINE_LEAVE_COLD,  /* if it, or a part of it, would have to be read: neither in memory nor on its way */
    ENGINE_LEAVE_ALWAYS /* wherever it is */
};

enum { ENGINE_GUESS_MAX = 32 }; /* experts that a guess reads ahead at once, at most */

/* An expert that was not in memory and got a slot, because a context's next block will probably use it. */
struct engine_guess {
    uint32_t slot;   /* placed for it */
    uint32_t expert; /* of the guess's group */
    bool begun;      /* its reading began before the demand, and that is counted */
    bool used;       /* demand came for it */
};

/*
 * A context's prefetching: its guess at its next block, and whether guesses pay. The memory is the context's, the
 * fields are the engine's, under its lock. From engine_prefetcher_begin to engine_prefetcher_end.
 */
struct engine_prefetcher {
    uint32_t group;                              /* whose next block is guessed at; UINT32_MAX: none */
    struct engine_guess guess[ENGINE_GUESS_MAX]; /* what is read for it */
    uint32_t n;                                  /* entries */
    bool recalled;   /* the context's demand came: those that were not begun are taken back, the others counted */
    bool wide;       /* guessed from a batch of many tokens */
    float begun;     /* experts whose reading began, of those placed: a running mean */
    float useful;    /* of those begun, how many were used: a running mean, 0..1 */
    uint32_t pause;  /* blocks to come without prefetch */
    uint32_t missed; /* acquires since one missed something, saturating */
    struct engine_prefetcher *next; /* the engine's list */
};

/* What to acquire. */
struct engine_want {
    struct engine_prefetcher *prefetcher; /* whose demand it is; NULL: nobody's who prefetches */
    uint32_t group;                       /* of the experts */
    uint32_t parts;                       /* bit mask of the parts that will be computed */
    const int32_t *expert;                /* n distinct expert numbers, each below the group's count */
    uint32_t n;                           /* how many */
    enum engine_phase phase;              /* whose counters */
    bool first;                           /* count hits and misses: the first acquire of this block */
    bool all;        /* all n or nothing; nothing too when more than engine_staging are not in memory */
    bool wait;       /* sleep until at least one (with all: all) can be had; only while holding nothing */
    double *slept_s; /* seconds of such sleep are added here; NULL: nobody wants to know */
    uint8_t *found;  /* with first: enum engine_found of each granted expert; NULL: nobody wants to know */
    const uint8_t
        *leave; /* enum engine_leave of each expert; NULL: all are taken. Needs found, and takes at least one */
};

/*
 * Pin bundles and start reading their missing parts: all missing first parts, then all second
 * parts, and so on, which is the order in which a block consumes them. slot[i] is the slot of
 * expert[i], or UINT32_MAX where no slot could be had now. Returns the number granted in *granted;
 * 0 is possible without `wait`. A failure grants nothing: SLUICE_ERR_BUDGET, SLUICE_ERR_MEMORY.
 * With `all`, SLUICE_ERR_BUDGET also tells that they cannot all be held at once, or should not.
 *
 * With `leave`, which experts are left out is decided in the same step as the others are pinned, so nothing
 * can come or go between the two. They get no slot, are not counted as asked for, and nothing is read; found
 * says which they are, with SLUICE_ERR_BUDGET as well: then the others are to be acquired in turns. Where there is
 * no cache, ENGINE_LEAVE_COLD is ENGINE_TAKE.
 */
int engine_acquire(struct engine *e, const struct engine_want *w, uint32_t *slot, uint32_t *granted,
                   struct sluice_error *err);

/* The state of a part of a pinned slot; PART_READY makes its bytes visible to the caller. */
enum part_state engine_part_state(struct engine *e, uint32_t slot, uint32_t part);

/* The weights of a ready part: slice bytes of memory, valid until the slot is released. */
const void *engine_part_data(struct engine *e, uint32_t slot, uint32_t part);

/* For sleeping: read the count, look at the states, then wait for a change since. */
uint32_t engine_seen(struct engine *e);
void engine_wait(struct engine *e, uint32_t seen);

/* Wake those who sleep in engine_wait: something that they look at, and the engine does not know of, changed. */
void engine_wake(struct engine *e);

/* A context that will prefetch begins, ends. It ends before the tensors of its model are removed. */
void engine_prefetcher_begin(struct engine *e, struct engine_prefetcher *p);
void engine_prefetcher_end(struct engine *e, struct engine_prefetcher *p);

/*
 * Experts of `group` that the context's next block will probably use, likeliest first: those that are not in
 * memory are read while the I/O threads have nothing better to do, a few at a time, as long as that turns
 * out useful. Nothing is pinned, and nobody waits for it; what was not begun when the context's next demand
 * arrives is forgotten. Does nothing where it cannot help (no cache, nothing missed lately). `wide`: so many tokens
 * were asked that it is as good as certain, and there is time: as many as possible.
 */
void engine_prefetch(struct engine *e, struct engine_prefetcher *p, uint32_t group, const int32_t *expert, uint32_t n,
                     bool wide);

/* Would engine_prefetch do anything now? For callers whose guess costs time; they ask once per block. */
bool engine_prefetches(struct engine *e, struct engine_prefetcher *p);

/* Unpin slots. With no cache, bundles that nobody pins are forgotten. */
void engine_release(struct engine *e, const uint32_t *slot, uint32_t n);

/* The most bundles of a group that can be pinned at once. 0 before the first acquire. */
uint32_t engine_capacity(struct engine *e, uint32_t group);

/* Where the tokens of a block go. */
struct engine_routing {
    uint32_t tokens;       /* tokens of the block */
    uint32_t top_k;        /* experts of each */
    uint32_t n;            /* distinct experts */
    const int32_t *expert; /* n: their numbers, each below the group's count */
    const int32_t *first;  /* n + 1: where an expert's uses begin in list */
    const int32_t *list;   /* tokens * top_k: uses by expert, each token * top_k + rank, ascending within one */
    bool begins;           /* a batch begins with this block: its tokens are counted */
};

/*
 * A block begins: tokens were routed to experts of `group`. Once per block, before its first
 * acquire: the policies' clock, and the counters. Cuts the arena if that is due; fails like
 * engine_acquire. The caller holds no pins.
 */
int engine_begin_block(struct engine *e, uint32_t group, enum engine_phase phase, const struct engine_routing *r,
                       struct sluice_error *err);

/* Account what lossy settings left out in a block of `group`. avoided_bytes is filled in from the experts. */
void engine_count_drops(struct engine *e, enum engine_phase phase, uint32_t group, const struct sluice_drop_stats *d);
/*
 * Pin those of the block's experts that are in memory, so that what passes through the cache (see
 * engine_staging) does not push them out before their turn. Some are left out where slots would get scarce.
 * slot[] gets *n entries at most; give them to engine_release. Returns how many.
 */
uint32_t engine_hold(struct engine *e, uint32_t group, const struct engine_routing *r, uint32_t *slot);

/*
 * The most bundles of a group that a block may bring in at once, at least 2: what a long prompt needs for a
 * moment only must not push out what decoding will want. 0 before the first acquire.
 */
uint32_t engine_staging(struct engine *e, uint32_t group);

/* Account seconds: waiting for reads with nothing to compute, and computing. */
void engine_count_time(struct engine *e, enum engine_phase phase, double stall_s, double compute_s);

/* The most read requests that were outstanding when some were queued, since the last call. */
uint32_t engine_take_queue_max(struct engine *e);

/*
 * Why the last read that failed did so; SLUICE_OK when none ever did. For callers that saw
 * PART_FAILED: contexts that wait for the same part all get the reason.
 */
void engine_read_error(struct engine *e, struct sluice_error *out);

/* Counters so far. */
void engine_stats(struct engine *e, struct sluice_stats *out);

/* One group of expert tensors: how many of its bundles have a slot. */
struct engine_layer {
    uint32_t resident; /* bundles in memory or on their way */
    uint32_t experts;  /* bundles that there are */
};

/* The groups in the order of registration, which is the model's. Returns how many were filled in, at most cap. */
uint32_t engine_layers(struct engine *e, struct engine_layer *out, uint32_t cap);

/* Where a bundle is. */
enum engine_place {
    ENGINE_COLD,     /* not in memory */
    ENGINE_READING,  /* some of it is being read, or is there without the rest */
    ENGINE_RESIDENT, /* in memory */
    ENGINE_IN_USE    /* in memory, and pinned */
};

/*
 * The bundles of the i-th group that there is, by expert: enum engine_place, and how many tokens were routed to each
 * since its model was first used (0 before). At most cap of them; their number comes back in *n, and in *top_k the
 * group's. False: there are not so many groups. The lock is held for one group's time.
 */
bool engine_bundles(struct engine *e, uint32_t i, uint8_t *place, uint32_t *uses, uint32_t cap, uint32_t *n,
                    uint32_t *top_k);

/* Change settings.lookahead, from the next block on. */
void engine_set_lookahead(struct engine *e, bool on);

/* What a route trace must know of a group. */
struct engine_group {
    char prefix[INDEX_NAME_MAX]; /* of its tensors' names */
    uint32_t group;              /* its id */
    uint32_t n_expert;           /* experts */
    uint32_t top_k;              /* experts that a token uses */
    uint64_t weight_bytes;       /* weights of one expert */
    uint64_t slot_bytes;         /* memory that one takes in the arena */
};

/* What a route trace must know of the arena. */
struct engine_arena {
    uint64_t budget;   /* bytes of cache; 0: none */
    uint64_t align;    /* slots are multiples of this, bytes */
    uint32_t n_groups; /* groups that the policies go round, unused numbers included */
    uint32_t cuts;     /* how often an arena was cut anew: another number, another arena */
};

/* The groups, by id. Returns how many were filled in, at most cap. */
uint32_t engine_groups(struct engine *e, struct engine_group *out, uint32_t cap, struct engine_arena *arena);

/* engine_arena.cuts, without the lock. */
uint32_t engine_cuts(struct engine *e);

/* The path of the i-th file that has expert tensors, cut to fit. False, and "": there are not so many. */
bool engine_file_at(struct engine *e, uint32_t i, char *buf, size_t cap);

/* Why some file is read buffered, e.g. for the mode line; "" when all are direct. */
void engine_buffered_reason(struct engine *e, char *buf, size_t cap);

/* The budget in force: bytes of cache, 0 for none. Valid once the arena is cut (see cut). */
uint64_t engine_budget(struct engine *e, bool *cut);

#endif
