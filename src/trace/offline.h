/* offline.h - eviction policies that only a replay can have, or that only serve comparison. */
#ifndef SLUICE_TRACE_OFFLINE_H
#define SLUICE_TRACE_OFFLINE_H

#include "cache/policy.h"

/* When each bundle is used: for Belady. Blocks are counted from 0 by policy_visit. */
struct offline_future {
    const uint32_t *first; /* by bundle, n_bundles + 1 entries: where its uses begin in block */
    const uint32_t *block; /* the numbers of the blocks that use it, ascending */
};

/* Evict what was used least often so far; among equals what was used longest ago. NULL: out of memory. */
struct policy *offline_lfu(const struct policy_shape *shape);

/*
 * Evict what will be used latest (Belady). `future` must outlive it. No policy that fetches on demand
 * reads fewer bundles of one size. NULL: out of memory.
 */
struct policy *offline_belady(const struct policy_shape *shape, const struct offline_future *future);

#endif
