/* weights.h - the router's final weights and scores, found in the graph. */
#ifndef SLUICE_GGML_WEIGHTS_H
#define SLUICE_GGML_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "ggml/kernel.h"
#include "ggml.h"

/*
 * The node that multiplies the outputs of the block that node i of the split begins with the final router
 * weights. Those are its src[1]: F32 [1, K, T], computed before the split, by token and rank. NULL: the
 * outputs are not multiplied with such a tensor in this split (llama4 weights the input; somebody else computes the
 * multiplication).
 */
struct ggml_tensor *weights_weighting(struct ggml_cgraph *g, int i, const struct ggml_tensor *ids);

/* Those weights, or NULL. */
static inline const struct ggml_tensor *weights_find(struct ggml_cgraph *g, int i, const struct ggml_tensor *ids) {
    const struct ggml_tensor *node = weights_weighting(g, i, ids);
    return node ? node->src[1] : NULL;
}

/* The weight of a token's rank, whose tensor must be computed by now. */
static inline float weights_at(const struct ggml_tensor *w, int64_t token, int64_t rank) {
    return *(const float *)((const char *)w->data + (size_t)token * w->nb[2] + (size_t)rank * w->nb[1]);
}

/* A block's router, for its scores. */
struct weights_router {
    const struct ggml_tensor *matrix; /* [n_embd, n_expert], in memory */
    const struct ggml_tensor *bias;   /* added to its products, [n_expert]; NULL: none */
    bool sigmoid;                     /* scores are sigmoids; else softmax over all experts */
};

/* Weights in memory that the program reads in place. */
bool weights_leaf(const struct ggml_tensor *t);

/*
 * The router's matmul behind the ids of a block, or NULL; *r gets its matrix and what lies on the way, to
 * be checked before it is used.
 */
const struct ggml_tensor *weights_matmul(const struct ggml_tensor *ids, uint32_t n_expert, struct weights_router *r);

/*
 * The router behind the expert matmul `node`, when it multiplies the same input as the experts do: then
 * its scores can be computed from what is in memory. False: it does not, or was not found.
 */
bool weights_router(const struct ggml_tensor *node, uint32_t n_expert, struct weights_router *r);

/*
 * The probabilities of all experts for one token of the node's input: n_expert floats. `row` is scratch
 * for the input in the type that the matrix is multiplied with. False: the matrix has a type that cannot be.
 */
bool weights_probs(const struct weights_router *r, kernel_traits_fn traits, const struct ggml_tensor *node,
                   int64_t token, void *row, size_t row_bytes, float *prob);

#endif
