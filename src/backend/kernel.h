/* kernel.h - the decode kernel: expert matvecs that wait for their weights inside the computation. */
#ifndef SLUICE_BACKEND_KERNEL_H
#define SLUICE_BACKEND_KERNEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "stream/engine.h"
#include "stream/idle.h"

enum {
    KERNEL_MATS = 2,   /* matmuls of one input that run as one node: gate and up */
    KERNEL_RANKS = 64, /* experts per token, at most; more take the reference path */
};

/* One node: up to KERNEL_MATS expert tensors times one token, all its experts. Lives until the graph ran. */
struct kernel_job {
    struct engine *engine;                            /* holds the experts */
    const struct ggml_type_traits_cpu *traits;        /* of the weights' type */
    ggml_from_float_t convert;                        /* floats to the type that the dot product wants */
    struct ggml_tensor *node[KERNEL_MATS];            /* the stock MUL_MAT_IDs: weights, input and output */
    uint32_t part[KERNEL_MATS];                       /* which part of the bundles each one multiplies */
    int n_mats;                                       /* entries of the two above */
    int K;                                            /* experts of the token */
    uint32_t slot[KERNEL_RANKS];                      /* by rank: pinned */
    char *rows;                                       /* the input in the type that the dot product wants, ne[1] rows */
    size_t row_bytes;                                 /* from one row to the next */
    _Atomic int32_t next[KERNEL_MATS * KERNEL_RANKS]; /* by mat and rank: the chunk of rows to take next */
    _Atomic bool failed;                              /* a read failed: the output is not to be used */
    struct idle *idle;                                /* counts the time in which all threads wait for weights */
};

/* ggml_get_type_traits_cpu of the CPU backend that is loaded, or NULL: then there is no kernel. */
typedef const struct ggml_type_traits_cpu *(*kernel_traits_fn)(enum ggml_type type);
kernel_traits_fn kernel_find_traits(ggml_backend_t cpu);

/* The type of row that weights of this type are multiplied with; GGML_TYPE_COUNT: the kernel cannot. */
enum ggml_type kernel_row_type(kernel_traits_fn traits, const struct ggml_tensor *node);

/*
 * Append to the graph what computes the job: a node that converts the input's rows, unless they
 * are in that type already, and the kernel's own. At most two nodes and two tensors of ctx.
 */
void kernel_add(struct ggml_context *ctx, struct ggml_cgraph *graph, struct kernel_job *job);

#endif
