/*
 * lossy.c - which routed experts of a block are given up, and what becomes of them.
 *
 * --drop-cold-experts F leaves out a routed expert that would have to be read and whose final router weight is
 * below F / top-k: the read is the price, the weight what it buys. Never the expert with a token's largest
 * weight, so something is always computed. The weights are those that the outputs are multiplied with in the
 * end, after whatever gating, normalisation and scaling, so every architecture is asked the same question; where
 * they cannot be found (weights.c) nothing is left out and the mode line says so.
 *
 * An expert that several tokens of a batch share is read once for all of them. It is left out only if each of
 * them could do without it: else it is read anyway, and leaving out a row would lose its weight for
 * nothing.
 *
 * Left out means: no slot, no read; rows of zeros where the expert's results
 * would be (zeros pass through every activation and bias finitely), and weight zero where these are added up. The
 * weights are the program's tensor, which others may read: the weighting is computed with a copy instead.
 * What the others of the token weigh is scaled up to the same sum (drop_renorm), or stays.
 *
 * Batches of a prompt lose nothing unless drop_in_prefill is set; which those are is known there (observe/batch.h).
 *
 * drop_reproducible. What is in memory depends on all that ran before, on other contexts, on the budget's
 * changes and, with reading ahead, on the disk's speed. So another cache decides: a shadow of this context
 * (cache/shadow.c), empty when a generation begins, as large as the real one is then. It hears of every block of the
 * context. What it lacks may be left out though it is in memory (counted apart), what it has is read though it is not.
 * What was computed before a generation begins (observe/batch.h) has no influence on what is left out after it.
 */
#include "ggml/lossy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml/device.h"
#include "ggml/hold.h"
#include "ggml/weights.h"
#include "cache/error.h"
#include "cache/shadow.h"
#include "trace/trace.h"

void lossy_free(struct lossy *l) {
    shadow_destroy(l->shadow);
    free(l->fate);
    free(l->weight);
    free(l->leave);
    free(l->aside);
    memset(l, 0, sizeof *l);
}

void lossy_block(struct lossy *l) {
    l->active = l->examined = l->shadowed = false;
}

/* Room for a routing; what was there is of an earlier one. False: no memory. */
static bool lossy_reserve(struct lossy *l, const struct route *r) {
    const int64_t rows = r->K * r->T;
    if (rows > l->cap_rows) {
        free(l->fate);
        free(l->weight);
        l->fate = malloc((size_t)rows * sizeof *l->fate);
        l->weight = calloc((size_t)rows, sizeof *l->weight);
        l->cap_rows = l->fate && l->weight ? rows : 0;
    }
    if (r->n_all > l->cap_places) {
        free(l->leave);
        free(l->aside);
        l->leave = malloc(r->n_all);
        l->aside = malloc(r->n_all);
        l->cap_places = l->leave && l->aside ? r->n_all : 0;
    }
    return l->cap_rows >= rows && l->cap_places >= r->n_all;
}

/* The shadow hears of a block; made anew when a generation has begun, or the models are others. */
static void lossy_shadow(struct lossy *l, struct engine *e, uint32_t group, const struct route *route) {
    if (l->shadow_generation != l->batch->generation || l->shadow_cuts != engine_cuts(e)) {
        struct engine_arena arena;
        struct engine_group *g = calloc(TRACE_LAYERS_MAX, sizeof *g);
        const uint32_t n = g ? engine_groups(e, g, TRACE_LAYERS_MAX, &arena) : 0;
        shadow_destroy(l->shadow);
        l->shadow = n ? shadow_create(g, n, &arena, l->device->settings.policy) : NULL;
        l->shadow_cuts = n ? arena.cuts : 0;
        l->shadow_generation = l->batch->generation;
        free(g);
    }
    if (l->shadow) {
        const struct engine_routing r = route_routing(route);
        shadow_visit(l->shadow, group, &r);
        l->shadowed = true;
    }
}

/* The rank with a token's largest weight; the first of equals. */
static int64_t lossy_top(const struct ggml_tensor *w, int64_t token) {
    int64_t top = 0;
    for (int64_t k = 1; k < w->ne[1]; k++) {
        if (weights_at(w, token, k) > weights_at(w, token, top)) {
            top = k;
        }
    }
    return top;
}

const uint8_t *lossy_propose(struct lossy *l, struct engine *e, struct ggml_cgraph *g, int i, uint32_t group,
                             const struct route *r) {
    if (!l->device) {
        return NULL;
    }
    const struct sluice_settings *s = &l->device->settings; /* of these fields nobody changes any */
    const double below = atomic_load_explicit(&l->device->drop_below, memory_order_relaxed);
    const struct ggml_tensor *ids = ggml_graph_node(g, i)->src[2];
    if (s->drop_reproducible) {
        lossy_shadow(l, e, group, r);
    }
    if (!(below > 0)) {
        return NULL;
    }
    atomic_store_explicit(&l->device->top_k, (uint32_t)r->K, memory_order_relaxed);
    l->weighting = weights_weighting(g, i, ids);
    if (!l->weighting) {
        device_note(l->device, DEVICE_NOT_LOSSY, "the router's final weights were not found beside the experts");
        return NULL;
    }
    const bool prompt = l->batch->phase == SLUICE_PHASE_PROMPT;
    if ((prompt && !s->drop_in_prefill) || !lossy_reserve(l, r) || (s->drop_reproducible && !l->shadow)) {
        return NULL;
    }
    const struct ggml_tensor *w = l->weighting->src[1];
    const double limit = below / (double)r->K;
    memset(l->leave, ENGINE_LEAVE_COLD, r->n);
    for (int64_t t = 0; t < r->T; t++) {
        const int64_t top = lossy_top(w, t);
        for (int64_t k = 0; k < r->K; k++) {
            if (k == top || !((double)weights_at(w, t, k) < limit)) { /* a weight that is no number stays */
                l->leave[r->index[route_id(ids, t, k)]] = ENGINE_TAKE;
            }
        }
    }
    for (uint32_t p = 0; p < r->n && s->drop_reproducible; p++) {
        if (l->leave[p] == ENGINE_LEAVE_COLD) {
            l->leave[p] = shadow_has(l->shadow, group, r->expert[p]) ? ENGINE_TAKE : ENGINE_LEAVE_ALWAYS;
        }
    }
    l->examined = true;
    return l->leave;
}

/* The weights of the block without what is left out. */
static void lossy_weigh(struct lossy *l, const struct route *r) {
    const struct ggml_tensor *w = l->weighting->src[1];
    const bool renormalise = atomic_load_explicit(&l->device->drop_renorm, memory_order_relaxed);
    for (int64_t t = 0; t < r->T; t++) {
        double all = 0, kept = 0;
        for (int64_t k = 0; k < r->K; k++) {
            const double x = weights_at(w, t, k);
            all += x;
            kept += l->fate[t * r->K + k] == LOSSY_DROP ? 0 : x;
        }
        const double scale = all / kept;
        const bool renorm = renormalise && kept != all && isfinite(scale);
        for (int64_t k = 0; k < r->K; k++) {
            const int64_t row = t * r->K + k;
            const float x = weights_at(w, t, k);
            l->weight[row] = l->fate[row] == LOSSY_DROP ? 0 : renorm ? (float)(x * scale) : x;
        }
    }
}

bool lossy_settle(struct lossy *l, const struct hold *h, bool copies, struct route *r, const struct ggml_tensor *ids) {
    struct sluice_drop_stats d = {0};
    l->fate_of_cold = copies ? LOSSY_COPY : LOSSY_DROP;
    for (uint32_t p = 0; l->examined && p < r->n_all; p++) {
        l->aside[p] = h->found[p] == ENGINE_LEFT || h->found[p] == ENGINE_LEFT_THERE;
        d.experts += l->aside[p];
        d.experts_there += h->found[p] == ENGINE_LEFT_THERE;
    }
    for (int64_t row = 0; l->examined && row < r->K * r->T; row++) {
        const int64_t t = row / r->K, k = row % r->K;
        const double x = weights_at(l->weighting->src[1], t, k);
        const bool left = l->aside[r->index[route_id(ids, t, k)]];
        l->fate[row] = left ? l->fate_of_cold : LOSSY_KEEP;
        d.examined++;
        *(copies ? &d.substituted : &d.dropped) += left;
        d.weight += isfinite(x) ? x : 0;
        *(copies ? &d.substituted_weight : &d.dropped_weight) += left ? x : 0;
    }
    l->active = d.experts > 0;
    if (l->active) {
        if (!copies) {
            lossy_weigh(l, r);
        }
        route_set_aside(r, ids, l->aside);
    }
    if (l->examined) {
        engine_count_drops(h->engine, h->phase, h->group, &d);
    }
    if (l->shadowed) {
        shadow_acquire(l->shadow, h->group, r->expert, r->n);
    }
    return l->active;
}
