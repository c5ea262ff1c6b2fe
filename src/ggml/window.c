/*
 * window.c - a node's experts in turns.
 *
 * A batch of many tokens is routed to nearly all experts of a layer, and a small cache does not hold
 * them at once. Then a window moves over them while the node runs: the thread that finishes an
 * expert gives its slot back and asks for the next ones, so their reads are under way while others
 * are computed, and each slice is read at most once for the node. No thread is set aside for it.
 *
 * Who holds slots never waits for more (engine.c), so it sleeps for slots only when none is held. Experts
 * that were in memory when the block began are kept pinned beside the window, lest those that pass through
 * evict them before their turn: a prompt's block begins with its own layer's bundles being the last ones that
 * are needed again, so they would be the first to go.
 */
#include "ggml/window.h"

#include <string.h>

#include "ggml/route.h"
#include "cache/error.h"

void window_init(struct window *w) {
    pthread_mutex_init(&w->lock, NULL);
}

void window_destroy(struct window *w) {
    pthread_mutex_destroy(&w->lock);
}

bool window_let_go(struct window_kept *kept, struct engine *e) {
    const bool any = kept->n > 0;
    if (any) {
        engine_release(e, kept->slot, kept->n);
        kept->n = 0;
    }
    return any;
}

void window_begin(struct window *w, struct engine *e, const struct engine_want *want, struct window_kept *kept) {
    const uint32_t most = engine_staging(e, want->group);
    w->most = most < WINDOW_OPEN ? most : WINDOW_OPEN;
    w->kept = kept;
    w->group = want->group;
    w->parts = want->parts;
    w->phase = want->phase;
    w->first = want->first;
    w->found = want->found;
    w->open = 0;
    w->status = SLUICE_OK;
    memset(w->asked, 0, sizeof w->asked);
}

/* Give back what is computed; with `all`, whatever is open. */
static uint32_t window_give_back(struct window *w, struct kernel_job *j, bool all) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < j->route->n && w->open; i++) {
        struct kernel_place *p = &j->place[i];
        const uint32_t slot = atomic_load_explicit(&p->slot, memory_order_relaxed);
        if (slot != UINT32_MAX && (all || atomic_load_explicit(&p->left, memory_order_acquire) == 0)) {
            atomic_store_explicit(&p->slot, UINT32_MAX, memory_order_relaxed);
            w->slot[n++] = slot;
            w->open--;
        }
    }
    if (n) { /* a release of nothing would wake whoever sleeps, the caller too, to look again and again */
        engine_release(j->engine, w->slot, n);
    }
    return n;
}

static uint32_t window_acquire(struct window *w, struct kernel_job *j) {
    uint32_t n = 0, got = 0;
    for (uint32_t i = 0; i < j->route->n && n + w->open < w->most; i++) {
        if (!w->asked[i]) {
            w->place[n] = i;
            w->wanted[n++] = j->route->expert[i];
        }
    }
    if (n == 0) {
        return 0;
    }
    struct engine_want want = {.group = w->group,
                               .parts = w->parts,
                               .expert = w->wanted,
                               .n = n,
                               .phase = w->phase,
                               .first = w->first,
                               .wait = w->open == 0 && w->kept->n == 0,
                               .found = w->found ? w->found_wanted : NULL};
    w->status = engine_acquire(j->engine, &want, w->slot, &got, &w->err);
    if (w->status == SLUICE_OK && got == 0 && w->open == 0 && window_let_go(w->kept, j->engine)) {
        want.wait = true;
        w->status = engine_acquire(j->engine, &want, w->slot, &got, &w->err);
    }
    if (w->status) {
        atomic_store_explicit(&j->failed, true, memory_order_relaxed);
        engine_wake(j->engine); /* threads that sleep would not hear of it otherwise */
        return 0;
    }
    for (uint32_t i = 0; i < n && got; i++) {
        if (w->slot[i] != UINT32_MAX) {
            w->asked[w->place[i]] = 1;
            w->open++;
            if (w->found) {
                w->found[w->place[i]] = w->found_wanted[i];
            }
            atomic_store_explicit(&j->place[w->place[i]].slot, w->slot[i], memory_order_release);
        }
    }
    return got;
}

bool window_roll(struct window *w, struct kernel_job *j, bool must) {
    if (must) {
        pthread_mutex_lock(&w->lock);
    } else if (pthread_mutex_trylock(&w->lock)) {
        return false;
    }
    bool changed = false;
    if (!atomic_load_explicit(&j->failed, memory_order_relaxed)) {
        changed = window_give_back(w, j, false) > 0;
        const uint32_t got = window_acquire(w, j);
        if (got) {
            engine_wake(j->engine); /* what was in memory already is news to threads that sleep */
            changed = true;
        }
    }
    pthread_mutex_unlock(&w->lock);
    return changed;
}

void window_lock(struct window *w) {
    pthread_mutex_lock(&w->lock);
}

void window_unlock(struct window *w) {
    pthread_mutex_unlock(&w->lock);
}

int window_end(struct window *w, struct kernel_job *j, struct sluice_error *err) {
    window_give_back(w, j, true);
    if (w->status) {
        *err = w->err;
    }
    return w->status;
}
