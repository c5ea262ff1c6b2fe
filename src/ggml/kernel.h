/* kernel.h - the decode kernel: expert matvecs that wait for their weights inside the computation. */
#ifndef SLUICE_GGML_KERNEL_H
#define SLUICE_GGML_KERNEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "cache/engine.h"
#include "cache/idle.h"

enum {
    KERNEL_MATS = 2,       /* matmuls of one input that run as one node: gate and up */
    KERNEL_EXPERTS = 1024, /* experts of a node, at most; more take the reference path */
};

/* How much of one expert of a node is computed. */
struct kernel_progress {
    _Atomic int32_t next[KERNEL_MATS]; /* by matmul: the chunk of weight rows to take next */
    _Atomic int32_t left;              /* chunks not computed, of all matmuls, and threads that look at it; 0: done */
};

struct hold;

/* One node: up to KERNEL_MATS expert tensors times a batch, all its experts. Lives until the graph ran. */
struct kernel_job {
    struct hold *hold;                         /* the experts; all of them, or they pass in turns */
    const struct ggml_type_traits_cpu *traits; /* of the weights' type */
    ggml_from_float_t convert;                 /* floats to the type that the dot product wants */
    struct ggml_tensor *node[KERNEL_MATS];     /* the stock MUL_MAT_IDs: weights, input and output */
    uint32_t part[KERNEL_MATS];                /* which part of the experts each one multiplies */
    int n_mats;                                /* entries of the two above */
    const struct route *route;                 /* the batch's rows by place */
    struct kernel_progress *progress;          /* by place: route->n entries */
    char *rows;                                /* the input in the type that the dot product wants */
    size_t rank_bytes;                         /* from one row of a token to its next; 0: they share one */
    size_t token_bytes;                        /* from one token's rows to the next one's */
    _Atomic bool failed;                       /* a read failed: the output is not to be used */
    struct idle *idle;                         /* counts the time in which all threads wait for weights */
};

/* ggml_get_type_traits_cpu of the CPU backend that is loaded, or NULL: then there is no kernel. */
typedef const struct ggml_type_traits_cpu *(*kernel_traits_fn)(enum ggml_type type);
kernel_traits_fn kernel_find_traits(ggml_backend_t cpu);

/* The type of row that weights of this type are multiplied with; GGML_TYPE_COUNT: the kernel cannot. */
enum ggml_type kernel_row_type(kernel_traits_fn traits, const struct ggml_tensor *node);

/*
 * Append to the graph what computes the job, nothing of which is computed yet: a node that converts the input's rows,
 * unless they are in that type already, and the kernel's own. At most two nodes and two tensors of ctx.
 */
void kernel_add(struct ggml_context *ctx, struct ggml_cgraph *graph, struct kernel_job *job);

/* Append a node that we made, whose output lies at `data`. */
void kernel_append(struct ggml_cgraph *graph, struct ggml_tensor *t, void *data);

#endif
