/*
 * tracing.c - writing the route trace of everything that streams.
 *
 * A block's rows are written when its experts have been acquired, in the order in which the engine
 * counted them. So a trace of one context says exactly what the cache was asked, one that several
 * contexts write at once says it up to the order in which they came here.
 *
 * Turn, phase and position in the context are not in a graph: observe/batch.h knows them. The last layer of a prompt's
 * batch has fewer rows than the others, since llama.cpp drops those whose logits nobody asked for. They are taken to be
 * the batch's last.
 *
 * One trace is of one set of models. When another model is loaded or one is freed, the cache begins anew, and the
 * trace ends there, with a message.
 *
 * Cost: the lock, and some 30 ns per row for formatting (trace/write.c). All experts' probabilities
 * are computed a second time, and only if a file for them is named.
 */
#include "ggml/tracing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml/backend.h"
#include "ggml/weights.h"
#include "gguf.h"
#include "cache/error.h"

bool tracing_wanted(void) {
    return atomic_load_explicit(&sluice_device.tracing.on, memory_order_relaxed);
}

/* ---- opening and closing --------------------------------------------------------------------- */

int sluice_route_trace_open(const char *path, const char *probs, struct sluice_error *err) {
    struct tracing *t = &sluice_device.tracing;
    int rc = sluice_ok(err);
    pthread_mutex_lock(&t->lock);
    if (t->rows || t->probs) {
        rc = sluice_fail(err, SLUICE_ERR_STATE, "a route trace is being written already");
    }
    rc = rc ? rc : path ? trace_writer_open(&t->rows, path, err) : SLUICE_OK;
    rc = rc ? rc : probs ? trace_writer_open(&t->probs, probs, err) : SLUICE_OK;
    if (rc && rc != SLUICE_ERR_STATE) {
        trace_writer_close(t->rows, NULL);
        t->rows = NULL;
    }
    if (rc == SLUICE_OK) {
        t->headed = false;
        t->probs_err = (struct sluice_error){0};
        atomic_store_explicit(&t->on, t->rows || t->probs, memory_order_relaxed);
    }
    pthread_mutex_unlock(&t->lock);
    return rc;
}

/* With the lock held: no more rows. */
static int tracing_end(struct tracing *t, struct sluice_error *err) {
    struct sluice_error second;
    const bool incomplete = t->probs && t->probs_err.status;
    atomic_store_explicit(&t->on, false, memory_order_relaxed);
    int rc = trace_writer_close(t->rows, err);
    if (trace_writer_close(t->probs, &second) && rc == SLUICE_OK) {
        rc = sluice_fail(err, second.status, "%s", second.message);
    }
    if (rc == SLUICE_OK && incomplete) {
        rc = sluice_fail(err, t->probs_err.status, "%s", t->probs_err.message);
    }
    t->rows = t->probs = NULL;
    free(t->head.layers);
    free(t->layer_of_group);
    free(t->row);
    free(t->prob);
    t->head = (struct trace_head){0};
    t->layer_of_group = NULL;
    t->row = NULL;
    t->prob = NULL;
    return rc;
}

int sluice_route_trace_close(struct sluice_error *err) {
    struct tracing *t = &sluice_device.tracing;
    pthread_mutex_lock(&t->lock);
    const int rc = tracing_end(t, err);
    pthread_mutex_unlock(&t->lock);
    return rc;
}

/* With the lock held, by a computing thread: it goes on without the trace, and says why. */
static void tracing_give_up(struct tracing *t, const char *why) {
    struct sluice_error err;
    fprintf(stderr, "sluice: the route trace ends here: %s\n", why);
    if (tracing_end(t, &err)) {
        fprintf(stderr, "sluice: %s\n", err.message);
    }
}

/* ---- the head -------------------------------------------------------------------------------- */

/* N of "blk.N." at the beginning of a tensor's name; UINT32_MAX: it has none. */
static uint32_t tracing_layer_number(const char *name) {
    uint32_t n = 0;
    if (strncmp(name, "blk.", 4) != 0 || name[4] < '0' || name[4] > '9') {
        return UINT32_MAX;
    }
    for (name += 4; *name >= '0' && *name <= '9' && n < TRACE_LAYERS_MAX; name++) {
        n = n * 10 + (uint32_t)(*name - '0');
    }
    return n < TRACE_LAYERS_MAX ? n : UINT32_MAX;
}

void tracing_read_model(void) {
    struct tracing *t = &sluice_device.tracing;
    struct tracing_model *m = calloc(1, sizeof *m);
    char path[4096];
    for (uint32_t i = 0; m && engine_file_at(sluice_device.engine, i, path, sizeof path); i++) {
        const struct gguf_init_params params = {.no_alloc = true};
        struct gguf_context *g = gguf_init_from_file(path, params);
        for (int64_t k = 0; g && k < gguf_get_n_tensors(g); k++) {
            const uint32_t layer = tracing_layer_number(gguf_get_tensor_name(g, k));
            if (layer < TRACING_LAYERS) {
                m->layer_bytes[layer] += gguf_get_tensor_size(g, k);
                m->n_layer = layer + 1 > m->n_layer ? layer + 1 : m->n_layer;
            }
        }
        gguf_free(g);
    }
    if (m && m->n_layer) {
        pthread_mutex_lock(&t->lock);
        t->model = *m;
        pthread_mutex_unlock(&t->lock);
    }
    free(m);
}

/* Fill head and layer_of_group. False: no memory, or more layers than a trace may have. */
static bool tracing_fill_head(struct tracing *t, struct engine_group *g, uint32_t n, const struct engine_arena *a) {
    struct trace_head *h = &t->head;
    pthread_mutex_lock(&sluice_device.lock);
    const bool lookahead = sluice_device.settings.lookahead; /* it may be changed meanwhile */
    pthread_mutex_unlock(&sluice_device.lock);
    *h = (struct trace_head){.engine = true,
                             .budget = a->budget,
                             .align = a->align,
                             .n_groups = a->n_groups,
                             .n_layers = n,
                             .lookahead = lookahead};
    h->layers = calloc(n ? n : 1, sizeof *h->layers);
    t->layer_of_group = malloc((a->n_groups ? a->n_groups : 1) * sizeof *t->layer_of_group);
    t->n_groups = a->n_groups;
    if (!h->layers || !t->layer_of_group || n == 0) {
        return false;
    }
    memset(t->layer_of_group, 0xff, a->n_groups * sizeof *t->layer_of_group); /* all UINT32_MAX */
    engine_file_path(sluice_device.engine, h->model, sizeof h->model);
    snprintf(h->arch, sizeof h->arch, "%s", sluice_device.architecture[0] ? sluice_device.architecture : "unknown");
    snprintf(h->policy, sizeof h->policy, "%s", sluice_device.settings.policy == SLUICE_POLICY_LRU ? "lru" : "cycle");
    /* The model's numbers where they ascend as the groups do, which is what policies go by; else the groups'. */
    bool numbered = true;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t number = tracing_layer_number(g[i].prefix);
        numbered = numbered && number != UINT32_MAX && (i == 0 || number > tracing_layer_number(g[i - 1].prefix));
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t number = numbered ? tracing_layer_number(g[i].prefix) : i;
        const uint64_t experts = g[i].weight_bytes * g[i].n_expert;
        const uint64_t all = numbered && number < TRACING_LAYERS ? t->model.layer_bytes[number] : 0;
        h->layers[i] = (struct trace_layer){.number = number,
                                            .top_k = g[i].top_k,
                                            .expert_bytes = g[i].weight_bytes,
                                            .slot_bytes = g[i].slot_bytes,
                                            .dense_bytes = all > experts ? all - experts : 0};
        h->n_expert = g[i].n_expert > h->n_expert ? g[i].n_expert : h->n_expert;
        h->n_expert_used = g[i].top_k > h->n_expert_used ? g[i].top_k : h->n_expert_used;
        t->layer_of_group[g[i].group] = i;
    }
    h->n_layer = t->model.n_layer > n ? t->model.n_layer : n;
    return true;
}

static bool tracing_head(struct tracing *t) {
    struct engine_arena arena;
    struct engine_group *g = calloc(TRACE_LAYERS_MAX, sizeof *g);
    const uint32_t n = g ? engine_groups(sluice_device.engine, g, TRACE_LAYERS_MAX, &arena) : 0;
    const bool ok = n && n < TRACE_LAYERS_MAX && tracing_fill_head(t, g, n, &arena);
    free(g);
    if (!ok) {
        return false;
    }
    t->cuts = arena.cuts;
    t->headed = true;
    if (t->rows) {
        trace_writer_head(t->rows, &t->head);
    }
    return true;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* The probabilities of all experts, a line per token. */
static void tracing_probs(struct tracing *t, const struct tracing_block *b, const struct trace_row *first) {
    struct weights_router r;
    struct trace_row row = *first;
    if (!weights_router(b->node, b->n_expert, &r)) {
        sluice_fail(&t->probs_err, SLUICE_ERR_ARG,
                    "no probabilities for layer %u: its router was not found, or has another input than the experts",
                    first->layer);
        return;
    }
    const size_t row_bytes = (size_t)r.matrix->ne[0] * sizeof(float);
    if (row_bytes > t->row_bytes || !t->row) {
        free(t->row);
        free(t->prob);
        t->row_bytes = row_bytes;
        t->row = malloc(row_bytes);
        t->prob = calloc(t->head.n_expert, sizeof *t->prob);
    }
    for (int64_t i = 0; i < b->route->T && t->row && t->prob; i++, row.step++) {
        if (!weights_probs(&r, b->traits, b->node, i, t->row, t->row_bytes, t->prob)) {
            sluice_fail(&t->probs_err, SLUICE_ERR_ARG, "no probabilities: the router's matrix has the type %s",
                        ggml_type_name(r.matrix->type));
            return;
        }
        trace_writer_probs(t->probs, &row, t->prob, b->n_expert);
    }
}

static void tracing_rows(struct tracing *t, const struct tracing_block *b, const struct trace_row *first,
                         uint64_t bytes) {
    const struct route *r = b->route;
    struct trace_row row = *first;
    for (int64_t token = 0; token < r->T; token++, row.step++) {
        for (int64_t k = 0; k < r->K; k++) {
            const int32_t id = route_id(b->node->src[2], token, k);
            const int32_t place = r->index[id];
            row.slot = (uint16_t)k;
            row.expert = (uint32_t)id;
            row.weight = b->weights ? weights_at(b->weights, token, k) : NAN;
            const uint8_t found = b->found[place];
            const bool given_up = found == ENGINE_LEFT || found == ENGINE_LEFT_THERE;
            row.dropped = !given_up ? TRACE_KEPT : b->copied ? TRACE_COPIED : TRACE_LEFT_OUT;
            row.residency = found == ENGINE_FOUND_NOT || found == ENGINE_LEFT ? TRACE_MISS
                            : found == ENGINE_PREFETCHED                      ? TRACE_PREFETCHED
                                                                              : TRACE_HIT;
            /* Rows of an expert are ascending: the first of them stands for what was read. */
            const bool first_row = r->list[r->first[place]] == token * r->K + k;
            const bool reads = row.dropped == TRACE_KEPT ? row.residency == TRACE_MISS
                                                         : row.dropped == TRACE_COPIED &&
                                                               b->copied[(uint32_t)place - r->n] == ENGINE_FOUND_NOT;
            row.bytes = !reads || !first_row ? 0 : row.dropped == TRACE_COPIED ? b->copy_bytes : bytes;
            trace_writer_row(t->rows, &row);
        }
    }
}

void tracing_block(const struct tracing_block *b) {
    struct tracing *t = &sluice_device.tracing;
    const bool prompt = b->batch->phase == SLUICE_PHASE_PROMPT;
    struct trace_row row = {.turn = b->batch->turn,
                            .step = batch_position(b->batch, (uint32_t)b->route->T),
                            .phase = prompt ? TRACE_PROMPT : TRACE_GENERATION};
    pthread_mutex_lock(&t->lock);
    if (t->rows || t->probs) {
        if (!t->headed && !tracing_head(t)) {
            tracing_give_up(t, "no memory, or too many layers");
        } else if (t->cuts != engine_cuts(sluice_device.engine)) {
            tracing_give_up(t, "models were loaded or freed, and the cache began anew");
        } else {
            const struct trace_layer *l = &t->head.layers[t->layer_of_group[b->group]];
            row.layer = l->number;
            if (t->rows) {
                tracing_rows(t, b, &row, l->expert_bytes);
            }
            if (t->probs) {
                tracing_probs(t, b, &row);
            }
        }
    }
    pthread_mutex_unlock(&t->lock);
}
