/* facts.h - what a device tells those who watch it: steps, traces and the window. */
#ifndef SLUICE_GGML_FACTS_H
#define SLUICE_GGML_FACTS_H

#include "sluice.h"

struct sluice_device;

/* Those who watch are told where to ask. Called once, with an engine. */
void facts_setup(struct sluice_device *d);

/* A context is being made: from now on there is something to show. Fails when the window was asked for and cannot open.
 */
int facts_context(struct sluice_device *d, struct sluice_error *err);

#endif
