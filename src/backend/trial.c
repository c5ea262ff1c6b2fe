/*
 * trial.c - does the kernel compute what ggml's own matmul does?
 *
 * kernel.c takes ggml's vec_dot for every value. So does ggml's MUL_MAT_ID, mostly: release v0.5.0
 * has another kernel for some IQ types from a certain number of rows on, whose sums are taken in
 * another order. Which types, which shapes and from how many rows is a matter of release, processor
 * and build. A table of that would be wrong one day, and wrong bytes are the worst that can happen.
 *
 * So it is tried. Before an expert with a number of rows that was not met yet is given to the kernel,
 * one such expert is computed both ways, on the batch's own input and the model's own weights, and the
 * bytes are compared. Where they differ, nodes that hold an expert with as many rows take the
 * reference path. Numbers up to 32 are tried one by one, larger ones in ranges up to the next power
 * of two. At one row (decoding) this is also the check that nothing else changed in the release.
 *
 * Cost: the stock node for one expert, and 64 rows of weights for the comparison: well under a
 * millisecond each, at most a few dozen times in the life of a context.
 */
#include "backend/trial.h"

#include <stdlib.h>
#include <string.h>

#include "stream/error.h"

enum { TRIAL_ROWS = 64 }; /* weight rows compared */

void trial_free(struct trial *t) {
    free(t->row);
    free(t->input);
    memset(t, 0, sizeof *t);
}

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

static struct trial_shape *trial_find(struct trial *t, const struct ggml_tensor *w) {
    for (int i = 0; i < t->n; i++) {
        struct trial_shape *s = &t->shape[i];
        if (s->type == w->type && s->ne0 == w->ne[0] && s->ne1 == w->ne[1]) {
            return s;
        }
    }
    if (t->n == TRIAL_SHAPES) {
        return NULL;
    }
    t->shape[t->n] = (struct trial_shape){.type = w->type, .ne0 = w->ne[0], .ne1 = w->ne[1]};
    return &t->shape[t->n++];
}

static bool trial_reserve(struct trial *t, size_t row, size_t input) {
    if (row > t->row_cap) {
        float *p = realloc(t->row, row);
        if (!p) {
            return false;
        }
        t->row = p;
        t->row_cap = row;
    }
    if (input > t->input_cap) {
        void *p = NULL;
        if (posix_memalign(&p, 64, input)) {
            return false;
        }
        free(t->input);
        t->input = p;
        t->input_cap = input;
    }
    return true;
}

/* The place's output is computed by ggml. Are these the kernel's bytes? */
static enum ggml_status trial_compare(struct trial *t, const struct collect *c, const struct ggml_tensor *node,
                                      uint32_t place, const char *weights, bool *same) {
    const struct ggml_tensor *w = node->src[0], *in = node->src[1];
    const struct ggml_type_traits_cpu *traits = c->traits(w->type);
    const struct ggml_type_traits_cpu *input = c->traits(traits->vec_dot_type);
    const int64_t n_rows = w->ne[1] < TRIAL_ROWS ? w->ne[1] : TRIAL_ROWS;
    if (!trial_reserve(t, (size_t)n_rows * sizeof(float), ggml_row_size(traits->vec_dot_type, in->ne[0]))) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    *same = true;
    for (int32_t i = c->route->first[place]; i < c->route->first[place + 1] && *same; i++) {
        const char *row = route_row(c->route, in, c->route->list[i]);
        if (traits->vec_dot_type != in->type) {
            input->from_float((const float *)row, t->input, in->ne[0]);
            row = t->input;
        }
        for (int64_t r = 0; r < n_rows; r++) {
            traits->vec_dot((int)w->ne[0], t->row + r, 0, weights + (size_t)r * w->nb[1], 0, row, 0, 1);
        }
        *same = memcmp(t->row, route_row(c->route, node, c->route->list[i]), (size_t)n_rows * sizeof(float)) == 0;
    }
    return GGML_STATUS_SUCCESS;
}

/* Sleep until the part has arrived. False: it failed. */
static bool trial_wait(struct engine *e, uint32_t slot, uint32_t part) {
    for (;;) {
        const uint32_t seen = engine_seen(e);
        const enum part_state state = engine_part_state(e, slot, part);
        if (state == PART_READY || state == PART_FAILED) {
            return state == PART_READY;
        }
        engine_wait(e, seen);
    }
}

/* Compute one place both ways, in a slot that is pinned. */
static enum ggml_status trial_place(struct trial *t, struct collect *c, struct engine *e, struct ggml_tensor *node,
                                    uint32_t part, uint32_t place, uint32_t slot, bool *same) {
    if (!trial_wait(e, slot, part)) {
        c->read_failed = true;
        return GGML_STATUS_FAILED;
    }
    const char *weights = engine_part_data(e, slot, part);
    enum ggml_status status = collect_flush(c); /* what the input comes from */
    if (status == GGML_STATUS_SUCCESS) {
        status = collect_add_expert(c, node, place, weights);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = collect_flush(c);
    }
    return status == GGML_STATUS_SUCCESS ? trial_compare(t, c, node, place, weights, same) : status;
}

enum ggml_status trial_rows(struct trial *t, struct collect *c, struct engine *e, struct ggml_tensor *node,
                            const struct engine_want *want, const uint32_t *slot_of, bool *may,
                            struct sluice_error *err) {
    struct trial_shape *s = trial_find(t, node->src[0]);
    enum ggml_status status = GGML_STATUS_SUCCESS;
    *may = s != NULL;
    for (uint32_t i = 0; s && i < c->route->n && status == GGML_STATUS_SUCCESS && *may; i++) {
        const uint64_t bit = trial_bit(route_rows(c->route, i));
        if (!((s->same | s->other) & bit)) {
            uint32_t slot = slot_of[i], got = 1;
            const bool held = slot != UINT32_MAX;
            if (!held) {
                struct engine_want one = *want;
                one.expert = &c->route->expert[i];
                one.n = 1;
                one.wait = true;
                if (engine_acquire(e, &one, &slot, &got, err)) {
                    return GGML_STATUS_FAILED;
                }
            }
            uint32_t part = 0;
            while (!(want->parts >> part & 1)) {
                part++;
            }
            bool same = false;
            status = trial_place(t, c, e, node, part, i, slot, &same);
            if (!held) {
                engine_release(e, &slot, 1);
            }
            if (status == GGML_STATUS_SUCCESS) {
                *(same ? &s->same : &s->other) |= bit;
            }
        }
        *may = !(s->other & bit);
    }
    *may = *may && status == GGML_STATUS_SUCCESS;
    return status;
}
