/*
 * engine.c - the stream engine.
 *
 * It owns the expert index, the slots and the I/O threads, and one mutex that guards them. A block of a layer
 * takes that mutex a few times, to begin, acquire, release and count; everything in between (has this part arrived?)
 * is atomics, and I/O threads never take it.
 *
 * The life of an expert:
 *
 *   1. Asked for: a block acquires it, or a context prefetches it. It is in memory, or gets a slot: a free one, or
 *      one from which the policy evicts another expert (slots_place).
 *   2. In flight: each of its parts is one or more requests in the I/O threads' queue, PART_READING.
 *   3. Ready: a part's last request has ended. PART_READY: its bytes may be used. PART_FAILED: ask again.
 *   4. Pinned: from acquire to release a block holds the slot. It is not evicted and does not move.
 *   5. Cached: nobody holds it, no read is under way. It stays until the policy evicts it; without a cache it is
 *      dropped at once.
 *
 * No deadlock between contexts: whoever holds pins never waits for more of them (`wait` is only for
 * callers that hold nothing; the rest take what they can get and go on with that), so every pin is
 * released in finite time, given that reads end.
 *
 * Its parts: here the engine's beginning and end, the expert index and the arena's size; engine_acquire.c what a block
 * does; engine_prefetch.c reading ahead of use; engine_stats.c the counters.
 *
 * What happens when reads fail: the part becomes PART_FAILED, the first reason is kept, the caller
 * sees the state and fails its graph. Nothing is computed from a part that is not PART_READY. The
 * part becomes FAILED only when the last of its requests ended, and may be asked for again: a passing fault (a network
 * file system, an unplugged disk) costs one generation, not the process.
 *
 * When the arena is cut: at the first acquire after the expert index changed, not at load. Host programs
 * allocate their KV cache and compute buffers after the weights; only at the first compute is it
 * known what is really left. (A fixed size chosen at load was killed in a 6 GiB cgroup when
 * llama-server's own buffers came on top.)
 */
#include "cache/engine_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/error.h"

struct engine *engine_create(const struct sluice_settings *s, engine_budget_fn budget, void *ud,
                             struct sluice_error *err) {
    struct engine *e = calloc(1, sizeof *e);
    if (!e) {
        sluice_fail(err, SLUICE_ERR_MEMORY, "out of memory");
        return NULL;
    }
    e->settings = *s;
    e->budget_fn = budget;
    e->budget_ud = ud;
    check_mutex_init(&e->lock);
    pthread_mutex_init(&e->error_lock, NULL);
    index_init(&e->index);
    return e;
}

void engine_destroy(struct engine *e) {
    if (!e) {
        return;
    }
    SLUICE_CHECK(e->index.live_tensors == 0 && !e->prefetchers && atomic_load(&e->inflight) == 0);
    io_destroy(e->lanes);
    slots_destroy(&e->slots);
    index_free(&e->index);
    free(e->requests);
    pthread_mutex_destroy(&e->lock);
    pthread_mutex_destroy(&e->error_lock);
    free(e);
}

/* Runs on a lane: account a read and publish its part. */
static void engine_read_done(void *ud, const struct io_request *r, int64_t got, int error) {
    struct engine *e = ud;
    struct slot *s = r->owner;
    if (got >= 0) {
        atomic_fetch_add_explicit(&e->read[r->tag].bytes, (uint64_t)got, memory_order_relaxed);
        atomic_fetch_add_explicit(&e->read[r->tag].reads, 1, memory_order_relaxed);
    } else {
        /* The slot cannot be relabelled while this request is in flight, and the expert index's entry lives
         * as long as its tensors have requests; reading names here needs no lock. */
        const struct index_tensor *t = &e->index.tensors[e->index.groups[s->group].tensor[r->part]];
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

/* ---- the expert index ------------------------------------------------------------------------------- */

int engine_add_file(struct engine *e, int fd, const char *path, uint32_t *file, struct sluice_error *err) {
    check_lock(&e->lock);
    int rc = index_add_file(&e->index, fd, path, e->settings.direct_io, file, err);
    check_unlock(&e->lock);
    return rc;
}

void engine_sleep(struct engine *e, uint32_t seen) {
    assert(check_held(&e->lock));
    check_unlock(&e->lock);
    event_wait(&e->changed, seen);
    check_lock(&e->lock);
}

/*
 * Wait, with the lock held, until no block is running and no read is under way; then the arena and
 * the expert index's arrays may change. Callers hold no pins.
 */
static void engine_quiesce(struct engine *e) {
    assert(check_held(&e->lock));
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

/*
 * Ask for the budget while the arena does not match the index, and give back at once what is beyond it: before it is
 * cut anew, host programs allocate what their new model needs.
 */
static int engine_yield(struct engine *e, struct sluice_error *err) {
    assert(check_held(&e->lock) && !e->cut);
    uint64_t budget = 0;
    const int rc = e->budget_fn(e->budget_ud, &e->index, e->slots.bytes, &budget, err);
    if (rc == SLUICE_OK && budget == 0) {
        slots_destroy(&e->slots);
    } else if (rc == SLUICE_OK && budget < e->slots.bytes) {
        slots_resize(&e->slots, budget, err); /* smaller: cannot fail */
    }
    return rc;
}

/* The index is about to change: the arena waits for being cut anew, at the next acquire. What is cached stays in it. */
static void engine_uncut(struct engine *e) {
    engine_quiesce(e);
    engine_prefetch_forget(e);
    e->cut = false;
}

int engine_add_tensor(struct engine *e, uint32_t file, uint64_t owner, const char *name, uint64_t offset,
                      uint64_t slice, uint32_t n_expert, uint32_t top_k, uint32_t *tensor, struct sluice_error *err) {
    check_lock(&e->lock);
    engine_uncut(e);
    int rc = index_add_tensor(&e->index, file, owner, name, offset, slice, n_expert, top_k, tensor, err);
    if (rc == SLUICE_OK) {
        slots_forget(&e->slots, e->index.tensors[*tensor].group); /* its bundles have one part more */
    }
    struct sluice_error refused; /* for whoever wants to compute: here the memory is given back */
    if (rc == SLUICE_OK && e->slots.memory && engine_yield(e, &refused)) {
        slots_destroy(&e->slots);
    }
    check_unlock(&e->lock);
    return rc;
}

const struct stream_file *engine_file(struct engine *e, uint32_t file) {
    check_lock(&e->lock);
    const struct stream_file *f = &e->index.files[file]->io;
    check_unlock(&e->lock);
    return f;
}

void engine_drop_file(struct engine *e, uint32_t file) {
    check_lock(&e->lock);
    /* Its last reference: then no tensor is in it, and no read under way. */
    index_drop_file(&e->index, file);
    check_unlock(&e->lock);
}

void engine_remove_tensors(struct engine *e, const uint32_t *tensor, size_t n) {
    check_lock(&e->lock);
    if (n) {
        engine_uncut(e);
    }
    for (size_t i = 0; i < n; i++) {
        slots_forget(&e->slots, e->index.tensors[tensor[i]].group);
        index_remove_tensor(&e->index, tensor[i]);
    }
    struct io *lanes = NULL;
    if (e->index.live_tensors == 0) {
        slots_destroy(&e->slots);
        lanes = e->lanes;
        e->lanes = NULL;
    }
    check_unlock(&e->lock);
    io_destroy(lanes);
}

int engine_check(struct engine *e, struct sluice_error *err) {
    check_lock(&e->lock);
    const int rc = e->index.live_tensors && !e->cut ? engine_yield(e, err) : sluice_ok(err);
    check_unlock(&e->lock);
    return rc;
}

uint64_t engine_bundle_bytes(struct engine *e, uint32_t group) {
    check_lock(&e->lock);
    const uint64_t bytes = e->index.groups[group].weight_bytes;
    check_unlock(&e->lock);
    return bytes;
}

int engine_measure(struct engine *e, uint64_t budget, uint64_t *bytes, struct sluice_error *err) {
    check_lock(&e->lock);
    const int rc = slots_measure(&e->index, budget, bytes, err);
    check_unlock(&e->lock);
    return rc;
}

struct engine_tensor_info engine_tensor(struct engine *e, uint32_t tensor) {
    check_lock(&e->lock);
    const struct index_tensor *t = &e->index.tensors[tensor];
    const struct engine_tensor_info info = {.group = t->group, .part = t->part, .n_expert = t->n_expert};
    check_unlock(&e->lock);
    return info;
}

/* Cut the arena and start the lanes, with the lock held. */
static int engine_cut(struct engine *e, struct sluice_error *err) {
    assert(check_held(&e->lock));
    engine_quiesce(e);
    if (e->cut) {
        return SLUICE_OK; /* another thread did it while we waited */
    }
    uint64_t budget = 0;
    int rc = e->budget_fn(e->budget_ud, &e->index, e->slots.bytes, &budget, err);
    if (rc) {
        return rc;
    }
    if (!e->lanes) {
        struct sluice_error why;
        e->lanes = io_create((uint32_t)e->settings.io_threads, engine_read_done, e, &why);
        if (!e->lanes) {
            return sluice_fail(err, why.status, "%s", why.message);
        }
    }
    rc = slots_cut(&e->slots, &e->index, budget, e->settings.policy, err);
    if (rc) {
        return rc;
    }
    e->budget = budget;
    e->cut = true;
    if (budget == 0) {
        slots_empty(&e->slots); /* without a cache nothing outlives its use */
    }
    atomic_fetch_add_explicit(&e->cuts, 1, memory_order_relaxed);
    return SLUICE_OK;
}

int engine_resize(struct engine *e, struct sluice_error *err) {
    check_lock(&e->lock);
    int rc = sluice_ok(err);
    if (e->cut) {
        engine_quiesce(e);
    }
    if (e->cut) { /* still: a model may have been freed meanwhile */
        uint64_t budget = 0;
        engine_prefetch_forget(e);
        rc = e->budget_fn(e->budget_ud, &e->index, e->slots.bytes, &budget, err);
        rc = rc ? rc : slots_resize(&e->slots, budget, err);
        if (rc == SLUICE_OK) {
            e->budget = budget;
        }
        if (rc == SLUICE_OK && budget == 0) {
            slots_empty(&e->slots); /* without a cache nothing outlives its use */
        }
    }
    check_unlock(&e->lock);
    return rc;
}

int engine_ready(struct engine *e, struct sluice_error *err) {
    assert(check_held(&e->lock));
    for (;;) {
        const uint32_t seen = event_read(&e->changed);
        if (!e->quiescing) {
            return e->cut ? SLUICE_OK : engine_cut(e, err);
        }
        engine_sleep(e, seen);
    }
}
