/*
 * route_trace.c - writing the route trace of everything that streams.
 *
 * A block's rows are written when its experts have been acquired, in the order in which the engine
 * counted them. So a trace of one context says exactly what the cache was asked, one that several
 * contexts write at once says it up to the order in which they came here.
 *
 * Turn, phase and position in the context are not in a graph: observe/batch.h knows them. The last layer of a prompt's
 * batch has fewer rows than the others, since llama.cpp drops those whose logits nobody asked for. They are taken to be
 * the batch's last.
 *
 * One trace is of one set of models. When another model is loaded or one is freed, the cache is divided anew, and the
 * trace ends there, with a message.
 *
 * Cost: the lock, and some 30 ns per row for formatting (trace/write.c). All experts' probabilities
 * are computed a second time, and only if a file for them is named.
 */
#include "observe/route_trace.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/check.h"
#include "cache/error.h"
#include "memory/settings.h"

bool route_trace_wanted(const struct route_trace *t) {
    return atomic_load_explicit(&t->on, memory_order_relaxed);
}

bool route_trace_wants_probs(struct route_trace *t) {
    check_lock(&t->lock);
    const bool wanted = t->probs != NULL;
    check_unlock(&t->lock);
    return wanted;
}

/* ---- opening and closing --------------------------------------------------------------------- */

int route_trace_open(struct route_trace *t, const char *path, const char *probs, struct sluice_error *err) {
    int rc = sluice_ok(err);
    check_lock(&t->lock);
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
    check_unlock(&t->lock);
    return rc;
}

/* No more rows. */
static int tracing_end(struct route_trace *t, struct sluice_error *err) {
    struct sluice_error second;
    assert(check_held(&t->lock));
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
    t->head = (struct trace_head){0};
    t->layer_of_group = NULL;
    return rc;
}

int route_trace_close(struct route_trace *t, struct sluice_error *err) {
    check_lock(&t->lock);
    const int rc = tracing_end(t, err);
    check_unlock(&t->lock);
    return rc;
}

/* The thread that computes goes on without the trace, and says why. */
static void tracing_give_up(struct route_trace *t, const char *why) {
    struct sluice_error err;
    fprintf(stderr, "sluice: the route trace ends here: %s\n", why);
    if (tracing_end(t, &err)) {
        fprintf(stderr, "sluice: %s\n", err.message);
    }
}

/* ---- the head -------------------------------------------------------------------------------- */

uint32_t route_trace_layer(const char *name) {
    uint32_t n = 0;
    if (strncmp(name, "blk.", 4) != 0 || name[4] < '0' || name[4] > '9') {
        return UINT32_MAX;
    }
    for (name += 4; *name >= '0' && *name <= '9' && n < TRACE_LAYERS_MAX; name++) {
        n = n * 10 + (uint32_t)(*name - '0');
    }
    return n < TRACE_LAYERS_MAX ? n : UINT32_MAX;
}

void route_trace_model(struct route_trace *t, const struct route_trace_model *m) {
    check_lock(&t->lock);
    t->model = *m;
    check_unlock(&t->lock);
}

/* Fill head and layer_of_group. False: no memory, or more layers than a trace may have. */
static bool tracing_fill_head(struct route_trace *t, struct engine_group *g, uint32_t n, const struct engine_arena *a) {
    struct trace_head *h = &t->head;
    struct facts facts;
    assert(check_held(&t->lock));
    t->source->facts(t->source->ud, &facts);
    *h = (struct trace_head){.engine = true,
                             .budget = a->budget,
                             .align = a->align,
                             .n_groups = a->n_groups,
                             .n_layers = n,
                             .lookahead = facts.settings.lookahead};
    h->layers = calloc(n ? n : 1, sizeof *h->layers);
    t->layer_of_group = malloc((a->n_groups ? a->n_groups : 1) * sizeof *t->layer_of_group);
    if (!h->layers || !t->layer_of_group || n == 0) {
        return false;
    }
    memset(t->layer_of_group, 0xff, a->n_groups * sizeof *t->layer_of_group); /* all UINT32_MAX */
    snprintf(h->model, sizeof h->model, "%.*s", (int)sizeof h->model - 1, facts.model);
    snprintf(h->arch, sizeof h->arch, "%s", facts.architecture[0] ? facts.architecture : "unknown");
    snprintf(h->policy, sizeof h->policy, "%s", settings_word(&facts.settings, "cache_policy"));
    /* The model's numbers where they ascend as the groups do, which is what policies go by; else the groups'. */
    bool numbered = true;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t number = route_trace_layer(g[i].prefix);
        numbered = numbered && number != UINT32_MAX && (i == 0 || number > route_trace_layer(g[i - 1].prefix));
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t number = numbered ? route_trace_layer(g[i].prefix) : i;
        const uint64_t experts = g[i].weight_bytes * g[i].n_expert;
        const uint64_t all = numbered && number < ROUTE_TRACE_LAYERS ? t->model.layer_bytes[number] : 0;
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

static bool tracing_head(struct route_trace *t) {
    struct engine_arena arena;
    struct engine_group *g = calloc(TRACE_LAYERS_MAX, sizeof *g);
    const uint32_t n = g ? engine_groups(t->source->engine, g, TRACE_LAYERS_MAX, &arena) : 0;
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
static void tracing_probs(struct route_trace *t, const struct route_trace_block *b, const struct trace_row *first) {
    struct trace_row row = *first;
    assert(check_held(&t->lock));
    if (b->no_probs.status) {
        t->probs_err = b->no_probs;
    }
    for (uint32_t i = 0; b->probs && i < b->routing.tokens; i++, row.step++) {
        trace_writer_probs(t->probs, &row, b->probs + (size_t)i * b->n_expert, b->n_expert);
    }
}

static void tracing_rows(struct route_trace *t, const struct route_trace_block *b, const struct trace_row *first,
                         uint64_t bytes) {
    const struct engine_routing *r = &b->routing;
    struct trace_row row = *first;
    assert(check_held(&t->lock));
    for (uint32_t use = 0; use < r->tokens * r->top_k; use++) {
        const int32_t place = b->place[b->id[use]];
        row.step = first->step + use / r->top_k;
        row.slot = (uint16_t)(use % r->top_k);
        row.expert = (uint32_t)b->id[use];
        row.weight = b->weight ? b->weight[use] : NAN;
        const uint8_t found = b->found[place];
        const bool given_up = found == ENGINE_LEFT || found == ENGINE_LEFT_THERE;
        row.dropped = !given_up ? TRACE_KEPT : b->copied ? TRACE_COPIED : TRACE_LEFT_OUT;
        row.residency = found == ENGINE_FOUND_NOT || found == ENGINE_LEFT ? TRACE_MISS
                        : found == ENGINE_PREFETCHED                      ? TRACE_PREFETCHED
                                                                          : TRACE_HIT;
        /* Uses of an expert are ascending: the first of them stands for what was read. */
        const bool first_use = (uint32_t)r->list[r->first[place]] == use;
        const bool reads = row.dropped == TRACE_KEPT ? row.residency == TRACE_MISS
                                                     : row.dropped == TRACE_COPIED &&
                                                           b->copied[(uint32_t)place - b->n_kept] == ENGINE_FOUND_NOT;
        row.bytes = !reads || !first_use ? 0 : row.dropped == TRACE_COPIED ? b->copy_bytes : bytes;
        trace_writer_row(t->rows, &row);
    }
}

void route_trace_give_up(struct route_trace *t, const char *why) {
    check_lock(&t->lock);
    if (t->rows || t->probs) {
        tracing_give_up(t, why);
    }
    check_unlock(&t->lock);
}

void route_trace_block(struct route_trace *t, const struct route_trace_block *b) {
    const bool prompt = b->batch->phase == SLUICE_PHASE_PROMPT;
    struct trace_row row = {.turn = b->batch->turn,
                            .step = batch_position(b->batch, b->routing.tokens),
                            .phase = prompt ? TRACE_PROMPT : TRACE_GENERATION};
    check_lock(&t->lock);
    if (t->rows || t->probs) {
        if (!t->headed && !tracing_head(t)) {
            tracing_give_up(t, "no memory, or too many layers");
        } else if (t->cuts != engine_cuts(t->source->engine)) {
            tracing_give_up(t, "models were loaded or freed, and the cache was divided anew");
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
    check_unlock(&t->lock);
}
