/* identity.h - is it the same model file? */
#ifndef SLUICE_RUN_IDENTITY_H
#define SLUICE_RUN_IDENTITY_H

#include <stdint.h>

#include "gguf/gguf_check.h"

/*
 * A number that differs for models that differ in architecture, in names, shapes or types of tensors, or in the first
 * bytes of any tensor: other quantisations and other trainings do. SLUICE_ERR_IO when a tensor cannot be read.
 */
int sluice_model_identity(const struct sluice_gguf *g, uint64_t *out, struct sluice_error *err);

#endif
