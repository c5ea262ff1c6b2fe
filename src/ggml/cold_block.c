/*
 * cold_block.c - computing the experts that a block gave up from their copies in the cold model.
 *
 * The routing of such a block has two parts (route.h): places [0, n) are computed from the model's experts,
 * places [n, n_all) from copies of another type. The second part is a routing of its own, a view that begins
 * at place n, and everything that computes experts takes it as it is: the kernel, the reference path, and the
 * trial that tells whether the kernel's bytes are ggml's for the copies' type. The nodes are the block's own
 * with another weight, so the rows land where those of the experts would; nothing else of the block knows.
 *
 * Copies are acquired after the experts and by the same call, so reads of both are under way at once. Each has
 * a node of its own, experts first: those in memory are computed while copies arrive.
 *
 * A prompt may give up more experts than there are slots for copies (drop_in_prefill). Then they pass
 * through in turns, a matmul at a time, and are given back before anybody waits for experts again: who
 * holds copies must not wait for experts (cold.c).
 */
#include "ggml/cold_block.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ggml/backend.h"
#include "cache/clock.h"
#include "cache/error.h"

enum { COLD_TURN = 64 }; /* copies that pass through at a time, at most */

void cold_block_free(struct cold_block *b) {
    assert(!b->held);
    free(b->slot);
    free(b->done);
    free(b->found);
    memset(b, 0, sizeof *b);
}

static enum ggml_status cold_status(int rc) {
    return rc == SLUICE_OK           ? GGML_STATUS_SUCCESS
           : rc == SLUICE_ERR_MEMORY ? GGML_STATUS_ALLOC_FAILED
                                     : GGML_STATUS_FAILED;
}

/* Look at n places of the routing, from place `at` on. */
static void cold_view(struct cold_block *b, uint32_t at, uint32_t n) {
    b->route = *b->whole;
    b->route.n = b->route.n_all = n;
    b->route.expert += at;
    b->route.first += at; /* positions in the whole list, so the list stays */
    b->route.index = NULL;
    b->route.spare = NULL;
}

enum ggml_status cold_block_begin(struct cold_block *b, const struct route *whole, const struct stream_weight *w,
                                  enum engine_phase phase, struct sluice_error *err) {
    const uint32_t n = whole->n_all - whole->n;
    assert(!b->held && n && w->cold);
    if (n > b->cap) {
        uint32_t *slot = reallocarray(b->slot, n, sizeof *slot);
        b->slot = slot ? slot : b->slot;
        uint8_t *done = realloc(b->done, n);
        b->done = done ? done : b->done;
        uint8_t *found = realloc(b->found, n);
        b->found = found ? found : b->found;
        if (!slot || !done || !found) {
            return GGML_STATUS_ALLOC_FAILED;
        }
        b->cap = n;
    }
    b->whole = whole;
    b->group = w->cold->group;
    b->phase = phase;
    b->counted = false;
    cold_view(b, whole->n, n);
    const struct engine_routing r = route_routing(&b->route);
    return cold_status(engine_begin_block(b->engine, b->group, phase, &r, err));
}

/* Acquire n places from `at` on, all or none; sleeps until that is possible. */
static int cold_acquire(struct cold_block *b, uint32_t at, uint32_t n, uint32_t parts, struct sluice_error *err) {
    cold_view(b, at, n);
    const struct engine_want want = {.group = b->group,
                                     .parts = parts,
                                     .expert = b->route.expert,
                                     .n = n,
                                     .phase = b->phase,
                                     .first = !b->counted,
                                     .all = true,
                                     .wait = true,
                                     .slept_s = b->slept_s,
                                     .found = b->counted ? NULL : b->found + (at - b->whole->n)};
    uint32_t got = 0;
    return engine_acquire(b->engine, &want, b->slot, &got, err);
}

enum ggml_status cold_block_hold(struct cold_block *b, uint32_t parts, struct sluice_error *err) {
    const int rc = cold_acquire(b, b->whole->n, b->whole->n_all - b->whole->n, parts, err);
    b->held = rc == SLUICE_OK;
    b->counted = b->counted || b->held;
    if (rc == SLUICE_ERR_BUDGET) { /* more than there are slots: they will pass through in turns */
        sluice_ok(err);
        return GGML_STATUS_SUCCESS;
    }
    return cold_status(rc);
}

/* The block's matmul with the copy for a weight. Stays until the next block. */
static struct ggml_tensor *cold_node(struct cold_block *b, const struct ggml_tensor *node) {
    const struct stream_weight *w = buffer_weight(node->src[0]);
    struct ggml_tensor *mine = &b->node[w->part];
    *mine = *node;
    mine->src[0] = &w->cold->like;
    return mine;
}

static uint32_t cold_part(const struct ggml_tensor *node) {
    return buffer_weight(node->src[0])->cold->part;
}

/* Append matmuls as one kernel node, if the kernel can do it. */
static enum ggml_status cold_add_kernel(struct cold_block *b, struct ggml_tensor *const *mine, const uint32_t *part,
                                        int n, bool *taken) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    *taken = false;
    if (!collect_kernel_fits(b->collect, mine[0]) || trial_ask(b->trial, &b->route, mine[0]) != TRIAL_SAME) {
        return status;
    }
    struct kernel_job *j = collect_add_job(b->collect, mine[0], &status);
    if (!j) {
        return status;
    }
    j->engine = b->engine;
    j->n_mats = n;
    for (int m = 0; m < n; m++) {
        j->node[m] = mine[m];
        j->part[m] = part[m];
    }
    for (uint32_t p = 0; p < b->route.n; p++) {
        kernel_place_init(&j->place[p], j, b->slot[p]);
    }
    kernel_add(b->collect->tensors, b->collect->graph, j);
    *taken = true;
    return status;
}

/* Append a stock matmul of every copy that has arrived and has none yet. */
static enum ggml_status cold_add_ready(struct cold_block *b, struct ggml_tensor *mine, uint32_t part,
                                       uint32_t *n_done) {
    for (uint32_t i = 0; i < b->route.n; i++) {
        if (b->done[i]) {
            continue;
        }
        const enum part_state state = engine_part_state(b->engine, b->slot[i], part);
        if (state == PART_FAILED) {
            b->collect->failed = b->engine;
            return GGML_STATUS_FAILED;
        }
        if (state == PART_READY) {
            const enum ggml_status status =
                collect_add_expert(b->collect, mine, i, engine_part_data(b->engine, b->slot[i], part));
            if (status != GGML_STATUS_SUCCESS) {
                return status;
            }
            b->done[i] = 1;
            (*n_done)++;
        }
    }
    return GGML_STATUS_SUCCESS;
}

/* The reference path: as block.c's, with all copies acquired. */
static enum ggml_status cold_add_reference(struct cold_block *b, struct ggml_tensor *mine, uint32_t part) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    uint32_t n_done = 0;
    memset(b->done, 0, b->route.n);
    if (b->route.n != (uint32_t)(b->route.first[b->route.n] - b->route.first[0])) {
        status = collect_flush(b->collect); /* some expert has several rows, whose inputs are about to be gathered */
    }
    while (n_done < b->route.n && status == GGML_STATUS_SUCCESS) {
        const uint32_t seen = engine_seen(b->engine), before = n_done;
        status = cold_add_ready(b, mine, part, &n_done);
        const bool untried =
            collect_kernel_fits(b->collect, mine) && trial_ask(b->trial, &b->route, mine) == TRIAL_UNKNOWN;
        if (status != GGML_STATUS_SUCCESS || (n_done == b->route.n && !untried)) {
            break;
        }
        status = collect_flush(b->collect);
        for (uint32_t i = 0; i < b->route.n && untried && status == GGML_STATUS_SUCCESS; i++) {
            if (b->done[i]) {
                status = trial_compare(b->trial, &b->route, b->traits, mine, i,
                                       engine_part_data(b->engine, b->slot[i], part));
            }
        }
        if (status == GGML_STATUS_SUCCESS && n_done == before) {
            timing_switch(b->timing, TIMING_STALL, clock_seconds());
            engine_wait(b->engine, seen);
            timing_switch(b->timing, TIMING_BOOKKEEPING, clock_seconds());
        }
    }
    return status;
}

/* Append the matmuls for the places that `route` shows, whose copies are acquired. */
static enum ggml_status cold_compute(struct cold_block *b, struct ggml_tensor *const *node, int n) {
    struct ggml_tensor *mine[KERNEL_MATS];
    uint32_t part[KERNEL_MATS];
    for (int m = 0; m < n; m++) {
        mine[m] = cold_node(b, node[m]);
        part[m] = cold_part(node[m]);
    }
    /* Quantisations may give gate and up different types; one node has one. */
    const int together = n == 2 && mine[0]->src[0]->type != mine[1]->src[0]->type ? 1 : n;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    collect_use_route(b->collect, &b->route);
    for (int m = 0; m < n && status == GGML_STATUS_SUCCESS; m += together) {
        bool taken = false;
        status = cold_add_kernel(b, mine + m, part + m, together, &taken);
        for (int k = m; k < m + together && !taken && status == GGML_STATUS_SUCCESS; k++) {
            status = cold_add_reference(b, mine[k], part[k]);
        }
    }
    collect_use_route(b->collect, b->whole);
    return status;
}

enum ggml_status cold_block_add(struct cold_block *b, struct ggml_tensor *const *node, int n,
                                struct sluice_error *err) {
    if (b->held) {
        return cold_compute(b, node, n);
    }
    uint32_t parts = 0;
    for (int m = 0; m < n; m++) {
        parts |= 1u << cold_part(node[m]);
    }
    enum ggml_status status = GGML_STATUS_SUCCESS;
    uint32_t most = engine_capacity(b->engine, b->group);
    most = most < 1 ? 1 : most > COLD_TURN ? COLD_TURN : most;
    for (uint32_t at = b->whole->n; at < b->whole->n_all && status == GGML_STATUS_SUCCESS;) {
        const uint32_t left = b->whole->n_all - at, turn = left < most ? left : most;
        const int rc = cold_acquire(b, at, turn, parts, err);
        if (rc == SLUICE_ERR_BUDGET && most > 1) { /* the budget shrank meanwhile */
            most = turn / 2 ? turn / 2 : 1;
            continue;
        }
        status = cold_status(rc);
        if (status != GGML_STATUS_SUCCESS) {
            break;
        }
        status = cold_compute(b, node, n);
        status = status == GGML_STATUS_SUCCESS ? collect_flush(b->collect) : status;
        engine_release(b->engine, b->slot, turn);
        at += turn;
    }
    b->counted = true;
    return status;
}

void cold_block_release(struct cold_block *b) {
    if (b->held) {
        engine_release(b->engine, b->slot, b->route.n);
        b->held = false;
    }
}
