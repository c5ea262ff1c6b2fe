/*
 * prefetch.c - guessing which experts the next block will use.
 *
 * While attention computes, the disk would be idle: the next layer's router has not spoken yet. But a
 * layer adds little to the hidden state, so the next layer's router applied to this layer's input
 * names most of the experts that it will pick, the likeliest ones best. What of these is not in memory
 * is read while nothing else is to be read (engine_prefetch), whole experts, likeliest first.
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
 * Of several tokens in a batch (slots of a server) each votes (cache/guess.c). The likeliest of what all of them want
 * are surer than those of one: with 8 sequences of the trained demo model (4 of 32) the first eight guesses are
 * right 0.92 to 0.84 of the time, with one sequence the first four 0.80 to 0.46. Of several
 * tokens half as many are guessed as this block's tokens have distinct experts: with 4 sequences of the first model
 * above and a third of its experts cached, 0.44 of what was begun was then used, 0.37 of twice as many (0.33 with one).
 *
 * One vector per token times one small matrix, on the thread that runs the block, after its reads are under
 * way: 0.26 million multiply-adds a layer and token for the second model above. So only few tokens: of more than
 * PREFETCH_ROWS, PREFETCH_SAMPLE vote, spread over the batch. Those want nearly every expert of the next layer, so what
 * some of them want is as good as certain, and attention takes them long enough to read it.
 */
#include "ggml/prefetch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ggml/weights.h"
#include "cache/guess.h"

void prefetch_init(struct prefetch *f, struct engine *engine, kernel_traits_fn traits) {
    *f = (struct prefetch){.engine = engine, .traits = traits};
    engine_prefetcher_begin(engine, &f->of);
}

void prefetch_free(struct prefetch *f) {
    engine_prefetcher_end(f->engine, &f->of);
    free(f->router);
    free(f->scratch);
    memset(f, 0, sizeof *f);
}

void prefetch_learn(struct prefetch *f, const struct ggml_tensor *node, uint32_t group, uint32_t n_expert) {
    if (!f->traits) {
        return;
    }
    if (group >= f->n_groups) {
        struct prefetch_router *r = reallocarray(f->router, group + 1, sizeof *r);
        if (!r) {
            return; /* it only guesses */
        }
        for (uint32_t i = f->n_groups; i <= group; i++) {
            r[i] = (struct prefetch_router){0};
        }
        f->router = r;
        f->n_groups = group + 1;
    }
    struct prefetch_router *r = &f->router[group];
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

/* Room for an input, the same converted, logits, scores and picks. */
static bool prefetch_reserve(struct prefetch *f, size_t bytes) {
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

/* Bytes in whole cache lines. */
static size_t prefetch_line(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

void prefetch_guess(struct prefetch *f, const struct ggml_tensor *node, uint32_t group, uint32_t next, int64_t top_k,
                    uint32_t n_distinct) {
    f->n_picks = 0;
    const struct ggml_tensor *in = node->src[1];
    const int64_t n = in->ne[0], n_rows = in->ne[2];
    const bool wide = n_rows > PREFETCH_ROWS;
    const int64_t n_votes = wide ? PREFETCH_SAMPLE : n_rows;
    if (!f->traits || group >= f->n_groups || next >= f->n_groups || !engine_prefetches(f->engine, &f->of)) {
        return;
    }
    const struct prefetch_router *here = &f->router[group], *there = &f->router[next];
    const struct ggml_tensor *w = there->weight;
    if (!w || in->type != GGML_TYPE_F32 || w->ne[0] != n || in->ne[1] != 1 || next == group) {
        return;
    }
    const struct ggml_type_traits_cpu *t = f->traits(w->type);
    const enum ggml_type type = t && t->vec_dot ? t->vec_dot_type : GGML_TYPE_COUNT;
    if (type == GGML_TYPE_COUNT || n % ggml_blck_size(type)) {
        return;
    }
    const int64_t n_expert = w->ne[1];
    const uint32_t most = n_rows == 1 ? n_distinct : n_distinct / 2; /* of at most n_expert */
    const size_t floats = prefetch_line((size_t)n * sizeof(float)), row = prefetch_line(ggml_row_size(type, n));
    const size_t experts = prefetch_line((size_t)n_expert * sizeof(float));
    if (!prefetch_reserve(f, floats + row + 2 * experts + (size_t)most * sizeof(int32_t))) {
        return;
    }
    char *at = f->scratch;
    float *x = (float *)at, *logit = (float *)(at + floats + row), *score = (float *)(at + floats + row + experts);
    void *converted = type == GGML_TYPE_F32 ? x : (void *)(at + floats);
    int32_t *pick = (int32_t *)(at + floats + row + 2 * experts);
    const float *a = there->norm ? there->norm->data : NULL, *b = here->norm ? here->norm->data : NULL;
    memset(score, 0, experts);
    for (int64_t v = 0; v < n_votes; v++) {
        const int64_t r = (v + 1) * n_rows / n_votes - 1; /* the last one is among them: what follows is like it */
        const float *from = (const float *)((const char *)in->data + (size_t)r * in->nb[2]);
        for (int64_t i = 0; i < n; i++) {
            x[i] = a && b && b[i] != 0 ? from[i] / b[i] * a[i] : from[i];
        }
        if (converted != x) {
            f->traits(type)->from_float(x, converted, n);
        }
        for (int64_t i = 0; i < n_expert; i++) {
            t->vec_dot((int)n, logit + i, 0, (const char *)w->data + (size_t)i * w->nb[1], 0, converted, 0, 1);
        }
        guess_add(score, logit, n_expert, top_k);
    }
    f->n_picks = guess_rank(score, n_expert, pick, most);
    f->pick = pick;
    f->picks_of = next;
    f->wide = wide;
}

void prefetch_read(struct prefetch *f) {
    if (f->n_picks) {
        engine_prefetch(f->engine, &f->of, f->picks_of, f->pick, f->n_picks, f->wide);
        f->n_picks = 0;
    }
}
