/* plain.h - expert matmuls of ours on weights that do not stream. */
#ifndef SLUICE_GGML_PLAIN_H
#define SLUICE_GGML_PLAIN_H

#include <stdint.h>

#include "ggml/collect.h"
#include "ggml.h"
#include "sluice.h"

/* One per executor; zeroed is empty. */
struct plain {
    const struct ggml_tensor *ids; /* of this split, that were found sound; NULL: none */
    int64_t n_expert;              /* for so many experts */
};

/* A split begins. */
void plain_begin(struct plain *p);

/*
 * The node is going to be computed by the CPU backend as it is: may it be? May run what is collected. Fails when its
 * weight was refused at load, when an id names no expert, and like collect_flush; *err says why, but for the last.
 */
enum ggml_status plain_check(struct plain *p, struct collect *c, const struct ggml_tensor *node,
                             struct sluice_error *err);

#endif
