/*
 * block.c - running a split of the graph: expert matmuls on slices that lie in slots.
 *
 * A split is (part of) an MoE block: one MUL_MAT_ID per expert tensor and cheap operations between.
 * Nodes are collected into one graph for the inner CPU backend (collect.c) and run only when
 * something must be waited for, so a block is one graph computation as a rule (a computation costs a
 * wake-up of all compute threads). Gate and up are one node of the kernel (kernel.c), which waits for
 * experts inside the graph, and down is another.
 *
 * Two ways to hold experts:
 *   held     all routed experts of the block fit in the cache at once: acquired together, with all
 *            parts that the split will use, so that every read of the block is under way at once
 *   rolling  more experts than slots, or more missing than may pass through at once (a prompt): per node, a
 *            window of experts moves over the list (window.c); each is released as soon as its rows are done
 *
 * The reference path, for types and shapes that the kernel cannot do or for which trial.c found other
 * bytes, and to compare with: every expert becomes a MUL_MAT_ID of its own over a one-expert weight
 * that points into a slot. ggml computes the rows of one expert independently of which other experts
 * there are, so the bytes are those of the stock node, provided that all rows of one expert stay
 * together: kernels for many rows may differ from those for few. One row is computed in place;
 * several are gathered, computed and scattered, since a one-expert MUL_MAT_ID wants its rows back to
 * back. Experts in memory are computed first, the others in the order in which they arrive.
 *
 * With lossy settings some experts are given up when a block acquires (lossy.c). They stand behind the others in the
 * routing, so nothing here sees them; what is added for them is zeros for their rows, after each expert
 * matmul, and another node in place of the weighting.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ggml/backend.h"
#include "ggml/cold_block.h"
#include "ggml/collect.h"
#include "ggml/prefetch.h"
#include "ggml/lossy.h"
#include "ggml/plain.h"
#include "ggml/trial.h"
#include "ggml/window.h"
#include "observe/step.h"
#include "ggml/tracing.h"
#include "ggml/weights.h"
#include "cache/clock.h"
#include "cache/error.h"

struct block_exec {
    struct engine *engine;   /* holds the experts */
    struct collect collect;  /* nodes to run */
    struct trial trial;      /* whether the kernel computes ggml's bytes */
    struct window window;    /* for nodes whose experts do not fit at once */
    struct window_kept kept; /* what such a block found in memory */
    struct prefetch foresee; /* guesses the next block's experts */
    struct batch batch;      /* what this context computes now */
    struct step step;        /* what this context computes, where nobody says where steps begin */
    struct lossy lossy;      /* what is left out */
    struct cold_block cold;  /* what is computed from copies instead */
    kernel_traits_fn traits; /* of the CPU backend; NULL: not known */
    struct timing timing;    /* where the time of the current split goes */
    double slept_s;          /* seconds of it that were slept in engine_acquire */

    /* The routing of the current block. */
    const struct ggml_tensor *ids; /* whose routing; NULL: none */
    uint32_t group;                /* whose experts */
    uint32_t done_parts;           /* parts computed so far in this visit, a bit mask */
    enum engine_phase phase;       /* whose counters: that of the batch */
    struct route route;            /* rows by expert */
    uint32_t *slot;                /* by place: its slot while held, or UINT32_MAX */
    uint8_t *state;                /* by place: enum todo for the current node */
    int32_t *wanted;               /* scratch of rolling mode */
    uint32_t *granted;             /* the same */
    uint8_t *found;                /* by place: enum engine_found, at the first acquire of the block */
    uint8_t *found_wanted;         /* scratch of rolling mode: the same, of wanted */
    uint32_t cap_places;           /* entries of the six, and of kept.slot */
    bool held;                     /* slot[] holds all of them */
    struct plain plain;            /* for matmuls on weights that do not stream */
};

enum todo { TODO_WAITING, TODO_OPEN, TODO_DONE }; /* not acquired, acquired, computed */

/* ggml's word for what the engine said. */
static enum ggml_status block_status(int rc) {
    return rc == SLUICE_OK           ? GGML_STATUS_SUCCESS
           : rc == SLUICE_ERR_MEMORY ? GGML_STATUS_ALLOC_FAILED
                                     : GGML_STATUS_FAILED;
}

struct block_exec *block_create(ggml_backend_t cpu, struct engine *engine) {
    struct block_exec *x = calloc(1, sizeof *x);
    if (!x || !collect_init(&x->collect, cpu, !sluice_device.settings.reference_kernel, &x->route)) {
        free(x);
        return NULL;
    }
    x->engine = engine;
    x->lossy.batch = &x->batch;
    x->step.log = &sluice_device.steps;
    window_init(&x->window);
    x->traits = kernel_find_traits(cpu);
    prefetch_init(&x->foresee, x->traits);
    x->collect.timing = &x->timing;
    x->cold = (struct cold_block){.engine = sluice_device.cold.engine,
                                  .collect = &x->collect,
                                  .trial = &x->trial,
                                  .timing = &x->timing,
                                  .slept_s = &x->slept_s,
                                  .traits = x->traits};
    return x;
}

void block_destroy(struct block_exec *x) {
    if (!x) {
        return;
    }
    assert(!x->held);
    step_close(&x->step);
    batch_free(&x->batch);
    collect_free(&x->collect);
    prefetch_free(&x->foresee);
    window_destroy(&x->window);
    trial_free(&x->trial);
    lossy_free(&x->lossy);
    cold_block_free(&x->cold);
    route_free(&x->route);
    free(x->slot);
    free(x->kept.slot);
    free(x->state);
    free(x->wanted);
    free(x->granted);
    free(x->found);
    free(x->found_wanted);
    free(x);
}

void block_set_threads(struct block_exec *x, int n) {
    collect_set_threads(&x->collect, n);
}

/* ---- one expert matmul ----------------------------------------------------------------------- */

/* Group the rows of a batch, whose ids are computed, and make room for as many experts and rows. */
static enum ggml_status block_route(struct block_exec *x, const struct ggml_tensor *ids, uint32_t n_expert,
                                    struct sluice_error *err) {
    const int rc = route_read(&x->route, ids, n_expert, err);
    if (rc) {
        return block_status(rc);
    }
    if (n_expert > x->cap_places) {
        uint32_t *slot = reallocarray(x->slot, n_expert, sizeof *slot);
        x->slot = slot ? slot : x->slot;
        uint8_t *state = reallocarray(x->state, n_expert, sizeof *state);
        x->state = state ? state : x->state;
        int32_t *wanted = reallocarray(x->wanted, n_expert, sizeof *wanted);
        x->wanted = wanted ? wanted : x->wanted;
        uint32_t *granted = reallocarray(x->granted, n_expert, sizeof *granted);
        x->granted = granted ? granted : x->granted;
        uint8_t *found = reallocarray(x->found, n_expert, sizeof *found);
        x->found = found ? found : x->found;
        uint8_t *found_wanted = reallocarray(x->found_wanted, n_expert, sizeof *found_wanted);
        x->found_wanted = found_wanted ? found_wanted : x->found_wanted;
        uint32_t *kept = reallocarray(x->kept.slot, n_expert, sizeof *kept);
        x->kept.slot = kept ? kept : x->kept.slot;
        if (!slot || !kept || !state || !wanted || !granted || !found || !found_wanted) {
            return GGML_STATUS_ALLOC_FAILED;
        }
        x->cap_places = n_expert;
    }
    return collect_reserve(&x->collect, x->route.K * x->route.T) ? GGML_STATUS_SUCCESS : GGML_STATUS_ALLOC_FAILED;
}

static void block_release_all(struct block_exec *x) {
    cold_block_release(&x->cold);
    window_let_go(&x->kept, x->engine);
    if (x->held) {
        engine_release(x->engine, x->slot, x->route.n);
        x->held = false;
    }
}

/* The parts of `group` that nodes from i on compute with the routing `ids`; *copies: the same of their copies. */
static uint32_t block_parts_ahead(struct ggml_cgraph *g, int i, const struct ggml_tensor *ids, uint32_t group,
                                  uint32_t *copies) {
    uint32_t parts = 0;
    *copies = 0;
    for (; i < ggml_graph_n_nodes(g); i++) {
        const struct ggml_tensor *n = ggml_graph_node(g, i);
        const struct stream_weight *w = n->op == GGML_OP_MUL_MAT_ID ? buffer_weight(n->src[0]) : NULL;
        if (w && n->src[2] == ids && w->group == group) {
            parts |= 1u << w->part;
            *copies |= w->cold ? 1u << w->cold->part : 0;
        }
    }
    return parts;
}

/* Rolling mode: acquire waiting experts until the window is full. Waits only when nothing is held. */
static enum ggml_status block_refill(struct block_exec *x, const struct stream_weight *w, uint32_t *open, bool first,
                                     struct sluice_error *err) {
    uint32_t n = 0, got = 0;
    const uint32_t most = engine_staging(x->engine, w->group);
    for (uint32_t i = 0; i < x->route.n && n + *open < most; i++) {
        if (x->state[i] == TODO_WAITING) {
            x->wanted[n++] = x->route.expert[i];
        }
    }
    if (n == 0) {
        return GGML_STATUS_SUCCESS;
    }
    struct engine_want want = {.group = w->group,
                               .parts = 1u << w->part,
                               .expert = x->wanted,
                               .n = n,
                               .phase = x->phase,
                               .first = first,
                               .wait = *open == 0 && x->kept.n == 0,
                               .slept_s = &x->slept_s,
                               .found = x->found_wanted};
    int rc = engine_acquire(x->engine, &want, x->granted, &got, err);
    if (rc == SLUICE_OK && got == 0 && *open == 0 && window_let_go(&x->kept, x->engine)) {
        want.wait = true;
        rc = engine_acquire(x->engine, &want, x->granted, &got, err);
    }
    if (rc) {
        return block_status(rc);
    }
    for (uint32_t i = 0; i < n && got; i++) {
        if (x->granted[i] != UINT32_MAX) {
            const int32_t place = x->route.index[x->wanted[i]];
            x->slot[place] = x->granted[i];
            x->state[place] = TODO_OPEN;
            if (first) {
                x->found[place] = x->found_wanted[i];
            }
            (*open)++;
        }
    }
    return GGML_STATUS_SUCCESS;
}

/* Append every open expert that is ready. n_done counts them. */
static enum ggml_status block_add_ready(struct block_exec *x, struct ggml_tensor *node, const struct stream_weight *w,
                                        uint32_t *n_done) {
    for (uint32_t i = 0; i < x->route.n; i++) {
        if (x->state[i] != TODO_OPEN) {
            continue;
        }
        const enum part_state state = engine_part_state(x->engine, x->slot[i], w->part);
        if (state == PART_FAILED) {
            x->collect.failed = x->engine;
            return GGML_STATUS_FAILED;
        }
        if (state == PART_READY) {
            const enum ggml_status status =
                collect_add_expert(&x->collect, node, i, engine_part_data(x->engine, x->slot[i], w->part));
            if (status != GGML_STATUS_SUCCESS) {
                return status;
            }
            x->state[i] = TODO_DONE;
            (*n_done)++;
        }
    }
    return GGML_STATUS_SUCCESS;
}

/* Rolling mode: give back the slots of experts whose rows are computed. */
static void block_release_done(struct block_exec *x, uint32_t *open) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->route.n; i++) {
        if (x->state[i] == TODO_DONE && x->slot[i] != UINT32_MAX) {
            x->granted[n++] = x->slot[i];
            x->slot[i] = UINT32_MAX;
        }
    }
    if (n) {
        engine_release(x->engine, x->granted, n);
        *open -= n;
    }
}

/* What was computed and is still held: would the kernel's bytes be the same? Only while that is not known. */
static enum ggml_status block_try_kernel(struct block_exec *x, const struct ggml_tensor *node,
                                         const struct stream_weight *w) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    if (!collect_kernel_fits(&x->collect, node) || trial_ask(&x->trial, &x->route, node) != TRIAL_UNKNOWN) {
        return status;
    }
    for (uint32_t i = 0; i < x->route.n && status == GGML_STATUS_SUCCESS; i++) {
        if (x->state[i] == TODO_DONE && x->slot[i] != UINT32_MAX) {
            status = trial_compare(&x->trial, &x->route, x->traits, node, i,
                                   engine_part_data(x->engine, x->slot[i], w->part));
        }
    }
    return status;
}

/* Compute one MUL_MAT_ID on slots, all experts of the routing. */
static enum ggml_status block_run_node(struct block_exec *x, struct ggml_tensor *node, const struct stream_weight *w,
                                       bool first, struct sluice_error *err) {
    uint32_t n_done = 0, open = x->held ? x->route.n : 0;
    memset(x->state, x->held ? TODO_OPEN : TODO_WAITING, x->route.n);
    if (!x->held) {
        memset(x->slot, 0xff, x->route.n * sizeof *x->slot); /* all UINT32_MAX */
    }
    enum ggml_status status = GGML_STATUS_SUCCESS;
    while (n_done < x->route.n && status == GGML_STATUS_SUCCESS) {
        if (!x->held) {
            status = block_refill(x, w, &open, first, err);
            if (status != GGML_STATUS_SUCCESS) {
                break;
            }
        }
        const uint32_t seen = engine_seen(x->engine), before = n_done;
        status = block_add_ready(x, node, w, &n_done);
        const bool last = x->held && n_done == x->route.n;
        if (status != GGML_STATUS_SUCCESS || (last && trial_ask(&x->trial, &x->route, node) != TRIAL_UNKNOWN)) {
            break; /* with all experts held, the graph may grow on into the next nodes */
        }
        status = collect_flush(&x->collect);
        if (status == GGML_STATUS_SUCCESS) {
            status = block_try_kernel(x, node, w);
        }
        if (!x->held) {
            block_release_done(x, &open);
        }
        if (status == GGML_STATUS_SUCCESS && n_done == before && open) {
            timing_switch(&x->timing, TIMING_STALL, clock_seconds());
            engine_wait(x->engine, seen);
            timing_switch(&x->timing, TIMING_BOOKKEEPING, clock_seconds());
        }
    }
    if (!x->held) {
        /* Only after a failure is anything still open. */
        for (uint32_t i = 0; i < x->route.n; i++) {
            x->state[i] = TODO_DONE;
        }
        block_release_done(x, &open);
    }
    return status;
}

/* Does the node after node i multiply the same input, by the same routing, with weights of the same type? */
static struct ggml_tensor *block_twin(struct ggml_cgraph *g, int i, const struct stream_weight *w) {
    const struct ggml_tensor *node = ggml_graph_node(g, i);
    struct ggml_tensor *next = i + 1 < ggml_graph_n_nodes(g) ? ggml_graph_node(g, i + 1) : NULL;
    const struct stream_weight *v = next && next->op == GGML_OP_MUL_MAT_ID ? buffer_weight(next->src[0]) : NULL;
    const bool twin = v && next->src[1] == node->src[1] && next->src[2] == node->src[2] && v->group == w->group &&
                      v->part != w->part && next->src[0]->type == node->src[0]->type &&
                      next->src[0]->ne[0] == node->src[0]->ne[0] && next->src[0]->ne[1] == node->src[0]->ne[1] &&
                      next->nb[0] == sizeof(float);
    return twin ? next : NULL;
}

/*
 * Append node i, and its twin, as one kernel node. When not all experts are held it is run at once,
 * with a window. *taken: nodes appended, 0 when the kernel cannot do it.
 */
static enum ggml_status block_add_kernel(struct block_exec *x, struct ggml_cgraph *g, int i,
                                         const struct stream_weight *w, bool first, int *taken,
                                         struct sluice_error *err) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    struct ggml_tensor *node = ggml_graph_node(g, i);
    *taken = 0;
    if (!collect_kernel_fits(&x->collect, node) || trial_ask(&x->trial, &x->route, node) != TRIAL_SAME) {
        return status;
    }
    struct kernel_job *j = collect_add_job(&x->collect, node, &status);
    if (!j) {
        return status;
    }
    j->engine = x->engine;
    j->part[0] = w->part;
    *taken = 1;
    uint32_t parts = 1u << w->part;
    struct ggml_tensor *twin = block_twin(g, i, w);
    if (twin) {
        j->node[j->n_mats] = twin;
        j->part[j->n_mats++] = buffer_weight(twin->src[0])->part;
        parts |= 1u << j->part[1];
        *taken = 2;
    }
    x->done_parts |= parts;
    for (uint32_t p = 0; p < x->route.n; p++) {
        kernel_place_init(&j->place[p], j, x->held ? x->slot[p] : UINT32_MAX);
    }
    if (!x->held) {
        const struct engine_want want = {
            .group = w->group, .parts = parts, .phase = x->phase, .first = first, .found = first ? x->found : NULL};
        window_begin(&x->window, x->engine, &want, &x->kept);
        j->window = &x->window;
    }
    kernel_add(x->collect.tensors, x->collect.graph, j);
    if (!x->held) {
        status = collect_flush(&x->collect);
        const int rc = window_end(&x->window, j, err);
        status = rc ? block_status(rc) : status;
    }
    return status;
}

/* The experts of the block that node i begins were all acquired once: a route trace gets its rows. */
static void block_trace(struct block_exec *x, struct ggml_cgraph *g, int i, const struct stream_weight *w) {
    if (tracing_wanted()) {
        const struct ggml_tensor *node = ggml_graph_node(g, i);
        const struct tracing_block b = {.batch = &x->batch,
                                        .group = w->group,
                                        .n_expert = w->n_expert,
                                        .route = &x->route,
                                        .node = node,
                                        .weights = weights_find(g, i, node->src[2]),
                                        .found = x->found,
                                        .copied = lossy_copies(&x->lossy) ? x->cold.found : NULL,
                                        .copy_bytes = w->cold ? w->cold->bundle : 0,
                                        .traits = x->traits};
        tracing_block(&b);
    }
}

/* The block gave experts up that have copies: acquire those. Not held if they do not fit, or the experts do not. */
static enum ggml_status block_take_copies(struct block_exec *x, const struct stream_weight *w, uint32_t parts,
                                          struct sluice_error *err) {
    enum ggml_status status = cold_block_begin(&x->cold, &x->route, w, x->phase, err);
    if (status == GGML_STATUS_SUCCESS && x->held) {
        status = cold_block_hold(&x->cold, parts, err);
    }
    return status;
}

/* The rows that the matmuls i .. i + n - 1 do not compute with experts: from copies, or zeros. */
static enum ggml_status block_add_given_up(struct block_exec *x, struct ggml_cgraph *g, int i, int n,
                                           struct sluice_error *err) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    if (lossy_copies(&x->lossy)) {
        struct ggml_tensor *node[KERNEL_MATS];
        for (int k = 0; k < n; k++) {
            node[k] = ggml_graph_node(g, i + k);
        }
        return cold_block_add(&x->cold, node, n, err);
    }
    for (int k = 0; k < n && lossy_drops(&x->lossy) && status == GGML_STATUS_SUCCESS; k++) {
        status = collect_add_zeros(&x->collect, ggml_graph_node(g, i + k), &x->lossy);
    }
    return status;
}

/* A block begins: to be told to whoever follows the blocks. */
static enum ggml_status block_begin(struct block_exec *x, const struct ggml_tensor *node, const struct stream_weight *w,
                                    struct sluice_error *err) {
    const bool begins = batch_block(&x->batch, w->group, (uint32_t)x->route.T);
    x->phase = x->batch.phase == SLUICE_PHASE_PROMPT ? ENGINE_PROMPT : ENGINE_GENERATION;
    lossy_block(&x->lossy);
    prefetch_learn(&x->foresee, node, w->group, w->n_expert);
    step_block(&x->step, &x->batch, begins);
    struct engine_routing r = route_routing(&x->route);
    r.begins = begins;
    return block_status(engine_begin_block(x->engine, w->group, x->phase, &r, err));
}

/* The block's experts will pass through: those that are in memory stay until their turn. */
static void block_keep(struct block_exec *x, uint32_t group) {
    const struct engine_routing r = route_routing(&x->route);
    x->kept.n = engine_hold(x->engine, group, &r, x->kept.slot);
}

/* Begin the block that node i starts, or go on with the one that it belongs to; then compute it. */
static enum ggml_status block_run_streamed(struct block_exec *x, struct ggml_cgraph *g, int i,
                                           const struct stream_weight *w, int *taken, struct sluice_error *err) {
    struct ggml_tensor *node = ggml_graph_node(g, i);
    const struct ggml_tensor *ids = node->src[2];
    const bool same = x->ids == ids && x->group == w->group && !(x->done_parts >> w->part & 1);
    enum ggml_status status = GGML_STATUS_SUCCESS;
    if (!x->held || !same) {
        /* The ids may be an output of nodes collected so far. */
        status = collect_flush(&x->collect);
    }
    if (status == GGML_STATUS_SUCCESS && (!x->held || !same)) {
        if (!same) {
            block_release_all(x);
        } else {
            cold_block_release(&x->cold);
        }
        if (!same || !x->lossy.active) { /* else it is this block's, and what is left out is set aside in it */
            status = block_route(x, ids, w->n_expert, err);
        }
        if (status == GGML_STATUS_SUCCESS && !same) {
            status = block_begin(x, node, w, err);
        }
        if (status == GGML_STATUS_SUCCESS) {
            const uint8_t *leave = same ? NULL : lossy_propose(&x->lossy, x->engine, g, i, w->group, &x->route);
            uint32_t copies;
            const struct engine_want want = {.group = w->group,
                                             .parts = block_parts_ahead(g, i, ids, w->group, &copies),
                                             .expert = x->route.expert,
                                             .n = x->route.n,
                                             .phase = x->phase,
                                             .first = !same,
                                             .all = true,
                                             .wait = x->kept.n == 0,
                                             .slept_s = &x->slept_s,
                                             .found = x->found,
                                             .leave = leave};
            uint32_t got = 0;
            const int rc = engine_acquire(x->engine, &want, x->slot, &got, err);
            x->held = got > 0;
            if (!same && (rc == SLUICE_OK || rc == SLUICE_ERR_BUDGET)) {
                lossy_settle(&x->lossy, x->engine, x->phase, w->group, w->cold != NULL, &x->route, ids, x->slot,
                             x->found);
            }
            /* More experts than slots is no failure: they go through in a rolling window. */
            if (rc && rc != SLUICE_ERR_BUDGET) {
                status = block_status(rc);
            } else if (!x->held) {
                sluice_ok(err);
                if (!same) {
                    block_keep(x, w->group);
                }
            } else {
                window_let_go(&x->kept, x->engine);
            }
            if (status == GGML_STATUS_SUCCESS && !same && lossy_copies(&x->lossy)) {
                status = block_take_copies(x, w, copies, err);
            }
        }
        if (status == GGML_STATUS_SUCCESS) {
            device_print_mode();
            if (x->held && !same) {
                block_trace(x, g, i, w);
            }
            if (!same) {
                const uint32_t next = batch_next(&x->batch, w->group);
                prefetch_guess(&x->foresee, x->engine, node, w->group, next, x->route.K, x->route.n);
            }
            if (x->held) {
                prefetch_read(&x->foresee, x->engine);
            }
        }
    }
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    x->ids = ids;
    x->group = w->group;
    x->done_parts = same ? x->done_parts | 1u << w->part : 1u << w->part;
    const bool traced = x->held || same;
    status = block_add_kernel(x, g, i, w, !same, taken, err);
    if (status == GGML_STATUS_SUCCESS && *taken == 0) {
        *taken = 1;
        if (x->route.n != (uint32_t)route_kept_rows(&x->route)) {
            /* Some expert has several rows, whose inputs are about to be gathered. */
            status = collect_flush(&x->collect);
        }
        if (status == GGML_STATUS_SUCCESS) {
            status = block_run_node(x, node, w, !same, err);
        }
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = block_add_given_up(x, g, i, *taken, err);
    }
    if (status == GGML_STATUS_SUCCESS && !traced) {
        block_trace(x, g, i, w);
    }
    uint32_t copies;
    if (status == GGML_STATUS_SUCCESS && !x->held && !block_parts_ahead(g, i + *taken, ids, w->group, &copies)) {
        /* Taken in turns, and all are done: the disk has nothing to do until the next block. */
        prefetch_read(&x->foresee, x->engine);
    }
    return status;
}

/* The split is done: its times go to the counters and to the step. */
static void block_book(struct block_exec *x) {
    struct timing *l = &x->timing;
    /* Sleep for want of slots: other contexts hold them, or reads into them have not ended. */
    timing_move(l, TIMING_BOOKKEEPING, TIMING_STALL, x->slept_s);
    x->slept_s = 0;
    timing_switch(l, TIMING_OTHER, clock_seconds());
    engine_count_time(x->engine, x->phase, l->s[TIMING_STALL], l->s[TIMING_EXPERT]);
    step_leave(&x->step, l);
}

void block_learn(struct block_exec *x, struct ggml_cgraph *g) {
    for (int i = 0; i < ggml_graph_n_nodes(g); i++) {
        const struct ggml_tensor *node = ggml_graph_node(g, i);
        const struct stream_weight *w = node->op == GGML_OP_MUL_MAT_ID ? buffer_weight(node->src[0]) : NULL;
        if (w) {
            batch_show(&x->batch, w->group, (uint32_t)node->src[2]->ne[1]);
            prefetch_learn(&x->foresee, node, w->group, w->n_expert);
        }
    }
}

enum ggml_status block_compute(struct block_exec *x, struct ggml_cgraph *g, struct sluice_error *err) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    const double t = clock_seconds();
    step_enter(&x->step, t);
    timing_start(&x->timing, TIMING_BOOKKEEPING, t);
    plain_begin(&x->plain);
    for (int i = 0; i < ggml_graph_n_nodes(g) && status == GGML_STATUS_SUCCESS; i++) {
        struct ggml_tensor *node = ggml_graph_node(g, i);
        const bool matmul = node->op == GGML_OP_MUL_MAT_ID && ggml_nelements(node) > 0;
        const struct stream_weight *w = matmul ? buffer_weight(node->src[0]) : NULL;
        if (w) {
            status = block_status(buffer_settle_dense(node->src[0], err));
            if (status != GGML_STATUS_SUCCESS) {
                break;
            }
            int taken = 0;
            status = block_run_streamed(x, g, i, w, &taken, err);
            i += taken - 1;
        } else {
            status = matmul ? plain_check(&x->plain, &x->collect, node, err) : status;
            if (status != GGML_STATUS_SUCCESS) {
                break;
            }
            status = lossy_drops(&x->lossy) && node == x->lossy.weighting
                         ? collect_add_weighting(&x->collect, node, x->lossy.weight)
                         : collect_add_plain(&x->collect, node);
        }
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = collect_flush(&x->collect);
    }
    block_release_all(x);
    block_book(x);
    if (status != GGML_STATUS_SUCCESS) {
        x->ids = NULL;
        collect_clear(&x->collect);
        if (x->collect.failed && err->status == SLUICE_OK) {
            engine_read_error(x->collect.failed, err);
        }
        x->collect.failed = NULL;
        if (err->status == SLUICE_OK) {
            sluice_fail(err, status == GGML_STATUS_ALLOC_FAILED ? SLUICE_ERR_MEMORY : SLUICE_ERR_LLAMA,
                        status == GGML_STATUS_ALLOC_FAILED ? "out of memory in an MoE block"
                                                           : "ggml's CPU backend failed in an MoE block");
        }
    }
    return status;
}
