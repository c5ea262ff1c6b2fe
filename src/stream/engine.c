/*
 * engine.c - the stream engine.
 *
 * It owns the bank, the slots and the lanes, and one mutex that guards them. A block of a layer
 * takes that mutex a few times, to begin, acquire, release and count; everything in between (has this part arrived?)
 * is atomics, and reader threads take it never.
 *
 * No deadlock between contexts: whoever holds pins never waits for more of them (`wait` is only for
 * callers that hold nothing; the rest take what they can get and go on with that), so every pin is
 * released in finite time, given that reads end.
 *
 * What happens when reads fail: the part becomes PART_FAILED, the first reason is kept, the caller
 * sees the state and fails its graph. Nothing is computed from a part that is not PART_READY. The
 * part becomes FAILED only when the last of its requests ended, and may be asked for again: a passing fault (a network
 * file system, an unplugged disk) costs one generation, not the process.
 *
 * When the arena is cut: at the first acquire after the bank changed, not at load. Host programs
 * allocate their KV cache and compute buffers after the weights; only at the first compute is it
 * known what is really left. (A fixed size chosen at load was killed in a 6 GiB cgroup when
 * llama-server's own buffers came on top.)
 */
#include "stream/engine.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stream/clock.h"
#include "stream/error.h"
#include "stream/event.h"
#include "stream/lanes.h"

enum {
    ENGINE_CHUNK = 1 << 20, /* bytes: larger reads are split, so that several lanes share a large slice */
    FORESEE_MAX = 16,       /* bundles read ahead at once, at most */
    FORESEE_PAUSE = 2048,   /* blocks without foresight once it turned out useless */
};

/* Counters that reader threads add to. */
struct engine_read_count {
    _Atomic uint64_t bytes; /* read */
    _Atomic uint64_t reads; /* requests ended well */
};

/* What was read ahead, and whether that pays. Under the lock. */
struct engine_foresight {
    uint32_t group;                 /* whose next block is foreseen; UINT32_MAX: none */
    uint32_t slot[FORESEE_MAX];     /* placed for it */
    uint32_t n;                     /* entries */
    bool recalled;                  /* demand came: those that were not begun are taken back, the others counted */
    float begun;                    /* bundles whose reading began, of those placed: a running mean */
    float useful;                   /* of those begun, how many were used: a running mean, 0..1 */
    uint32_t pause;                 /* blocks to come without foresight */
    uint32_t missed;                /* blocks since one of generation missed something, saturating */
    struct sluice_foresee_stats st; /* counters */
};

struct engine {
    struct sluice_settings settings; /* as created */
    enum sluice_io io;               /* who reads, or will: not AUTO */
    engine_budget_fn budget_fn;      /* decides the budget */
    void *budget_ud;                 /* its argument */

    pthread_mutex_t lock;                           /* guards all that follows, but the atomics */
    struct bank bank;                               /* the catalog */
    struct slots slots;                             /* the arena, once cut */
    struct lanes *lanes;                            /* the readers, once started */
    bool cut;                                       /* slots match the bank */
    uint64_t budget;                                /* bytes of cache; 0: none, slots are staging */
    uint64_t evictions;                             /* so far */
    uint64_t submits, queue_sum;                    /* see sluice_stats */
    uint32_t queue_max;                             /* see engine_take_queue_max */
    uint32_t quiescing;                             /* threads that wait for all blocks to end: no new block starts */
    struct sluice_phase_stats phase[ENGINE_PHASES]; /* counters under the lock */
    struct lane_request *requests;                  /* scratch of acquire, grows */
    size_t requests_cap;                            /* entries of it */

    struct event changed;                             /* a part's state or a pin changed */
    _Atomic uint32_t pins;                            /* of all slots */
    _Atomic uint32_t inflight;                        /* requests of all slots */
    _Atomic uint32_t cuts;                            /* arenas cut so far */
    struct engine_read_count read[ENGINE_PHASES + 1]; /* by phase; the last: ahead of use */
    struct engine_foresight foresight;                /* reading ahead of use */

    pthread_mutex_t error_lock;     /* guards the next */
    struct sluice_error read_error; /* the last failed read */
};

struct engine *engine_create(const struct sluice_settings *s, engine_budget_fn budget, void *ud,
                             struct sluice_error *err) {
    struct engine *e = calloc(1, sizeof *e);
    if (!e) {
        sluice_fail(err, SLUICE_ERR_MEMORY, "out of memory");
        return NULL;
    }
    if (lanes_choose(s->io, &e->io, err)) {
        free(e);
        return NULL;
    }
    e->settings = *s;
    e->budget_fn = budget;
    e->budget_ud = ud;
    e->foresight = (struct engine_foresight){.group = UINT32_MAX, .useful = 0.6f, .begun = 1};
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->error_lock, NULL);
    bank_init(&e->bank);
    return e;
}

void engine_destroy(struct engine *e) {
    if (!e) {
        return;
    }
    assert(e->bank.live_tensors == 0 && atomic_load(&e->inflight) == 0);
    lanes_destroy(e->lanes);
    slots_destroy(&e->slots);
    bank_free(&e->bank);
    free(e->requests);
    pthread_mutex_destroy(&e->lock);
    pthread_mutex_destroy(&e->error_lock);
    free(e);
}

/* Runs on a lane: account a read and publish its part. */
static void engine_read_done(void *ud, const struct lane_request *r, int64_t got, int error) {
    struct engine *e = ud;
    struct slot *s = r->owner;
    if (got >= 0) {
        atomic_fetch_add_explicit(&e->read[r->tag].bytes, (uint64_t)got, memory_order_relaxed);
        atomic_fetch_add_explicit(&e->read[r->tag].reads, 1, memory_order_relaxed);
    } else {
        /* The slot cannot be relabelled while this request is in flight, and the bank's entry lives
         * as long as its tensors have requests; reading names here needs no lock. */
        const struct bank_tensor *t = &e->bank.tensors[e->bank.groups[s->group].tensor[r->part]];
        pthread_mutex_lock(&e->error_lock);
        sluice_fail(&e->read_error, SLUICE_ERR_IO, "%s: reading expert %u of tensor %s at offset %llu failed: %s",
                    r->file->path, s->expert, t->name, (unsigned long long)r->offset,
                    error == ENODATA ? "the file ended early" : strerror(error));
        pthread_mutex_unlock(&e->error_lock);
        atomic_fetch_or_explicit(&s->pending[r->part], SLOT_PENDING_FAILED, memory_order_relaxed);
    }
    /* The last request to end, and it alone, decides the state: once the state says FAILED the part may be
     * asked for again, and nothing of the old requests may touch it any more. */
    const uint32_t before = atomic_fetch_sub_explicit(&s->pending[r->part], 1, memory_order_acq_rel);
    if ((before & ~SLOT_PENDING_FAILED) == 1) {
        atomic_store_explicit(&s->state[r->part], before & SLOT_PENDING_FAILED ? PART_FAILED : PART_READY,
                              memory_order_release);
    }
    atomic_fetch_sub_explicit(&s->inflight, 1, memory_order_acq_rel);
    atomic_fetch_sub_explicit(&e->inflight, 1, memory_order_acq_rel);
    event_bump(&e->changed);
}

/* ---- the bank ------------------------------------------------------------------------------- */

int engine_add_file(struct engine *e, int fd, const char *path, uint32_t *file, struct sluice_error *err) {
    pthread_mutex_lock(&e->lock);
    int rc = bank_add_file(&e->bank, fd, path, e->settings.direct_io, file, err);
    pthread_mutex_unlock(&e->lock);
    return rc;
}

/* Sleep, letting go of the lock, until something changed since `seen`. */
static void engine_sleep(struct engine *e, uint32_t seen) {
    pthread_mutex_unlock(&e->lock);
    event_wait(&e->changed, seen);
    pthread_mutex_lock(&e->lock);
}

/*
 * Wait, with the lock held, until no block is running and no read is under way; then the arena and
 * the bank's arrays may change. Callers hold no pins.
 */
static void engine_quiesce(struct engine *e) {
    e->quiescing++;
    for (;;) {
        const uint32_t seen = event_read(&e->changed);
        if (atomic_load(&e->pins) == 0 && atomic_load(&e->inflight) == 0) {
            break;
        }
        engine_sleep(e, seen);
    }
    e->quiescing--;
    event_bump(&e->changed);
}

/* With nothing under way: slots are about to change, so nothing of them may be remembered. All was read. */
static void engine_forget_foreseen(struct engine *e) {
    struct engine_foresight *f = &e->foresight;
    f->st.begun += f->group != UINT32_MAX && !f->recalled ? f->n : 0;
    f->n = 0;
    f->group = UINT32_MAX;
}

/* The bank is about to change: forget the arena. It is cut anew at the next acquire. */
static void engine_uncut(struct engine *e) {
    engine_quiesce(e);
    slots_destroy(&e->slots);
    engine_forget_foreseen(e);
    e->cut = false;
}

int engine_add_tensor(struct engine *e, uint32_t file, uint64_t owner, const char *name, uint64_t offset,
                      uint64_t slice, uint32_t n_expert, uint32_t top_k, uint32_t *tensor, struct sluice_error *err) {
    pthread_mutex_lock(&e->lock);
    engine_uncut(e);
    int rc = bank_add_tensor(&e->bank, file, owner, name, offset, slice, n_expert, top_k, tensor, err);
    pthread_mutex_unlock(&e->lock);
    return rc;
}

const struct stream_file *engine_file(struct engine *e, uint32_t file) {
    pthread_mutex_lock(&e->lock);
    const struct stream_file *f = &e->bank.files[file]->io;
    pthread_mutex_unlock(&e->lock);
    return f;
}

void engine_drop_file(struct engine *e, uint32_t file) {
    pthread_mutex_lock(&e->lock);
    /* Its last reference: then no tensor is in it, and no read under way. */
    bank_drop_file(&e->bank, file);
    pthread_mutex_unlock(&e->lock);
}

void engine_remove_tensors(struct engine *e, const uint32_t *tensor, size_t n) {
    pthread_mutex_lock(&e->lock);
    if (n) {
        engine_uncut(e);
    }
    for (size_t i = 0; i < n; i++) {
        bank_remove_tensor(&e->bank, tensor[i]);
    }
    struct lanes *lanes = NULL;
    if (e->bank.live_tensors == 0) {
        lanes = e->lanes;
        e->lanes = NULL;
    }
    pthread_mutex_unlock(&e->lock);
    lanes_destroy(lanes);
}

int engine_check(struct engine *e, struct sluice_error *err) {
    uint64_t budget = 0;
    pthread_mutex_lock(&e->lock);
    int rc = e->bank.live_tensors && !e->cut ? e->budget_fn(e->budget_ud, &e->bank, e->slots.bytes, &budget, err)
                                             : sluice_ok(err);
    pthread_mutex_unlock(&e->lock);
    return rc;
}

struct engine_tensor_info engine_tensor(struct engine *e, uint32_t tensor) {
    pthread_mutex_lock(&e->lock);
    const struct bank_tensor *t = &e->bank.tensors[tensor];
    const struct engine_tensor_info info = {.group = t->group, .part = t->part, .n_expert = t->n_expert};
    pthread_mutex_unlock(&e->lock);
    return info;
}

/* Cut the arena and start the lanes, with the lock held. */
static int engine_cut(struct engine *e, struct sluice_error *err) {
    engine_quiesce(e);
    if (e->cut) {
        return SLUICE_OK; /* another thread did it while we waited */
    }
    uint64_t budget = 0;
    int rc = e->budget_fn(e->budget_ud, &e->bank, e->slots.bytes, &budget, err);
    if (rc) {
        return rc;
    }
    if (!e->lanes) {
        struct sluice_error why;
        e->lanes = lanes_create(e->settings.io, (uint32_t)e->settings.io_threads, engine_read_done, e, &why);
        if (!e->lanes) {
            return sluice_fail(err, why.status, "%s", why.message);
        }
        e->io = lanes_kind(e->lanes);
    }
    rc = slots_create(&e->slots, &e->bank, budget, e->settings.policy, err);
    if (rc) {
        return rc;
    }
    e->budget = budget;
    e->cut = true;
    atomic_fetch_add_explicit(&e->cuts, 1, memory_order_relaxed);
    return SLUICE_OK;
}

int engine_resize(struct engine *e, struct sluice_error *err) {
    pthread_mutex_lock(&e->lock);
    int rc = sluice_ok(err);
    if (e->cut) {
        engine_quiesce(e);
    }
    if (e->cut) { /* still: a model may have been freed meanwhile */
        uint64_t budget = 0;
        engine_forget_foreseen(e);
        rc = e->budget_fn(e->budget_ud, &e->bank, e->slots.bytes, &budget, err);
        rc = rc ? rc : slots_resize(&e->slots, budget, err);
        if (rc == SLUICE_OK) {
            e->budget = budget;
        }
        if (rc == SLUICE_OK && budget == 0) {
            slots_empty(&e->slots); /* without a cache nothing outlives its use */
        }
    }
    pthread_mutex_unlock(&e->lock);
    return rc;
}

/* With the lock held, by a caller without pins: let those pass who wait to cut the arena; cut it if that is due. */
static int engine_ready(struct engine *e, struct sluice_error *err) {
    for (;;) {
        const uint32_t seen = event_read(&e->changed);
        if (!e->quiescing) {
            return e->cut ? SLUICE_OK : engine_cut(e, err);
        }
        engine_sleep(e, seen);
    }
}

/* ---- acquire and release -------------------------------------------------------------------- */

/* Is part p of the slot neither there nor on its way? Of a failed part all requests have ended. */
static bool engine_part_missing(struct slot *s, uint32_t p) {
    const uint32_t state = atomic_load_explicit(&s->state[p], memory_order_acquire);
    return state == PART_EMPTY || state == PART_FAILED;
}

/* Append the requests that read part p of the slot, split into chunks. False: no memory. */
static bool engine_plan_part(struct engine *e, uint32_t slot, uint32_t p, uint32_t phase, size_t *n) {
    struct slot *s = &e->slots.slot[slot];
    const struct bank_group *g = &e->bank.groups[s->group];
    const struct bank_tensor *t = &e->bank.tensors[g->tensor[p]];
    const struct bank_window w = bank_window_of(&e->bank, g->tensor[p], s->expert);
    const uint64_t need = w.skip + t->slice; /* the window's tail past the slice may lie past the file's end */
    const uint64_t chunk = ((uint64_t)ENGINE_CHUNK + w.file->align - 1) / w.file->align * w.file->align;
    const size_t pieces = (size_t)((need + chunk - 1) / chunk);
    if (*n + pieces > e->requests_cap) {
        size_t cap = e->requests_cap ? e->requests_cap * 2 : 64;
        while (cap < *n + pieces) {
            cap *= 2;
        }
        struct lane_request *r = reallocarray(e->requests, cap, sizeof *r);
        if (!r) {
            return false;
        }
        e->requests = r;
        e->requests_cap = cap;
    }
    for (uint64_t at = 0; at < need; at += chunk) {
        const uint64_t left = w.len - at, left_need = need - at;
        e->requests[(*n)++] = (struct lane_request){
            .file = w.file,
            .dst = s->data + g->window[p] + at,
            .offset = w.offset + at,
            .len = (uint32_t)(left < chunk ? left : chunk),
            .need = (uint32_t)(left_need < chunk ? left_need : chunk),
            .fresh = !(s->touched >> p & 1),
            .owner = s,
            .part = p,
            .tag = phase,
            .follows = at > 0,
        };
    }
    s->touched |= 1u << p;
    atomic_store_explicit(&s->pending[p], (uint32_t)pieces, memory_order_relaxed);
    atomic_store_explicit(&s->state[p], PART_READING, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->inflight, (uint32_t)pieces, memory_order_relaxed);
    atomic_fetch_add_explicit(&e->inflight, (uint32_t)pieces, memory_order_relaxed);
    return true;
}

/* Undo the planned requests from `from` on: they were not submitted. */
static void engine_unplan(struct engine *e, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const struct lane_request *r = &e->requests[i];
        struct slot *s = r->owner;
        atomic_store_explicit(&s->pending[r->part], 0, memory_order_relaxed);
        atomic_store_explicit(&s->state[r->part], PART_EMPTY, memory_order_relaxed);
        atomic_fetch_sub_explicit(&s->inflight, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&e->inflight, 1, memory_order_relaxed);
    }
}

static void engine_unpin(struct engine *e, uint32_t slot) {
    struct slot *s = &e->slots.slot[slot];
    assert(s->pins > 0);
    s->pins--;
    atomic_fetch_sub(&e->pins, 1);
    if (e->budget == 0 && slots_idle(s)) {
        slots_drop(&e->slots, slot); /* no cache: nothing outlives its use */
    }
}

/* Pin what is there, place what is not. Returns how many of w->expert have a slot now. */
static uint32_t engine_pin(struct engine *e, const struct engine_want *w, uint32_t *slot) {
    uint32_t n = 0;
    /* Bundles that are there first: placing another one must not evict them. */
    for (uint32_t i = 0; i < w->n; i++) {
        const int32_t have = slots_find(&e->slots, w->group, (uint32_t)w->expert[i]);
        slot[i] = have < 0 ? UINT32_MAX : (uint32_t)have;
        if (have >= 0) {
            e->slots.slot[have].pins++;
            atomic_fetch_add(&e->pins, 1);
            n++;
        }
    }
    for (uint32_t i = 0; i < w->n; i++) {
        if (slot[i] != UINT32_MAX) {
            continue;
        }
        bool evicted = false;
        slot[i] = slots_place(&e->slots, &e->bank, w->group, (uint32_t)w->expert[i], &evicted);
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
        for (uint32_t p = 0; empty && p < e->bank.groups[w->group].n_parts; p++) {
            empty = atomic_load(&s->state[p]) == PART_EMPTY;
        }
        if (empty) {
            slots_drop(&e->slots, slot[i]);
        }
    }
}

/* Count demand: a bundle is a hit when every wanted part is there or on its way. */
static void engine_count_demand(struct engine *e, const struct engine_want *w, const uint32_t *slot) {
    struct sluice_phase_stats *c = &e->phase[w->phase];
    const struct bank_group *g = &e->bank.groups[w->group];
    for (uint32_t i = 0; i < w->n; i++) {
        if (slot[i] == UINT32_MAX) {
            continue;
        }
        struct slot *s = &e->slots.slot[slot[i]];
        uint64_t missing = 0, there = 0;
        const bool foreseen = s->foreseen;
        if (foreseen) {
            s->foreseen = false;
            e->foresight.st.used++;
        }
        for (uint32_t p = 0; p < g->n_parts; p++) {
            if (w->parts >> p & 1) {
                *(engine_part_missing(s, p) ? &missing : &there) += e->bank.tensors[g->tensor[p]].slice;
            }
        }
        c->hit_bytes += there;
        c->miss_bytes += missing;
        e->foresight.missed = missing ? 0 : e->foresight.missed + (i == 0 && e->foresight.missed < UINT32_MAX);
        if (w->first) {
            c->routed++;
            *(missing ? &c->misses : &c->hits) += 1;
        }
        if (w->first && w->found) {
            w->found[i] = missing ? ENGINE_FOUND_NOT : foreseen ? ENGINE_FORESEEN : ENGINE_FOUND;
        }
    }
}

/* Submit reads for all missing wanted parts, part by part. The slots are pinned. */
static int engine_read(struct engine *e, const struct engine_want *w, const uint32_t *slot) {
    size_t n = 0;
    for (uint32_t p = 0; p < e->bank.groups[w->group].n_parts; p++) {
        if (!(w->parts >> p & 1)) {
            continue;
        }
        for (uint32_t i = 0; i < w->n; i++) {
            if (slot[i] != UINT32_MAX && engine_part_missing(&e->slots.slot[slot[i]], p) &&
                !engine_plan_part(e, slot[i], p, w->phase, &n)) {
                engine_unplan(e, n);
                return SLUICE_ERR_MEMORY;
            }
        }
    }
    if (n == 0) {
        return SLUICE_OK;
    }
    const uint32_t depth = atomic_load_explicit(&e->inflight, memory_order_relaxed); /* these n included */
    if (lanes_submit(e->lanes, e->requests, n)) {
        engine_unplan(e, n);
        return SLUICE_ERR_MEMORY;
    }
    e->submits++;
    e->queue_sum += depth;
    e->queue_max = depth > e->queue_max ? depth : e->queue_max;
    return SLUICE_OK;
}

/* ---- reading ahead of use -------------------------------------------------------------------- */

/* Runs in lanes_recall: a request that nobody began. */
static void engine_recalled(void *ud, const struct lane_request *r) {
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
static void engine_recall(struct engine *e) {
    struct engine_foresight *f = &e->foresight;
    if (f->group == UINT32_MAX || f->recalled) {
        return;
    }
    f->recalled = true;
    lanes_recall(e->lanes, engine_recalled, e);
    uint32_t begun = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        struct slot *s = &e->slots.slot[f->slot[i]];
        bool any = false;
        for (uint32_t p = 0; s->foreseen && p < e->bank.groups[s->group].n_parts; p++) {
            any = any || atomic_load_explicit(&s->state[p], memory_order_acquire) != PART_EMPTY;
        }
        if (any) {
            f->slot[begun++] = f->slot[i];
        } else if (s->foreseen && slots_idle(s)) {
            slots_drop(&e->slots, f->slot[i]);
        }
    }
    f->n = begun;
    f->begun += ((float)begun - f->begun) / 16;
    f->st.begun += begun;
}

/* The foreseen block has acquired what it wants. */
static void engine_foreseen_done(struct engine *e) {
    struct engine_foresight *f = &e->foresight;
    for (uint32_t i = 0; i < f->n; i++) {
        const struct slot *s = &e->slots.slot[f->slot[i]];
        const bool used = !s->foreseen && s->group == f->group;
        f->useful += ((used ? 1.0f : 0.0f) - f->useful) / 64;
    }
    if (f->useful < 0.35f) {
        f->useful = 0.6f; /* after the pause it gets another chance */
        f->pause = FORESEE_PAUSE;
        f->st.pauses++;
    }
    f->n = 0;
    f->group = UINT32_MAX;
}

bool engine_foresees(struct engine *e) {
    pthread_mutex_lock(&e->lock);
    struct engine_foresight *f = &e->foresight;
    const bool yes = e->settings.lookahead && e->cut && e->budget && !e->quiescing && f->pause == 0 &&
                     f->missed < e->bank.live_groups;
    f->pause -= f->pause > 0;
    pthread_mutex_unlock(&e->lock);
    return yes;
}

void engine_foresee(struct engine *e, uint32_t group, const int32_t *expert, uint32_t n) {
    pthread_mutex_lock(&e->lock);
    struct engine_foresight *f = &e->foresight;
    if (!e->cut || e->budget == 0 || e->quiescing || f->group != UINT32_MAX) {
        pthread_mutex_unlock(&e->lock);
        return;
    }
    /* As many as were begun lately and one more: what is not begun has evicted something for nothing. */
    uint32_t most = 1 + (uint32_t)(f->begun + 0.9f);
    most = most < FORESEE_MAX ? most : FORESEE_MAX;
    size_t n_requests = 0;
    for (uint32_t i = 0; i < n && f->n < most; i++) {
        if (slots_find(&e->slots, group, (uint32_t)expert[i]) >= 0) {
            continue;
        }
        bool evicted = false;
        const uint32_t slot = slots_place(&e->slots, &e->bank, group, (uint32_t)expert[i], &evicted);
        if (slot == UINT32_MAX) {
            break;
        }
        e->evictions += evicted;
        slots_foresee(&e->slots, slot);
        const size_t before = n_requests;
        bool planned = true;
        for (uint32_t p = 0; planned && p < e->bank.groups[group].n_parts; p++) {
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
    if (f->n && lanes_submit_idle(e->lanes, e->requests, n_requests)) {
        engine_unplan(e, n_requests);
        for (uint32_t i = 0; i < f->n; i++) {
            slots_drop(&e->slots, f->slot[i]);
        }
        f->n = 0;
    }
    f->st.asked += f->n;
    f->recalled = false;
    f->group = f->n ? group : UINT32_MAX;
    pthread_mutex_unlock(&e->lock);
}

int engine_begin_block(struct engine *e, uint32_t group, enum engine_phase phase, uint32_t rows,
                       struct sluice_error *err) {
    pthread_mutex_lock(&e->lock);
    const int rc = engine_ready(e, err);
    if (rc == SLUICE_OK) {
        slots_visit(&e->slots, group);
        e->phase[phase].blocks++;
        e->phase[phase].tokens += rows;
    }
    pthread_mutex_unlock(&e->lock);
    return rc;
}

int engine_acquire(struct engine *e, const struct engine_want *w, uint32_t *slot, uint32_t *granted,
                   struct sluice_error *err) {
    *granted = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        slot[i] = UINT32_MAX;
    }
    pthread_mutex_lock(&e->lock);
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
        engine_recall(e);
        const struct slot_class *c = &e->slots.classes[e->slots.class_of_group[w->group]];
        if (w->all && w->n > c->n) {
            rc = sluice_fail(err, SLUICE_ERR_BUDGET, "the cache holds %u bundles of this size, %u are needed at once",
                             c->n, w->n);
            break;
        }
        const uint32_t n = engine_pin(e, w, slot);
        if (n && (!w->all || n == w->n)) {
            engine_count_demand(e, w, slot);
            engine_foreseen_done(e);
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
        if (!w->wait) {
            break;
        }
        const double t0 = clock_seconds();
        engine_sleep(e, seen);
        if (w->slept_s) {
            *w->slept_s += clock_seconds() - t0;
        }
    }
    pthread_mutex_unlock(&e->lock);
    if (*granted == 0) {
        for (uint32_t i = 0; i < w->n; i++) {
            slot[i] = UINT32_MAX;
        }
    }
    return rc ? rc : sluice_ok(err);
}

void engine_release(struct engine *e, const uint32_t *slot, uint32_t n) {
    pthread_mutex_lock(&e->lock);
    for (uint32_t i = 0; i < n; i++) {
        if (slot[i] != UINT32_MAX) {
            engine_unpin(e, slot[i]);
        }
    }
    pthread_mutex_unlock(&e->lock);
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

uint32_t engine_capacity(struct engine *e, uint32_t group) {
    pthread_mutex_lock(&e->lock);
    const uint32_t n = e->cut ? e->slots.classes[e->slots.class_of_group[group]].n : 0;
    pthread_mutex_unlock(&e->lock);
    return n;
}

/* ---- counters ------------------------------------------------------------------------------- */

void engine_count_time(struct engine *e, enum engine_phase phase, double stall_s, double compute_s) {
    pthread_mutex_lock(&e->lock);
    e->phase[phase].stall_s += stall_s;
    e->phase[phase].compute_s += compute_s;
    pthread_mutex_unlock(&e->lock);
}

uint32_t engine_take_queue_max(struct engine *e) {
    pthread_mutex_lock(&e->lock);
    const uint32_t max = e->queue_max;
    e->queue_max = 0;
    pthread_mutex_unlock(&e->lock);
    return max;
}

void engine_read_error(struct engine *e, struct sluice_error *out) {
    pthread_mutex_lock(&e->error_lock);
    *out = e->read_error;
    pthread_mutex_unlock(&e->error_lock);
}

void engine_stats(struct engine *e, struct sluice_stats *out) {
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&e->lock);
    struct sluice_phase_stats *phase[ENGINE_PHASES] = {&out->prompt, &out->generation};
    out->layers = e->bank.live_groups;
    for (int i = 0; i < ENGINE_PHASES; i++) {
        *phase[i] = e->phase[i];
        phase[i]->read_bytes = atomic_load_explicit(&e->read[i].bytes, memory_order_relaxed);
        phase[i]->reads = atomic_load_explicit(&e->read[i].reads, memory_order_relaxed);
    }
    out->tensors = e->bank.live_tensors;
    out->bank_bytes = bank_weight_bytes(&e->bank);
    for (uint32_t i = 0; i < e->bank.n_groups; i++) {
        const struct bank_group *g = &e->bank.groups[i];
        if (g->n_parts) {
            const uint64_t demand = g->weight_bytes * g->top_k;
            out->token_bytes += demand;
            out->layer_bytes = demand > out->layer_bytes ? demand : out->layer_bytes;
        }
    }
    out->cache_bytes = e->cut ? e->slots.bytes : 0;
    out->slots = e->cut ? e->slots.n_slots : 0;
    out->resident = out->slots;
    for (uint32_t i = 0; i < e->slots.n_classes; i++) {
        out->resident -= e->slots.classes[i].n_free;
    }
    out->evictions = e->evictions;
    out->foreseen = e->foresight.st;
    out->foreseen.read_bytes = atomic_load_explicit(&e->read[ENGINE_PHASES].bytes, memory_order_relaxed);
    /* Read for generation, useful or not: the disk does not care. */
    out->generation.read_bytes += out->foreseen.read_bytes;
    out->generation.reads += atomic_load_explicit(&e->read[ENGINE_PHASES].reads, memory_order_relaxed);
    out->submits = e->submits;
    out->queue_sum = e->queue_sum;
    out->lanes = (uint32_t)e->settings.io_threads;
    out->io = e->io;
    out->direct_io = e->bank.live_tensors > 0;
    for (uint32_t i = 0; i < e->bank.n_files; i++) {
        if (e->bank.files[i] && e->bank.files[i]->io.fd_direct < 0) {
            out->direct_io = false;
        }
    }
    pthread_mutex_unlock(&e->lock);
}

uint32_t engine_layers(struct engine *e, struct engine_layer *out, uint32_t cap) {
    uint32_t n = 0;
    pthread_mutex_lock(&e->lock);
    for (uint32_t i = 0; i < e->bank.n_groups && n < cap; i++) {
        if (e->bank.groups[i].n_parts) {
            out[n++] = (struct engine_layer){.resident = e->cut ? e->slots.resident[i] : 0,
                                             .experts = e->bank.groups[i].n_expert};
        }
    }
    pthread_mutex_unlock(&e->lock);
    return n;
}

uint32_t engine_groups(struct engine *e, struct engine_group *out, uint32_t cap, struct engine_arena *arena) {
    uint32_t n = 0;
    pthread_mutex_lock(&e->lock);
    *arena = (struct engine_arena){.budget = e->budget,
                                   .align = 4096,
                                   .n_groups = e->bank.n_groups,
                                   .cuts = atomic_load_explicit(&e->cuts, memory_order_relaxed)};
    for (uint32_t i = 0; i < e->bank.n_files; i++) {
        if (e->bank.files[i] && e->bank.files[i]->io.align > arena->align) {
            arena->align = e->bank.files[i]->io.align;
        }
    }
    for (uint32_t i = 0; i < e->bank.n_groups && n < cap; i++) {
        const struct bank_group *g = &e->bank.groups[i];
        if (g->n_parts) {
            out[n] = (struct engine_group){.group = i,
                                           .n_expert = g->n_expert,
                                           .top_k = g->top_k,
                                           .weight_bytes = g->weight_bytes,
                                           .slot_bytes = g->slot_bytes};
            memcpy(out[n++].prefix, g->prefix, sizeof out->prefix);
        }
    }
    pthread_mutex_unlock(&e->lock);
    return n;
}

uint32_t engine_cuts(struct engine *e) {
    return atomic_load_explicit(&e->cuts, memory_order_relaxed);
}

bool engine_file_at(struct engine *e, uint32_t i, char *buf, size_t cap) {
    bool found = false;
    buf[0] = 0;
    pthread_mutex_lock(&e->lock);
    for (uint32_t k = 0; k < e->bank.n_files && !found; k++) {
        if (e->bank.files[k] && i-- == 0) {
            snprintf(buf, cap, "%s", e->bank.files[k]->io.path);
            found = true;
        }
    }
    pthread_mutex_unlock(&e->lock);
    return found;
}

void engine_buffered_reason(struct engine *e, char *buf, size_t cap) {
    buf[0] = 0;
    pthread_mutex_lock(&e->lock);
    for (uint32_t i = 0; i < e->bank.n_files; i++) {
        if (e->bank.files[i] && e->bank.files[i]->io.why_buffered[0]) {
            snprintf(buf, cap, "%s", e->bank.files[i]->io.why_buffered);
            break;
        }
    }
    pthread_mutex_unlock(&e->lock);
}

void engine_file_path(struct engine *e, char *buf, size_t cap) {
    buf[0] = 0;
    pthread_mutex_lock(&e->lock);
    for (uint32_t i = 0; i < e->bank.n_files && !buf[0]; i++) {
        if (e->bank.files[i]) {
            snprintf(buf, cap, "%s", e->bank.files[i]->io.path);
        }
    }
    pthread_mutex_unlock(&e->lock);
}

uint64_t engine_budget(struct engine *e, bool *cut) {
    pthread_mutex_lock(&e->lock);
    *cut = e->cut;
    const uint64_t budget = e->budget;
    pthread_mutex_unlock(&e->lock);
    return budget;
}
