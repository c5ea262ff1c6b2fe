/*
 * executor.c - running a split of the graph: expert matmuls on slices that lie in slots.
 *
 * A split is (part of) an MoE block: one MUL_MAT_ID per expert tensor and cheap operations between. Nodes are collected
 * into one graph for the inner CPU backend (collect.c) and run only when something must be waited for, so a block is
 * one graph computation as a rule (a computation costs a wake-up of all compute threads). A block goes like this:
 *
 *   1 route      the router's ids become rows by expert (route.c)
 *   2 batch      does a batch begin, and of which phase is it (observe/batch.c)? Whoever follows the blocks is told
 *   3 lossy      which experts may be left out (lossy.c)
 *   4 acquire    pin all experts, with all parts that the split will use, so that every read is under way at once. If
 *                they do not fit, or too many are missing (a prompt), they pass in turns instead (hold.c)
 *   5 prefetch   the next block's experts are guessed, and read when this block's own reads are under way
 *   6 compute    each expert matmul: gate and up, which share their input, by one node of the kernel (kernel.c), which
 *                waits for experts inside the graph, and down by another. In turns, each is run at once (multiply.c)
 *   7 given up   rows of experts that are left out become zeros; or copies of them compute these, from the cold model
 *   8 release    the split ends: run what is collected, unpin, book the time
 *
 * The next expert matmul of the block, with everything pinned, is steps 6 and 7 only. If experts pass in turns, or the
 * block goes on in another split, it is 4, 6 and 7.
 *
 * Given-up experts stand behind the others in the routing (route_set_aside), so steps 4 to 6 do not see them. With a
 * cold model that part is a routing of its own, whose experts are the copies, of another type and in another engine:
 * they are acquired and computed by the same functions as the experts, with the block's nodes and another weight. So
 * their rows land where those of the experts would. Experts come first: who holds experts may wait for copies, but who
 * holds copies waits for neither (cold.c).
 */
#include "ggml/executor.h"

#include <stdlib.h>
#include <string.h>

#include "ggml/buffer.h"
#include "ggml/device.h"
#include "ggml/mode.h"
#include "ggml/collect.h"
#include "ggml/hold.h"
#include "ggml/lossy.h"
#include "ggml/multiply.h"
#include "ggml/prefetch.h"
#include "ggml/tracing.h"
#include "ggml/weights.h"
#include "observe/batch.h"
#include "observe/step.h"
#include "cache/check.h"
#include "cache/clock.h"
#include "cache/error.h"

struct executor {
    struct sluice_device *device; /* see executor_setup */
    struct collect collect;       /* nodes to run */
    struct multiply multiply;     /* how matmuls are computed */
    struct hold experts;          /* the block's */
    struct hold copies;           /* of those that it gave up */
    struct batch batch;           /* what this context computes now */
    struct prefetch prefetch;     /* guesses the next block's experts */
    struct step step;             /* what this context computes, where nobody says where steps begin */
    struct lossy lossy;           /* what is left out */
    struct timing timing;         /* where the time of the current split goes */

    /* The current block. */
    const struct ggml_tensor *ids;                 /* whose routing; NULL: none */
    uint32_t group;                                /* whose experts */
    uint32_t done_parts;                           /* parts computed so far in this visit, a bit mask */
    struct route route;                            /* rows by expert */
    struct route given_up;                         /* a view of its part that copies compute */
    struct ggml_tensor copy_node[INDEX_PARTS_MAX]; /* by part: the block's matmul, with the copy for a weight */

    /* Of this split, for matmuls on weights that do not stream. */
    const struct ggml_tensor *plain_ids; /* ids that were found sound; NULL: none */
    int64_t plain_experts;               /* for so many experts */
};

struct executor *executor_create(ggml_backend_t cpu, const struct executor_setup *setup) {
    struct executor *x = calloc(1, sizeof *x);
    if (!x || !collect_init(&x->collect, cpu, &x->route)) {
        free(x);
        return NULL;
    }
    x->device = setup->device;
    x->step.log = setup->device ? &setup->device->steps : NULL;
    x->collect.timing = &x->timing;
    x->collect.rows_most = setup->rows_bytes ? setup->rows_bytes : x->collect.rows_most;
    x->multiply = (struct multiply){.collect = &x->collect, .reference = setup->reference};
    x->lossy = (struct lossy){.device = setup->device, .batch = &x->batch};
    hold_init(&x->experts, setup->engine, &x->prefetch.of);
    hold_init(&x->copies, setup->copies, NULL);
    prefetch_init(&x->prefetch, setup->engine, x->collect.traits);
    return x;
}

void executor_destroy(struct executor *x) {
    if (!x) {
        return;
    }
    step_close(&x->step);
    collect_free(&x->collect);
    prefetch_free(&x->prefetch);
    hold_free(&x->experts);
    hold_free(&x->copies);
    multiply_free(&x->multiply);
    lossy_free(&x->lossy);
    batch_free(&x->batch);
    route_free(&x->route);
    free(x);
}

uint64_t executor_kernel_nodes(const struct executor *x) {
    return x->collect.all_jobs;
}

void executor_set_threads(struct executor *x, int n) {
    collect_set_threads(&x->collect, n);
}

/* ---- computing expert matmuls (steps 6 and 7) -------------------------------------------------- */

/* Are two matmuls of the same kind? Quantisations may give gate and up different types. */
static bool executor_alike(const struct ggml_tensor *a, const struct ggml_tensor *b) {
    return a->src[0]->type == b->src[0]->type && a->src[0]->ne[0] == b->src[0]->ne[0] &&
           a->src[0]->ne[1] == b->src[0]->ne[1];
}

/* Node i, and the node after it if that multiplies the same input, by the same routing, with weights like its own. */
static struct matmuls executor_matmuls(struct ggml_cgraph *g, int i, const struct stream_weight *w) {
    struct ggml_tensor *node = ggml_graph_node(g, i);
    struct ggml_tensor *next = i + 1 < ggml_graph_n_nodes(g) ? ggml_graph_node(g, i + 1) : NULL;
    const struct stream_weight *v = next && next->op == GGML_OP_MUL_MAT_ID ? buffer_weight(next->src[0]) : NULL;
    struct matmuls m = {.node = {node}, .part = {w->part}, .n = 1};
    if (v && next->src[1] == node->src[1] && next->src[2] == node->src[2] && v->group == w->group &&
        v->part != w->part && executor_alike(node, next) && next->nb[0] == sizeof(float)) {
        m.node[1] = next;
        m.part[1] = v->part;
        m.n = 2;
    }
    return m;
}

/* The rows of the first n matmuls that no experts compute, from copies of these. */
static enum ggml_status executor_add_copies(struct executor *x, const struct matmuls *m, int n,
                                            struct sluice_error *err) {
    struct matmuls mine = {.n = 0};
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int k = 0; k < n; k++) {
        const struct cold_weight *copy = buffer_weight(m->node[k]->src[0])->cold;
        struct ggml_tensor *node = &x->copy_node[m->part[k]]; /* stays until the next block */
        *node = *m->node[k];
        node->src[0] = (struct ggml_tensor *)&copy->like;
        mine.node[mine.n] = node;
        mine.part[mine.n++] = copy->part;
    }
    for (int taken = 0; mine.n && status == GGML_STATUS_SUCCESS;) {
        struct matmuls some = mine;
        some.n = mine.n == 2 && !executor_alike(mine.node[0], mine.node[1]) ? 1 : mine.n;
        status = multiply_run(&x->multiply, &x->copies, &some, &taken, err);
        mine = (struct matmuls){.node = {mine.node[1]}, .part = {mine.part[1]}, .n = mine.n - taken};
    }
    return status;
}

/* The rows of the first n matmuls that no experts compute: from copies, or zeros. */
static enum ggml_status executor_add_given_up(struct executor *x, const struct matmuls *m, int n,
                                              struct sluice_error *err) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    if (lossy_copies(&x->lossy)) {
        return executor_add_copies(x, m, n, err);
    }
    for (int k = 0; k < n && lossy_drops(&x->lossy) && status == GGML_STATUS_SUCCESS; k++) {
        status = collect_add_zeros(&x->collect, m->node[k], &x->lossy);
    }
    return status;
}

/* ---- a block (steps 1 to 5) --------------------------------------------------------------------- */

static void executor_release(struct executor *x) {
    hold_release(&x->copies);
    hold_release(&x->experts);
}

/* The parts of w's group that nodes from i on compute with the routing `ids`; *copies: the same of their copies. */
static uint32_t executor_parts(struct ggml_cgraph *g, int i, const struct ggml_tensor *ids,
                               const struct stream_weight *w, uint32_t *copies) {
    uint32_t parts = 0;
    *copies = 0;
    for (; i < ggml_graph_n_nodes(g); i++) {
        const struct ggml_tensor *n = ggml_graph_node(g, i);
        const struct stream_weight *v = n->op == GGML_OP_MUL_MAT_ID ? buffer_weight(n->src[0]) : NULL;
        if (v && n->src[2] == ids && v->group == w->group) {
            parts |= 1u << v->part;
            *copies |= v->cold ? 1u << v->cold->part : 0;
        }
    }
    return parts;
}

/* Is it known of every expert of the block how it was found? Else its first matmul will tell. */
static bool executor_settled(const struct executor *x) {
    return x->experts.all && (x->copies.all || !lossy_copies(&x->lossy));
}

/* The experts of the block that node i begins were all acquired once: a route trace gets its rows. */
static void executor_trace(struct executor *x, struct ggml_cgraph *g, int i, const struct stream_weight *w) {
    if (x->device && route_trace_wanted(&x->device->tracing)) {
        const struct ggml_tensor *node = ggml_graph_node(g, i);
        const struct tracing_block b = {.batch = &x->batch,
                                        .group = w->group,
                                        .n_expert = w->n_expert,
                                        .route = &x->route,
                                        .node = node,
                                        .weights = weights_find(g, i, node->src[2]),
                                        .found = x->experts.found,
                                        .copied = lossy_copies(&x->lossy) ? x->copies.found : NULL,
                                        .copy_bytes = w->cold ? w->cold->bundle : 0,
                                        .traits = x->collect.traits};
        tracing_block(&x->device->tracing, &b);
    }
}

/* Pin the experts for node i and those after it. At the beginning of a block (`first`) some may be given up. */
static enum ggml_status executor_acquire(struct executor *x, struct ggml_cgraph *g, int i,
                                         const struct stream_weight *w, bool first, struct sluice_error *err) {
    const struct ggml_tensor *ids = ggml_graph_node(g, i)->src[2];
    uint32_t copies;
    const uint32_t parts = executor_parts(g, i, ids, w, &copies);
    const uint8_t *leave = first ? lossy_propose(&x->lossy, x->experts.engine, g, i, w->group, &x->route) : NULL;
    SLUICE_CHECK(!x->copies.all); /* who holds copies waits for nothing */
    int rc = hold_all(&x->experts, parts, leave, &x->multiply.slept_s, err);
    if (rc || !first) {
        return multiply_status(rc);
    }
    if (lossy_settle(&x->lossy, &x->experts, w->cold != NULL, &x->route, ids)) {
        hold_set_aside(&x->experts, x->lossy.aside);
    }
    if (!x->experts.all) {
        hold_keep(&x->experts);
    }
    if (lossy_copies(&x->lossy)) {
        x->given_up = route_given_up(&x->route);
        rc = hold_begin(&x->copies, &x->given_up, w->cold->group, x->experts.phase, false, err);
        if (rc == SLUICE_OK && x->experts.all) {
            rc = hold_all(&x->copies, copies, NULL, &x->multiply.slept_s, err);
        }
    }
    return multiply_status(rc);
}

/* Steps 1 to 5 of the block that node i begins. */
static enum ggml_status executor_begin(struct executor *x, struct ggml_cgraph *g, int i, const struct stream_weight *w,
                                       struct sluice_error *err) {
    const struct ggml_tensor *node = ggml_graph_node(g, i);
    executor_release(x);
    int rc = route_read(&x->route, node->src[2], w->n_expert, err);
    if (rc || !collect_reserve(&x->collect, x->route.K * x->route.T)) {
        return multiply_status(rc ? rc : SLUICE_ERR_MEMORY);
    }
    const bool begins = batch_block(&x->batch, w->group, (uint32_t)x->route.T);
    const bool prompt = x->batch.phase == SLUICE_PHASE_PROMPT;
    lossy_block(&x->lossy);
    prefetch_learn(&x->prefetch, node, w->group, w->n_expert);
    if (x->device) {
        step_block(&x->step, &x->batch, begins);
    }
    rc = hold_begin(&x->experts, &x->route, w->group, prompt ? ENGINE_PROMPT : ENGINE_GENERATION, begins, err);
    const enum ggml_status status = rc ? multiply_status(rc) : executor_acquire(x, g, i, w, true, err);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    if (x->device) {
        mode_print(x->device);
    }
    if (executor_settled(x)) {
        executor_trace(x, g, i, w);
    }
    const uint32_t next = batch_next(&x->batch, w->group);
    prefetch_guess(&x->prefetch, node, w->group, next, x->route.K, x->route.n);
    return status;
}

/* Begin the block that node i starts, or go on with the one that it belongs to; then compute it, or more: *taken. */
static enum ggml_status executor_streamed(struct executor *x, struct ggml_cgraph *g, int i,
                                          const struct stream_weight *w, int *taken, struct sluice_error *err) {
    const struct ggml_tensor *ids = ggml_graph_node(g, i)->src[2];
    const bool same = x->ids == ids && x->group == w->group && !(x->done_parts >> w->part & 1);
    enum ggml_status status = GGML_STATUS_SUCCESS;
    if (!x->experts.all || !same) {
        status = collect_flush(&x->collect); /* the ids may be an output of nodes collected so far */
        if (status == GGML_STATUS_SUCCESS) {
            status = same ? executor_acquire(x, g, i, w, false, err) : executor_begin(x, g, i, w, err);
        }
        if (status == GGML_STATUS_SUCCESS && x->experts.all) {
            prefetch_read(&x->prefetch);
        }
    }
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    const bool traced = executor_settled(x) || same;
    const struct matmuls m = executor_matmuls(g, i, w);
    x->ids = ids;
    x->group = w->group;
    status = multiply_run(&x->multiply, &x->experts, &m, taken, err);
    x->done_parts = (same ? x->done_parts : 0) | matmuls_parts(&m, *taken);
    if (status == GGML_STATUS_SUCCESS) {
        status = executor_add_given_up(x, &m, *taken, err);
    }
    if (status == GGML_STATUS_SUCCESS && !traced) {
        executor_trace(x, g, i, w);
    }
    uint32_t copies;
    if (status == GGML_STATUS_SUCCESS && !x->experts.all && !executor_parts(g, i + *taken, ids, w, &copies)) {
        /* Taken in turns, and all are done: the disk has nothing to do until the next block. */
        prefetch_read(&x->prefetch);
    }
    return status;
}

/* ---- a split ------------------------------------------------------------------------------------ */

void executor_learn(struct executor *x, struct ggml_cgraph *g) {
    for (int i = 0; i < ggml_graph_n_nodes(g); i++) {
        const struct ggml_tensor *node = ggml_graph_node(g, i);
        const struct stream_weight *w = node->op == GGML_OP_MUL_MAT_ID ? buffer_weight(node->src[0]) : NULL;
        if (w) {
            batch_show(&x->batch, w->group, (uint32_t)node->src[2]->ne[1]);
            prefetch_learn(&x->prefetch, node, w->group, w->n_expert);
        }
    }
}

/*
 * An expert matmul on weights that do not stream: a program that reads its weights into memory itself, or maps no model
 * file, has put them into a buffer of ours all the same, and the CPU backend computes them as it would without us. Two
 * things it does not look at: whether ids name an expert (it would read beyond the weights), and whether the weight was
 * taken at all: llama.cpp goes on when a buffer refuses a tensor.
 */
static enum ggml_status executor_check_plain(struct executor *x, const struct ggml_tensor *node,
                                             struct sluice_error *err) {
    const struct ggml_tensor *w = node->src[0], *ids = node->src[2];
    if (buffer_refused(w)) {
        sluice_fail(err, SLUICE_ERR_FORMAT, "tensor %s was refused when the model was loaded", w->name);
        return GGML_STATUS_FAILED;
    }
    if (ids == x->plain_ids && w->ne[2] == x->plain_experts) {
        return GGML_STATUS_SUCCESS; /* the matmuls of a block share them */
    }
    if (x->device) {
        device_note(x->device, DEVICE_NOT_STREAMED, "the program reads the weights into memory itself");
        mode_print(x->device);
    }
    x->plain_ids = ids;
    x->plain_experts = w->ne[2];
    const enum ggml_status status = collect_flush(&x->collect); /* the ids may be an output of nodes collected so far */
    return status == GGML_STATUS_SUCCESS ? multiply_status(route_check(ids, w->ne[2], err)) : status;
}

/* Compute node i, and maybe some that follow: *taken. */
static enum ggml_status executor_node(struct executor *x, struct ggml_cgraph *g, int i, int *taken,
                                      struct sluice_error *err) {
    struct ggml_tensor *node = ggml_graph_node(g, i);
    const bool matmul = node->op == GGML_OP_MUL_MAT_ID && ggml_nelements(node) > 0;
    const struct stream_weight *w = matmul ? buffer_weight(node->src[0]) : NULL;
    *taken = 1;
    if (w) {
        const enum ggml_status status = multiply_status(buffer_settle_dense(node->src[0], err));
        return status == GGML_STATUS_SUCCESS ? executor_streamed(x, g, i, w, taken, err) : status;
    }
    const enum ggml_status status = matmul ? executor_check_plain(x, node, err) : GGML_STATUS_SUCCESS;
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    return lossy_drops(&x->lossy) && node == x->lossy.weighting
               ? collect_add_weighting(&x->collect, node, x->lossy.weight)
               : collect_add_plain(&x->collect, node);
}

/* The split is done: its times go to the counters and to the step. */
static void executor_book(struct executor *x) {
    struct timing *l = &x->timing;
    /* Sleep for want of slots: other contexts hold them, or reads into them have not ended. */
    timing_move(l, TIMING_BOOKKEEPING, TIMING_STALL, x->multiply.slept_s);
    x->multiply.slept_s = 0;
    timing_switch(l, TIMING_OTHER, clock_seconds());
    engine_count_time(x->experts.engine, x->experts.phase, l->s[TIMING_STALL], l->s[TIMING_EXPERT]);
    if (x->device) {
        step_leave(&x->step, l);
    }
}

/* A split failed: forget what is left of it, and say why if nobody did. */
static void executor_fail(struct executor *x, enum ggml_status status, struct sluice_error *err) {
    x->ids = NULL;
    collect_clear(&x->collect);
    if (x->collect.failed && err->status == SLUICE_OK) {
        engine_read_error(x->collect.failed, err);
    }
    x->collect.failed = NULL;
    if (err->status == SLUICE_OK) {
        const bool memory = status == GGML_STATUS_ALLOC_FAILED;
        sluice_fail(err, memory ? SLUICE_ERR_MEMORY : SLUICE_ERR_LLAMA, "%s",
                    memory ? "out of memory in an MoE block" : "ggml's CPU backend failed in an MoE block");
    }
}

enum ggml_status executor_compute(struct executor *x, struct ggml_cgraph *g, struct sluice_error *err) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    const double t = clock_seconds();
    if (x->device) {
        step_enter(&x->step, t);
    }
    timing_start(&x->timing, TIMING_BOOKKEEPING, t);
    x->plain_ids = NULL;
    for (int i = 0, taken = 1; i < ggml_graph_n_nodes(g) && status == GGML_STATUS_SUCCESS; i += taken) {
        status = executor_node(x, g, i, &taken, err);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = collect_flush(&x->collect);
    }
    executor_release(x);
    executor_book(x);
    if (status != GGML_STATUS_SUCCESS) {
        executor_fail(x, status, err);
    }
    return status;
}
