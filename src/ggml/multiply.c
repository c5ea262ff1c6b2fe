/*
 * multiply.c - one expert matmul over the experts that are held.
 *
 * Two ways. The kernel (kernel.c) is one node for all experts, whose threads wait for them inside the graph. The
 * reference path is what stock ggml does: every expert becomes a MUL_MAT_ID of its own over a one-expert weight that
 * points into a slot. ggml computes the rows of one expert independently of which other experts there are, so the bytes
 * are those of the stock node, provided that all rows of one expert stay together: kernels for many rows may differ
 * from those for few. Experts in memory are computed first, the others in the order in which they arrive.
 *
 * The kernel takes ggml's vec_dot for every value. So does ggml's MUL_MAT_ID, mostly: release v0.5.0
 * has another kernel for some IQ types from a certain number of rows on, whose sums are taken in
 * another order. Which types, which shapes and from how many rows is a matter of release, processor
 * and build. A table of that would be wrong one day, and wrong bytes are the worst that can happen.
 *
 * So it is tried. A node that holds an expert with a number of rows that was not met yet takes the
 * reference path, and the results of such experts are compared with the kernel's, on the batch's own
 * input and the model's own weights. Where they differ, nodes that hold an expert with as many rows
 * take the reference path for good. Numbers up to 32 are tried one by one, larger ones in ranges up to
 * the next power of two. At one row (decoding) this is also the check that nothing else changed in
 * the release. The cost is the reference path for a node, and 64 rows of weights for each comparison, a few dozen times
 * in the life of a context.
 */
#include "ggml/multiply.h"

#include <stdlib.h>
#include <string.h>

#include "cache/clock.h"

enum { TRIAL_ROWS = 64 }; /* weight rows compared */

/* What is known of the kernel's bytes. */
enum trial_answer {
    TRIAL_SAME,    /* they are ggml's */
    TRIAL_OTHER,   /* they are not, or the kernel cannot do it */
    TRIAL_UNKNOWN, /* some number of rows was not tried yet */
};

void multiply_free(struct multiply *m) {
    free(m->row);
    free(m->input);
    memset(m, 0, sizeof *m);
}

/* ---- is the kernel right? ----------------------------------------------------------------------- */

/* The bit for so many rows: each number up to 32, then ranges that end at powers of two. */
static uint64_t trial_bit(int32_t rows) {
    int bit = rows;
    if (rows > 32) {
        bit = 33;
        for (int64_t most = 64; most < rows; most *= 2) {
            bit++;
        }
    }
    return (uint64_t)1 << bit;
}

static struct trial_shape *trial_find(struct multiply *m, const struct ggml_tensor *w) {
    for (int i = 0; i < m->n; i++) {
        struct trial_shape *s = &m->shape[i];
        if (s->type == w->type && s->ne0 == w->ne[0] && s->ne1 == w->ne[1]) {
            return s;
        }
    }
    if (m->n == TRIAL_SHAPES) {
        return NULL;
    }
    m->shape[m->n] = (struct trial_shape){.type = w->type, .ne0 = w->ne[0], .ne1 = w->ne[1]};
    return &m->shape[m->n++];
}

/* What is known of a node whose experts have the row counts of that routing. */
static enum trial_answer trial_ask(struct multiply *m, const struct route *route, const struct ggml_tensor *node) {
    const kernel_traits_fn traits = m->collect->traits;
    const bool fits = traits && route->n <= KERNEL_EXPERTS && kernel_row_type(traits, node) != GGML_TYPE_COUNT;
    const struct trial_shape *s = fits ? trial_find(m, node->src[0]) : NULL;
    if (!s) {
        return TRIAL_OTHER;
    }
    uint64_t rows = 0;
    for (uint32_t i = 0; i < route->n; i++) {
        rows |= trial_bit(route_rows(route, i));
    }
    return rows & s->other ? TRIAL_OTHER : rows & ~s->same ? TRIAL_UNKNOWN : TRIAL_SAME;
}

static bool trial_reserve(struct multiply *m, size_t row, size_t input) {
    if (row > m->row_cap) {
        free(m->row);
        m->row = malloc(row);
        m->row_cap = m->row ? row : 0;
    }
    if (input > m->input_cap) {
        void *p = NULL;
        free(m->input);
        m->input = posix_memalign(&p, 64, input) ? NULL : p;
        m->input_cap = m->input ? input : 0;
    }
    return row <= m->row_cap && input <= m->input_cap;
}

/* The rows of the expert at a place were computed by ggml from these weights: are the kernel's bytes the same? */
static enum ggml_status trial_compare(struct multiply *m, const struct route *route, const struct ggml_tensor *node,
                                      uint32_t place, const char *weights) {
    const struct ggml_tensor *w = node->src[0], *in = node->src[1];
    const kernel_traits_fn traits = m->collect->traits;
    struct trial_shape *s = trial_find(m, w);
    const uint64_t bit = trial_bit(route_rows(route, place));
    if (!s || (s->same | s->other) & bit) {
        return GGML_STATUS_SUCCESS;
    }
    const struct ggml_type_traits_cpu *dot = traits(w->type);
    const int64_t n_rows = w->ne[1] < TRIAL_ROWS ? w->ne[1] : TRIAL_ROWS;
    if (!trial_reserve(m, (size_t)n_rows * sizeof(float), ggml_row_size(dot->vec_dot_type, in->ne[0]))) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    bool same = true;
    for (int32_t i = route->first[place]; i < route->first[place + 1] && same; i++) {
        const char *row = route_row(route, in, route->list[i]);
        if (dot->vec_dot_type != in->type) {
            traits(dot->vec_dot_type)->from_float((const float *)row, m->input, in->ne[0]);
            row = m->input;
        }
        for (int64_t r = 0; r < n_rows; r++) {
            dot->vec_dot((int)w->ne[0], m->row + r, 0, weights + (size_t)r * w->nb[1], 0, row, 0, 1);
        }
        same = memcmp(m->row, route_row(route, node, route->list[i]), (size_t)n_rows * sizeof(float)) == 0;
    }
    *(same ? &s->same : &s->other) |= bit;
    return GGML_STATUS_SUCCESS;
}

/* What was computed and is still held is compared. */
static enum ggml_status trial_compare_done(struct multiply *m, struct hold *h, const struct ggml_tensor *node,
                                           uint32_t part) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (uint32_t i = 0; i < h->route->n && status == GGML_STATUS_SUCCESS; i++) {
        const uint32_t slot = hold_slot(h, i);
        if (hold_stage(h, i) == HOLD_DONE && slot != UINT32_MAX) {
            status = trial_compare(m, h->route, node, i, engine_part_data(h->engine, slot, part));
        }
    }
    return status;
}

/* ---- the two ways ------------------------------------------------------------------------------- */

/* Append every expert that is ready and was not appended yet. n_done counts them. */
static enum ggml_status multiply_add_ready(struct multiply *m, struct hold *h, struct ggml_tensor *node, uint32_t part,
                                           uint32_t *n_done) {
    for (uint32_t i = 0; i < h->route->n; i++) {
        if (hold_stage(h, i) != HOLD_OPEN) {
            continue;
        }
        const uint32_t slot = hold_slot(h, i);
        const enum part_state state = engine_part_state(h->engine, slot, part);
        if (state == PART_FAILED) {
            m->collect->failed = h->engine;
            return GGML_STATUS_FAILED;
        }
        if (state == PART_READY) {
            const void *weights = engine_part_data(h->engine, slot, part);
            const enum ggml_status status = collect_add_expert(m->collect, h->route, node, i, weights);
            if (status != GGML_STATUS_SUCCESS) {
                return status;
            }
            hold_done(h, i); /* as soon as the graph ran, and before that nobody gives slots back */
            (*n_done)++;
        }
    }
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status multiply_reference(struct multiply *m, struct hold *h, struct ggml_tensor *node, uint32_t part,
                                           struct sluice_error *err) {
    const struct route *r = h->route;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    if (r->n != (uint32_t)(r->first[r->n] - r->first[0])) {
        status = collect_flush(m->collect); /* some expert has several rows, whose inputs are about to be gathered */
    }
    hold_node(h, 1u << part, &m->slept_s);
    for (uint32_t n_done = 0; n_done < r->n && status == GGML_STATUS_SUCCESS;) {
        hold_roll(h, true);
        if (hold_failed(h)) {
            break;
        }
        const uint32_t seen = engine_seen(h->engine), before = n_done;
        status = multiply_add_ready(m, h, node, part, &n_done);
        const bool untried = trial_ask(m, r, node) == TRIAL_UNKNOWN;
        if (status != GGML_STATUS_SUCCESS || (h->all && n_done == r->n && !untried)) {
            break; /* with all experts held, the graph may grow on into the next nodes */
        }
        status = collect_flush(m->collect);
        if (status == GGML_STATUS_SUCCESS && untried) {
            status = trial_compare_done(m, h, node, part);
        }
        if (status == GGML_STATUS_SUCCESS && n_done == before) {
            timing_switch(m->collect->timing, TIMING_STALL, clock_seconds());
            engine_wait(h->engine, seen);
            timing_switch(m->collect->timing, TIMING_BOOKKEEPING, clock_seconds());
        }
    }
    const int rc = hold_node_end(h, err);
    return rc ? multiply_status(rc) : status;
}

enum ggml_status multiply_run(struct multiply *m, struct hold *h, const struct matmuls *mm, int *taken,
                              struct sluice_error *err) {
    const bool kernel = !m->reference && trial_ask(m, h->route, mm->node[0]) == TRIAL_SAME;
    *taken = kernel ? mm->n : 1;
    if (!kernel) {
        return multiply_reference(m, h, mm->node[0], mm->part[0], err);
    }
    hold_node(h, matmuls_parts(mm, mm->n), NULL); /* who waits is counted by the kernel */
    enum ggml_status status = collect_add_kernel(m->collect, h, mm->node, mm->part, mm->n);
    if (!h->all && status == GGML_STATUS_SUCCESS) {
        status = collect_flush(m->collect);
    }
    const int rc = hold_node_end(h, err);
    return rc ? multiply_status(rc) : status;
}
