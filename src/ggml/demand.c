/*
 * demand.c - see demand.h.
 *
 * Apart from budget.c so that a plan of a model that is not loaded (run/dry.c), whose index is made from the headers
 * of its files, asks by the same arithmetic as the engine.
 */
#include "ggml/demand.h"

#include "cache/slots.h"

int demand_of_index(const struct expert_index *b, struct plan_demand *d, struct sluice_error *err) {
    d->token = index_token_slot_bytes(b, &d->layer);
    d->index = 0;
    for (uint32_t i = 0; i < b->n_groups; i++) {
        d->index += b->groups[i].n_parts ? b->groups[i].slot_bytes * b->groups[i].n_expert : 0;
    }
    d->index += d->index / 16; /* slots of a class are as large as its largest bundle: at most that much more */
    return slots_measure(b, 0, &d->staging, err);
}
