/*
 * hold.c - the experts of a block's routing, pinned in one engine.
 *
 * All at once where they fit, so that every read of the block is under way at once and nodes need not be run one by
 * one. Else in turns: a batch of many tokens is routed to nearly all experts of a layer, and a small cache does not
 * hold them. Then a window moves over them while a node runs: whoever finishes an expert gives its slot back and asks
 * for the next ones, so their reads are under way while others are computed, and each slice is read at most once for
 * the node. No thread is set aside for it.
 *
 * Who holds slots never waits for more (engine.c), so it sleeps for slots only when none is pinned. Experts
 * that were in memory when the block began are kept pinned beside the window, lest those that pass through
 * evict them before their turn: a prompt's block begins with its own layer's experts being the last ones that
 * are needed again, so they would be the first to go. They are let go of when nothing else is left to wait for.
 */
#include "ggml/hold.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cache/check.h"
#include "cache/error.h"

void hold_init(struct hold *h, struct engine *e, struct engine_prefetcher *p) {
    *h = (struct hold){.engine = e, .prefetcher = p};
    check_mutex_init(&h->lock);
}

void hold_free(struct hold *h) {
    SLUICE_CHECK(!h->all && !h->open && !h->n_kept);
    pthread_mutex_destroy(&h->lock);
    free(h->expert);
    free(h->found);
    free(h->granted);
    free(h->kept);
}

static bool hold_reserve(struct hold *h, uint32_t n) {
    if (n <= h->cap) {
        return true;
    }
    free(h->expert);
    free(h->found);
    free(h->granted);
    free(h->kept);
    h->expert = calloc(n, sizeof *h->expert);
    h->found = calloc(n, sizeof *h->found);
    h->granted = calloc(n, sizeof *h->granted);
    h->kept = calloc(n, sizeof *h->kept);
    h->cap = h->expert && h->found && h->granted && h->kept ? n : 0;
    return h->cap != 0;
}

int hold_begin(struct hold *h, const struct route *route, uint32_t group, enum engine_phase phase, bool begins,
               struct sluice_error *err) {
    SLUICE_CHECK(!h->all && !h->open && !h->n_kept);
    if (!hold_reserve(h, route->n_all)) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "out of memory for the experts of a block");
    }
    h->route = route;
    h->group = group;
    h->phase = phase;
    h->counted = false;
    struct engine_routing r = route_routing(route);
    r.begins = begins;
    return engine_begin_block(h->engine, group, phase, &r, err);
}

/* Unpin what is kept. True: there was something. */
static bool hold_let_go(struct hold *h) {
    const bool any = h->n_kept > 0;
    if (any) {
        engine_release(h->engine, h->kept, h->n_kept);
        h->n_kept = 0;
    }
    return any;
}

/* Ask for n experts of the block, by number. */
static struct engine_want hold_want(const struct hold *h, uint32_t parts, const int32_t *expert, uint32_t n,
                                    uint8_t *found) {
    return (struct engine_want){.prefetcher = h->prefetcher,
                                .group = h->group,
                                .parts = parts,
                                .expert = expert,
                                .n = n,
                                .phase = h->phase,
                                .first = !h->counted,
                                .wait = h->open == 0 && h->n_kept == 0,
                                .found = h->counted ? NULL : found};
}

int hold_all(struct hold *h, uint32_t parts, const uint8_t *leave, double *slept_s, struct sluice_error *err) {
    struct engine_want want = hold_want(h, parts, h->route->expert, h->route->n, h->found);
    uint32_t got = 0;
    want.all = true;
    want.slept_s = slept_s;
    want.leave = leave;
    const int rc = engine_acquire(h->engine, &want, h->granted, &got, err);
    h->all = got > 0;
    for (uint32_t p = 0; h->all && p < h->route->n; p++) {
        atomic_store_explicit(&h->expert[p].slot, h->granted[p], memory_order_relaxed);
    }
    if (h->all) {
        h->counted = true;
        hold_let_go(h);
    }
    return rc == SLUICE_ERR_BUDGET ? sluice_ok(err) : rc; /* more than there are slots: they will pass in turns */
}

void hold_set_aside(struct hold *h, const uint8_t *aside) {
    const uint32_t n = h->route->n_all;
    uint32_t at = 0, n_aside = 0;
    uint32_t *found = h->granted; /* of those set aside */
    for (uint32_t p = 0; p < n; p++) {
        if (aside[p]) {
            found[n_aside++] = h->found[p];
        } else {
            atomic_store_explicit(&h->expert[at].slot, hold_slot(h, p), memory_order_relaxed);
            h->found[at++] = h->found[p];
        }
    }
    for (uint32_t k = 0; k < n_aside; k++) {
        h->found[at++] = (uint8_t)found[k];
    }
}

void hold_keep(struct hold *h) {
    const struct engine_routing r = route_routing(h->route);
    h->n_kept = engine_hold(h->engine, h->group, &r, h->kept);
}

void hold_node(struct hold *h, uint32_t parts, double *slept_s) {
    SLUICE_CHECK(!h->open);
    if (!h->all) {
        const uint32_t most = engine_staging(h->engine, h->group);
        h->most = most < HOLD_MOST ? most : HOLD_MOST;
        h->most = h->most ? h->most : 1; /* the arena is about to be cut anew: the next acquire does it */
    }
    h->parts = parts;
    h->slept_s = slept_s;
    atomic_store_explicit(&h->status, SLUICE_OK, memory_order_relaxed);
    for (uint32_t p = 0; p < h->route->n; p++) {
        if (!h->all) {
            atomic_store_explicit(&h->expert[p].slot, UINT32_MAX, memory_order_relaxed);
        }
        atomic_store_explicit(&h->expert[p].stage, h->all ? HOLD_OPEN : HOLD_WAITING, memory_order_relaxed);
    }
}

/* With the lock held: give back what is computed; with `open`, whatever is pinned. */
static uint32_t hold_give_back(struct hold *h, bool open) {
    uint32_t n = 0;
    assert(check_held(&h->lock));
    for (uint32_t p = 0; p < h->route->n && h->open; p++) {
        const uint32_t slot = hold_slot(h, p);
        if (slot != UINT32_MAX && (open || hold_stage(h, p) == HOLD_DONE)) {
            atomic_store_explicit(&h->expert[p].slot, UINT32_MAX, memory_order_relaxed);
            h->slot[n++] = slot;
            h->open--;
        }
    }
    if (n) { /* a release of nothing would wake whoever sleeps, the caller too, to look again and again */
        engine_release(h->engine, h->slot, n);
    }
    return n;
}

/* With the lock held: acquire waiting experts until the window is full. */
static uint32_t hold_acquire(struct hold *h) {
    uint32_t n = 0, got = 0;
    assert(check_held(&h->lock));
    for (uint32_t p = 0; p < h->route->n && n + h->open < h->most; p++) {
        if (hold_stage(h, p) == HOLD_WAITING) {
            h->place[n] = p;
            h->wanted[n++] = h->route->expert[p];
        }
    }
    if (n == 0) {
        return 0;
    }
    struct engine_want want = hold_want(h, h->parts, h->wanted, n, h->found_wanted);
    want.slept_s = h->slept_s;
    int rc = engine_acquire(h->engine, &want, h->slot, &got, &h->err);
    if (rc == SLUICE_OK && got == 0 && h->open == 0 && hold_let_go(h)) {
        want.wait = true;
        rc = engine_acquire(h->engine, &want, h->slot, &got, &h->err);
    }
    if (rc) {
        atomic_store_explicit(&h->status, rc, memory_order_relaxed);
        engine_wake(h->engine); /* threads that sleep would not hear of it otherwise */
        return 0;
    }
    for (uint32_t i = 0; i < n && got; i++) {
        if (h->slot[i] != UINT32_MAX) {
            struct hold_expert *x = &h->expert[h->place[i]];
            h->open++;
            if (want.found) {
                h->found[h->place[i]] = h->found_wanted[i];
            }
            atomic_store_explicit(&x->stage, HOLD_OPEN, memory_order_relaxed);
            atomic_store_explicit(&x->slot, h->slot[i], memory_order_release);
        }
    }
    return got;
}

bool hold_roll(struct hold *h, bool must) {
    if (h->all) {
        return false;
    }
    if (must) {
        check_lock(&h->lock);
    } else if (pthread_mutex_trylock(&h->lock)) {
        return false;
    }
    bool changed = false;
    if (!hold_failed(h)) {
        changed = hold_give_back(h, false) > 0;
        if (hold_acquire(h)) {
            engine_wake(h->engine); /* what was in memory already is news to threads that sleep */
            changed = true;
        }
    }
    check_unlock(&h->lock);
    return changed;
}

int hold_node_end(struct hold *h, struct sluice_error *err) {
    const int status = atomic_load_explicit(&h->status, memory_order_relaxed);
    if (!h->all) {
        check_lock(&h->lock);
        hold_give_back(h, true);
        check_unlock(&h->lock);
        h->counted = true;
    }
    if (status) {
        *err = h->err;
    }
    return status;
}

void hold_release(struct hold *h) {
    hold_let_go(h);
    if (h->all) {
        for (uint32_t p = 0; p < h->route->n; p++) {
            h->granted[p] = hold_slot(h, p);
        }
        engine_release(h->engine, h->granted, h->route->n);
        h->all = false;
    }
}
