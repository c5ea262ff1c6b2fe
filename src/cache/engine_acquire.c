/*
 * engine_acquire.c - what a block does: begin, acquire experts, wait for their parts, release them.
 *
 * Bundles that are there are pinned first, so that placing the others does not evict them. Reads for
 * what is missing are queued part by part, all first parts before all second ones: that is the order
 * in which a block computes. A slice larger than a chunk is several requests, so that several lanes
 * share it.
 */
#include "cache/engine_impl.h"

#include <assert.h>
#include <stdlib.h>

#include "cache/clock.h"
#include "cache/error.h"

enum { ENGINE_CHUNK = 1 << 20 }; /* bytes: larger reads are split */

/* Is part p of the slot neither there nor on its way? Of a failed part all requests have ended. */
static bool engine_part_missing(struct slot *s, uint32_t p) {
    const uint32_t state = atomic_load_explicit(&s->state[p], memory_order_acquire);
    return state == PART_EMPTY || state == PART_FAILED;
}

bool engine_plan_part(struct engine *e, uint32_t slot, uint32_t p, uint32_t phase, size_t *n) {
    assert(check_held(&e->lock));
    struct slot *s = &e->slots.slot[slot];
    const struct index_group *g = &e->index.groups[s->group];
    const struct index_tensor *t = &e->index.tensors[g->tensor[p]];
    const struct index_window w = index_window_of(&e->index, g->tensor[p], s->expert);
    SLUICE_CHECK(g->window[p] + w.len <= e->slots.classes[s->class_id].slot_bytes);
    const uint64_t need = w.skip + t->slice; /* the window's tail past the slice may lie past the file's end */
    const uint64_t chunk = ((uint64_t)ENGINE_CHUNK + w.file->align - 1) / w.file->align * w.file->align;
    const size_t pieces = (size_t)((need + chunk - 1) / chunk);
    if (*n + pieces > e->requests_cap) {
        size_t cap = e->requests_cap ? e->requests_cap * 2 : 64;
        while (cap < *n + pieces) {
            cap *= 2;
        }
        struct io_request *r = reallocarray(e->requests, cap, sizeof *r);
        if (!r) {
            return false;
        }
        e->requests = r;
        e->requests_cap = cap;
    }
    for (uint64_t at = 0; at < need; at += chunk) {
        const uint64_t left = w.len - at, left_need = need - at;
        e->requests[(*n)++] = (struct io_request){
            .file = w.file,
            .dst = s->data + g->window[p] + at,
            .offset = w.offset + at,
            .len = (uint32_t)(left < chunk ? left : chunk),
            .need = (uint32_t)(left_need < chunk ? left_need : chunk),
            .owner = s,
            .part = p,
            .tag = phase,
            .follows = at > 0,
        };
    }
    atomic_store_explicit(&s->pending[p], (uint32_t)pieces, memory_order_relaxed);
    atomic_store_explicit(&s->state[p], PART_READING, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->inflight, (uint32_t)pieces, memory_order_relaxed);
    atomic_fetch_add_explicit(&e->inflight, (uint32_t)pieces, memory_order_relaxed);
    return true;
}

void engine_unplan(struct engine *e, const struct io_request *r) {
    assert(check_held(&e->lock));
    struct slot *s = r->owner;
    if (atomic_fetch_sub_explicit(&s->pending[r->part], 1, memory_order_relaxed) == 1) {
        atomic_store_explicit(&s->state[r->part], PART_EMPTY, memory_order_relaxed);
    }
    atomic_fetch_sub_explicit(&s->inflight, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&e->inflight, 1, memory_order_relaxed);
}

/* Undo the planned requests [0, n), which nobody knows of. */
static void engine_unplan_all(struct engine *e, size_t n) {
    for (size_t i = 0; i < n; i++) {
        engine_unplan(e, &e->requests[i]);
    }
}

static void engine_unpin(struct engine *e, uint32_t slot) {
    assert(check_held(&e->lock));
    struct slot *s = &e->slots.slot[slot];
    SLUICE_CHECK(s->pins > 0);
    s->pins--;
    atomic_fetch_sub(&e->pins, 1);
    if (e->budget == 0 && slots_idle(s)) {
        slots_drop(&e->slots, slot); /* no cache: nothing outlives its use */
    }
}

/*
 * Decide what is left out, before anything is pinned. Nothing of w->expert that is in memory can go before it is
 * pinned: the lock is held. Returns how many are taken.
 */
static uint32_t engine_leave_out(struct engine *e, const struct engine_want *w) {
    assert(check_held(&e->lock));
    uint32_t taken = w->n;
    for (uint32_t i = 0; i < w->n && w->leave; i++) {
        const int32_t have = slots_find(&e->slots, w->group, (uint32_t)w->expert[i]);
        bool missing = have < 0;
        for (uint32_t p = 0; !missing && p < e->index.groups[w->group].n_parts; p++) {
            missing = w->parts >> p & 1 && engine_part_missing(&e->slots.slot[have], p);
        }
        const bool left =
            w->leave[i] == ENGINE_LEAVE_ALWAYS || (w->leave[i] == ENGINE_LEAVE_COLD && missing && e->budget > 0);
        w->found[i] = !left ? ENGINE_FOUND_NOT : missing ? ENGINE_LEFT : ENGINE_LEFT_THERE;
        taken -= left;
    }
    return taken;
}

static bool engine_left_out(const struct engine_want *w, uint32_t i) {
    return w->leave && w->found[i] >= ENGINE_LEFT;
}

/* Pin what is there, place what is not. Returns how many of w->expert have a slot now. */
static uint32_t engine_pin(struct engine *e, const struct engine_want *w, uint32_t *slot) {
    assert(check_held(&e->lock));
    uint32_t n = 0;
    /* Bundles that are there first: placing another one must not evict them. */
    for (uint32_t i = 0; i < w->n; i++) {
        const int32_t have = engine_left_out(w, i) ? -1 : slots_find(&e->slots, w->group, (uint32_t)w->expert[i]);
        slot[i] = have < 0 ? UINT32_MAX : (uint32_t)have;
        if (have >= 0) {
            e->slots.slot[have].pins++;
            atomic_fetch_add(&e->pins, 1);
            n++;
        }
    }
    for (uint32_t i = 0; i < w->n; i++) {
        if (slot[i] != UINT32_MAX || engine_left_out(w, i)) {
            continue;
        }
        bool evicted = false;
        slot[i] = slots_place(&e->slots, &e->index, w->group, (uint32_t)w->expert[i], &evicted);
        if (slot[i] == UINT32_MAX) {
            break; /* same class, so the others would not fit either */
        }
        e->slots.slot[slot[i]].pins++;
        atomic_fetch_add(&e->pins, 1);
        e->evictions += evicted;
        n++;
    }
    return n;
}

/* Give back what engine_pin got. Bundles that never were read leave no trace. */
static void engine_unpin_all(struct engine *e, const struct engine_want *w, const uint32_t *slot) {
    for (uint32_t i = 0; i < w->n; i++) {
        if (slot[i] == UINT32_MAX) {
            continue;
        }
        engine_unpin(e, slot[i]);
        struct slot *s = &e->slots.slot[slot[i]];
        bool empty = s->group != UINT32_MAX && slots_idle(s);
        for (uint32_t p = 0; empty && p < e->index.groups[w->group].n_parts; p++) {
            empty = atomic_load(&s->state[p]) == PART_EMPTY;
        }
        if (empty) {
            slots_drop(&e->slots, slot[i]);
        }
    }
}

/* Count demand: a bundle is a hit when every wanted part is there or on its way. */
static void engine_count_demand(struct engine *e, const struct engine_want *w, const uint32_t *slot) {
    assert(check_held(&e->lock));
    struct sluice_phase_stats *c = &e->phase[w->phase];
    const struct index_group *g = &e->index.groups[w->group];
    bool missed = false;
    for (uint32_t i = 0; i < w->n; i++) {
        if (slot[i] == UINT32_MAX) {
            continue;
        }
        struct slot *s = &e->slots.slot[slot[i]];
        uint64_t missing = 0, there = 0;
        const bool foreseen = s->foreseen;
        if (foreseen) {
            engine_prefetch_used(e, slot[i]);
        }
        for (uint32_t p = 0; p < g->n_parts; p++) {
            if (w->parts >> p & 1) {
                *(engine_part_missing(s, p) ? &missing : &there) += e->index.tensors[g->tensor[p]].slice;
            }
        }
        c->hit_bytes += there;
        c->miss_bytes += missing;
        missed = missed || missing;
        if (w->first) {
            c->routed++;
            *(missing ? &c->misses : &c->hits) += 1;
        }
        if (w->first && w->found) {
            w->found[i] = missing ? ENGINE_FOUND_NOT : foreseen ? ENGINE_PREFETCHED : ENGINE_FOUND;
        }
    }
    if (w->prefetcher) {
        w->prefetcher->missed = missed ? 0 : w->prefetcher->missed + (w->prefetcher->missed < UINT32_MAX);
    }
}

/* Submit reads for all missing wanted parts, part by part. The slots are pinned. */
static int engine_read(struct engine *e, const struct engine_want *w, const uint32_t *slot) {
    assert(check_held(&e->lock));
    size_t n = 0;
    for (uint32_t p = 0; p < e->index.groups[w->group].n_parts; p++) {
        if (!(w->parts >> p & 1)) {
            continue;
        }
        for (uint32_t i = 0; i < w->n; i++) {
            if (slot[i] != UINT32_MAX && engine_part_missing(&e->slots.slot[slot[i]], p) &&
                !engine_plan_part(e, slot[i], p, w->phase, &n)) {
                engine_unplan_all(e, n);
                return SLUICE_ERR_MEMORY;
            }
        }
    }
    if (n == 0) {
        return SLUICE_OK;
    }
    const uint32_t depth = atomic_load_explicit(&e->inflight, memory_order_relaxed); /* these n included */
    if (io_submit(e->lanes, e->requests, n)) {
        engine_unplan_all(e, n);
        return SLUICE_ERR_MEMORY;
    }
    e->submits++;
    e->queue_sum += depth;
    e->queue_max = depth > e->queue_max ? depth : e->queue_max;
    return SLUICE_OK;
}

int engine_begin_block(struct engine *e, uint32_t group, enum engine_phase phase, const struct engine_routing *r,
                       struct sluice_error *err) {
    check_lock(&e->lock);
    const int rc = engine_ready(e, err);
    if (rc == SLUICE_OK) {
        slots_visit(&e->slots, group, r->tokens);
        for (uint32_t i = 0; i < r->n; i++) {
            for (int32_t k = r->first[i]; k < r->first[i + 1]; k++) {
                slots_use(&e->slots, group, (uint32_t)r->expert[i], r->tokens - 1 - (uint32_t)r->list[k] / r->top_k);
            }
        }
        e->phase[phase].blocks++;
        e->phase[phase].rows += r->tokens;
        e->phase[phase].tokens += r->begins ? r->tokens : 0;
    }
    check_unlock(&e->lock);
    return rc;
}

uint32_t engine_staging_of(const struct engine *e, const struct slot_class *c) {
    const uint64_t fit = e->settings.staging_bytes / c->slot_bytes;
    const uint32_t least = c->top_k < 2 ? 2 : c->top_k; /* a token's experts, and one to read beside one computed */
    const uint64_t most = fit < least ? least : fit;
    return most < c->n ? (uint32_t)most : c->n;
}

uint32_t engine_staging(struct engine *e, uint32_t group) {
    check_lock(&e->lock);
    const uint32_t n = e->cut ? engine_staging_of(e, &e->slots.classes[e->slots.class_of_group[group]]) : 0;
    check_unlock(&e->lock);
    return n;
}

uint32_t engine_hold(struct engine *e, uint32_t group, const struct engine_routing *r, uint32_t *slot) {
    uint32_t n = 0;
    check_lock(&e->lock);
    if (e->cut && !e->quiescing && e->budget) {
        const struct slot_class *c = &e->slots.classes[e->slots.class_of_group[group]];
        const uint32_t spare = engine_staging_of(e, c);
        const uint32_t most = c->n > spare ? c->n - spare : 0;
        for (uint32_t i = 0; i < r->n && n < most; i++) {
            const int32_t have = slots_find(&e->slots, group, (uint32_t)r->expert[i]);
            if (have >= 0) {
                e->slots.slot[have].pins++;
                atomic_fetch_add(&e->pins, 1);
                slot[n++] = (uint32_t)have;
            }
        }
    }
    check_unlock(&e->lock);
    return n;
}

/* How many of w->expert have no slot, and are to get one. */
static uint32_t engine_absent(const struct engine *e, const struct engine_want *w) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        n += !engine_left_out(w, i) && slots_find(&e->slots, w->group, (uint32_t)w->expert[i]) < 0;
    }
    return n;
}

int engine_acquire(struct engine *e, const struct engine_want *w, uint32_t *slot, uint32_t *granted,
                   struct sluice_error *err) {
    *granted = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        slot[i] = UINT32_MAX;
    }
    check_lock(&e->lock);
    int rc = SLUICE_OK;
    for (;;) {
        const uint32_t seen = event_read(&e->changed);
        if (!w->wait && (!e->cut || e->quiescing)) {
            break; /* the caller holds pins or can come back later; it must not keep a cut waiting */
        }
        rc = w->wait ? engine_ready(e, err) : SLUICE_OK;
        if (rc) {
            break;
        }
        engine_recall(e, w->prefetcher, w);
        const uint32_t taken = engine_leave_out(e, w);
        SLUICE_CHECK(taken > 0);
        const struct slot_class *c = &e->slots.classes[e->slots.class_of_group[w->group]];
        if (w->all && taken > c->n) {
            rc = sluice_fail(err, SLUICE_ERR_BUDGET, "the cache holds %u experts of this size, %u are needed at once",
                             c->n, taken);
            break;
        }
        const uint32_t absent = w->all ? engine_absent(e, w) : 0;
        if (absent > engine_staging_of(e, c) && e->budget) {
            rc = sluice_fail(err, SLUICE_ERR_BUDGET, "%u experts are not in memory, too many to read at once", absent);
            break;
        }
        const uint32_t n = engine_pin(e, w, slot);
        if (n && (!w->all || n == taken)) {
            engine_count_demand(e, w, slot);
            if (w->all && w->prefetcher) {
                engine_prefetch_done(e, w->prefetcher);
            }
            for (uint32_t i = 0; i < w->n; i++) {
                if (slot[i] != UINT32_MAX) {
                    slots_touch(&e->slots, slot[i]);
                }
            }
            rc = engine_read(e, w, slot);
            if (rc) {
                sluice_fail(err, rc, "expert cache: out of memory");
                engine_unpin_all(e, w, slot);
            } else {
                *granted = n;
            }
            break;
        }
        engine_unpin_all(e, w, slot);
        if (engine_recall_all(e)) {
            continue; /* other contexts' guesses had the slots */
        }
        if (!w->wait) {
            break;
        }
        const double t0 = clock_seconds();
        engine_sleep(e, seen);
        if (w->slept_s) {
            *w->slept_s += clock_seconds() - t0;
        }
    }
    check_unlock(&e->lock);
    if (*granted == 0) {
        for (uint32_t i = 0; i < w->n; i++) {
            slot[i] = UINT32_MAX;
        }
    }
    return rc ? rc : sluice_ok(err);
}

void engine_release(struct engine *e, const uint32_t *slot, uint32_t n) {
    check_lock(&e->lock);
    for (uint32_t i = 0; i < n; i++) {
        if (slot[i] != UINT32_MAX) {
            engine_unpin(e, slot[i]);
        }
    }
    check_unlock(&e->lock);
    event_bump(&e->changed);
}

/* A pinned slot keeps its place: the arena is not cut anew while pins are held. So no lock here. */
enum part_state engine_part_state(struct engine *e, uint32_t slot, uint32_t part) {
    return atomic_load_explicit(&e->slots.slot[slot].state[part], memory_order_acquire);
}

const void *engine_part_data(struct engine *e, uint32_t slot, uint32_t part) {
    return e->slots.slot[slot].weights[part];
}

uint32_t engine_seen(struct engine *e) {
    return event_read(&e->changed);
}

void engine_wait(struct engine *e, uint32_t seen) {
    event_wait(&e->changed, seen);
}

void engine_wake(struct engine *e) {
    event_bump(&e->changed);
}
