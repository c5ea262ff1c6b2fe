/*
 * ubatch.h - how many tokens of a prompt are computed together.
 */
#ifndef SLUICE_RUN_UBATCH_H
#define SLUICE_RUN_UBATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/ledger.h"
#include "run/info.h"
#include "sluice.h"

enum {
    SLUICE_UBATCH_STEP = 32,   /* chosen sizes are multiples of this */
    SLUICE_UBATCH_MAX = 8192,  /* never chosen larger, tokens */
    SLUICE_UBATCH_TALK = 2048, /* at most, when the prompts are not known yet */
    SLUICE_UBATCH_LEAST = 256, /* not smaller, unless the prompt is or the memory plan refuses */
    SLUICE_UBATCH_FORCED = 64, /* not smaller even then */
    SLUICE_UBATCH_SHARE =
        4, /* of what cache and compute buffers have together, the buffers get one part in this many */
    SLUICE_UBATCH_TALK_SHARE = 16 /* the same, when the prompts are not known yet */
};

/* What a context with a micro-batch costs, and what it may cost. */
struct sluice_ubatch_cost {
    uint64_t buffers; /* bytes that this process has allocated and not touched: the compute buffers */
    uint64_t allowed; /* bytes that they may be; UINT64_MAX: nothing else needs the memory */
    bool refused;     /* the memory plan does not fit with them, whatever they are allowed */
};

/* The size to begin with, for a prompt of `tokens` tokens (0: not known yet) in a context of n_ctx tokens. */
uint32_t sluice_ubatch_wish(uint64_t tokens, uint32_t n_ctx);

/* After a context was made with `tried`: that, or a smaller size to try next. */
uint32_t sluice_ubatch_next(uint64_t tokens, uint32_t tried, const struct sluice_ubatch_cost *cost);

/* Judge the context that was just made, by the memory plan that the first token will make. facts: machine and process.
 */
void sluice_ubatch_judge(const struct sluice_settings *s, const struct sluice_info *info, uint64_t tokens,
                         const struct plan_facts *facts, struct sluice_ubatch_cost *cost);

#endif
