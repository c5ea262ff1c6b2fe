/*
 * ledger.c - the memory plan.
 *
 * One sum of everything that the process has and will have, against the tightest limit there is: a
 * ceiling that the user set, the control groups, the machine. What is left is the expert cache.
 * Earlier the cache alone was compared with what was left, less the dense weights; KV cache and
 * compute buffers that were allocated but not touched counted as free, and processes were killed
 * when a prompt touched them.
 *
 * The rows:
 *   process    anonymous memory that is in use now, dense weights not counted
 *   files      mapped file pages in use: the program and its libraries. Page cache could be given
 *              back, but what is mapped is used again at once, so it is planned for
 *   untouched  allocated, not touched yet, stacks of threads not counted (process.h)
 *   dense      weights that every token uses
 *   cache      slots; without a cache, the staging slots that every block needs
 *   scratch    page tables (1/512 of the memory that they describe), gathered rows of a prompt, the
 *              tables of the cache
 * The floor is not in the plan. It is what auto leaves of the limit for what nobody plans.
 *
 * The cache is bounded from below. Under one layer's demand a block could not hold its own experts.
 * Under one token's demand LRU evicts every expert before its layer comes round again: measured in
 * replay, exactly 0 % hits, while the memory is gone all the same; the cycle policy has no such
 * cliff. Both are refused with the numbers, because the user can act on them; the second can be
 * forced, for measuring.
 *
 * Dense weights in the page cache are planned in full, since a cache that pushes them out costs more
 * than it saves; but they alone are no reason to refuse, as the kernel takes them away before it
 * kills.
 */
#include "memory/ledger.h"

#include <stdio.h>

#include "cache/error.h"

#define MIB           ((uint64_t)1 << 20)
#define LEDGER_FILES  (64 * MIB) /* libraries are at most about that much; see ledger_files */
#define LEDGER_WORK   (24 * MIB) /* gathered rows (8 MiB a context), routing, the read queue, malloc's slack */
#define LEDGER_TABLES 256        /* scratch per byte of the plan, as a divisor: page tables and slot tables */

static double mib(uint64_t bytes) {
    return (double)bytes / (double)MIB;
}

static uint64_t less(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0;
}

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

void plan_facts_read(struct plan_facts *f, const char *root) {
    plan_limits_read(&f->limits, root);
    plan_process_read(&f->process, root);
}

uint64_t plan_floor(const struct sluice_settings *s, const struct plan_limits *l) {
    if (s->floor_bytes) {
        return s->floor_bytes;
    }
    const uint64_t share = l->total / 16;
    return share < 256 * MIB ? 256 * MIB : smaller(share, 2048 * MIB);
}

uint64_t plan_margin(const struct sluice_settings *s) {
    const uint64_t share = s->memory_bytes / 32;
    return s->floor_bytes ? s->floor_bytes : share < 32 * MIB ? 32 * MIB : share;
}

/* Mapped file pages in use that are not dense weights. Which are which the kernel does not tell cheaply. */
static uint64_t ledger_files(const struct plan_demand *d, const struct plan_process *p) {
    if (!d->dense_mapped) {
        return p->files;
    }
    const uint64_t least = smaller(p->files, LEDGER_FILES), rest = less(p->files, d->dense);
    return rest > least ? rest : least;
}

/* Anonymous memory that is neither dense weights nor slots. Slots that were never used make it seem less. */
static uint64_t ledger_own(const struct plan_demand *d, const struct plan_process *p) {
    return less(p->anon, d->dense_held + d->cache_held);
}

/*
 * Memory that is promised and not touched. Dense weights that are in memory are read-only, so they
 * are in anon and not in data. A process that promises more than the machine has (a sanitizer's
 * shadow, a run-time that reserves addresses) never means to touch it.
 */
static uint64_t ledger_untouched(const struct plan_demand *d, const struct plan_facts *f) {
    const struct plan_process *p = &f->process;
    if (f->limits.total && p->data > f->limits.total) {
        return 0;
    }
    return less(less(p->data, p->stacks + d->cache_held), ledger_own(d, p));
}

static uint64_t ledger_scratch(const struct sluice_plan *p) {
    return LEDGER_WORK + (p->process_bytes + p->untouched_bytes + p->dense_bytes + p->cache_bytes) / LEDGER_TABLES;
}

void plan_set_cache(struct sluice_plan *p, uint64_t bytes) {
    p->cache_bytes = bytes;
    p->scratch_bytes = ledger_scratch(p);
    p->total_bytes =
        p->process_bytes + p->files_bytes + p->untouched_bytes + p->dense_bytes + p->cache_bytes + p->scratch_bytes;
}

int plan_rows(const struct sluice_plan *p, char *buf, size_t cap) {
    return snprintf(buf, cap, "dense %.0f%s, cache %.0f, process %.0f, untouched %.0f, files %.0f, scratch %.0f",
                    mib(p->dense_bytes), p->dense_mapped ? " (page cache)" : "", mib(p->cache_bytes),
                    mib(p->process_bytes), mib(p->untouched_bytes), mib(p->files_bytes), mib(p->scratch_bytes));
}

/* "SUBJECT does not fit", with all numbers. */
static int ledger_refuse(const struct sluice_plan *p, const char *subject, const char *advice,
                         struct sluice_error *err) {
    char rows[256];
    plan_rows(p, rows, sizeof rows);
    return sluice_fail(err, SLUICE_ERR_BUDGET, "%s does not fit: %.0f MiB of %.0f MiB %s (%s): %s", subject,
                       mib(p->total_bytes), mib(p->limit_bytes),
                       p->limit_by_setting ? "that memory allows" : "that machine and cgroup leave this process", rows,
                       advice);
}

/* The most slot memory with which the plan stays within `room`, what all other rows leave. */
static uint64_t ledger_slots(const struct sluice_plan *p, uint64_t limit, uint64_t floor) {
    struct sluice_plan none = *p;
    plan_set_cache(&none, 0);
    const uint64_t room = less(limit, floor), rest = less(room, none.total_bytes);
    return rest - rest / (LEDGER_TABLES + 1) - (rest % (LEDGER_TABLES + 1) != 0);
}

int plan_make(const struct sluice_settings *s, const struct plan_demand *d, const struct plan_facts *f,
              struct sluice_plan *plan, uint64_t *budget, struct sluice_error *err) {
    const struct plan_limits *l = &f->limits;
    /* What the process has is its own already: the limit is what is left and that. File pages are left. */
    const uint64_t system = l->total ? l->available + f->process.anon : 0;
    const uint64_t set = s->memory_bytes;
    *budget = 0;
    *plan = (struct sluice_plan){
        .limit_bytes = !system || (set && set < system) ? set : system,
        .limit_by_setting = set && (!system || set < system),
        .process_bytes = ledger_own(d, &f->process),
        .files_bytes = ledger_files(d, &f->process),
        .untouched_bytes = ledger_untouched(d, f),
        .dense_bytes = d->dense,
        .dense_mapped = d->dense_mapped,
    };
    plan->floor_bytes = plan->limit_by_setting ? plan_margin(s) : plan->limit_bytes ? plan_floor(s, l) : 0;
    uint64_t cache = 0;
    if (s->cache == SLUICE_CACHE_AUTO) {
        uint64_t left = plan->limit_bytes ? UINT64_MAX : 0;
        left = system ? smaller(left, ledger_slots(plan, system, plan_floor(s, l))) : left;
        left = set ? smaller(left, ledger_slots(plan, set, plan_margin(s))) : left;
        const uint64_t least = s->policy == SLUICE_POLICY_LRU ? d->token : d->layer;
        cache = left >= d->index ? d->index : left >= least ? left : 0;
    } else if (s->cache == SLUICE_CACHE_FIXED) {
        if (s->cache_bytes < d->layer) {
            return sluice_fail(err, SLUICE_ERR_BUDGET,
                               "a cache of %.1f MiB is less than one layer needs for one token (%.1f MiB; a whole "
                               "token needs %.1f MiB): give it more, or turn it off with 0",
                               mib(s->cache_bytes), mib(d->layer), mib(d->token));
        }
        if (s->policy == SLUICE_POLICY_LRU && s->cache_bytes < d->token && !s->force_cache) {
            return sluice_fail(err, SLUICE_ERR_BUDGET,
                               "a cache of %.1f MiB is less than one token needs (%.1f MiB; one layer %.1f MiB): LRU "
                               "would hit nothing; take policy cycle, give it more, turn it off with 0, or force it",
                               mib(s->cache_bytes), mib(d->token), mib(d->layer));
        }
        cache = smaller(s->cache_bytes, d->index);
    }
    plan_set_cache(plan, cache ? cache : d->staging);
    const uint64_t hard = less(plan->total_bytes, !cache && d->dense_mapped ? d->dense : 0);
    if (plan->limit_bytes && hard > plan->limit_bytes) {
        if (cache) {
            return ledger_refuse(plan, "the cache", "make it smaller, or let auto choose", err);
        }
        return ledger_refuse(plan, "this model, even without a cache,",
                             plan->limit_by_setting ? "allow more memory, a smaller context or a smaller batch"
                                                    : "a smaller context or a smaller batch needs less",
                             err);
    }
    *budget = cache;
    return sluice_ok(err);
}
