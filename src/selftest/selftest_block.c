/*
 * selftest_block.c - the part of the self-test that computes: an MoE block by stock ggml and by our device.
 *
 * The block is built as llama.cpp builds it: router, softmax, the first K of a sorted row as a view, three expert
 * matmuls, activation, weights, sum. It is computed
 *
 *   whole       one graph of the CPU backend: what a resident run computes. All others must equal it to the bit
 *   in pieces   the same, cut where our split begins and ends
 *   split       by ggml's scheduler, with our device for the experts, twice: the executor takes the reference path
 *               first, each expert as a stock node of its own, and compares the kernel with it; then the kernel
 *   failing     our backend fails
 *
 * for three types of weights, and for one token and several, so that experts have one row and many. The device and
 * the executor are those of any run (selftest_model.c); a spy sees what ggml hands to them. That ggml has another
 * kernel for many rows of some type breaks nothing: the executor then stays with the reference path.
 */
#include <stdlib.h>
#include <string.h>

#include "ggml/buffer.h"
#include "ggml/device.h"
#include "ggml/route.h"
#include "selftest/selftest_impl.h"
#include "cache/error.h"

enum {
    BLOCK_TOKENS = 7, /* tokens of the large batch: experts get about 4 rows each */
    BLOCK_NODES = 64, /* nodes and tensors of a graph, at most */
    BLOCK_SCHED = 32, /* nodes and leaves of the scheduler's: it allocates for splits of each, 20 KiB a node */
    BLOCK_JOBS = 2,   /* kernel nodes of a block: gate and up are one */
    BLOCK_BATCHES = 2 /* one token, several */
};

/* One graph of a block. */
struct block_graph {
    struct ggml_context *ctx;              /* holds the rest */
    struct ggml_cgraph *graph;             /* all nodes */
    struct ggml_tensor *x;                 /* input [embd, tokens] */
    struct ggml_tensor *const *w;          /* gate, up, down: the model's, of one side */
    struct ggml_tensor *logits;            /* the router's output [experts, tokens] */
    struct ggml_tensor *ids;               /* the view of chosen experts [K, tokens] */
    struct ggml_tensor *weights;           /* their weights [1, K, tokens] */
    struct ggml_tensor *x3;                /* what the experts get [embd, 1, tokens] */
    struct ggml_tensor *mm[SELFTEST_MATS]; /* the expert matmuls: gate, up, down */
    struct ggml_tensor *weighted;          /* the last node that is ours */
    struct ggml_tensor *out;               /* output [embd, tokens] */
    struct ggml_tensor *packed;            /* stock side only: the gate by a contiguous copy of the ids */
};

struct block {
    struct selftest *s;          /* the check */
    struct selftest_model model; /* what is computed with, and our device */
    struct backend_spy spy;      /* of the device */
    ggml_backend_sched_t sched;  /* of the device's backend and the CPU's */

    /* The current run. */
    int shape;                                          /* index of selftest_shapes */
    int64_t tokens;                                     /* of the batch */
    bool fail;                                          /* our backend is to fail */
    bool asked;                                         /* about the router's matmul, with buffer and address */
    const struct block_graph *g;                        /* the scheduler's graph */
    const struct ggml_tensor *shown[SELFTEST_MATS];     /* expert matmuls that were shown before, with their ids */
    const struct ggml_tensor *shown_ids[SELFTEST_MATS]; /* the same */
    uint32_t computed;                                  /* splits of ours that were computed */
    enum selftest_assumption found;                     /* what the spy found broken */
    int32_t expert[BLOCK_TOKENS * SELFTEST_TOP_K];      /* the router's choice, as computed from its logits */
    float x[BLOCK_TOKENS * SELFTEST_EMBD_MAX];          /* input */
    float want[BLOCK_TOKENS * SELFTEST_EMBD_MAX];       /* the whole graph's output */
    float got[BLOCK_TOKENS * SELFTEST_EMBD_MAX];        /* another way's */
};

/* ---- the graph -------------------------------------------------------------------------------- */

static void block_graph_free(struct block_graph *g) {
    ggml_free(g->ctx);
    memset(g, 0, sizeof *g);
}

/* A block as llama.cpp's build_moe_ffn makes it. stock: with what only the stock side has. */
static bool block_graph_make(const struct block *b, struct block_graph *g, bool stock) {
    const struct selftest_shape *sh = &selftest_shapes[b->shape];
    const int64_t tokens = b->tokens;
    const struct ggml_init_params params = {
        BLOCK_NODES * ggml_tensor_overhead() + 4 * ggml_graph_overhead_custom(BLOCK_NODES, false) + 4096, NULL, true};
    memset(g, 0, sizeof *g);
    struct ggml_context *ctx = g->ctx = ggml_init(params);
    if (!ctx) {
        sluice_fail(b->s->err, SLUICE_ERR_MEMORY, "out of memory");
        return false;
    }
    g->graph = ggml_new_graph_custom(ctx, BLOCK_NODES, false);
    g->x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, sh->embd, tokens);
    ggml_set_input(g->x);
    g->w = b->model.weight[stock ? 0 : 1][b->shape];
    g->logits = ggml_mul_mat(ctx, b->model.router[b->shape], g->x);
    struct ggml_tensor *probs = ggml_soft_max(ctx, g->logits);
    g->ids = ggml_argsort_top_k(ctx, probs, SELFTEST_TOP_K);
    struct ggml_tensor *weights = ggml_get_rows(ctx, ggml_reshape_3d(ctx, probs, 1, SELFTEST_EXPERTS, tokens), g->ids);
    weights = ggml_reshape_2d(ctx, weights, SELFTEST_TOP_K, tokens);
    weights = ggml_div(ctx, weights, ggml_sum_rows(ctx, weights));
    g->weights = ggml_reshape_3d(ctx, weights, 1, SELFTEST_TOP_K, tokens);
    ggml_build_forward_expand(g->graph, g->weights);
    g->x3 = ggml_reshape_3d(ctx, g->x, sh->embd, 1, tokens);
    g->mm[1] = ggml_mul_mat_id(ctx, g->w[1], g->x3, g->ids);
    g->mm[0] = ggml_mul_mat_id(ctx, g->w[0], g->x3, g->ids);
    g->mm[2] = ggml_mul_mat_id(ctx, g->w[2], ggml_swiglu_split(ctx, g->mm[0], g->mm[1]), g->ids);
    g->weighted = ggml_mul(ctx, g->mm[2], g->weights);
    ggml_build_forward_expand(g->graph, g->weighted);
    for (int k = 0; k < SELFTEST_TOP_K; k++) {
        struct ggml_tensor *one =
            ggml_view_2d(ctx, g->weighted, sh->embd, tokens, g->weighted->nb[2], (size_t)k * g->weighted->nb[1]);
        g->out = k ? ggml_add(ctx, g->out, one) : one;
    }
    ggml_set_output(g->out);
    ggml_build_forward_expand(g->graph, g->out);
    if (stock) {
        g->packed = ggml_mul_mat_id(ctx, g->w[0], g->x3, ggml_cont(ctx, g->ids));
        ggml_build_forward_expand(g->graph, g->packed);
    }
    return true;
}

/* ---- what the spy sees ------------------------------------------------------------------------- */

/* Note what a callback found; the first stays. */
static enum ggml_status block_found(struct block *b, enum selftest_assumption a, const char *what) {
    if (b->found == SELFTEST_HOLDS) {
        b->found = selftest_broken(b->s, a, "%s", what);
    }
    return GGML_STATUS_FAILED;
}

/* Which of the expert matmuls this is, or -1. */
static int block_mat(const struct block *b, const struct ggml_tensor *node) {
    for (int m = 0; m < SELFTEST_MATS; m++) {
        if (node == b->g->mm[m]) {
            return m;
        }
    }
    return -1;
}

/* backend_spy.asked. */
static void block_asked(void *ud, const struct ggml_tensor *op) {
    struct block *b = ud;
    for (int i = 0; b->g && i < GGML_MAX_SRC; i++) {
        const struct ggml_tensor *w = op->src[i];
        b->asked = b->asked || (w == b->model.router[b->shape] && w->buffer == b->model.side[0] && w->data);
    }
}

/* backend_spy.shown: remember the expert matmuls. */
static void block_shown(void *ud, struct ggml_cgraph *graph) {
    struct block *b = ud;
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const struct ggml_tensor *node = ggml_graph_node(graph, i);
        const int m = node->op == GGML_OP_MUL_MAT_ID ? block_mat(b, node) : -1;
        if (m >= 0 && b->computed == 0) {
            b->shown[m] = node->src[1];
            b->shown_ids[m] = node->src[2];
        }
    }
}

/* Is the split what it should be? */
static enum ggml_status block_look(struct block *b, struct ggml_cgraph *graph) {
    int matmuls = 0, others = 0;
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const struct ggml_tensor *node = ggml_graph_node(graph, i);
        if (node->op == GGML_OP_MUL_MAT) {
            return block_found(b, SELFTEST_OFFLOAD, "the router's matmul came to us");
        }
        const int m = node->op == GGML_OP_MUL_MAT_ID ? block_mat(b, node) : -1;
        if (node->op == GGML_OP_MUL_MAT_ID && (m < 0 || node->src[0] != b->g->w[m])) {
            return block_found(b, SELFTEST_HOST, "an expert matmul came with other weights");
        }
        if (m >= 0 && (node->src[2] != b->g->ids || (m < 2 && node->src[1] != b->g->x3))) {
            return block_found(b, SELFTEST_HOST, "an expert matmul came with copied inputs");
        }
        if (node == b->g->weighted && node->src[1] != b->g->weights) {
            return block_found(b, SELFTEST_HOST, "the weighting came with copied weights");
        }
        if (m >= 0 && (b->shown[m] != node->src[1] || b->shown_ids[m] != node->src[2])) {
            return block_found(b, SELFTEST_SHOWN, "an expert matmul was not shown as it came");
        }
        matmuls += m >= 0;
        others += node->op == GGML_OP_GLU || node == b->g->weighted;
    }
    if (matmuls != SELFTEST_MATS || others != 2) {
        return block_found(b, SELFTEST_SPLIT, "it came in pieces");
    }
    for (int64_t i = 0; i < b->tokens * SELFTEST_TOP_K; i++) {
        if (route_id(b->g->ids, i / SELFTEST_TOP_K, i % SELFTEST_TOP_K) != b->expert[i]) {
            return block_found(b, SELFTEST_STRIDES, "the split got other experts than the router chose");
        }
    }
    return GGML_STATUS_SUCCESS;
}

/* backend_spy.split. */
static enum ggml_status block_split(void *ud, struct ggml_cgraph *graph) {
    struct block *b = ud;
    b->computed++;
    return b->fail ? GGML_STATUS_FAILED : block_look(b, graph);
}

/* ---- the comparisons -------------------------------------------------------------------------- */

static size_t block_out_bytes(const struct block *b) {
    return (size_t)(selftest_shapes[b->shape].embd * b->tokens) * sizeof(float);
}

/* "Q4_K, 7 tokens": where a difference was seen. */
static enum selftest_assumption block_differs(struct block *b, enum selftest_assumption a, const char *how) {
    return selftest_broken(b->s, a, "%s, %s, %d token%s", how, selftest_shapes[b->shape].name, (int)b->tokens,
                           b->tokens > 1 ? "s" : "");
}

/* The experts of each token, from the logits: the K largest, largest first. */
static void block_choose(struct block *b, const float *logits) {
    for (int64_t t = 0; t < b->tokens; t++) {
        bool taken[SELFTEST_EXPERTS] = {false};
        for (int k = 0; k < SELFTEST_TOP_K; k++) {
            int best = -1;
            for (int e = 0; e < SELFTEST_EXPERTS; e++) {
                if (!taken[e] && (best < 0 || logits[t * SELFTEST_EXPERTS + e] > logits[t * SELFTEST_EXPERTS + best])) {
                    best = e;
                }
            }
            taken[best] = true;
            b->expert[t * SELFTEST_TOP_K + k] = best;
        }
    }
}

/* Compute the nodes [from, to) of a graph as a graph of their own. */
static enum ggml_status block_piece(struct block *b, struct block_graph *g, int from, int to) {
    struct ggml_cgraph *piece = ggml_new_graph_custom(g->ctx, BLOCK_NODES, false);
    for (int i = from; i < to; i++) {
        ggml_graph_add_node(piece, ggml_graph_node(g->graph, i));
    }
    return ggml_backend_graph_compute(b->s->cpu, piece);
}

/* What stock ggml computes: fills want and expert. */
static enum selftest_assumption block_stock(struct block *b, struct block_graph *g) {
    float logits[BLOCK_TOKENS * SELFTEST_EXPERTS];
    ggml_backend_tensor_set(g->x, b->x, 0, ggml_nbytes(g->x));
    if (ggml_backend_graph_compute(b->s->cpu, g->graph) != GGML_STATUS_SUCCESS) {
        return block_differs(b, SELFTEST_CUT, "the CPU backend does not compute");
    }
    ggml_backend_tensor_get(g->out, b->want, 0, block_out_bytes(b));
    ggml_backend_tensor_get(g->logits, logits, 0, ggml_nbytes(g->logits));
    block_choose(b, logits);
    for (int64_t t = 0; t < b->tokens; t++) {
        for (int64_t k = 0; k < SELFTEST_TOP_K; k++) {
            if (g->ids->type != GGML_TYPE_I32 || route_id(g->ids, t, k) != b->expert[t * SELFTEST_TOP_K + k]) {
                return block_differs(b, SELFTEST_STRIDES, "the ids are not the router's choice");
            }
        }
    }
    if (memcmp(g->mm[0]->data, g->packed->data, ggml_nbytes(g->packed)) != 0) {
        return block_differs(b, SELFTEST_STRIDES, "a matmul by a copy of the ids differs");
    }
    int first = 0, last = 0;
    for (int i = 0; i < ggml_graph_n_nodes(g->graph); i++) {
        const struct ggml_tensor *node = ggml_graph_node(g->graph, i);
        first = node == g->mm[1] ? i : first;
        last = node == g->weighted ? i + 1 : last;
    }
    ggml_backend_tensor_memset(g->out, 0xff, 0, block_out_bytes(b));
    if (block_piece(b, g, 0, first) || block_piece(b, g, first, last) ||
        block_piece(b, g, last, ggml_graph_n_nodes(g->graph))) {
        return block_differs(b, SELFTEST_CUT, "the CPU backend does not compute");
    }
    ggml_backend_tensor_get(g->out, b->got, 0, block_out_bytes(b));
    return memcmp(b->got, b->want, block_out_bytes(b)) ? block_differs(b, SELFTEST_CUT, "the pieces differ")
                                                       : SELFTEST_HOLDS;
}

/* Compute the scheduler's graph; got has the output. */
static enum ggml_status block_run(struct block *b, struct block_graph *g, bool fail) {
    b->fail = fail;
    b->found = SELFTEST_HOLDS;
    b->computed = 0;
    memset(b->got, 0xff, sizeof b->got);
    ggml_backend_tensor_set(g->x, b->x, 0, ggml_nbytes(g->x));
    const enum ggml_status status = ggml_backend_sched_graph_compute(b->sched, g->graph);
    if (status == GGML_STATUS_SUCCESS) {
        ggml_backend_tensor_get(g->out, b->got, 0, block_out_bytes(b));
    }
    const struct sluice_error *said = &b->model.device->last_error; /* no memory, or no read: no verdict on ggml */
    if (said->status && said->status != SLUICE_ERR_LLAMA) {
        *b->s->err = *said;
    }
    return status;
}

/* The same by the scheduler and our device. */
static enum selftest_assumption block_ours(struct block *b, struct block_graph *g) {
    const size_t bytes = block_out_bytes(b);
    b->g = g;
    b->computed = 0;
    b->asked = false;
    memset(b->shown, 0, sizeof b->shown);
    ggml_backend_sched_reset(b->sched);
    if (!ggml_backend_sched_alloc_graph(b->sched, g->graph)) {
        sluice_fail(b->s->err, SLUICE_ERR_MEMORY, "ggml's scheduler cannot allocate a small graph");
        return SELFTEST_HOLDS;
    }
    struct buffer_dense dense; /* which the device noted when it was asked about their operations */
    buffer_dense_sum(b->model.device, &dense);
    if (!b->asked || dense.guessed) {
        return block_differs(b, SELFTEST_ASKED, "nobody asked about the router's weights");
    }
    enum ggml_status status = block_run(b, g, false);
    if (b->found != SELFTEST_HOLDS || b->s->err->status) {
        return b->found;
    }
    if (b->computed != 1) {
        return b->computed ? block_differs(b, SELFTEST_SPLIT, "it came in pieces")
                           : block_differs(b, SELFTEST_OFFLOAD, "our experts were computed elsewhere");
    }
    if (status != GGML_STATUS_SUCCESS || memcmp(b->got, b->want, bytes) != 0) {
        return block_differs(b, SELFTEST_ROWS, "experts one by one give other bytes");
    }
    if (b->s->kernel) {
        const uint64_t before = backend_kernel_nodes(b->model.backend);
        status = block_run(b, g, false);
        if (b->found != SELFTEST_HOLDS || b->s->err->status) {
            return b->found;
        }
        if (b->tokens == 1 && backend_kernel_nodes(b->model.backend) - before != BLOCK_JOBS) {
            return block_differs(b, SELFTEST_KERNEL, "one row gives other bytes");
        }
        if (status != GGML_STATUS_SUCCESS || memcmp(b->got, b->want, bytes) != 0) {
            return block_differs(b, SELFTEST_KERNEL, "the block gives other bytes");
        }
    }
    if (block_run(b, g, true) == GGML_STATUS_SUCCESS) {
        return block_differs(b, SELFTEST_FAILURE, "it ended with success");
    }
    return SELFTEST_HOLDS;
}

/* One type and batch, all ways. */
static enum selftest_assumption block_check(struct block *b) {
    struct block_graph g;
    if (!block_graph_make(b, &g, true)) {
        return SELFTEST_HOLDS;
    }
    enum selftest_assumption a = SELFTEST_HOLDS;
    ggml_backend_buffer_t rest = ggml_backend_alloc_ctx_tensors(g.ctx, b->s->cpu);
    if (rest) {
        a = block_stock(b, &g);
        ggml_backend_buffer_free(rest);
    } else {
        sluice_fail(b->s->err, SLUICE_ERR_MEMORY, "out of memory");
    }
    block_graph_free(&g);
    if (a == SELFTEST_HOLDS && b->s->err->status == SLUICE_OK && block_graph_make(b, &g, false)) {
        a = block_ours(b, &g);
        block_graph_free(&g);
    }
    return a;
}

/* ---- beginning and end ------------------------------------------------------------------------- */

static enum selftest_assumption block_setup(struct block *b) {
    b->spy = (struct backend_spy){.ud = b, .asked = block_asked, .shown = block_shown, .split = block_split};
    const enum selftest_assumption a = selftest_model_make(&b->model, b->s, &b->spy);
    if (a != SELFTEST_HOLDS || b->s->err->status) {
        return a;
    }
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(backend_dev(b->model.device));
    void *p = ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads");
    if (!p) {
        return selftest_broken(b->s, SELFTEST_VTABLES, "get_proc_address does not arrive");
    }
    ggml_backend_set_n_threads_t set_threads;
    memcpy(&set_threads, &p, sizeof p);
    set_threads(b->model.backend, SELFTEST_THREADS_BLOCK);
    ggml_backend_t backends[2] = {b->model.backend, b->s->cpu};
    b->sched = ggml_backend_sched_new(backends, NULL, 2, BLOCK_SCHED, false, true);
    if (!b->sched) {
        sluice_fail(b->s->err, SLUICE_ERR_MEMORY, "out of memory");
    }
    return a;
}

enum selftest_assumption selftest_check_blocks(struct selftest *s) {
    static const int64_t tokens[BLOCK_BATCHES] = {1, BLOCK_TOKENS};
    struct block *b = calloc(1, sizeof *b); /* tens of KiB: not on a stranger's stack */
    if (!b) {
        sluice_fail(s->err, SLUICE_ERR_MEMORY, "out of memory");
        return SELFTEST_HOLDS;
    }
    b->s = s;
    b->model.fd = -1;
    enum selftest_assumption a = block_setup(b);
    for (int i = 0; i < SELFTEST_SHAPES * BLOCK_BATCHES && a == SELFTEST_HOLDS && s->err->status == SLUICE_OK; i++) {
        b->shape = i / BLOCK_BATCHES;
        b->tokens = tokens[i % BLOCK_BATCHES];
        for (int64_t k = 0; k < selftest_shapes[b->shape].embd * b->tokens; k++) {
            b->x[k] = selftest_model_number(&b->model);
        }
        a = block_check(b);
    }
    if (b->sched) {
        ggml_backend_sched_free(b->sched);
    }
    const enum selftest_assumption left = selftest_model_free(&b->model, s);
    free(b);
    return a != SELFTEST_HOLDS || s->err->status ? a : left;
}
