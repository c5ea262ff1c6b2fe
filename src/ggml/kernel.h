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
    KERNEL_MATS = 2,      /* matmuls of one input that run as one node: gate and up */
    KERNEL_PLACES = 1024, /* experts of a node, at most; more take the reference path */
};

/* One expert of a node, by its place in the routing. */
struct kernel_place {
    _Atomic uint32_t slot;             /* pinned; UINT32_MAX: not acquired, or given back */
    _Atomic int32_t next[KERNEL_MATS]; /* by matmul: the chunk of weight rows to take next */
    _Atomic int32_t left;              /* chunks not computed, of all matmuls; 0: done */
};

/* Acquires experts and gives them back while the node runs, where not all fit at once. See window.h. */
struct window;

/* One node: up to KERNEL_MATS expert tensors times a batch, all its experts. Lives until the graph ran. */
struct kernel_job {
    struct engine *engine;                     /* holds the experts */
    const struct ggml_type_traits_cpu *traits; /* of the weights' type */
    ggml_from_float_t convert;                 /* floats to the type that the dot product wants */
    struct ggml_tensor *node[KERNEL_MATS];     /* the stock MUL_MAT_IDs: weights, input and output */
    uint32_t part[KERNEL_MATS];                /* which part of the bundles each one multiplies */
    int n_mats;                                /* entries of the two above */
    const struct route *route;                 /* the batch's rows by place */
    struct kernel_place *place;                /* route->n entries */
    struct window *window;                     /* NULL: all places are acquired */
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

/* Set up a place of a job whose matmuls are entered: nothing computed, acquired as `slot` (or UINT32_MAX). */
void kernel_place_init(struct kernel_place *p, const struct kernel_job *j, uint32_t slot);

/*
 * Append to the graph what computes the job: a node that converts the input's rows, unless they
 * are in that type already, and the kernel's own. At most two nodes and two tensors of ctx.
 */
void kernel_add(struct ggml_context *ctx, struct ggml_cgraph *graph, struct kernel_job *job);

#endif
