/*
 * policy.c - eviction order.
 *
 * LRU over bundles: a doubly linked list threaded through an array indexed by slot, most recent
 * first. Every operation is O(1) but the victim search, which steps over slots that are pinned by
 * a block in progress: at most top-k of them per running context.
 *
 * LRU has a cliff: layers are visited in a cycle, so with less room than one token's bundles every
 * bundle is evicted before its layer comes round again, and the hit rate is exactly zero while the
 * cache takes memory away from everything else. Budgets below that are refused in plan/.
 */
#include "stream/policy.h"

#include <assert.h>
#include <stdlib.h>

enum {
    POLICY_NONE = -1,   /* end of the list */
    POLICY_ABSENT = -2, /* in `prev`: the slot is not in the list */
};

struct policy_link {
    int32_t prev; /* slot used just after this one, POLICY_NONE at the head, POLICY_ABSENT outside */
    int32_t next; /* slot used just before this one, POLICY_NONE at the tail */
};

struct policy {
    enum sluice_policy kind;  /* the order kept */
    uint32_t n_slots;         /* entries of link */
    int32_t head;             /* most recently used slot, or POLICY_NONE */
    int32_t tail;             /* least recently used slot, or POLICY_NONE */
    struct policy_link *link; /* by slot */
};

struct policy *policy_create(enum sluice_policy kind, uint32_t n_slots) {
    assert(kind == SLUICE_POLICY_LRU && n_slots <= INT32_MAX);
    struct policy *p = calloc(1, sizeof *p);
    struct policy_link *link = calloc(n_slots ? n_slots : 1, sizeof *link);
    if (!p || !link) {
        free(p);
        free(link);
        return NULL;
    }
    for (uint32_t i = 0; i < n_slots; i++) {
        link[i].prev = POLICY_ABSENT;
    }
    *p = (struct policy){.kind = kind, .n_slots = n_slots, .head = POLICY_NONE, .tail = POLICY_NONE, .link = link};
    return p;
}

void policy_destroy(struct policy *p) {
    if (p) {
        free(p->link);
        free(p);
    }
}

void policy_remove(struct policy *p, uint32_t slot) {
    assert(slot < p->n_slots);
    struct policy_link *l = &p->link[slot];
    if (l->prev == POLICY_ABSENT) {
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
    l->prev = POLICY_ABSENT;
}

void policy_touch(struct policy *p, uint32_t slot) {
    policy_remove(p, slot);
    struct policy_link *l = &p->link[slot];
    l->prev = POLICY_NONE;
    l->next = p->head;
    if (p->head >= 0) {
        p->link[p->head].prev = (int32_t)slot;
    } else {
        p->tail = (int32_t)slot;
    }
    p->head = (int32_t)slot;
}

uint32_t policy_victim(const struct policy *p, policy_evictable_fn evictable, void *ud) {
    for (int32_t i = p->tail; i >= 0; i = p->link[i].prev) {
        if (evictable(ud, (uint32_t)i)) {
            return (uint32_t)i;
        }
    }
    return UINT32_MAX;
}
