/* demand.h - what the expert tensors of a bank ask of memory. */
#ifndef SLUICE_BACKEND_DEMAND_H
#define SLUICE_BACKEND_DEMAND_H

#include "plan/ledger.h"
#include "stream/bank.h"

/*
 * Fill layer, token, bank and staging of *d from the tensors of the bank; the rest of it is left alone.
 * SLUICE_ERR_MEMORY.
 */
int demand_of_bank(const struct bank *b, struct plan_demand *d, struct sluice_error *err);

#endif
