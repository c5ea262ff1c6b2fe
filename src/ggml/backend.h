/* backend.h - the device as ggml sees it. */
#ifndef SLUICE_GGML_BACKEND_H
#define SLUICE_GGML_BACKEND_H

#include <stdbool.h>

#include "cache/engine.h"
#include "sluice.h"

struct sluice_device;

/*
 * Make *d, which is zeroed, a device for these settings: its engine, the functions that ggml calls. `budget` is asked
 * with *d how much memory the experts may have. plugin: loaded by a host program. SLUICE_ERR_STATE: it is one already.
 */
int backend_setup(struct sluice_device *d, const struct sluice_settings *s, bool plugin, engine_budget_fn budget,
                  struct sluice_error *err);

#endif
