/* prefetch.h - guessing which experts the next block will use, and having them read. */
#ifndef SLUICE_GGML_PREFETCH_H
#define SLUICE_GGML_PREFETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "ggml/kernel.h"
#include "ggml.h"
#include "cache/engine.h"

enum {
    PREFETCH_ROWS = 8,  /* tokens of a batch at most, that all are asked */
    PREFETCH_SAMPLE = 4 /* tokens that are asked in longer ones */
};

/* What is known of a group's router. Tensors are the model's, which outlives its contexts. */
struct prefetch_router {
    const struct ggml_tensor *weight; /* [n_embd, n_expert]; NULL: not known */
    const struct ggml_tensor *norm;   /* what the router's input was multiplied with, [n_embd]; NULL: nothing */
    bool looked;                      /* the graph was searched for it */
};

/* One per executor. */
struct prefetch {
    struct engine *engine;          /* reads the experts */
    struct engine_prefetcher of;    /* what it knows of this context */
    kernel_traits_fn traits;        /* of the loaded CPU backend; NULL: no guessing */
    struct prefetch_router *router; /* by group */
    uint32_t n_groups;              /* entries */
    void *scratch;                  /* input, converted input, logits, scores and picks */
    size_t scratch_bytes;           /* of it */
    const int32_t *pick;            /* in scratch: what was guessed, likeliest first */
    uint32_t n_picks;               /* entries; 0: no guess */
    uint32_t picks_of;              /* the group that it was guessed for */
    bool wide;                      /* from more than PREFETCH_ROWS tokens */
};

/* *f stays where it is until prefetch_free: the engine knows it. */
void prefetch_init(struct prefetch *f, struct engine *engine, kernel_traits_fn traits);
void prefetch_free(struct prefetch *f);

/*
 * A block begins, whose first expert matmul is `node`, of `group` with n_expert experts. Learns the
 * router behind its ids.
 */
void prefetch_learn(struct prefetch *f, const struct ggml_tensor *node, uint32_t group, uint32_t n_expert);

/*
 * Guess the experts of the block of `next` (batch_next) by its router on the input of this block, of `group`, whose
 * first matmul is `node`, as long as that input is there: top_k of one token; of several the likeliest, half as many as
 * the n_distinct experts that this block's tokens use. Nothing is guessed where it would not be read
 * (engine_prefetches).
 */
void prefetch_guess(struct prefetch *f, const struct ggml_tensor *node, uint32_t group, uint32_t next, int64_t top_k,
                    uint32_t n_distinct);

/* The block's own demand is under way, or served: have what was guessed read when the disk is idle. Once per guess.
 */
void prefetch_read(struct prefetch *f);

#endif
