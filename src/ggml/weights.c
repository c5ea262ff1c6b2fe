/*
 * weights.c - the router's final weights and scores, found in the graph.
 *
 * Weights. Whatever the gating (softmax, sigmoid with a bias for the selection, softmax over the selected,
 * normalised, scaled), a block ends with the experts' outputs times a tensor [1, K, T], which
 * llama.cpp computes before our split. Per-expert scales look the same and are told apart by where
 * they come from: rows that the router picked of a repeated weight (match.c takes those into the split).
 * Of several such multiplications the last one is the weighting.
 *
 * Scores. The router's own output is gone when our split begins: ggml reuses its memory. But its input is
 * the experts' input, which is there, so multiplying again gives the same numbers to rounding. Models
 * whose router has another input than the experts have no scores here (Gemma 4: both come from different
 * normalisations).
 */
#include "ggml/weights.h"

#include <math.h>
#include <string.h>

#include "ggml-backend.h"

enum { WEIGHTS_STEPS = 256 }; /* nodes looked at in search of a router, at most */

/* What a tensor is a view of, if it is one; NULL stays NULL. */
static const struct ggml_tensor *weights_origin(const struct ggml_tensor *t) {
    while (t && (t->op == GGML_OP_RESHAPE || t->op == GGML_OP_VIEW)) {
        t = t->src[0];
    }
    return t;
}

/* Does t come from an expert matmul with this routing, through the block's cheap operations? */
static bool weights_of_block(const struct ggml_tensor *t, const struct ggml_tensor *ids, int depth) {
    if (!t || depth == 0) {
        return false;
    }
    if (t->op == GGML_OP_MUL_MAT_ID) {
        return t->src[2] == ids;
    }
    return t->op != GGML_OP_NONE &&
           (weights_of_block(t->src[0], ids, depth - 1) || weights_of_block(t->src[1], ids, depth - 1));
}

static bool weights_scale(const struct ggml_tensor *t) {
    t = weights_origin(t);
    return t && (t->op == GGML_OP_NONE || (t->op == GGML_OP_GET_ROWS && t->src[0] && t->src[0]->op == GGML_OP_REPEAT));
}

/* Is what t shows computed by a node of this split? Then it is not there when the split begins. */
static bool weights_in_split(struct ggml_cgraph *g, const struct ggml_tensor *t) {
    t = weights_origin(t);
    for (int i = 0; i < ggml_graph_n_nodes(g); i++) {
        if (ggml_graph_node(g, i) == t) {
            return true;
        }
    }
    return false;
}

struct ggml_tensor *weights_weighting(struct ggml_cgraph *g, int i, const struct ggml_tensor *ids) {
    struct ggml_tensor *found = NULL;
    for (; i < ggml_graph_n_nodes(g); i++) {
        struct ggml_tensor *n = ggml_graph_node(g, i);
        if (n->op == GGML_OP_MUL_MAT_ID && n->src[2] != ids) {
            break; /* the next block */
        }
        const struct ggml_tensor *w = n->op == GGML_OP_MUL ? n->src[1] : NULL;
        if (w && w->type == GGML_TYPE_F32 && w->ne[0] == 1 && w->ne[1] == ids->ne[0] && w->ne[2] == ids->ne[1] &&
            w->ne[3] == 1 && !weights_scale(w) && weights_of_block(n->src[0], ids, 8)) {
            found = n;
        }
    }
    const struct ggml_tensor *w = found ? found->src[1] : NULL;
    const struct ggml_tensor *base = w && w->view_src ? w->view_src : w;
    const bool readable = base && w->data && base->buffer && ggml_backend_buffer_is_host(base->buffer);
    return readable && !weights_in_split(g, w) ? found : NULL;
}

bool weights_leaf(const struct ggml_tensor *t) {
    return t && t->op == GGML_OP_NONE && t->buffer && ggml_backend_buffer_is_host(t->buffer) && t->data;
}

/* The router's matmul among the nodes that t comes from; notes what lies on the way. */
static const struct ggml_tensor *weights_search(const struct ggml_tensor *t, uint32_t n_expert, int *steps,
                                                struct weights_router *r) {
    if (!t || t->op == GGML_OP_NONE || --*steps < 0) {
        return NULL;
    }
    if (t->op == GGML_OP_MUL_MAT) {
        const bool router = weights_leaf(t->src[0]) && t->src[0]->ne[1] == n_expert && t->src[0]->ne[2] == 1;
        return router ? t : NULL;
    }
    for (int i = 0; i < 2; i++) {
        const struct ggml_tensor *found = weights_search(t->src[i], n_expert, steps, r);
        if (found) {
            if (t->op == GGML_OP_ADD && t->src[i] == found && weights_leaf(t->src[1 - i])) {
                r->bias = t->src[1 - i];
            }
            r->sigmoid = r->sigmoid || (t->op == GGML_OP_UNARY && ggml_get_unary_op(t) == GGML_UNARY_OP_SIGMOID);
            return found;
        }
    }
    return NULL;
}

const struct ggml_tensor *weights_matmul(const struct ggml_tensor *ids, uint32_t n_expert, struct weights_router *r) {
    int steps = WEIGHTS_STEPS;
    *r = (struct weights_router){0};
    const struct ggml_tensor *m = weights_search(ids, n_expert, &steps, r);
    r->matrix = m ? m->src[0] : NULL;
    return m;
}

bool weights_router(const struct ggml_tensor *node, uint32_t n_expert, struct weights_router *r) {
    const struct ggml_tensor *m = weights_matmul(node->src[2], n_expert, r);
    if (!m || m->src[0]->ne[0] != node->src[1]->ne[0] || weights_origin(m->src[1]) != weights_origin(node->src[1])) {
        return false;
    }
    return !r->bias || (r->bias->type == GGML_TYPE_F32 && ggml_nelements(r->bias) == n_expert);
}

bool weights_probs(const struct weights_router *r, kernel_traits_fn traits, const struct ggml_tensor *node,
                   int64_t token, void *row, size_t row_bytes, float *prob) {
    const struct ggml_tensor *w = r->matrix, *in = node->src[1];
    const struct ggml_type_traits_cpu *t = traits ? traits(w->type) : NULL;
    if (!t || !t->vec_dot || in->type != GGML_TYPE_F32 || in->nb[0] != sizeof(float) ||
        w->ne[0] % ggml_blck_size(t->vec_dot_type) || ggml_row_size(t->vec_dot_type, w->ne[0]) > row_bytes) {
        return false;
    }
    const void *x = (const char *)in->data + (size_t)token * in->nb[2];
    if (t->vec_dot_type != GGML_TYPE_F32) {
        traits(t->vec_dot_type)->from_float(x, row, w->ne[0]);
        x = row;
    }
    const int64_t n = w->ne[1];
    float most = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        t->vec_dot((int)w->ne[0], prob + i, 0, (const char *)w->data + (size_t)i * w->nb[1], 0, x, 0, 1);
        prob[i] += r->bias ? ((const float *)r->bias->data)[i] : 0;
        most = prob[i] > most ? prob[i] : most;
    }
    float sum = 0;
    for (int64_t i = 0; i < n; i++) {
        prob[i] = r->sigmoid ? 1 / (1 + expf(-prob[i])) : expf(prob[i] - most);
        sum += prob[i];
    }
    for (int64_t i = 0; i < n && !r->sigmoid; i++) {
        prob[i] /= sum;
    }
    return true;
}
