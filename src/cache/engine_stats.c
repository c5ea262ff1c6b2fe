/*
 * engine_stats.c - what the engine tells about itself: counters, errors, what is loaded.
 *
 * Counters of a block are kept under the engine's lock, which it takes anyway; what reader threads
 * count is atomic. Nothing here changes what is computed.
 */
#include "cache/engine_impl.h"

#include <stdio.h>
#include <string.h>

uint32_t engine_capacity(struct engine *e, uint32_t group) {
    check_lock(&e->lock);
    const uint32_t n = e->cut ? e->slots.classes[e->slots.class_of_group[group]].n : 0;
    check_unlock(&e->lock);
    return n;
}

void engine_count_time(struct engine *e, enum engine_phase phase, double stall_s, double compute_s) {
    check_lock(&e->lock);
    e->phase[phase].stall_s += stall_s;
    e->phase[phase].compute_s += compute_s;
    check_unlock(&e->lock);
}

void engine_count_drops(struct engine *e, enum engine_phase phase, uint32_t group, const struct sluice_drop_stats *d) {
    check_lock(&e->lock);
    struct sluice_drop_stats *c = &e->phase[phase].drop;
    c->examined += d->examined;
    c->dropped += d->dropped;
    c->substituted += d->substituted;
    c->experts += d->experts;
    c->experts_there += d->experts_there;
    c->avoided_bytes += (d->experts - d->experts_there) * e->index.groups[group].weight_bytes;
    c->weight += d->weight;
    c->dropped_weight += d->dropped_weight;
    c->substituted_weight += d->substituted_weight;
    check_unlock(&e->lock);
}

uint32_t engine_take_queue_max(struct engine *e) {
    check_lock(&e->lock);
    const uint32_t max = e->queue_max;
    e->queue_max = 0;
    check_unlock(&e->lock);
    return max;
}

void engine_read_error(struct engine *e, struct sluice_error *out) {
    pthread_mutex_lock(&e->error_lock);
    *out = e->read_error;
    pthread_mutex_unlock(&e->error_lock);
}

void engine_stats(struct engine *e, struct sluice_stats *out) {
    memset(out, 0, sizeof *out);
    check_lock(&e->lock);
    struct sluice_phase_stats *phase[ENGINE_PHASES] = {&out->prompt, &out->generation};
    out->layers = e->index.live_groups;
    for (int i = 0; i < ENGINE_PHASES; i++) {
        *phase[i] = e->phase[i];
        phase[i]->read_bytes = atomic_load_explicit(&e->read[i].bytes, memory_order_relaxed);
        phase[i]->reads = atomic_load_explicit(&e->read[i].reads, memory_order_relaxed);
    }
    out->tensors = e->index.live_tensors;
    out->bank_bytes = index_weight_bytes(&e->index);
    for (uint32_t i = 0; i < e->index.n_groups; i++) {
        const struct index_group *g = &e->index.groups[i];
        if (g->n_parts) {
            const uint64_t demand = g->weight_bytes * g->top_k;
            out->token_bytes += demand;
            out->layer_bytes = demand > out->layer_bytes ? demand : out->layer_bytes;
        }
    }
    out->cache_bytes = e->slots.bytes;
    out->slots = e->slots.n_slots;
    out->resident = out->slots - slots_free(&e->slots);
    out->evictions = e->evictions;
    out->foreseen = e->prefetched;
    out->foreseen.read_bytes = atomic_load_explicit(&e->read[ENGINE_PHASES].bytes, memory_order_relaxed);
    /* Read for generation, useful or not: the disk does not care. */
    out->generation.read_bytes += out->foreseen.read_bytes;
    out->generation.reads += atomic_load_explicit(&e->read[ENGINE_PHASES].reads, memory_order_relaxed);
    out->submits = e->submits;
    out->queue_sum = e->queue_sum;
    out->lanes = (uint32_t)e->settings.io_threads;
    out->io = SLUICE_IO_PREAD;
    out->direct_io = e->index.live_tensors > 0;
    for (uint32_t i = 0; i < e->index.n_files; i++) {
        if (e->index.files[i] && e->index.files[i]->io.fd_direct < 0) {
            out->direct_io = false;
        }
    }
    check_unlock(&e->lock);
}

uint32_t engine_layers(struct engine *e, struct engine_layer *out, uint32_t cap) {
    uint32_t n = 0;
    check_lock(&e->lock);
    for (uint32_t i = 0; i < e->index.n_groups && n < cap; i++) {
        if (e->index.groups[i].n_parts) {
            out[n++] = (struct engine_layer){.resident = slots_knows(&e->slots, i) ? e->slots.resident[i] : 0,
                                             .experts = e->index.groups[i].n_expert};
        }
    }
    check_unlock(&e->lock);
    return n;
}

/* Where the bundle in a slot is, by its parts. */
static enum engine_place engine_place_of(const struct slot *s, uint32_t n_parts) {
    uint32_t ready = 0, reading = 0;
    for (uint32_t p = 0; p < n_parts; p++) {
        const uint32_t state = atomic_load_explicit(&s->state[p], memory_order_relaxed);
        ready += state == PART_READY;
        reading += state == PART_READING;
    }
    return ready == n_parts   ? (s->pins ? ENGINE_IN_USE : ENGINE_RESIDENT)
           : ready || reading ? ENGINE_READING
                              : ENGINE_COLD;
}

bool engine_bundles(struct engine *e, uint32_t i, uint8_t *place, uint32_t *uses, uint32_t cap, uint32_t *n,
                    uint32_t *top_k) {
    bool found = false;
    check_lock(&e->lock);
    for (uint32_t group = 0; group < e->index.n_groups && !found; group++) {
        const struct index_group *g = &e->index.groups[group];
        if (g->n_parts == 0 || i-- > 0) {
            continue;
        }
        found = true;
        *n = g->n_expert < cap ? g->n_expert : cap;
        *top_k = g->top_k;
        const bool there = slots_knows(&e->slots, group);
        for (uint32_t x = 0; x < *n; x++) {
            const int32_t slot = there ? slots_find(&e->slots, group, x) : -1;
            place[x] = slot < 0 ? ENGINE_COLD : (uint8_t)engine_place_of(&e->slots.slot[slot], g->n_parts);
            uses[x] = there ? e->slots.uses[e->slots.table_of_group[group] + x] : 0;
        }
    }
    check_unlock(&e->lock);
    return found;
}

void engine_set_lookahead(struct engine *e, bool on) {
    check_lock(&e->lock);
    e->settings.lookahead = on;
    check_unlock(&e->lock);
}

uint32_t engine_groups(struct engine *e, struct engine_group *out, uint32_t cap, struct engine_arena *arena) {
    uint32_t n = 0;
    check_lock(&e->lock);
    *arena = (struct engine_arena){.budget = e->budget,
                                   .align = STREAM_FILE_ALIGN,
                                   .n_groups = e->index.n_groups,
                                   .cuts = atomic_load_explicit(&e->cuts, memory_order_relaxed)};
    for (uint32_t i = 0; i < e->index.n_files; i++) {
        if (e->index.files[i] && e->index.files[i]->io.align > arena->align) {
            arena->align = e->index.files[i]->io.align;
        }
    }
    for (uint32_t i = 0; i < e->index.n_groups && n < cap; i++) {
        const struct index_group *g = &e->index.groups[i];
        if (g->n_parts) {
            out[n] = (struct engine_group){.group = i,
                                           .n_expert = g->n_expert,
                                           .top_k = g->top_k,
                                           .weight_bytes = g->weight_bytes,
                                           .slot_bytes = g->slot_bytes};
            memcpy(out[n++].prefix, g->prefix, sizeof out->prefix);
        }
    }
    check_unlock(&e->lock);
    return n;
}

uint32_t engine_cuts(struct engine *e) {
    return atomic_load_explicit(&e->cuts, memory_order_relaxed);
}

bool engine_file_at(struct engine *e, uint32_t i, char *buf, size_t cap) {
    bool found = false;
    buf[0] = 0;
    check_lock(&e->lock);
    for (uint32_t k = 0; k < e->index.n_files && !found; k++) {
        if (e->index.files[k] && i-- == 0) {
            snprintf(buf, cap, "%s", e->index.files[k]->io.path);
            found = true;
        }
    }
    check_unlock(&e->lock);
    return found;
}

void engine_buffered_reason(struct engine *e, char *buf, size_t cap) {
    buf[0] = 0;
    check_lock(&e->lock);
    for (uint32_t i = 0; i < e->index.n_files; i++) {
        if (e->index.files[i] && e->index.files[i]->io.why_buffered[0]) {
            snprintf(buf, cap, "%s", e->index.files[i]->io.why_buffered);
            break;
        }
    }
    check_unlock(&e->lock);
}

uint64_t engine_budget(struct engine *e, bool *cut) {
    check_lock(&e->lock);
    *cut = e->cut;
    const uint64_t budget = e->budget;
    check_unlock(&e->lock);
    return budget;
}
