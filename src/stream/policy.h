/* policy.h - which slot is evicted next. One instance orders the slots of one size class. */
#ifndef SLUICE_STREAM_POLICY_H
#define SLUICE_STREAM_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "sluice.h"

struct policy;

/* May slot `slot` be evicted now? (Not while it is pinned or being read.) */
typedef bool (*policy_evictable_fn)(void *ud, uint32_t slot);

/* Order up to n_slots slots, numbered from 0. NULL: out of memory. Not thread-safe: the owner locks. */
struct policy *policy_create(enum sluice_policy kind, uint32_t n_slots);
void policy_destroy(struct policy *p);

/* The bundle in `slot` was used (just filled, or hit). */
void policy_touch(struct policy *p, uint32_t slot);

/* `slot` no longer holds a bundle. Does nothing when it held none. */
void policy_remove(struct policy *p, uint32_t slot);

/* The slot to evict, among those that hold a bundle and are evictable; UINT32_MAX: none. */
uint32_t policy_victim(const struct policy *p, policy_evictable_fn evictable, void *ud);

#endif
