/* budget.h - how large the expert cache is, or why it cannot be. */
#ifndef SLUICE_PLAN_BUDGET_H
#define SLUICE_PLAN_BUDGET_H

#include <stdint.h>

#include "plan/limits.h"
#include "sluice.h"

/* What is to be planned for. All in bytes of slot memory unless said otherwise. */
struct plan_demand {
    uint64_t layer;    /* one token's bundles of the largest layer */
    uint64_t token;    /* one token's bundles of all layers */
    uint64_t bank;     /* all bundles */
    uint64_t reserved; /* what the process will still take besides: dense weights, compute buffers */
};

/*
 * The cache budget in bytes, 0 for none.
 *   off:    0.
 *   fixed:  cache_bytes. Refused (SLUICE_ERR_BUDGET, the numbers in the message) below one layer's
 *           demand always, and below one token's demand under LRU unless forced: there LRU hits
 *           nothing. Never more than the bank.
 *   auto:   what the limits leave after `reserved` and the floor, at most the bank; 0 when that is
 *           less than one layer's demand, under LRU one token's.
 */
int plan_cache_budget(const struct sluice_settings *s, const struct plan_demand *d, const struct plan_limits *l,
                      uint64_t *budget, struct sluice_error *err);

/* The floor that auto leaves free: as set, else a sixteenth of the limit within 256 MiB and 2 GiB. */
uint64_t plan_floor(const struct sluice_settings *s, const struct plan_limits *l);

#endif
