/* collect.h - nodes collected for the inner CPU backend, run when something must be waited for. */
#ifndef SLUICE_GGML_COLLECT_H
#define SLUICE_GGML_COLLECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ggml/kernel.h"
#include "ggml/lossy.h"
#include "ggml/route.h"
#include "ggml-backend.h"
#include "ggml.h"
#include "cache/idle.h"
#include "cache/timing.h"

/* Rows that must go back to a node's output after the graph ran. */
struct collect_scatter {
    struct ggml_tensor *node; /* where to */
    const char *rows;         /* computed rows, ne[0] floats each */
    const int32_t *list;      /* their row numbers in the routing */
    int32_t n;                /* how many */
};

/* Rows of a node that nothing computes and that must be zeros. Lives until the graph ran. */
struct collect_zeros {
    struct ggml_tensor *node;  /* whose rows */
    const struct route *route; /* the routing */
    const struct lossy *lossy; /* which of them */
};

struct collect {
    ggml_backend_t cpu;              /* computes everything; owned */
    ggml_threadpool_t pool;          /* for CPU backends without OpenMP, else NULL */
    int n_threads;                   /* of the CPU backend */
    kernel_traits_fn traits;         /* for the decode kernel; NULL: none, or switched off */
    const struct route *route;       /* of the nodes collected now; the owner's */
    struct ggml_context *graph_ctx;  /* holds graph, for good */
    struct ggml_cgraph *graph;       /* nodes collected */
    struct ggml_context *tensors;    /* tensors made for it, reset after every run */
    struct kernel_job *jobs;         /* kernel nodes' state */
    int n_jobs;                      /* entries used */
    struct kernel_place *places;     /* the jobs' experts */
    uint32_t n_places, cap_places;   /* entries used, and room */
    struct collect_scatter *scatter; /* to do after the run */
    int n_scatter;                   /* entries used */
    struct collect_zeros *zeros_of;  /* rows to set to zero in the graph */
    int n_zeros;                     /* entries used */
    char *rows;                      /* gathered or converted inputs, and outputs to scatter; rows_cap bytes */
    size_t rows_used, rows_cap;      /* bytes */
    size_t rows_most;      /* bytes of them in a graph, unless one node has more; set before the first are added */
    int32_t *zeros;        /* expert ids of one-expert nodes: all 0; zeros_cap entries */
    int64_t zeros_cap;     /* rows that one node can have */
    struct engine *failed; /* the last run lacked weights that this engine could not read; NULL: it did not */
    struct timing *timing; /* of the split that runs now, the owner's: running is booked there */
    struct idle idle;      /* of the kernel nodes, which run one after the other */
};

/* Set up over cpu, which is taken over on success. route is read whenever rows are added. */
bool collect_init(struct collect *c, ggml_backend_t cpu, bool kernel, const struct route *route);

/* Free everything, the CPU backend included if there is one. Accepts a zeroed struct. */
void collect_free(struct collect *c);

/* Threads of the CPU backend from now on. */
void collect_set_threads(struct collect *c, int n);

/* Room for the ids of a batch of so many routed rows. Only while nothing is collected. */
bool collect_reserve(struct collect *c, int64_t rows);

/* Run what was collected, scatter its rows, start afresh. */
enum ggml_status collect_flush(struct collect *c);

/* Forget what was collected. */
void collect_clear(struct collect *c);

/* The routing of the nodes added from now on, of the same batch; it stays until they ran. */
void collect_use_route(struct collect *c, const struct route *route);

/* Append a node of the host's graph as it is. */
enum ggml_status collect_add_plain(struct collect *c, struct ggml_tensor *node);

/* Append what sets the rows of an expert matmul to zero that nothing computes. */
enum ggml_status collect_add_zeros(struct collect *c, struct ggml_tensor *node, const struct lossy *lossy);

/* Append the weighting of a block's outputs with these weights, K * T, in place of its own. Kept until the graph ran.
 */
enum ggml_status collect_add_weighting(struct collect *c, struct ggml_tensor *node, float *weight);

/* Append the matmul of one expert (by place in the routing) for `node`, with its weights at `weights`. */
enum ggml_status collect_add_expert(struct collect *c, struct ggml_tensor *node, uint32_t place, const void *weights);

/* Can the kernel compute nodes of this type and shape, with the routing as it is? */
bool collect_kernel_fits(const struct collect *c, const struct ggml_tensor *node);

/*
 * Begin a kernel node for `node`, which must fit, with room for the experts of the routing in
 * job->place. NULL: *status says why. The caller completes the job (a second matmul, places) and then
 * calls kernel_add.
 */
struct kernel_job *collect_add_job(struct collect *c, struct ggml_tensor *node, enum ggml_status *status);

#endif
