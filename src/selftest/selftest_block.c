/*
 * selftest_block.c - the part of the self-test that computes: an MoE block by stock ggml and in our way.
 *
 * The block is built as llama.cpp builds it: router, softmax, the first K of a sorted row as a view, three expert
 * matmuls, activation, weights, sum. It is computed
 *
 *   whole     one graph of the CPU backend: what a resident run computes. All others must equal it to the bit
 *   in pieces the same, cut where our split begins and ends
 *   split     by ggml's scheduler with a device like ours (selftest_probe.c), whose part runs here: first each expert
 * as a stock node of its own (the reference path), then all experts as the kernel's nodes
 *
 * for three types of weights, and for one token and several, so that experts have one row and many. Many rows by
 * the kernel are tried the way a run does it: only where multiply.c found the same bytes. That ggml has another
 * kernel for many rows of some type breaks nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "ggml/collect.h"
#include "ggml/hold.h"
#include "ggml/multiply.h"
#include "ggml/route.h"
#include "selftest/selftest_impl.h"
#include "selftest/selftest_model.h"
#include "cache/clock.h"
#include "cache/error.h"

enum {
    BLOCK_TOKENS = 7, /* tokens of the large batch: experts get about 4 rows each */
    BLOCK_NODES = 64, /* nodes and tensors of a graph, at most */
    BLOCK_SCHED = 32, /* nodes and leaves of the scheduler's: it allocates for splits of each, 20 KiB a node */
    /*
     * Bytes of gathered rows. Freed memory of more than the C library's threshold for mappings, 128 KiB to begin with,
     * raises the threshold for good, and the program's later allocations keep more from the system than they would
     * have: 3 MiB of a small model's memory plan, with the usual 8 MiB of rows.
     */
    BLOCK_ROWS = 96 << 10,
    BLOCK_BATCHES = 2 /* one token, several */
};

/* One graph of a block. */
struct block_graph {
    struct ggml_context *ctx;              /* holds the rest */
    struct ggml_cgraph *graph;             /* all nodes */
    struct ggml_tensor *x;                 /* input [embd, tokens] */
    struct ggml_tensor *router;            /* router matrix [embd, experts], a weight that is not ours */
    struct ggml_tensor *w[SELFTEST_MATS];  /* gate, up, down */
    struct ggml_tensor *logits;            /* the router's output [experts, tokens] */
    struct ggml_tensor *ids;               /* the view of chosen experts [K, tokens] */
    struct ggml_tensor *weights;           /* their weights [1, K, tokens] */
    struct ggml_tensor *x3;                /* what the experts get [embd, 1, tokens] */
    struct ggml_tensor *mm[SELFTEST_MATS]; /* the expert matmuls: gate, up, down */
    struct ggml_tensor *weighted;          /* the last node that is ours */
    struct ggml_tensor *out;               /* output [embd, tokens] */
    struct ggml_tensor *packed;            /* stock side only: the gate by a contiguous copy of the ids */
};

/* How a split is computed. */
enum block_way { BLOCK_REFERENCE, BLOCK_KERNEL, BLOCK_FAIL };

struct block {
    struct selftest *s;                /* the check */
    struct selftest_model model;       /* what is computed with */
    ggml_backend_buffer_t stock, ours; /* buffers over the mapping: of the CPU, of the probe */
    struct selftest_probe probe;       /* stands for our device */
    ggml_backend_sched_t sched;        /* of the probe's backend and the CPU's */
    struct collect collect;            /* runs our side's nodes */
    struct timing timing;              /* that collect keeps; nobody reads it */
    struct route route;                /* of the current batch */
    struct multiply multiply;          /* computes the matmuls */
    struct hold hold;                  /* its experts */

    /* The current run. */
    int shape;                                          /* index of selftest_shapes */
    int64_t tokens;                                     /* of the batch */
    enum block_way way;                                 /* see above */
    const struct block_graph *g;                        /* the scheduler's graph */
    const struct ggml_tensor *shown[SELFTEST_MATS];     /* expert matmuls that were shown before, with their ids */
    const struct ggml_tensor *shown_ids[SELFTEST_MATS]; /* the same */
    uint32_t computed;                                  /* splits of ours that were computed */
    bool used_kernel;                                   /* the kernel computed all three matmuls */
    enum selftest_assumption found;                     /* what a callback found broken */
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
    g->router = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, sh->embd, SELFTEST_EXPERTS);
    ggml_backend_buffer_t experts = stock ? b->stock : b->ours;
    bool ok =
        ggml_backend_tensor_alloc(b->stock, g->router, b->model.map + b->model.router[b->shape]) == GGML_STATUS_SUCCESS;
    for (int m = 0; m < SELFTEST_MATS; m++) {
        int64_t ne0, ne1;
        selftest_model_dims(sh, m, &ne0, &ne1);
        g->w[m] = ggml_new_tensor_3d(ctx, sh->type, ne0, ne1, SELFTEST_EXPERTS);
        ok = ok && ggml_backend_tensor_alloc(experts, g->w[m], b->model.map + b->model.weight[b->shape][m].offset) ==
                       GGML_STATUS_SUCCESS;
    }
    if (!ok) {
        sluice_fail(b->s->err, SLUICE_ERR_LLAMA, "ggml does not take a tensor into a buffer");
        block_graph_free(g);
        return false;
    }
    g->logits = ggml_mul_mat(ctx, g->router, g->x);
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

/* ---- our side: what the probe's backend computes ----------------------------------------------- */

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

/* graph_optimize: remember the expert matmuls. */
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
    return matmuls == SELFTEST_MATS && others == 2 ? GGML_STATUS_SUCCESS
                                                   : block_found(b, SELFTEST_SPLIT, "it came in pieces");
}

/* Group the rows, pin the experts. */
static enum ggml_status block_acquire(struct block *b) {
    const struct ggml_tensor *ids = b->g->ids;
    struct sluice_error *err = b->s->err;
    for (int64_t t = 0; t < b->tokens; t++) {
        for (int64_t k = 0; k < SELFTEST_TOP_K; k++) {
            if (route_id(ids, t, k) != b->expert[t * SELFTEST_TOP_K + k]) {
                return block_found(b, SELFTEST_STRIDES, "the split got other experts than the router chose");
            }
        }
    }
    const uint32_t group = b->model.weight[b->shape][0].group;
    const enum engine_phase phase = b->tokens > 1 ? ENGINE_PROMPT : ENGINE_GENERATION;
    if (route_read(&b->route, ids, SELFTEST_EXPERTS, err) ||
        !collect_reserve(&b->collect, SELFTEST_TOP_K * b->tokens)) {
        return GGML_STATUS_FAILED;
    }
    if (hold_begin(&b->hold, &b->route, group, phase, true, err) ||
        hold_all(&b->hold, (1u << SELFTEST_MATS) - 1, NULL, NULL, err) || !b->hold.all) {
        return GGML_STATUS_FAILED;
    }
    return GGML_STATUS_SUCCESS;
}

/* graph_compute. */
static enum ggml_status block_compute_split(void *ud, struct ggml_cgraph *graph) {
    struct block *b = ud;
    b->computed++;
    if (b->way == BLOCK_FAIL) {
        return GGML_STATUS_FAILED;
    }
    enum ggml_status status = block_look(b, graph);
    if (status == GGML_STATUS_SUCCESS) {
        status = block_acquire(b);
    }
    b->used_kernel = b->way == BLOCK_KERNEL;
    for (int i = 0; i < ggml_graph_n_nodes(graph) && status == GGML_STATUS_SUCCESS; i++) {
        struct ggml_tensor *node = ggml_graph_node(graph, i);
        const int m = block_mat(b, node);
        if (m < 0) {
            status = collect_add_plain(&b->collect, node);
            continue;
        }
        struct matmuls mm = {.node = {node}, .part = {b->model.weight[b->shape][m].part}, .n = 1};
        struct ggml_tensor *next = i + 1 < ggml_graph_n_nodes(graph) ? ggml_graph_node(graph, i + 1) : NULL;
        const int next_m = next && m < 2 ? block_mat(b, next) : -1;
        if (next_m >= 0) {
            mm.node[1] = next;
            mm.part[1] = b->model.weight[b->shape][next_m].part;
            mm.n = 2;
        }
        int taken;
        const int jobs = b->collect.n_jobs;
        b->multiply.reference = b->way == BLOCK_REFERENCE;
        status = multiply_run(&b->multiply, &b->hold, &mm, &taken, b->s->err);
        b->used_kernel = b->used_kernel && b->collect.n_jobs > jobs;
        i += taken - 1;
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = collect_flush(&b->collect);
    }
    if (b->collect.failed) {
        engine_read_error(b->model.engine, b->s->err);
    }
    if (status != GGML_STATUS_SUCCESS) {
        collect_clear(&b->collect);
    }
    hold_release(&b->hold);
    return status;
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

/* Compute the scheduler's graph in a way; got has the output. */
static enum ggml_status block_run(struct block *b, struct block_graph *g, enum block_way way) {
    b->way = way;
    b->found = SELFTEST_HOLDS;
    b->computed = 0;
    ggml_backend_tensor_set(g->x, b->x, 0, ggml_nbytes(g->x));
    const enum ggml_status status = ggml_backend_sched_graph_compute(b->sched, g->graph);
    if (status == GGML_STATUS_SUCCESS) {
        ggml_backend_tensor_get(g->out, b->got, 0, block_out_bytes(b));
    }
    return status;
}

/* The same by the scheduler, in both of our ways. */
static enum selftest_assumption block_ours(struct block *b, struct block_graph *g) {
    const size_t bytes = block_out_bytes(b);
    b->g = g;
    b->computed = 0;
    memset(b->shown, 0, sizeof b->shown);
    b->probe.dense = g->router;
    b->probe.asked_dense = false;
    ggml_backend_sched_reset(b->sched);
    if (!ggml_backend_sched_alloc_graph(b->sched, g->graph)) {
        sluice_fail(b->s->err, SLUICE_ERR_MEMORY, "ggml's scheduler cannot allocate a small graph");
        return SELFTEST_HOLDS;
    }
    if (!b->probe.asked_dense) {
        return block_differs(b, SELFTEST_ASKED, "nobody asked about the router's weights");
    }
    enum ggml_status status = block_run(b, g, BLOCK_REFERENCE);
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
        status = block_run(b, g, BLOCK_KERNEL);
        if (b->found != SELFTEST_HOLDS || b->s->err->status) {
            return b->found;
        }
        if (b->tokens == 1 && !b->used_kernel) {
            return block_differs(b, SELFTEST_KERNEL, "one row gives other bytes");
        }
        if (status != GGML_STATUS_SUCCESS || memcmp(b->got, b->want, bytes) != 0) {
            return block_differs(b, SELFTEST_KERNEL, "the block gives other bytes");
        }
    }
    if (block_run(b, g, BLOCK_FAIL) == GGML_STATUS_SUCCESS) {
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

static int block_setup(struct block *b) {
    struct sluice_error *err = b->s->err;
    const int rc = selftest_model_make(&b->model, err);
    if (rc) {
        return rc;
    }
    hold_init(&b->hold, b->model.engine, NULL);
    selftest_probe_init(&b->probe);
    b->probe.compute = block_compute_split;
    b->probe.shown = block_shown;
    b->probe.ud = b;
    b->stock = ggml_backend_cpu_buffer_from_ptr(b->model.map, b->model.bytes);
    b->ours = selftest_probe_buffer(&b->probe, b->model.map, b->model.bytes);
    ggml_backend_t inner = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    if (!b->stock || !b->ours || !inner || !collect_init(&b->collect, inner, &b->route)) {
        if (inner && !b->collect.cpu) {
            ggml_backend_free(inner);
        }
        return sluice_fail(err, SLUICE_ERR_MEMORY, "out of memory");
    }
    ggml_backend_buffer_set_usage(b->stock, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    b->collect.timing = &b->timing;
    b->collect.rows_most = BLOCK_ROWS;
    collect_set_threads(&b->collect, SELFTEST_THREADS_BLOCK);
    timing_start(&b->timing, TIMING_BOOKKEEPING, clock_seconds());
    b->multiply.collect = &b->collect;
    b->collect.traits = b->s->kernel ? b->collect.traits : NULL;
    ggml_backend_t backends[2] = {&b->probe.backend, b->s->cpu};
    b->sched = ggml_backend_sched_new(backends, NULL, 2, BLOCK_SCHED, false, true);
    return b->sched ? sluice_ok(err) : sluice_fail(err, SLUICE_ERR_MEMORY, "out of memory");
}

static void block_teardown(struct block *b) {
    if (b->sched) {
        ggml_backend_sched_free(b->sched);
    }
    collect_free(&b->collect);
    hold_free(&b->hold);
    route_free(&b->route);
    multiply_free(&b->multiply);
    if (b->stock) {
        ggml_backend_buffer_free(b->stock);
    }
    if (b->ours) {
        ggml_backend_buffer_free(b->ours);
    }
    selftest_model_free(&b->model);
}

enum selftest_assumption selftest_check_blocks(struct selftest *s) {
    static const int64_t tokens[BLOCK_BATCHES] = {1, BLOCK_TOKENS};
    enum selftest_assumption a = SELFTEST_HOLDS;
    struct block *b = calloc(1, sizeof *b); /* tens of KiB: not on a stranger's stack */
    if (!b) {
        sluice_fail(s->err, SLUICE_ERR_MEMORY, "out of memory");
        return a;
    }
    b->s = s;
    b->model.fd = -1;
    const int rc = block_setup(b);
    for (int i = 0; rc == SLUICE_OK && i < SELFTEST_SHAPES * BLOCK_BATCHES; i++) {
        b->shape = i / BLOCK_BATCHES;
        b->tokens = tokens[i % BLOCK_BATCHES];
        for (int64_t k = 0; k < selftest_shapes[b->shape].embd * b->tokens; k++) {
            b->x[k] = selftest_model_number(&b->model);
        }
        a = block_check(b);
        if (a != SELFTEST_HOLDS || s->err->status) {
            break;
        }
    }
    block_teardown(b);
    free(b);
    return a;
}
