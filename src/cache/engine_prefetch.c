/*
 * engine_prefetch.c - reading ahead of use, while the I/O threads have nothing better to do.
 *
 * Whoever knows what the next block will probably use says so (engine_prefetch), likeliest first. What is
 * not in memory gets slots at once, evicting what the policy says, and its reads wait in the I/O threads' idle
 * queue. When the context's next demand comes, what was not begun is taken back and its slots are free again.
 *
 * Each context has a guess and a measure of its own (struct engine_prefetcher), and its demand takes back its own guess
 * only. With one for all contexts, the demand of any of them took back what another had guessed a moment ago: two
 * contexts began 140 reads where one began 1400, and paused (docs/benchmarks.md, "Prefetch per context"). Another
 * context's guess gives way in two cases: what is wanted now is read as demand and not behind it in the idle queue, and
 * who gets no slot takes back everything that is not begun.
 *
 * A guess costs in three ways: a read in flight delays the demand a little, a wrong one wasted it, and an
 * expert was evicted for it. So no more is asked for than was begun lately and one more, and when fewer
 * than a third of those begun come true, there is a pause. What it gains: docs/benchmarks.md, "Lookahead".
 *
 * A prompt's next block wants nearly everything, and its attention takes long: there up to ENGINE_GUESS_MAX are asked
 * for, at most half of what may pass through at once, and what was begun says nothing about generation.
 */
#include "cache/engine_impl.h"

enum { PREFETCH_PAUSE = 2048 }; /* blocks without prefetch once it turned out useless */

/* What io_recall is to take back. */
struct recall {
    struct engine *e;                    /* the engine */
    const struct engine_prefetcher *own; /* all of its guess */
    const struct engine_want *want;      /* and what others guessed of this; NULL: nothing */
};

/* Is there a guess whose reads may wait in the idle queue? */
static bool prefetch_open(const struct engine_prefetcher *p) {
    return p && p->group != UINT32_MAX && !p->recalled;
}

/* Is no part of what is in the slot there or on its way? */
static bool prefetch_unread(const struct engine *e, const struct slot *s) {
    for (uint32_t p = 0; p < e->index.groups[s->group].n_parts; p++) {
        if (atomic_load_explicit(&s->state[p], memory_order_acquire) != PART_EMPTY) {
            return false;
        }
    }
    return true;
}

/* Does the slot of a guess still hold what was guessed? */
static bool prefetch_holds(const struct engine *e, const struct engine_prefetcher *p, const struct engine_guess *g) {
    const struct slot *s = &e->slots.slot[g->slot];
    return s->group == p->group && s->expert == g->expert;
}

static void prefetch_count_begun(struct engine *e, struct engine_guess *g) {
    e->prefetched.begun += !g->begun;
    g->begun = true;
}

/* Runs in io_recall. */
static bool recall_selects(void *ud, const struct io_request *r) {
    const struct recall *c = ud;
    const struct slot *s = r->owner;
    for (uint32_t i = 0; c->own && i < c->own->n; i++) {
        if (s == &c->e->slots.slot[c->own->guess[i].slot]) {
            return true;
        }
    }
    for (uint32_t i = 0; c->want && s->group == c->want->group && i < c->want->n; i++) {
        if (s->expert == (uint32_t)c->want->expert[i]) {
            return true;
        }
    }
    return false;
}

/* Runs in io_recall: a request that nobody began. */
static void recall_undo(void *ud, const struct io_request *r) {
    struct recall *c = ud;
    struct slot *s = r->owner;
    engine_unplan(c->e, r);
    s->foreseen = s->foreseen && !prefetch_unread(c->e, s);
}

void engine_recall(struct engine *e, struct engine_prefetcher *own, const struct engine_want *want) {
    assert(check_held(&e->lock));
    bool any = prefetch_open(own);
    for (const struct engine_prefetcher *p = e->prefetchers; p && want; p = p->next) {
        any = any || (prefetch_open(p) && p->group == want->group);
    }
    if (!any) {
        return;
    }
    struct recall c = {.e = e, .own = prefetch_open(own) ? own : NULL, .want = want};
    io_recall(e->lanes, recall_selects, recall_undo, &c);
    if (!c.own) {
        return;
    }
    own->recalled = true;
    uint32_t begun = 0;
    for (uint32_t i = 0; i < own->n; i++) {
        struct engine_guess g = own->guess[i];
        struct slot *s = &e->slots.slot[g.slot];
        if (g.begun || (prefetch_holds(e, own, &g) && s->foreseen)) {
            prefetch_count_begun(e, &g);
            own->guess[begun++] = g;
        } else if (prefetch_holds(e, own, &g) && slots_idle(s) && prefetch_unread(e, s)) {
            slots_drop(&e->slots, g.slot);
        }
    }
    own->n = begun;
    own->begun += own->wide ? 0 : ((float)begun - own->begun) / 16;
}

bool engine_recall_all(struct engine *e) {
    assert(check_held(&e->lock));
    const uint64_t before = slots_free(&e->slots);
    for (struct engine_prefetcher *p = e->prefetchers; p; p = p->next) {
        engine_recall(e, p, NULL);
    }
    return slots_free(&e->slots) > before;
}

void engine_prefetch_used(struct engine *e, uint32_t slot) {
    assert(check_held(&e->lock));
    e->slots.slot[slot].foreseen = false;
    e->prefetched.used++;
    for (struct engine_prefetcher *p = e->prefetchers; p; p = p->next) {
        for (uint32_t i = 0; i < p->n; i++) {
            if (p->guess[i].slot == slot && prefetch_holds(e, p, &p->guess[i])) {
                p->guess[i].used = true;
                prefetch_count_begun(e, &p->guess[i]);
            }
        }
    }
}

void engine_prefetch_done(struct engine *e, struct engine_prefetcher *p) {
    assert(check_held(&e->lock));
    for (uint32_t i = 0; i < p->n; i++) {
        p->useful += ((p->guess[i].used ? 1.0f : 0.0f) - p->useful) / 64;
    }
    if (p->useful < 0.35f) {
        p->useful = 0.6f; /* after the pause it gets another chance */
        p->pause = PREFETCH_PAUSE;
        e->prefetched.pauses++;
    }
    p->n = 0;
    p->group = UINT32_MAX;
}

void engine_prefetch_forget(struct engine *e) {
    assert(check_held(&e->lock));
    for (struct engine_prefetcher *p = e->prefetchers; p; p = p->next) {
        for (uint32_t i = 0; i < p->n; i++) {
            prefetch_count_begun(e, &p->guess[i]); /* all reads have ended */
        }
        p->n = 0;
        p->group = UINT32_MAX;
    }
}

void engine_prefetcher_begin(struct engine *e, struct engine_prefetcher *p) {
    check_lock(&e->lock);
    *p = (struct engine_prefetcher){.group = UINT32_MAX, .useful = 0.6f, .begun = 1, .next = e->prefetchers};
    e->prefetchers = p;
    check_unlock(&e->lock);
}

void engine_prefetcher_end(struct engine *e, struct engine_prefetcher *p) {
    check_lock(&e->lock);
    engine_recall(e, p, NULL);
    struct engine_prefetcher **at = &e->prefetchers;
    while (*at != p) {
        at = &(*at)->next;
    }
    *at = p->next;
    check_unlock(&e->lock);
    event_bump(&e->changed); /* slots may have become free */
}

bool engine_prefetches(struct engine *e, struct engine_prefetcher *p) {
    check_lock(&e->lock);
    const bool yes = e->settings.lookahead && e->cut && e->budget && !e->quiescing && p->pause == 0 &&
                     p->missed < e->index.live_groups;
    p->pause -= p->pause > 0;
    check_unlock(&e->lock);
    return yes;
}

/* Place the experts that are not in memory and plan their reads, *n_requests of them. False: no memory. */
static bool prefetch_place(struct engine *e, struct engine_prefetcher *p, uint32_t group, const int32_t *expert,
                           uint32_t n, uint32_t most, size_t *n_requests) {
    assert(check_held(&e->lock));
    for (uint32_t i = 0; i < n && p->n < most; i++) {
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
        p->guess[p->n++] = (struct engine_guess){.slot = slot, .expert = (uint32_t)expert[i]};
        for (uint32_t part = 0; part < e->index.groups[group].n_parts; part++) {
            if (!engine_plan_part(e, slot, part, ENGINE_PHASES, n_requests)) {
                return false;
            }
        }
    }
    return true;
}

void engine_prefetch(struct engine *e, struct engine_prefetcher *p, uint32_t group, const int32_t *expert, uint32_t n,
                     bool wide) {
    check_lock(&e->lock);
    if (p->group != UINT32_MAX && p->recalled) {
        engine_prefetch_done(e, p); /* a block that took its experts in turns, and is done with all now */
    }
    if (e->cut && e->budget && !e->quiescing && p->group == UINT32_MAX) {
        /* As many as were begun lately and one more: what is not begun has evicted something for nothing. */
        uint32_t most = 1 + (uint32_t)(p->begun + 0.9f);
        if (wide) { /* half of what the block may bring in at once, since it will ask for more while these are read */
            most = engine_staging_of(e, &e->slots.classes[e->slots.class_of_group[group]]) / 2;
        }
        most = most < ENGINE_GUESS_MAX ? most : ENGINE_GUESS_MAX;
        size_t n_requests = 0;
        const bool placed = prefetch_place(e, p, group, expert, n, most, &n_requests);
        if (!placed || (n_requests && io_submit_idle(e->lanes, e->requests, n_requests))) {
            for (size_t i = 0; i < n_requests; i++) {
                engine_unplan(e, &e->requests[i]);
            }
            while (p->n) {
                slots_drop(&e->slots, p->guess[--p->n].slot);
            }
        }
        e->prefetched.asked += p->n;
        p->recalled = false;
        p->wide = wide;
        p->group = p->n ? group : UINT32_MAX;
    }
    check_unlock(&e->lock);
}
