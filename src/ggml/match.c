/*
 * match.c - which operations are ours.
 *
 * llama.cpp asks a device two different questions through supports_op (backend.c). While it loads: "would you
 * take this weight?", with a made-up operation whose weight has its real name, type and shape, no
 * data, and an empty buffer of our type. While it builds graphs: "would you compute this node?".
 *
 * The answer is read off the graph. A MUL_MAT_ID whose first operand is in our buffer is an expert
 * matmul, in every architecture. The cheap operations between the expert matmuls of a block (bias,
 * scale, activation, gating, router weight) are taken as well, so that a whole block lands in one
 * split of the scheduler: CPU (attention, router) -> ours -> CPU. They are computed by the same CPU
 * backend either way, so taking one more or less changes no byte, only how often we are called.
 *
 * No names, and no table of models.
 *
 * While graphs are planned we are also asked about every operation on a dense weight, with its real
 * address: so we learn which dense weights are read from the mapping (dense.c), and which are not
 * because the program keeps a repacked copy.
 */
#include "ggml/match.h"

#include <stdatomic.h>
#include <stddef.h>

#include "ggml-backend-impl.h"

enum { MATCH_DEPTH = 12 }; /* cheap operations in a row between two expert matmuls, at most */

/* What this thread is loading. Loading a model is one call on one thread. */
struct match_load {
    bool resident;     /* sluice_set_streaming(false) */
    bool buffers_made; /* the tensors of this load were all offered; the next offer is another load */
    uint64_t owner;    /* number of this load, 0: none yet */
    uint32_t top_k;    /* what its offered operations said */
};
static _Thread_local struct match_load match_load;
static _Atomic uint64_t match_last_owner;

void match_set_streaming(bool on) {
    match_load.resident = !on;
}

uint64_t match_load_owner(uint32_t *top_k) {
    match_load.buffers_made = true;
    *top_k = match_load.top_k;
    return match_load.owner;
}

static bool match_lies_in(const struct ggml_tensor *w, ggml_backend_buffer_type_t buft) {
    return w && w->buffer && w->buffer->buft == buft;
}

bool match_is_offer(const struct ggml_tensor *op) {
    return op->op == GGML_OP_MUL_MAT_ID && op->src[0]->buffer->size == 0;
}

/* Anything that MUL_MAT_ID can read slice by slice. */
bool match_would_take(const struct ggml_tensor *op) {
    const struct ggml_tensor *w = op->src[0];
    /* Per-expert scales are offered with the same operation: one number an expert, no slices. */
    return !match_load.resident && w->ne[2] >= 2 && w->ne[3] == 1 && ggml_is_contiguous(w);
}

void match_take(const struct ggml_tensor *op) {
    struct match_load *l = &match_load;
    if (l->buffers_made || l->owner == 0) {
        l->owner = ++match_last_owner;
        l->buffers_made = false;
        l->top_k = 0;
    }
    const int64_t k = op->src[2]->ne[0];
    if (k > 0 && k <= op->src[0]->ne[2] && (uint32_t)k > l->top_k) {
        l->top_k = (uint32_t)k;
    }
}

/* Operations that cost little and keep rows apart. */
static bool match_cheap(enum ggml_op op) {
    switch (op) {
    case GGML_OP_GLU:
    case GGML_OP_UNARY:
    case GGML_OP_MUL:
    case GGML_OP_ADD_ID:
    case GGML_OP_CLAMP:
    case GGML_OP_SCALE:
    case GGML_OP_SQR:
    case GGML_OP_VIEW:
    case GGML_OP_RESHAPE:
        return true;
    default:
        return false;
    }
}

/* Does t come from an expert matmul on weights of this buffer type through cheap operations only? */
static bool match_derived(const struct ggml_tensor *t, ggml_backend_buffer_type_t buft, int depth) {
    if (!t || depth == 0) {
        return false;
    }
    if (t->op == GGML_OP_MUL_MAT_ID) {
        return match_lies_in(t->src[0], buft);
    }
    return match_cheap(t->op) &&
           (match_derived(t->src[0], buft, depth - 1) || match_derived(t->src[1], buft, depth - 1));
}

/* Per-expert scales: repeat(reshape(weight)), and the rows that the router picked of it. */
static bool match_scale_rows(const struct ggml_tensor *op) {
    const struct ggml_tensor *rep = op->op == GGML_OP_GET_ROWS ? op->src[0] : op;
    return rep && rep->op == GGML_OP_REPEAT && rep->src[0] && rep->src[0]->op == GGML_OP_RESHAPE &&
           rep->src[0]->src[0] && rep->src[0]->src[0]->op == GGML_OP_NONE && rep->ne[0] == 1;
}

bool match_block_op(const struct ggml_tensor *op, ggml_backend_buffer_type_t buft) {
    if (op->op == GGML_OP_MUL_MAT_ID) {
        const struct ggml_tensor *w = op->src[0];
        /* A view of a weight is left to the CPU backend, which reads it through the mapping. */
        return match_lies_in(w, buft) && op->src[1]->type == GGML_TYPE_F32 && op->src[2]->type == GGML_TYPE_I32 &&
               !w->view_src;
    }
    if (op->op == GGML_OP_GET_ROWS || op->op == GGML_OP_REPEAT) {
        return match_scale_rows(op);
    }
    return match_cheap(op->op) &&
           (match_derived(op->src[0], buft, MATCH_DEPTH) || match_derived(op->src[1], buft, MATCH_DEPTH));
}
