/* budget.h - from what is loaded to a memory plan. */
#ifndef SLUICE_GGML_BUDGET_H
#define SLUICE_GGML_BUDGET_H

#include "cache/engine.h"

/* engine_budget_fn; ud: the device, which keeps the plan. Whoever asks puts the plan before back when it fails later.
 */
int budget_make(void *ud, const struct expert_index *b, uint64_t held, uint64_t *budget, struct sluice_error *err);

#endif
