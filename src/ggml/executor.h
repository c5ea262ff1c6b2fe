/* executor.h - computing the splits of a graph that belong to us: MoE blocks on experts that are streamed. */
#ifndef SLUICE_GGML_EXECUTOR_H
#define SLUICE_GGML_EXECUTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ggml-backend.h"
#include "ggml.h"
#include "sluice.h"

struct engine;
struct executor;
struct sluice_device;

/* What an executor works with. */
struct executor_setup {
    struct engine *engine;        /* holds the experts */
    struct engine *copies;        /* holds the cold model's copies; NULL: there are none */
    struct sluice_device *device; /* has settings for what is lossy, and is told of steps, traces and the mode; NULL:
                                     the blocks are computed, and nobody hears of it */
    size_t rows_bytes;            /* memory for gathered rows, unless one node needs more; 0: the usual */
    bool reference;               /* never use the kernel */
};

/* An executor for one ggml backend. cpu: the inner CPU backend, which it takes over on success. NULL: no memory. */
struct executor *executor_create(ggml_backend_t cpu, const struct executor_setup *setup);
void executor_destroy(struct executor *x);

/* Nodes that the kernel computed so far; the others took the reference path. */
uint64_t executor_kernel_nodes(const struct executor *x);

/* Threads of the inner CPU backend from now on. */
void executor_set_threads(struct executor *x, int n);

/* Learn from a split that will be computed, maybe much later and after others. Nothing of it is remembered but weights.
 */
void executor_learn(struct executor *x, struct ggml_cgraph *graph);

/* Compute a split. On failure *err says why. Not thread-safe for one executor. */
enum ggml_status executor_compute(struct executor *x, struct ggml_cgraph *graph, struct sluice_error *err);

#endif
