/*
 * offline.c - LFU and Belady's policy, behind the engine's policy interface, so that a replay runs them like the
 * engine's own.
 *
 * Both keep the slots that hold something in an array and look through all of them for a victim. That
 * is a few thousand comparisons per miss, too many for the engine and nothing for a replay: 128
 * tokens of a large model take well under a second.
 *
 * Belady's bound holds for bundles of one size, that is within a size class of the engine. In one pool
 * of bytes with several sizes it is only nearly the least: finding the least is a knapsack problem. A
 * lossy replay that drops what is missed changes the future that Belady looks at; what it then says
 * is an estimate.
 */
#include "trace/offline.h"

#include <assert.h>
#include <stdlib.h>

enum { OFFLINE_ABSENT = -1 }; /* in `at`: the slot holds nothing */

struct offline_slot {
    uint32_t bundle; /* what is in it */
    uint32_t used;   /* when it was last touched, by the count of touches */
    int32_t at;      /* where it stands in `held`, or OFFLINE_ABSENT */
};

struct offline {
    struct policy base;           /* first: a policy is a pointer to it */
    struct offline_slot *slots;   /* by slot */
    uint32_t *held;               /* slots that hold something, in no order */
    uint32_t n_held;              /* entries */
    uint32_t *count;              /* LFU: uses by bundle. Belady: position of its next use in future.block */
    uint32_t clock;               /* touches so far */
    uint32_t now;                 /* Belady: number of the current block, plus one; 0: none yet */
    struct offline_future future; /* Belady: what will be used; else zeros */
};

static const struct policy_ops offline_ops;

static struct offline *offline_create(const struct policy_shape *shape) {
    struct offline *p = calloc(1, sizeof *p);
    if (!p) {
        return NULL;
    }
    p->base.ops = &offline_ops;
    p->slots = calloc(shape->n_slots ? shape->n_slots : 1, sizeof *p->slots);
    p->held = calloc(shape->n_slots ? shape->n_slots : 1, sizeof *p->held);
    p->count = calloc(shape->n_bundles ? shape->n_bundles : 1, sizeof *p->count);
    if (!p->slots || !p->held || !p->count) {
        policy_destroy(&p->base);
        return NULL;
    }
    for (uint32_t i = 0; i < shape->n_slots; i++) {
        p->slots[i].at = OFFLINE_ABSENT;
    }
    return p;
}

struct policy *offline_lfu(const struct policy_shape *shape) {
    struct offline *p = offline_create(shape);
    return p ? &p->base : NULL;
}

struct policy *offline_belady(const struct policy_shape *shape, const struct offline_future *future) {
    struct offline *p = offline_create(shape);
    if (!p) {
        return NULL;
    }
    p->future = *future;
    for (uint32_t i = 0; i < shape->n_bundles; i++) {
        p->count[i] = future->first[i];
    }
    return &p->base;
}

static void offline_destroy(struct policy *policy) {
    struct offline *p = (struct offline *)policy;
    free(p->slots);
    free(p->held);
    free(p->count);
    free(p);
}

static void offline_visit(struct policy *policy, uint32_t group, uint32_t rows) {
    (void)group;
    (void)rows;
    ((struct offline *)policy)->now++;
}

static void offline_remove(struct policy *policy, uint32_t slot) {
    struct offline *p = (struct offline *)policy;
    struct offline_slot *s = &p->slots[slot];
    if (s->at == OFFLINE_ABSENT) {
        return;
    }
    const uint32_t last = p->held[--p->n_held];
    p->held[s->at] = last;
    p->slots[last].at = s->at;
    s->at = OFFLINE_ABSENT;
}

static void offline_place(struct policy *policy, uint32_t slot, uint32_t group, uint32_t bundle) {
    struct offline *p = (struct offline *)policy;
    struct offline_slot *s = &p->slots[slot];
    (void)group;
    if (s->at == OFFLINE_ABSENT) {
        s->at = (int32_t)p->n_held;
        p->held[p->n_held++] = slot;
    }
    s->bundle = bundle;
}

static void offline_touch(struct policy *policy, uint32_t slot, uint32_t group, uint32_t bundle) {
    struct offline *p = (struct offline *)policy;
    offline_place(policy, slot, group, bundle);
    p->slots[slot].used = ++p->clock;
    if (!p->future.first) {
        p->count[bundle]++;
        return;
    }
    while (p->count[bundle] < p->future.first[bundle + 1] && p->future.block[p->count[bundle]] < p->now) {
        p->count[bundle]++; /* this use, and those that a lossy replay left out */
    }
}

static void offline_move(struct policy *policy, uint32_t from, uint32_t to) {
    struct offline *p = (struct offline *)policy;
    const struct offline_slot s = p->slots[from];
    assert(s.at != OFFLINE_ABSENT && p->slots[to].at == OFFLINE_ABSENT);
    p->slots[to] = s;
    p->held[s.at] = to;
    p->slots[from].at = OFFLINE_ABSENT;
}

/* How much it is wanted: the slot with the least goes. */
static uint64_t offline_worth(const struct offline *p, uint32_t slot) {
    const struct offline_slot *s = &p->slots[slot];
    if (!p->future.first) {
        return (uint64_t)p->count[s->bundle] << 32 | s->used;
    }
    const uint32_t next = p->count[s->bundle];
    return next < p->future.first[s->bundle + 1] ? UINT32_MAX - (uint64_t)p->future.block[next] : 0;
}

static uint32_t offline_victim(struct policy *policy, policy_evictable_fn evictable, void *ud) {
    const struct offline *p = (struct offline *)policy;
    uint32_t victim = UINT32_MAX;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < p->n_held; i++) {
        const uint64_t worth = offline_worth(p, p->held[i]);
        if (worth < least && evictable(ud, p->held[i])) {
            victim = p->held[i];
            least = worth;
        }
    }
    return victim;
}

static const struct policy_ops offline_ops = {
    .create = NULL, /* made by offline_lfu and offline_belady */
    .destroy = offline_destroy,
    .visit = offline_visit,
    .place = offline_place,
    .touch = offline_touch,
    .remove = offline_remove,
    .move = offline_move,
    .victim = offline_victim,
};
