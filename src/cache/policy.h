/* policy.h - which slot is evicted next. One instance orders the slots of one size class. */
#ifndef SLUICE_CACHE_POLICY_H
#define SLUICE_CACHE_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "sluice.h"

/* May slot `slot` be evicted now? (Not while it is pinned or being read.) */
typedef bool (*policy_evictable_fn)(void *ud, uint32_t slot);

/* What an instance has to order. */
struct policy_shape {
    uint32_t n_slots;   /* slots, numbered from 0 */
    uint32_t n_groups;  /* groups (layers); they are visited in ascending order, over and over */
    uint32_t n_bundles; /* bundles of all groups, those without a slot included */
};

struct policy;

/* One way of ordering. Every function but create gets a policy that its create made. */
struct policy_ops {
    struct policy *(*create)(const struct policy_shape *shape); /* NULL: out of memory */
    void (*destroy)(struct policy *p);
    void (*visit)(struct policy *p, uint32_t group, uint32_t rows);               /* (optional) see policy_visit */
    void (*use)(struct policy *p, uint32_t group, uint32_t bundle, uint32_t ago); /* (optional) see policy_use */
    void (*place)(struct policy *p, uint32_t slot, uint32_t group, uint32_t bundle);
    void (*touch)(struct policy *p, uint32_t slot, uint32_t group, uint32_t bundle);
    void (*remove)(struct policy *p, uint32_t slot);
    void (*move)(struct policy *p, uint32_t from, uint32_t to);
    void (*carry)(struct policy *p, const struct policy *from, uint32_t group, uint32_t bundle, uint32_t bundle_there,
                  uint32_t n); /* (optional) see policy_carry */
    uint32_t (*victim)(struct policy *p, policy_evictable_fn evictable, void *ud);
};

/* What every policy begins with. */
struct policy {
    const struct policy_ops *ops; /* its functions */
};

extern const struct policy_ops policy_lru;   /* policy_lru.c */
extern const struct policy_ops policy_cycle; /* policy_cycle.c */

/* A policy of that kind. NULL: out of memory. Not thread-safe: the owner locks. */
struct policy *policy_create(enum sluice_policy kind, const struct policy_shape *shape);
void policy_destroy(struct policy *p);

/*
 * A block of `group` begins, of `rows` tokens: its experts are used and touched next. Called once per
 * block, for all classes.
 */
void policy_visit(struct policy *p, uint32_t group, uint32_t rows);

/*
 * The router sent a token of the block to `bundle`, in a slot or not; `ago` tokens of the block follow
 * that one. A bundle's uses come in the order of the tokens.
 */
void policy_use(struct policy *p, uint32_t group, uint32_t bundle, uint32_t ago);

/* `bundle` of `group` is in `slot` now, and was not used yet. */
void policy_place(struct policy *p, uint32_t slot, uint32_t group, uint32_t bundle);

/* `bundle` of `group`, which is in `slot`, is about to be computed (just placed, or hit). */
void policy_touch(struct policy *p, uint32_t slot, uint32_t group, uint32_t bundle);

/* `slot` no longer holds a bundle. Does nothing when it held none. */
void policy_remove(struct policy *p, uint32_t slot);

/* What `from` holds is in `to` now, which held nothing. Its order among the others stays. */
void policy_move(struct policy *p, uint32_t from, uint32_t to);

/*
 * What `from`, a policy of the same kind, knows of a group and its n bundles, which begin at `bundle` in p and at
 * `bundle_there` in `from`, holds for p as well. No slot is carried: policy_place them after this, in the order in
 * which `from` evicts them.
 */
void policy_carry(struct policy *p, const struct policy *from, uint32_t group, uint32_t bundle, uint32_t bundle_there,
                  uint32_t n);

/* The slot to evict, among those that hold a bundle and are evictable; UINT32_MAX: none. */
uint32_t policy_victim(struct policy *p, policy_evictable_fn evictable, void *ud);

#endif
