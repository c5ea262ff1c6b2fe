/*
 * ubatch.c - see ubatch.h.
 *
 * A few dozen tokens together are routed to nearly every expert, so a micro-batch reads nearly all experts once,
 * however many tokens it has. The fewer micro-batches a prompt has, the less is read. Memory limits their size:
 * llama.cpp's compute buffers grow with the micro-batch (Qwen3-30B-A3B: 0.195 MiB per token at a context of 4096,
 * 0.25 at 32768, where the attention mask is larger; 2026-11-30, docs/benchmarks.md), they stay until the end,
 * and the expert cache gets that much less.
 *
 * There is no formula per architecture: a context is made, the memory plan says what it costs, and if that is too much
 * a smaller one is made. Buffers are allocated but not touched until they are used, so that a try costs 40
 * milliseconds and no memory; more with a long context, whose KV cache llama.cpp clears. Sizes are nearly
 * proportional to the micro-batch, so that the second try is usually the last.
 *
 * The size is the smallest with the same number of micro-batches, not the largest that fits: with room for 2048,
 * 2100 tokens are computed as two times 1056. A power of two would also be two micro-batches, with twice the buffers.
 * A short prompt gets small buffers.
 *
 * The buffers get at most a quarter of the memory that they and the cache have together. Over the memory sizes and
 * prompt lengths in docs/benchmarks.md that is within 8 % of the fewest bytes for a prompt and 256 generated tokens; an
 * eighth reads up to 38 % too much, and a half slows long generations. In a chat most messages are short and none is
 * known when the buffers are made: there it is a sixteenth, at least 512 tokens and at most 2048.
 */
#include "run/ubatch.h"

enum { UBATCH_STOCK = 512 }; /* llama.cpp's own default: the least that a chat gets */

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* The smallest size with as few micro-batches as sizes up to `most` allow. */
static uint32_t even(uint64_t tokens, uint64_t most) {
    const uint64_t batches = (tokens + most - 1) / most;
    const uint64_t size = (tokens + batches - 1) / batches;
    return (uint32_t)smaller((size + SLUICE_UBATCH_STEP - 1) / SLUICE_UBATCH_STEP * SLUICE_UBATCH_STEP, most);
}

uint32_t sluice_ubatch_wish(uint64_t tokens, uint32_t n_ctx) {
    const uint32_t wish = tokens ? even(tokens, SLUICE_UBATCH_MAX) : SLUICE_UBATCH_TALK;
    return n_ctx && wish > n_ctx ? n_ctx : wish;
}

uint32_t sluice_ubatch_next(uint64_t tokens, uint32_t tried, const struct sluice_ubatch_cost *cost) {
    const uint32_t gentle = tokens ? SLUICE_UBATCH_LEAST : UBATCH_STOCK;
    const uint32_t least = cost->refused ? SLUICE_UBATCH_FORCED : gentle;
    if (tried <= least || (!cost->refused && cost->buffers <= cost->allowed)) {
        return tried;
    }
    uint64_t most = tried / 2;
    if (!cost->refused) {
        const double fits = (double)tried * ((double)cost->allowed / (double)cost->buffers);
        most = (uint64_t)fits / SLUICE_UBATCH_STEP * SLUICE_UBATCH_STEP;
        most = most < tried ? most : tried - 1;
    }
    most = most < least ? least : most;
    return tokens ? even(tokens, most) : (uint32_t)most;
}

void sluice_ubatch_judge(const struct sluice_settings *s, const struct sluice_info *info, uint64_t tokens,
                         const struct plan_facts *facts, struct sluice_ubatch_cost *cost) {
    /* Slots are a little larger than weights (alignment); a quarter is not decided by that. */
    const struct plan_demand demand = {
        .layer = info->layer_bytes,
        .token = info->token_bytes,
        .index = info->expert_bytes,
        .staging = info->layer_bytes,
        .dense = info->dense_bytes,
        .dense_mapped = s->dense == SLUICE_DENSE_MMAP,
    };
    struct sluice_plan plan;
    struct sluice_settings judged = *s;
    uint64_t budget = 0;
    judged.force_cache = true; /* whether that budget is sensible is said at the first token */
    const bool planned = plan_make(&judged, &demand, facts, &plan, &budget, NULL) == SLUICE_OK;
    *cost = (struct sluice_ubatch_cost){.buffers = plan.untouched_bytes, .allowed = UINT64_MAX};
    if (s->cache == SLUICE_CACHE_AUTO) {
        const uint64_t share = tokens ? SLUICE_UBATCH_SHARE : SLUICE_UBATCH_TALK_SHARE;
        cost->refused = !planned;
        if (budget < demand.index) {
            cost->allowed = (budget + plan.untouched_bytes) / share;
        }
    } else {
        /* What the cache gets is settled: only the floor of the rest must stay. */
        cost->refused = !planned || (plan.limit_bytes && plan.total_bytes + plan.floor_bytes > plan.limit_bytes);
    }
}
