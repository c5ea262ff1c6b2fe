/* foresee.h - guessing which experts the next block will use. */
#ifndef SLUICE_BACKEND_FORESEE_H
#define SLUICE_BACKEND_FORESEE_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/kernel.h"
#include "ggml.h"
#include "stream/engine.h"

enum { FORESEE_ROWS = 8 }; /* tokens of a batch at most, to guess for it */

/* What is known of a group's router. Tensors are the model's, which outlives its contexts. */
struct foresee_router {
    const struct ggml_tensor *weight; /* [n_embd, n_expert]; NULL: not known */
    const struct ggml_tensor *norm;   /* what the router's input was multiplied with, [n_embd]; NULL: nothing */
    bool looked;                      /* the graph was searched for it */
    uint32_t next;                    /* the group whose block follows; UINT32_MAX: not known */
};

/* One per executor. */
struct foresee {
    kernel_traits_fn traits;       /* of the loaded CPU backend; NULL: no guessing */
    struct foresee_router *router; /* by group */
    uint32_t n_groups;             /* entries */
    uint32_t last;                 /* the group of the block before; UINT32_MAX: none */
    void *scratch;                 /* input, converted input, logits, scores and picks */
    size_t scratch_bytes;          /* of it */
};

void foresee_init(struct foresee *f, kernel_traits_fn traits);
void foresee_free(struct foresee *f);

/*
 * A block begins, whose first expert matmul is `node`, of `group` with n_expert experts. Learns the
 * router behind its ids.
 */
void foresee_learn(struct foresee *f, const struct ggml_tensor *node, uint32_t group, uint32_t n_expert);

/*
 * The block of a token, or of at most FORESEE_ROWS, has its demand under way: guess the next block's experts by its
 * router on this block's input, and have them read when the lanes are idle: top_k of the token; of several the
 * likeliest, half as many as the n_distinct experts that this block's tokens use.
 */
void foresee_next(struct foresee *f, struct engine *e, const struct ggml_tensor *node, uint32_t group, int64_t top_k,
                  uint32_t n_distinct);

#endif
