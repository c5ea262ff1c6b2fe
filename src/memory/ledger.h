/* ledger.h - one plan for all memory of the process: how large the expert cache is, or why it cannot be. */
#ifndef SLUICE_MEMORY_LEDGER_H
#define SLUICE_MEMORY_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/limits.h"
#include "memory/process.h"
#include "sluice.h"

/* What the models ask for, bytes. */
struct plan_demand {
    uint64_t layer;      /* one token's experts of the largest layer, slot memory */
    uint64_t token;      /* one token's experts of all layers, slot memory */
    uint64_t index;      /* all experts, slot memory */
    uint64_t staging;    /* slot memory that is there even without a cache */
    uint64_t dense;      /* weights that are not experts */
    uint64_t dense_held; /* of those, in anonymous memory already */
    uint64_t cache_held; /* slot memory that is there now, and would be given back */
    bool dense_mapped;   /* they stay in the page cache, which the kernel may take away */
};

/* What the machine says. */
struct plan_facts {
    struct plan_limits limits;   /* what is there, what is left */
    struct plan_process process; /* what this process has */
};

/* Read both. `root` as there. */
void plan_facts_read(struct plan_facts *f, const char *root);

/*
 * Make the plan. *budget is the cache budget in bytes, 0 for none.
 *   off:    0.
 *   fixed:  cache_bytes, at most the expert index. Refused below one layer's demand always, below one
 *           token's under LRU unless forced (there LRU hits nothing), and when it does not fit into
 *           the limit beside the other rows.
 *   auto:   what the limit leaves after the other rows and the floor, at most the expert index; 0 when that
 *           is less than one layer's demand, under LRU one token's.
 * Refused as well: a plan that exceeds the limit without any cache. Refusals are SLUICE_ERR_BUDGET
 * with the rows in the message. A limit that is not known does not limit.
 */
int plan_make(const struct sluice_settings *s, const struct plan_demand *d, const struct plan_facts *f,
              struct sluice_plan *plan, uint64_t *budget, struct sluice_error *err);

/* The slot memory turned out to be `bytes`: enter it. */
void plan_set_cache(struct sluice_plan *plan, uint64_t bytes);

/* What auto leaves free of machine or cgroup: as set, else a sixteenth within 256 MiB and 2 GiB. */
uint64_t plan_floor(const struct sluice_settings *s, const struct plan_limits *l);

/* What auto leaves free of settings.memory_bytes: as set, else 1/32 of it, at least 32 MiB. */
uint64_t plan_margin(const struct sluice_settings *s);

/* The rows as text: "dense 964, cache 1500, ...". Returns what snprintf would. */
int plan_rows(const struct sluice_plan *plan, char *buf, size_t cap);

#endif
