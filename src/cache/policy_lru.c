/*
 * policy_lru.c - evict what was used longest ago.
 *
 * A doubly linked list threaded through an array indexed by slot, most recent first. Every operation
 * is O(1) but the victim search, which steps over slots that are pinned by a block in progress: at
 * most top-k of them per running context.
 *
 * LRU has a cliff: layers are visited in a cycle, so with less room than one token's bundles every
 * bundle is evicted before its layer comes round again, and the hit rate is exactly zero while the
 * cache takes memory away from everything else. Budgets below that are refused in memory/.
 */
#include "cache/policy.h"

#include <assert.h>
#include <stdlib.h>

enum {
    LRU_NONE = -1,   /* end of the list */
    LRU_ABSENT = -2, /* in `prev`: the slot is not in the list */
};

struct lru_link {
    int32_t prev; /* slot used just after this one, LRU_NONE at the head, LRU_ABSENT outside */
    int32_t next; /* slot used just before this one, LRU_NONE at the tail */
};

struct lru {
    struct policy base;    /* first: a policy is a pointer to it */
    uint32_t n_slots;      /* entries of link */
    int32_t head;          /* most recently used slot, or LRU_NONE */
    int32_t tail;          /* least recently used slot, or LRU_NONE */
    struct lru_link *link; /* by slot */
};

static struct policy *lru_create(const struct policy_shape *shape) {
    const uint32_t n = shape->n_slots;
    struct lru *p = calloc(1, sizeof *p);
    struct lru_link *link = calloc(n ? n : 1, sizeof *link);
    if (!p || !link) {
        free(p);
        free(link);
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        link[i].prev = LRU_ABSENT;
    }
    *p = (struct lru){.base = {&policy_lru}, .n_slots = n, .head = LRU_NONE, .tail = LRU_NONE, .link = link};
    return &p->base;
}

static void lru_destroy(struct policy *policy) {
    struct lru *p = (struct lru *)policy;
    free(p->link);
    free(p);
}

static void lru_remove(struct policy *policy, uint32_t slot) {
    struct lru *p = (struct lru *)policy;
    assert(slot < p->n_slots);
    struct lru_link *l = &p->link[slot];
    if (l->prev == LRU_ABSENT) {
        return;
    }
    if (l->prev >= 0) {
        p->link[l->prev].next = l->next;
    } else {
        p->head = l->next;
    }
    if (l->next >= 0) {
        p->link[l->next].prev = l->prev;
    } else {
        p->tail = l->prev;
    }
    l->prev = LRU_ABSENT;
}

static void lru_touch(struct policy *policy, uint32_t slot, uint32_t group, uint32_t bundle) {
    struct lru *p = (struct lru *)policy;
    (void)group;
    (void)bundle;
    lru_remove(policy, slot);
    struct lru_link *l = &p->link[slot];
    l->prev = LRU_NONE;
    l->next = p->head;
    if (p->head >= 0) {
        p->link[p->head].prev = (int32_t)slot;
    } else {
        p->tail = (int32_t)slot;
    }
    p->head = (int32_t)slot;
}

static void lru_move(struct policy *policy, uint32_t from, uint32_t to) {
    struct lru *p = (struct lru *)policy;
    struct lru_link *a = &p->link[from], *b = &p->link[to];
    assert(a->prev != LRU_ABSENT && b->prev == LRU_ABSENT);
    *b = *a;
    a->prev = LRU_ABSENT;
    if (b->prev >= 0) {
        p->link[b->prev].next = (int32_t)to;
    } else {
        p->head = (int32_t)to;
    }
    if (b->next >= 0) {
        p->link[b->next].prev = (int32_t)to;
    } else {
        p->tail = (int32_t)to;
    }
}

static uint32_t lru_victim(struct policy *policy, policy_evictable_fn evictable, void *ud) {
    const struct lru *p = (const struct lru *)policy;
    for (int32_t i = p->tail; i >= 0; i = p->link[i].prev) {
        if (evictable(ud, (uint32_t)i)) {
            return (uint32_t)i;
        }
    }
    return UINT32_MAX;
}

const struct policy_ops policy_lru = {
    .create = lru_create,
    .destroy = lru_destroy,
    .place = lru_touch, /* as fresh as a used one: it is expected soon */
    .touch = lru_touch,
    .remove = lru_remove,
    .move = lru_move,
    .victim = lru_victim,
};
