/*
 * budget.c - from what is loaded to a memory plan.
 *
 * The engine asks how large its arena may be, first when a context is made (is there any way?) and
 * then when it is cut, at the first block, when dense weights are in place and the program has
 * allocated all that it computes with. The arithmetic is in memory/ledger.c; here its input is put
 * together from the expert index, the buffers and the kernel.
 *
 * At the first question nothing is known of dense weights but that they are at most what the files
 * hold beside experts, and the program may have read them into memory already (repacked). What is
 * anonymous memory then may be just that; so only the rest counts as still to come. The first answer
 * is only a refusal or none, and must not refuse what would fit.
 *
 * While a further model is loaded the engine asks at each of its tensors, so that the arena, which stays, makes room
 * for that model's dense weights before they come.
 */
#include "ggml/budget.h"

#include "ggml/buffer.h"
#include "ggml/device.h"
#include "ggml/demand.h"
#include "memory/ledger.h"
#include "cache/error.h"

int budget_make(void *ud, const struct expert_index *b, uint64_t held, uint64_t *budget, struct sluice_error *err) {
    struct sluice_device *d = ud;
    struct plan_facts facts;
    struct plan_demand demand = {0};
    struct buffer_dense dense;
    struct sluice_plan plan;
    plan_facts_read(&facts, "");
    buffer_dense_sum(d, &dense);
    int rc = demand_of_index(b, &demand, err);
    if (rc) {
        return rc;
    }
    const uint64_t experts = demand.index;
    demand.index += cold_least(&d->cold);
    const uint64_t slots = held + cold_held(&d->cold);
    const uint64_t there = dense.guessed && facts.process.anon > slots ? facts.process.anon - slots : 0;
    demand.dense = dense.bytes > there ? dense.bytes - there : 0;
    demand.dense = demand.dense > dense.held ? demand.dense : dense.held;
    demand.dense_held = dense.held;
    demand.cache_held = slots;
    demand.dense_mapped = dense.in_mapping;
    const struct sluice_settings settings = device_settings(d);
    rc = plan_make(&settings, &demand, &facts, &plan, budget, err);
    if (rc) {
        return rc;
    }
    /* Of the cache, the copies of a cold model have a part. The experts' least is a block's, whatever is left. */
    const uint64_t copies = cold_take_share(&d->cold, *budget, experts);
    *budget -= *budget > copies ? copies : *budget - (*budget > 0);
    uint64_t cut = 0;
    rc = slots_measure(b, *budget, &cut, err);
    plan_set_cache(&plan, cut + copies);
    pthread_mutex_lock(&d->lock);
    d->plan = plan;
    pthread_mutex_unlock(&d->lock);
    return rc;
}
