/*
 * tracing.c - a block as the route trace needs it.
 *
 * The trace (observe/route_trace.c) knows no ggml. The experts' numbers, the router's final weights and, only if a file
 * for them is named, the probabilities of all experts are taken out of tensors here; the last are computed a second
 * time.
 */
#include "ggml/tracing.h"

#include <stdlib.h>

#include "ggml/weights.h"
#include "gguf.h"
#include "cache/error.h"

/* The probabilities of all experts, by token, by malloc. NULL: *why says why not. */
static float *tracing_probs(const struct tracing_block *b, struct sluice_error *why) {
    struct weights_router r;
    if (!weights_router(b->node, b->n_expert, &r)) {
        const uint32_t layer = route_trace_layer(b->node->src[0]->name);
        sluice_fail(why, SLUICE_ERR_ARG,
                    "no probabilities for layer %u: its router was not found, or has another input than the experts",
                    layer == UINT32_MAX ? b->group : layer);
        return NULL;
    }
    const size_t row_bytes = (size_t)r.matrix->ne[0] * sizeof(float);
    float *probs = calloc((size_t)b->route->T * b->n_expert, sizeof *probs);
    void *row = malloc(row_bytes);
    bool ok = probs && row;
    if (!ok) {
        sluice_fail(why, SLUICE_ERR_MEMORY, "no probabilities: out of memory");
    }
    for (int64_t i = 0; ok && i < b->route->T; i++) {
        ok = weights_probs(&r, b->traits, b->node, i, row, row_bytes, probs + (size_t)i * b->n_expert);
        if (!ok) {
            sluice_fail(why, SLUICE_ERR_ARG, "no probabilities: the router's matrix has the type %s",
                        ggml_type_name(r.matrix->type));
        }
    }
    free(row);
    if (!ok) {
        free(probs);
        return NULL;
    }
    return probs;
}

void tracing_block(struct route_trace *t, const struct tracing_block *b) {
    const struct route *r = b->route;
    const size_t uses = (size_t)(r->T * r->K);
    struct route_trace_block plain = {.batch = b->batch,
                                      .group = b->group,
                                      .n_expert = b->n_expert,
                                      .routing = route_routing(r),
                                      .n_kept = r->n,
                                      .place = r->index,
                                      .found = b->found,
                                      .copied = b->copied,
                                      .copy_bytes = b->copy_bytes};
    int32_t *id = calloc(uses, sizeof *id);
    float *weight = b->weights ? calloc(uses, sizeof *weight) : NULL;
    float *probs = route_trace_wants_probs(t) ? tracing_probs(b, &plain.no_probs) : NULL;
    for (size_t use = 0; id && use < uses; use++) {
        const int64_t token = (int64_t)use / r->K, rank = (int64_t)use % r->K;
        id[use] = route_id(b->node->src[2], token, rank);
        if (weight) {
            weight[use] = weights_at(b->weights, token, rank);
        }
    }
    plain.id = id;
    plain.weight = weight;
    plain.probs = probs;
    if (id && (weight || !b->weights)) {
        route_trace_block(t, &plain);
    } else {
        route_trace_give_up(t, "out of memory");
    }
    free(id);
    free(weight);
    free(probs);
}

void tracing_read_model(struct route_trace *t, struct engine *engine) {
    struct route_trace_model *m = calloc(1, sizeof *m);
    char path[4096];
    for (uint32_t i = 0; m && engine_file_at(engine, i, path, sizeof path); i++) {
        const struct gguf_init_params params = {.no_alloc = true};
        struct gguf_context *g = gguf_init_from_file(path, params);
        for (int64_t k = 0; g && k < gguf_get_n_tensors(g); k++) {
            const uint32_t layer = route_trace_layer(gguf_get_tensor_name(g, k));
            if (layer < ROUTE_TRACE_LAYERS) {
                m->layer_bytes[layer] += gguf_get_tensor_size(g, k);
                m->n_layer = layer + 1 > m->n_layer ? layer + 1 : m->n_layer;
            }
        }
        gguf_free(g);
    }
    if (m && m->n_layer) {
        route_trace_model(t, m);
    }
    free(m);
}
