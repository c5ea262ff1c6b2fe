/* demand.h - what the expert tensors of a index ask of memory. */
#ifndef SLUICE_GGML_DEMAND_H
#define SLUICE_GGML_DEMAND_H

#include "memory/ledger.h"
#include "cache/expert_index.h"

/*
 * Fill layer, token, index and staging of *d from the tensors of the expert index; the rest of it is left alone.
 * SLUICE_ERR_MEMORY.
 */
int demand_of_index(const struct expert_index *b, struct plan_demand *d, struct sluice_error *err);

#endif
