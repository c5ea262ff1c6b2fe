/* match.h - what belongs to an MoE block, and what this thread is loading. */
#ifndef SLUICE_GGML_MATCH_H
#define SLUICE_GGML_MATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "ggml-backend.h"
#include "ggml.h"

/* Does this operation belong to an MoE block whose expert weights lie in buffers of that type? */
bool match_block_op(const struct ggml_tensor *op, ggml_backend_buffer_type_t buft);

/* Is it an offer (an operation of match_block_op on a weight without data, made up while a model is loaded)? */
bool match_is_offer(const struct ggml_tensor *op);

/* Would we take an offered weight? The first call of a load gives the load its number. */
bool match_would_take(const struct ggml_tensor *op);
void match_take(const struct ggml_tensor *op);

/* Models that this thread loads from now on stream (or not). */
void match_set_streaming(bool on);

/* The load in progress on this thread: its owner number, and the top-k that its tensors announced. */
uint64_t match_load_owner(uint32_t *top_k);

#endif
