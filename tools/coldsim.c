/*
 * coldsim.c - how much of a cache should cold copies have?
 *
 * With a cold model (docs/quality.md) a routed expert that is not in memory and has a low weight is
 * read from a second, smaller file. Those copies can be read and forgotten, or kept: then a part of the
 * cache's bytes is theirs, and the experts themselves have less. This program sends a route trace
 * through both caches, by the engine's own policies, for several divisions of the same budget, and
 * prints what generation reads. src/ggml/cold.c says what came out of it.
 *
 * Both caches are pools of bytes, nothing is rounded: traces of other programs lack slot sizes.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sluice.h"
#include "cache/policy.h"
#include "trace/blocks.h"
#include "trace/trace.h"

/* Bundles of all layers, of which some are in memory. */
struct pool {
    struct policy *policy;           /* orders them; slots are bundles */
    uint8_t *there;                  /* by bundle: it is in memory */
    uint8_t *pinned;                 /* by bundle: the current block uses it */
    uint64_t size[TRACE_LAYERS_MAX]; /* by layer: bytes of a bundle */
    uint64_t room, used;             /* bytes */
    uint64_t reads, read_bytes;      /* in generation */
};

/* What a run is asked. */
struct question {
    const struct trace *t;          /* the trace */
    uint64_t budget;                /* bytes of both caches */
    double share;                   /* of them, for cold copies, 0..1 */
    double ratio;                   /* size of a cold copy over its expert's */
    double drop;                    /* F: rows below F / top-k that miss are substituted */
    enum sluice_policy cold_policy; /* who is evicted among cold copies */
};

static bool pool_evictable(void *ud, uint32_t slot) {
    const struct pool *p = ud;
    return !p->pinned[slot];
}

static bool pool_init(struct pool *p, const struct trace *t, enum sluice_policy policy, double ratio, uint64_t room) {
    const uint32_t n = t->head.n_layers * t->head.n_expert;
    const struct policy_shape shape = {.n_slots = n, .n_groups = t->head.n_layers, .n_bundles = n};
    *p = (struct pool){.policy = policy_create(policy, &shape), .there = calloc(n, 1), .pinned = calloc(n, 1)};
    for (uint32_t i = 0; i < t->head.n_layers; i++) {
        p->size[i] = (uint64_t)((double)t->head.layers[i].expert_bytes * ratio);
    }
    p->room = room;
    return p->policy && p->there && p->pinned;
}

static void pool_free(struct pool *p) {
    policy_destroy(p->policy);
    free(p->there);
    free(p->pinned);
}

/* A block of `layer` uses the bundle: read it if it is not there, and keep it if there is room. */
static void pool_use(struct pool *p, uint32_t layer, uint32_t bundle, uint32_t per_layer, bool count) {
    if (!p->there[bundle]) {
        p->reads += count;
        p->read_bytes += count ? p->size[layer] : 0;
        while (p->used + p->size[layer] > p->room) {
            const uint32_t victim = policy_victim(p->policy, pool_evictable, p);
            if (victim == UINT32_MAX) {
                return; /* it passes through */
            }
            policy_remove(p->policy, victim);
            p->there[victim] = 0;
            p->used -= p->size[victim / per_layer];
        }
        p->there[bundle] = 1;
        p->used += p->size[layer];
    }
    p->pinned[bundle] = 1;
    policy_use(p->policy, layer, bundle, 0);
    policy_touch(p->policy, bundle, layer, bundle);
}

static void run_block(const struct question *q, struct pool *hot, struct pool *cold, size_t first, size_t end) {
    const struct trace *t = q->t;
    const uint32_t layer = t->rows[first].layer, per_layer = t->head.n_expert;
    const bool count = t->rows[first].phase == TRACE_GENERATION;
    policy_visit(hot->policy, layer, 1);
    policy_visit(cold->policy, layer, 1);
    for (size_t at = first; at < end;) {
        const size_t next = blocks_token_end(t, at, end);
        size_t top = at;
        for (size_t i = at; i < next; i++) {
            top = t->rows[i].weight > t->rows[top].weight ? i : top;
        }
        const double least = q->drop / (double)(next - at);
        for (size_t i = at; i < next; i++) {
            const uint32_t bundle = layer * per_layer + t->rows[i].expert;
            const bool low = count && i != top && (double)t->rows[i].weight < least;
            pool_use(low && !hot->there[bundle] ? cold : hot, layer, bundle, per_layer, count);
        }
        at = next;
    }
    for (size_t i = first; i < end; i++) {
        const uint32_t bundle = layer * per_layer + t->rows[i].expert;
        hot->pinned[bundle] = cold->pinned[bundle] = 0;
    }
}

/* One line of the table. */
static bool run(const struct question *q) {
    const struct trace *t = q->t;
    struct pool hot, cold;
    const uint64_t cold_room = (uint64_t)((double)q->budget * q->share);
    const bool ok = pool_init(&hot, t, SLUICE_POLICY_CYCLE, 1, q->budget - cold_room) &
                    pool_init(&cold, t, q->cold_policy, q->ratio, cold_room);
    uint64_t tokens = 0;
    for (size_t first = 0; ok && first < t->n_rows;) {
        const size_t end = blocks_end(t, first);
        tokens += t->rows[first].layer == 0 && t->rows[first].phase == TRACE_GENERATION;
        run_block(q, &hot, &cold, first, end);
        first = end;
    }
    if (ok && tokens) {
        const double per = (double)tokens * (1 << 20), n = (double)tokens;
        printf("%6.3f  %-5s  %8.1f  %8.1f  %8.1f  %8.1f  %8.1f\n", q->share,
               q->cold_policy == SLUICE_POLICY_LRU ? "lru" : "cycle", (double)hot.read_bytes / per,
               (double)cold.read_bytes / per, (double)(hot.read_bytes + cold.read_bytes) / per, (double)hot.reads / n,
               (double)cold.reads / n);
    }
    pool_free(&hot);
    pool_free(&cold);
    return ok && tokens;
}

int main(int argc, char **argv) {
    struct trace t;
    struct sluice_error err;
    struct question q = {.t = &t, .ratio = argc > 4 ? atof(argv[4]) : 0};
    q.drop = argc > 3 ? atof(argv[3]) : -1;
    if (argc != 5 || !sluice_parse_size(argv[2], &q.budget) || !(q.drop >= 0 && q.drop <= 1) ||
        !(q.ratio > 0 && q.ratio <= 1)) {
        fprintf(stderr, "usage: sluice-coldsim TRACE BUDGET F RATIO\n\n"
                        "What generation reads when experts that miss below F / top-k come from copies RATIO times\n"
                        "as large, and the copies have a share of BUDGET.\n");
        return 2;
    }
    if (trace_read(&t, argv[1], &err)) {
        fprintf(stderr, "sluice-coldsim: %s\n", err.message);
        return 1;
    }
    static const double shares[] = {0, 1.0 / 64, 1.0 / 32, 1.0 / 16, 1.0 / 8, 1.0 / 4, 3.0 / 8, 1.0 / 2};
    printf(" share  policy  main MiB  cold MiB  all MiB   main n    cold n   per generated token\n");
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof shares / sizeof *shares; i++) {
        for (int p = SLUICE_POLICY_CYCLE; ok && p <= SLUICE_POLICY_LRU; p++) {
            q.share = shares[i];
            q.cold_policy = (enum sluice_policy)p;
            ok = run(&q);
        }
    }
    trace_free(&t);
    return ok ? 0 : 1;
}
