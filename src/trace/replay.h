/* replay.h - what a cache would have done with a trace. */
#ifndef SLUICE_TRACE_REPLAY_H
#define SLUICE_TRACE_REPLAY_H

#include "trace/trace.h"

enum replay_policy {
    REPLAY_LRU,    /* the engine's */
    REPLAY_CYCLE,  /* the engine's */
    REPLAY_LFU,    /* offline: least often used */
    REPLAY_BELADY, /* offline: used latest from now on; the bound */
    REPLAY_POLICIES
};

/* "lru", "cycle", "lfu", "belady" */
const char *replay_policy_name(enum replay_policy p);

/* How the budget is divided. */
enum replay_division {
    REPLAY_AS_RECORDED, /* classes where the trace says how large slots are, else one pool */
    REPLAY_CLASSES,     /* slots in size classes, as the engine does */
    REPLAY_POOL,        /* one pool of bytes, nothing is rounded */
};

struct replay_options {
    enum replay_policy policy;     /* who is evicted */
    enum replay_division division; /* slots or bytes */
    uint64_t budget;               /* of the cache, bytes; 0: none */
    uint32_t n_expert_used;        /* only so many experts per token; 0: all */
    double drop;                   /* leave out misses of generation below this, times 1 / top-k; 0: none */
    bool what_if;                  /* only count what the two before would leave out; leave out nothing */
};

/* Counters of one phase. As the engine's: an expert that several tokens of a batch share counts once. */
struct replay_counts {
    uint64_t blocks;     /* layers of batches */
    uint64_t steps;      /* tokens */
    uint64_t routed;     /* distinct experts asked for, summed over blocks */
    uint64_t hits;       /* of those, in memory */
    uint64_t misses;     /* of those, read */
    uint64_t hit_bytes;  /* weight bytes of the hits */
    uint64_t miss_bytes; /* weight bytes of the misses */
    uint64_t examined;   /* routed experts of tokens that `drop` looked at */
    uint64_t lost;       /* rows left out by n_expert_used or drop (with what_if: that would be) */
    uint64_t lost_reads; /* of those, how many would have been read, in this replay's cache */
    uint64_t lost_bytes; /* and their bytes */
    double weight;       /* router weights of all rows, added up; rows without one count nothing */
    double lost_weight;  /* of those left out */
};

struct replay_result {
    struct replay_counts phase[TRACE_PHASES]; /* prompt and generation */
    uint64_t cache_bytes;                     /* slot memory, or the pool */
    uint64_t slots;                           /* experts that fit; of a pool, experts of the mean size */
    uint64_t evictions;                       /* so far */
    bool classes;                             /* how it was divided */
};

/*
 * Replay the whole trace through an empty cache. SLUICE_ERR_MEMORY; SLUICE_ERR_ARG: options that mean
 * nothing together.
 */
int replay_run(const struct trace *t, const struct replay_options *o, struct replay_result *r,
               struct sluice_error *err);

/* What is in a trace, whatever the cache. */
struct replay_facts {
    uint64_t bank_bytes;                      /* weights of all experts */
    uint64_t token_bytes;                     /* one token's demand: the most experts of any token, in every layer */
    uint64_t token_slot_bytes;                /* the memory that those take in slots; without slot sizes token_bytes */
    uint32_t turns;                           /* conversations' turns */
    bool weights;                             /* it has router weights */
    struct replay_counts phase[TRACE_PHASES]; /* as recorded: where the experts were; lost: rows marked dropped */
};

/* Look through it. SLUICE_ERR_MEMORY. */
int replay_facts(const struct trace *t, struct replay_facts *f, struct sluice_error *err);

#endif
