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
    ggml_backend_t cpu;                /* computes everything; owned */
    ggml_threadpool_t pool;            /* for CPU backends without OpenMP, else NULL */
    int n_threads;                     /* of the CPU backend */
    kernel_traits_fn traits;           /* of the CPU backend; NULL: not known, and there is no kernel */
    const struct route *route;         /* of the batch; the owner's */
    struct ggml_context *graph_ctx;    /* holds graph, for good */
    struct ggml_cgraph *graph;         /* nodes collected */
    struct ggml_context *tensors;      /* tensors made for it, reset after every run */
    struct kernel_job *jobs;           /* kernel nodes' state */
    int n_jobs;                        /* entries used */
    uint64_t all_jobs;                 /* that were ever used */
    struct kernel_progress *progress;  /* of the jobs' experts */
    uint32_t n_progress, cap_progress; /* entries used, and room */
    struct collect_scatter *scatter;   /* to do after the run */
    int n_scatter;                     /* entries used */
    struct collect_zeros *zeros;       /* rows to set to zero in the graph */
    int n_zeros;                       /* entries used */
    char *rows;                        /* gathered or converted inputs, and outputs to scatter; rows_cap bytes */
    size_t rows_used, rows_cap;        /* bytes */
    size_t rows_most;      /* bytes of them in a graph, unless one node has more; set before the first are added */
    int32_t *ids;          /* expert ids of one-expert nodes: all 0; ids_cap entries */
    int64_t ids_cap;       /* rows that one node can have */
    struct engine *failed; /* the last run lacked weights that this engine could not read; NULL: it did not */
    struct timing *timing; /* of the split that runs now, the owner's: running is booked there */
    struct idle idle;      /* of the kernel nodes, which run one after the other */
};

/* Set up over cpu, which is taken over on success. *route is the batch's whenever something is added. */
bool collect_init(struct collect *c, ggml_backend_t cpu, const struct route *route);

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

/* Append a node of the host's graph as it is. */
enum ggml_status collect_add_plain(struct collect *c, struct ggml_tensor *node);

/* Append what sets the rows of an expert matmul to zero that nothing computes. */
enum ggml_status collect_add_zeros(struct collect *c, struct ggml_tensor *node, const struct lossy *lossy);

/* Append the weighting of a block's outputs with these weights, K * T, in place of its own. Kept until the graph ran.
 */
enum ggml_status collect_add_weighting(struct collect *c, struct ggml_tensor *node, float *weight);

/*
 * Append the matmul of one expert of a routing, by place, for `node`, with its weights at `weights`. The routing is the
 * batch's or a part of it, and stays until the graph ran.
 */
enum ggml_status collect_add_expert(struct collect *c, const struct route *route, struct ggml_tensor *node,
                                    uint32_t place, const void *weights);

/*
 * Append n matmuls (1 or 2, with the same input), each by its part of the experts that are held, as one node of the
 * kernel. They are of one type and shape, which the kernel can do. When experts pass in turns it is to be run at once.
 */
enum ggml_status collect_add_kernel(struct collect *c, struct hold *h, struct ggml_tensor *const *node,
                                    const uint32_t *part, int n);

#endif
