/* tracing.h - a block as the route trace needs it: what ggml's tensors say of it, in plain arrays. */
#ifndef SLUICE_GGML_TRACING_H
#define SLUICE_GGML_TRACING_H

#include <stdbool.h>
#include <stdint.h>

#include "ggml/kernel.h"
#include "ggml/route.h"
#include "observe/batch.h"
#include "observe/route_trace.h"

/* A block that was acquired. */
struct tracing_block {
    const struct batch *batch;         /* what it is part of */
    uint32_t group;                    /* whose experts */
    uint32_t n_expert;                 /* how many there are */
    const struct route *route;         /* its rows by expert */
    const struct ggml_tensor *node;    /* its first expert matmul */
    const struct ggml_tensor *weights; /* weights_find */
    const uint8_t *found;              /* by place, those set aside included: enum engine_found */
    const uint8_t *copied;   /* by place, those computed with experts not counted: enum engine_found of the copy
                                in the cold model; NULL: what was given up is left out */
    uint64_t copy_bytes;     /* weights of a copy */
    kernel_traits_fn traits; /* of the CPU backend; NULL: none */
};

/* Write a block's rows. */
void tracing_block(struct route_trace *t, const struct tracing_block *b);

/* A context is being made: read what the head needs of the model's files, which are the engine's. */
void tracing_read_model(struct route_trace *t, struct engine *engine);

#endif
