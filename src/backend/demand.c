/*
 * demand.c - see demand.h.
 *
 * Apart from budget.c so that a plan of a model that is not loaded (runner/dry.c), whose bank is made from the headers
 * of its files, asks by the same arithmetic as the engine.
 */
#include "backend/demand.h"

#include "stream/slots.h"

int demand_of_bank(const struct bank *b, struct plan_demand *d, struct sluice_error *err) {
    d->token = bank_token_slot_bytes(b, &d->layer);
    d->bank = 0;
    for (uint32_t i = 0; i < b->n_groups; i++) {
        d->bank += b->groups[i].n_parts ? b->groups[i].slot_bytes * b->groups[i].n_expert : 0;
    }
    d->bank += d->bank / 16; /* slots of a class are as large as its largest bundle: at most that much more */
    return slots_measure(b, 0, &d->staging, err);
}
