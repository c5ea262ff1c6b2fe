/* identity.h - is it the same model file? */
#ifndef SLUICE_RUN_IDENTITY_H
#define SLUICE_RUN_IDENTITY_H

#include <stdint.h>

#include "gguf/gguf_check.h"

/* Both stand in files that users keep, so neither may change. */
struct sluice_identity {
    /*
     * Of what predicts: differs for models that differ in architecture, in names, shapes or types of tensors, or in
     * the first bytes of any tensor, as other quantisations and other trainings do. A renamed, merged or re-described
     * file has the same. In files of `sluice eval --ref-save`.
     */
    uint64_t weights;
    /* Of the files as they are: sizes, headers (all metadata) and samples of the weights. In prompt caches. */
    char files[33]; /* hexadecimal digits */
};

/* SLUICE_ERR_IO when a file cannot be read, SLUICE_ERR_MEMORY. */
int sluice_model_identity(const struct sluice_gguf *g, struct sluice_identity *out, struct sluice_error *err);

#endif
