/*
 * engine_ahead.c - reading ahead of use, while the lanes have nothing better to do.
 *
 * Whoever knows what the next block will probably use says so (engine_prefetch), likeliest first. What is
 * not in memory gets slots at once, evicting what the policy says, and its reads wait in the lanes' idle
 * queue. When the next demand comes, what was not begun is taken back and its slots are free again.
 *
 * A guess costs in three ways: a read in flight delays the demand a little, a wrong one wasted it, and a
 * bundle was evicted for it. So no more is asked for than was begun lately and one more, and when fewer
 * than a third of those begun come true, there is a pause. What it gains: docs/benchmarks.md, "Lookahead".
 *
 * A prompt's next block wants nearly everything, and its attention takes long: there up to ENGINE_AHEAD are asked for,
 * at most half of what may pass through at once, and what was begun says nothing about generation.
 */
#include "cache/engine_impl.h"

enum { PREFETCH_PAUSE = 2048 }; /* blocks without foresight once it turned out useless */

/* Runs in io_recall: a request that nobody began. */
static void engine_recalled(void *ud, const struct io_request *r) {
    struct engine *e = ud;
    struct slot *s = r->owner;
    if (atomic_fetch_sub_explicit(&s->pending[r->part], 1, memory_order_relaxed) == 1) {
        atomic_store_explicit(&s->state[r->part], PART_EMPTY, memory_order_relaxed);
    }
    atomic_fetch_sub_explicit(&s->inflight, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&e->inflight, 1, memory_order_relaxed);
}

/*
 * Demand is there: take back what was foreseen and not begun, and forget bundles of which nothing was read.
 * Once per guess: who cannot be served comes here again and again.
 */
void engine_recall(struct engine *e) {
    struct engine_foresight *f = &e->foresight;
    if (f->group == UINT32_MAX || f->recalled) {
        return;
    }
    f->recalled = true;
    io_recall(e->lanes, engine_recalled, e);
    uint32_t begun = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        struct slot *s = &e->slots.slot[f->slot[i]];
        bool any = false;
        for (uint32_t p = 0; s->foreseen && p < e->index.groups[s->group].n_parts; p++) {
            any = any || atomic_load_explicit(&s->state[p], memory_order_acquire) != PART_EMPTY;
        }
        if (any) {
            f->slot[begun++] = f->slot[i];
        } else if (s->foreseen && slots_idle(s)) {
            slots_drop(&e->slots, f->slot[i]);
        }
    }
    f->n = begun;
    f->begun += f->wide ? 0 : ((float)begun - f->begun) / 16;
    f->st.begun += begun;
}

void engine_foreseen_done(struct engine *e) {
    struct engine_foresight *f = &e->foresight;
    for (uint32_t i = 0; i < f->n; i++) {
        const struct slot *s = &e->slots.slot[f->slot[i]];
        const bool used = !s->foreseen && s->group == f->group;
        f->useful += ((used ? 1.0f : 0.0f) - f->useful) / 64;
    }
    if (f->useful < 0.35f) {
        f->useful = 0.6f; /* after the pause it gets another chance */
        f->pause = PREFETCH_PAUSE;
        f->st.pauses++;
    }
    f->n = 0;
    f->group = UINT32_MAX;
}

bool engine_prefetches(struct engine *e) {
    pthread_mutex_lock(&e->lock);
    struct engine_foresight *f = &e->foresight;
    const bool yes = e->settings.lookahead && e->cut && e->budget && !e->quiescing && f->pause == 0 &&
                     f->missed < e->index.live_groups;
    f->pause -= f->pause > 0;
    pthread_mutex_unlock(&e->lock);
    return yes;
}

void engine_prefetch(struct engine *e, uint32_t group, const int32_t *expert, uint32_t n, bool wide) {
    pthread_mutex_lock(&e->lock);
    struct engine_foresight *f = &e->foresight;
    if (f->group != UINT32_MAX && f->recalled) {
        engine_foreseen_done(e); /* a block that took its experts in turns, and is done with all now */
    }
    if (!e->cut || e->budget == 0 || e->quiescing || f->group != UINT32_MAX) {
        pthread_mutex_unlock(&e->lock);
        return;
    }
    /* As many as were begun lately and one more: what is not begun has evicted something for nothing. */
    uint32_t most = 1 + (uint32_t)(f->begun + 0.9f);
    if (wide) { /* half of what the block may bring in at once, since it will ask for more while these are read */
        most = engine_staging_of(e, &e->slots.classes[e->slots.class_of_group[group]]) / 2;
    }
    most = most < ENGINE_AHEAD ? most : ENGINE_AHEAD;
    size_t n_requests = 0;
    for (uint32_t i = 0; i < n && f->n < most; i++) {
        if (slots_find(&e->slots, group, (uint32_t)expert[i]) >= 0) {
            continue;
        }
        bool evicted = false;
        const uint32_t slot = slots_place(&e->slots, &e->index, group, (uint32_t)expert[i], &evicted);
        if (slot == UINT32_MAX) {
            break;
        }
        e->evictions += evicted;
        slots_foresee(&e->slots, slot);
        const size_t before = n_requests;
        bool planned = true;
        for (uint32_t p = 0; planned && p < e->index.groups[group].n_parts; p++) {
            planned = engine_plan_part(e, slot, p, ENGINE_PHASES, &n_requests);
        }
        if (!planned) {
            for (size_t k = before; k < n_requests; k++) {
                engine_recalled(e, &e->requests[k]);
            }
            n_requests = before;
            slots_drop(&e->slots, slot);
            break;
        }
        f->slot[f->n++] = slot;
    }
    if (f->n && io_submit_idle(e->lanes, e->requests, n_requests)) {
        engine_unplan(e, n_requests);
        for (uint32_t i = 0; i < f->n; i++) {
            slots_drop(&e->slots, f->slot[i]);
        }
        f->n = 0;
    }
    f->st.asked += f->n;
    f->recalled = false;
    f->wide = wide;
    f->group = f->n ? group : UINT32_MAX;
    pthread_mutex_unlock(&e->lock);
}

void engine_forget_foreseen(struct engine *e) {
    struct engine_foresight *f = &e->foresight;
    f->st.begun += f->group != UINT32_MAX && !f->recalled ? f->n : 0;
    f->n = 0;
    f->group = UINT32_MAX;
}
