/*
 * policy.c - the eviction policies behind one interface, for the engine and for replaying traces.
 */
#include "cache/policy.h"

#include <assert.h>

struct policy *policy_create(enum sluice_policy kind, const struct policy_shape *shape) {
    assert(shape->n_slots <= INT32_MAX);
    return kind == SLUICE_POLICY_CYCLE ? policy_cycle.create(shape) : policy_lru.create(shape);
}

void policy_destroy(struct policy *p) {
    if (p) {
        p->ops->destroy(p);
    }
}

void policy_visit(struct policy *p, uint32_t group, uint32_t rows) {
    if (p->ops->visit) {
        p->ops->visit(p, group, rows);
    }
}

void policy_use(struct policy *p, uint32_t group, uint32_t bundle, uint32_t ago) {
    if (p->ops->use) {
        p->ops->use(p, group, bundle, ago);
    }
}

void policy_place(struct policy *p, uint32_t slot, uint32_t group, uint32_t bundle) {
    p->ops->place(p, slot, group, bundle);
}

void policy_touch(struct policy *p, uint32_t slot, uint32_t group, uint32_t bundle) {
    p->ops->touch(p, slot, group, bundle);
}

void policy_remove(struct policy *p, uint32_t slot) {
    p->ops->remove(p, slot);
}

void policy_move(struct policy *p, uint32_t from, uint32_t to) {
    p->ops->move(p, from, to);
}

void policy_carry(struct policy *p, const struct policy *from, uint32_t group, uint32_t bundle, uint32_t bundle_there,
                  uint32_t n) {
    assert(p->ops == from->ops);
    if (p->ops->carry) {
        p->ops->carry(p, from, group, bundle, bundle_there, n);
    }
}

uint32_t policy_victim(struct policy *p, policy_evictable_fn evictable, void *ud) {
    return p->ops->victim(p, evictable, ud);
}
