/*
 * foresee.c - guessing which experts the next block will use.
 *
 * While attention computes, the disk would be idle: the next layer's router has not spoken yet. But a
 * layer adds little to the hidden state, so the next layer's router applied to this layer's input
 * names most of the experts that it will pick, the likeliest ones best. What of these is not in memory
 * is read while nothing else is to be read (engine_foresee), whole bundles, likeliest first.
 *
 * Measured, one token at a time, share of the guesses that the router then picked, by rank of the
 * guess (2026-11-30):
 *
 *     10 layers, top-8 of 128, random weights          0.85 0.74 0.66 0.58 0.51 0.43 0.38 0.34
 *     48 layers, the same                              0.96 0.94 0.90 0.86 0.81 0.71 0.60 0.49
 *       of those not in a cache of 2000 MiB            0.91 0.88 0.85 0.77 0.75 0.63 0.52 0.42
 *
 * and what it gains is in docs/benchmarks.md, "Lookahead". Engines that guessed on a disk that was
 * busy anyway lost by it; here a guess never waits in front of a read that is asked for, the rest is
 * taken back at the next demand, and guessing stops for a while when it turns out useless.
 *
 * The router is found in the graph, behind the ids of the expert matmul: no names, no table of
 * models. Its input has been multiplied with its own layer's norm weights; that is undone and the
 * next layer's are applied. Selection biases and groups of experts (DeepSeek) are not imitated: a
 * guess may be wrong, and then costs a read. What is guessed never changes what is computed.
 *
 * One vector times one small matrix, on the thread that runs the block, after its reads are under
 * way: 0.26 million multiply-adds a layer for the second model above.
 */
#include "backend/foresee.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/weights.h"

void foresee_init(struct foresee *f, kernel_traits_fn traits) {
    *f = (struct foresee){.traits = traits, .last = UINT32_MAX};
}

void foresee_free(struct foresee *f) {
    free(f->router);
    free(f->scratch);
    memset(f, 0, sizeof *f);
}

void foresee_learn(struct foresee *f, const struct ggml_tensor *node, uint32_t group, uint32_t n_expert) {
    if (!f->traits) {
        return;
    }
    if (group >= f->n_groups) {
        struct foresee_router *r = reallocarray(f->router, group + 1, sizeof *r);
        if (!r) {
            return; /* it only guesses */
        }
        for (uint32_t i = f->n_groups; i <= group; i++) {
            r[i] = (struct foresee_router){.next = UINT32_MAX};
        }
        f->router = r;
        f->n_groups = group + 1;
    }
    if (f->last != UINT32_MAX) {
        f->router[f->last].next = group;
    }
    f->last = group;
    struct foresee_router *r = &f->router[group];
    if (r->looked) {
        return;
    }
    r->looked = true;
    struct weights_router found;
    const struct ggml_tensor *m = weights_matmul(node->src[2], n_expert, &found);
    if (!m) {
        return;
    }
    const struct ggml_tensor *in = m->src[1];
    r->weight = m->src[0];
    if (in->op == GGML_OP_MUL && weights_leaf(in->src[1]) && in->src[1]->type == GGML_TYPE_F32 &&
        ggml_nelements(in->src[1]) == r->weight->ne[0]) {
        r->norm = in->src[1];
    }
}

/* Room for n floats, the same converted, n_expert logits and picks. */
static bool foresee_reserve(struct foresee *f, size_t bytes) {
    if (bytes > f->scratch_bytes) {
        void *p = NULL;
        if (posix_memalign(&p, 64, bytes)) {
            return false;
        }
        free(f->scratch);
        f->scratch = p;
        f->scratch_bytes = bytes;
    }
    return true;
}

void foresee_next(struct foresee *f, struct engine *e, const struct ggml_tensor *node, uint32_t group, int64_t top_k) {
    if (!f->traits || group >= f->n_groups || f->router[group].next == UINT32_MAX || !engine_foresees(e)) {
        return;
    }
    const struct foresee_router *here = &f->router[group], *there = &f->router[here->next];
    const struct ggml_tensor *w = there->weight, *in = node->src[1];
    if (!w || in->type != GGML_TYPE_F32 || w->ne[0] != in->ne[0] || in->ne[1] != 1 || here->next == group) {
        return;
    }
    const struct ggml_type_traits_cpu *t = f->traits(w->type);
    const enum ggml_type type = t && t->vec_dot ? t->vec_dot_type : GGML_TYPE_COUNT;
    if (type == GGML_TYPE_COUNT || in->ne[0] % ggml_blck_size(type)) {
        return;
    }
    const int64_t n = in->ne[0], n_expert = w->ne[1];
    const size_t floats = ((size_t)n * sizeof(float) + 63) / 64 * 64;
    const size_t row = (ggml_row_size(type, n) + 63) / 64 * 64;
    const size_t logit_bytes = ((size_t)n_expert * sizeof(float) + 63) / 64 * 64;
    if (!foresee_reserve(f, floats + row + logit_bytes + (size_t)top_k * sizeof(int32_t))) {
        return;
    }
    float *x = f->scratch, *logit = (float *)((char *)f->scratch + floats + row);
    void *converted = (char *)f->scratch + floats;
    int32_t *pick = (int32_t *)((char *)logit + logit_bytes);
    const float *from = in->data, *a = there->norm ? there->norm->data : NULL,
                *b = here->norm ? here->norm->data : NULL;
    for (int64_t i = 0; i < n; i++) {
        x[i] = a && b && b[i] != 0 ? from[i] / b[i] * a[i] : from[i];
    }
    if (type == GGML_TYPE_F32) {
        converted = x;
    } else {
        f->traits(type)->from_float(x, converted, n);
    }
    for (int64_t i = 0; i < n_expert; i++) {
        t->vec_dot((int)n, logit + i, 0, (const char *)w->data + (size_t)i * w->nb[1], 0, converted, 0, 1);
    }
    int64_t picked = 0;
    while (picked < top_k && picked < n_expert) {
        int64_t best = -1;
        for (int64_t i = 0; i < n_expert; i++) {
            if (logit[i] == logit[i] && (best < 0 || logit[i] > logit[best])) {
                best = i;
            }
        }
        if (best < 0) {
            break;
        }
        pick[picked++] = (int32_t)best;
        logit[best] = NAN;
    }
    engine_foresee(e, here->next, pick, (uint32_t)picked);
}
