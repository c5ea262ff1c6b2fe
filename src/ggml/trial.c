/*
 * trial.c - does the kernel compute what ggml's own matmul does?
 *
 * kernel.c takes ggml's vec_dot for every value. So does ggml's MUL_MAT_ID, mostly: release v0.5.0
 * has another kernel for some IQ types from a certain number of rows on, whose sums are taken in
 * another order. Which types, which shapes and from how many rows is a matter of release, processor
 * and build. A table of that would be wrong one day, and wrong bytes are the worst that can happen.
 *
 * So it is tried. A node that holds an expert with a number of rows that was not met yet takes the
 * reference path, and the results of such experts are compared with the kernel's, on the batch's own
 * input and the model's own weights. Where they differ, nodes that hold an expert with as many rows
 * take the reference path for good. Numbers up to 32 are tried one by one, larger ones in ranges up to
 * the next power of two. At one row (decoding) this is also the check that nothing else changed in
 * the release.
 *
 * Cost: the reference path for a node, and 64 rows of weights for each comparison, a few dozen times
 * in the life of a context.
 */
#include "ggml/trial.h"

#include <stdlib.h>
#include <string.h>

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

enum trial_answer trial_ask(struct trial *t, const struct route *route, const struct ggml_tensor *node) {
    const struct trial_shape *s = trial_find(t, node->src[0]);
    if (!s) {
        return TRIAL_OTHER;
    }
    uint64_t rows = 0;
    for (uint32_t i = 0; i < route->n; i++) {
        rows |= trial_bit(route_rows(route, i));
    }
    return rows & s->other ? TRIAL_OTHER : rows & ~s->same ? TRIAL_UNKNOWN : TRIAL_SAME;
}

enum ggml_status trial_compare(struct trial *t, const struct route *route, kernel_traits_fn traits,
                               const struct ggml_tensor *node, uint32_t place, const char *weights) {
    const struct ggml_tensor *w = node->src[0], *in = node->src[1];
    struct trial_shape *s = trial_find(t, w);
    const uint64_t bit = trial_bit(route_rows(route, place));
    if (!s || (s->same | s->other) & bit) {
        return GGML_STATUS_SUCCESS;
    }
    const struct ggml_type_traits_cpu *dot = traits(w->type);
    const int64_t n_rows = w->ne[1] < TRIAL_ROWS ? w->ne[1] : TRIAL_ROWS;
    if (!trial_reserve(t, (size_t)n_rows * sizeof(float), ggml_row_size(dot->vec_dot_type, in->ne[0]))) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    bool same = true;
    for (int32_t i = route->first[place]; i < route->first[place + 1] && same; i++) {
        const char *row = route_row(route, in, route->list[i]);
        if (dot->vec_dot_type != in->type) {
            traits(dot->vec_dot_type)->from_float((const float *)row, t->input, in->ne[0]);
            row = t->input;
        }
        for (int64_t r = 0; r < n_rows; r++) {
            dot->vec_dot((int)w->ne[0], t->row + r, 0, weights + (size_t)r * w->nb[1], 0, row, 0, 1);
        }
        same = memcmp(t->row, route_row(route, node, route->list[i]), (size_t)n_rows * sizeof(float)) == 0;
    }
    *(same ? &s->same : &s->other) |= bit;
    return GGML_STATUS_SUCCESS;
}
