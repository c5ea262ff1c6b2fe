/*
 * budget.c - the size of the expert cache.
 *
 * It is bounded from below. Under one layer's demand a block could not hold its own experts. Under
 * one token's demand LRU evicts every bundle before its layer comes round again: measured in replay,
 * exactly 0 % hits, while the memory is gone all the same; the cycle policy has no such cliff. Both
 * are refused with the numbers, because the user can act on them; the second can be forced, for
 * measuring.
 *
 * Auto errs on the small side. Page cache that could be given back counts as available, but the
 * dense weights live there and are read every token, so they are subtracted in full even if they
 * are resident already; a cache that pushes them out costs more than it saves.
 */
#include "plan/budget.h"

#include "stream/error.h"

#define MIB ((uint64_t)1 << 20)

static double mib(uint64_t bytes) {
    return (double)bytes / (double)MIB;
}

uint64_t plan_floor(const struct sluice_settings *s, const struct plan_limits *l) {
    if (s->floor_bytes) {
        return s->floor_bytes;
    }
    const uint64_t share = l->total / 16;
    return share < 256 * MIB ? 256 * MIB : share > 2048 * MIB ? 2048 * MIB : share;
}

int plan_cache_budget(const struct sluice_settings *s, const struct plan_demand *d, const struct plan_limits *l,
                      uint64_t *budget, struct sluice_error *err) {
    *budget = 0;
    if (s->cache == SLUICE_CACHE_OFF) {
        return sluice_ok(err);
    }
    if (s->cache == SLUICE_CACHE_AUTO) {
        const uint64_t keep = plan_floor(s, l) + d->reserved;
        const uint64_t left = l->available > keep ? l->available - keep : 0;
        const uint64_t least = s->policy == SLUICE_POLICY_LRU ? d->token : d->layer;
        *budget = left >= d->bank ? d->bank : left >= least ? left : 0;
        return sluice_ok(err);
    }
    if (s->cache_bytes < d->layer) {
        return sluice_fail(err, SLUICE_ERR_BUDGET,
                           "a cache of %.1f MiB is less than one layer needs for one token (%.1f MiB; a whole token "
                           "needs %.1f MiB): give it more, or turn it off with 0",
                           mib(s->cache_bytes), mib(d->layer), mib(d->token));
    }
    if (s->policy == SLUICE_POLICY_LRU && s->cache_bytes < d->token && !s->force_cache) {
        return sluice_fail(err, SLUICE_ERR_BUDGET,
                           "a cache of %.1f MiB is less than one token needs (%.1f MiB; one layer %.1f MiB): LRU would "
                           "hit nothing; take policy cycle, give it more, turn it off with 0, or force it",
                           mib(s->cache_bytes), mib(d->token), mib(d->layer));
    }
    *budget = s->cache_bytes < d->bank ? s->cache_bytes : d->bank;
    return sluice_ok(err);
}
