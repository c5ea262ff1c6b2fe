/*
 * collect.c - collecting nodes into one graph for the inner CPU backend.
 *
 * Every graph computation wakes and joins all compute threads, so nodes are collected and run only
 * when their owner must wait for something, or when space runs out. A block whose experts are all in
 * memory is one computation.
 *
 * One row of an expert is computed in place: input and output pointers go straight into the host's
 * tensors. Several rows are gathered, computed and scattered, since a one-expert MUL_MAT_ID wants
 * its rows back to back. All memory is kept and reused: nothing is allocated per token.
 */
#include "ggml/collect.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ggml/hold.h"
#include "cache/check.h"
#include "cache/clock.h"

enum {
    COLLECT_JOBS = 32,           /* kernel jobs in a graph */
    COLLECT_ZEROS = 32,          /* nodes in a graph of which rows are set to zero */
    COLLECT_NODES = 512,         /* nodes in a graph */
    COLLECT_TENSORS = 4,         /* tensors made per expert and node: weight, input, ids, output */
    COLLECT_ROW_BYTES = 8 << 20, /* bytes of rows in a graph, unless one expert has more */
};

/* A function of the loaded CPU backend's registry, into *fn, a pointer to such a function. False: there is none. */
static bool collect_cpu_proc(const struct collect *c, const char *name, void *fn) {
    ggml_backend_dev_t dev = ggml_backend_get_device(c->cpu);
    void *p = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(dev), name);
    memcpy(fn, &p, sizeof p);
    return p != NULL;
}

bool collect_init(struct collect *c, ggml_backend_t cpu, const struct route *route) {
    const struct ggml_init_params graph = {ggml_graph_overhead_custom(COLLECT_NODES, false) + 1024, NULL, true};
    const struct ggml_init_params tensors = {(size_t)(COLLECT_NODES + 1) * COLLECT_TENSORS * ggml_tensor_overhead(),
                                             NULL, true};
    memset(c, 0, sizeof *c);
    c->graph_ctx = ggml_init(graph);
    c->tensors = ggml_init(tensors);
    c->scatter = calloc(COLLECT_NODES, sizeof *c->scatter);
    c->jobs = calloc(COLLECT_JOBS, sizeof *c->jobs);
    c->zeros = calloc(COLLECT_ZEROS, sizeof *c->zeros);
    if (!c->graph_ctx || !c->tensors || !c->scatter || !c->jobs || !c->zeros) {
        collect_free(c);
        return false;
    }
    c->graph = ggml_new_graph_custom(c->graph_ctx, COLLECT_NODES, false);
    c->traits = kernel_find_traits(cpu);
    c->route = route;
    c->cpu = cpu;
    c->rows_most = COLLECT_ROW_BYTES;
    idle_init(&c->idle);
    return true;
}

void collect_free(struct collect *c) {
    void (*pool_free)(ggml_threadpool_t) = NULL;
    if (c->pool) {
        collect_cpu_proc(c, "ggml_threadpool_free", &pool_free);
    }
    if (c->cpu) {
        idle_destroy(&c->idle);
        ggml_backend_free(c->cpu);
    }
    if (pool_free) {
        pool_free(c->pool);
    }
    ggml_free(c->graph_ctx);
    ggml_free(c->tensors);
    free(c->scatter);
    free(c->jobs);
    free(c->zeros);
    free(c->progress);
    free(c->rows);
    free(c->ids);
    memset(c, 0, sizeof *c);
}

bool collect_reserve(struct collect *c, int64_t rows) {
    if (rows > c->ids_cap) {
        free(c->ids);
        c->ids = calloc((size_t)rows, sizeof *c->ids);
        c->ids_cap = c->ids ? rows : 0;
    }
    return c->ids_cap >= rows;
}

/* Does the CPU backend keep a team of threads of its own (OpenMP)? */
static bool collect_cpu_has_openmp(const struct collect *c) {
    ggml_backend_get_features_t get;
    if (!collect_cpu_proc(c, "ggml_backend_get_features", &get)) {
        return false;
    }
    ggml_backend_dev_t dev = ggml_backend_get_device(c->cpu);
    for (struct ggml_backend_feature *f = get(ggml_backend_dev_backend_reg(dev)); f && f->name; f++) {
        if (strcmp(f->name, "OPENMP") == 0) {
            return true;
        }
    }
    return false;
}

void collect_set_threads(struct collect *c, int n) {
    if (n < 1 || n == c->n_threads) {
        return;
    }
    ggml_backend_set_n_threads_t set;
    if (!collect_cpu_proc(c, "ggml_backend_set_n_threads", &set)) {
        return;
    }
    set(c->cpu, n);
    c->n_threads = n;
    if (collect_cpu_has_openmp(c)) {
        return;
    }
    /* Without OpenMP every graph would start and join its threads: give it standing ones, which
     * sleep between graphs (poll 0), since the host's own threads need the cores then. */
    ggml_threadpool_t (*pool_new)(struct ggml_threadpool_params *);
    void (*pool_free)(ggml_threadpool_t);
    void (*pool_set)(ggml_backend_t, ggml_threadpool_t);
    if (!collect_cpu_proc(c, "ggml_threadpool_new", &pool_new) ||
        !collect_cpu_proc(c, "ggml_threadpool_free", &pool_free) ||
        !collect_cpu_proc(c, "ggml_backend_cpu_set_threadpool", &pool_set)) {
        return;
    }
    struct ggml_threadpool_params params = ggml_threadpool_params_default(n);
    params.poll = 0;
    ggml_threadpool_t pool = pool_new(&params);
    if (pool) {
        pool_set(c->cpu, pool);
        if (c->pool) {
            pool_free(c->pool);
        }
        c->pool = pool;
    }
}

void collect_clear(struct collect *c) {
    c->n_scatter = 0;
    c->n_jobs = 0;
    c->n_zeros = 0;
    c->n_progress = 0;
    c->rows_used = 0;
    ggml_graph_clear(c->graph);
    ggml_reset(c->tensors);
}

enum ggml_status collect_flush(struct collect *c) {
    if (ggml_graph_n_nodes(c->graph) == 0) {
        return GGML_STATUS_SUCCESS;
    }
    timing_switch(c->timing, TIMING_EXPERT, clock_seconds());
    enum ggml_status status = ggml_backend_graph_compute(c->cpu, c->graph);
    for (int i = 0; i < c->n_jobs; i++) {
        if (atomic_load(&c->jobs[i].failed)) {
            c->failed = c->jobs[i].hold->engine;
            status = GGML_STATUS_FAILED;
        }
    }
    for (int i = 0; i < c->n_scatter && status == GGML_STATUS_SUCCESS; i++) {
        const struct collect_scatter *s = &c->scatter[i];
        const size_t row = (size_t)s->node->ne[0] * sizeof(float);
        for (int32_t r = 0; r < s->n; r++) {
            memcpy(route_row(c->route, s->node, s->list[r]), s->rows + (size_t)r * row, row);
        }
    }
    collect_clear(c);
    timing_switch(c->timing, TIMING_BOOKKEEPING, clock_seconds());
    timing_move(c->timing, TIMING_EXPERT, TIMING_STALL, c->idle.total); /* the kernel waits inside the graph */
    c->idle.total = 0;
    return status;
}

/* Room for n more nodes. Runs the graph first if there is none, or if `must`. */
static enum ggml_status collect_room(struct collect *c, int n, bool must) {
    return must || ggml_graph_n_nodes(c->graph) > COLLECT_NODES - n ? collect_flush(c) : GGML_STATUS_SUCCESS;
}

/* Views and the like are not computed. */
static bool collect_is_view(const struct ggml_tensor *t) {
    return t->op == GGML_OP_NONE || t->op == GGML_OP_VIEW || t->op == GGML_OP_RESHAPE || t->op == GGML_OP_PERMUTE ||
           t->op == GGML_OP_TRANSPOSE;
}

enum ggml_status collect_add_plain(struct collect *c, struct ggml_tensor *node) {
    if (collect_is_view(node)) {
        return GGML_STATUS_SUCCESS;
    }
    /* The node may read rows that are still to be scattered. */
    const enum ggml_status status = collect_room(c, 1, c->n_scatter > 0);
    if (status == GGML_STATUS_SUCCESS) {
        ggml_graph_add_node(c->graph, node);
    }
    return status;
}

/* The node that sets rows to zero. In the graph, since the memory may be another node's until it ran. */
static void collect_zero(struct ggml_tensor *dst, int ith, int nth, void *userdata) {
    (void)dst;
    const struct collect_zeros *z = userdata;
    for (int64_t row = ith; row < z->route->K * z->route->T; row += nth) {
        if (lossy_blank(z->lossy, row)) {
            memset(route_row(z->route, z->node, (int32_t)row), 0, (size_t)z->node->ne[0] * sizeof(float));
        }
    }
}

enum ggml_status collect_add_zeros(struct collect *c, struct ggml_tensor *node, const struct lossy *lossy) {
    const enum ggml_status status = collect_room(c, 1, c->n_zeros == COLLECT_ZEROS);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    struct collect_zeros *z = &c->zeros[c->n_zeros++];
    *z = (struct collect_zeros){.node = node, .route = c->route, .lossy = lossy};
    struct ggml_tensor *t = ggml_custom_4d(c->tensors, GGML_TYPE_F32, node->ne[0], node->ne[1], node->ne[2], 1, NULL, 0,
                                           collect_zero, GGML_N_TASKS_MAX, z);
    kernel_append(c->graph, t, node->data);
    return status;
}

enum ggml_status collect_add_weighting(struct collect *c, struct ggml_tensor *node, float *weight) {
    const enum ggml_status status = collect_room(c, 1, c->n_scatter > 0);
    if (status == GGML_STATUS_SUCCESS) {
        const struct ggml_tensor *own = node->src[1];
        struct ggml_tensor *w = ggml_new_tensor_3d(c->tensors, GGML_TYPE_F32, 1, own->ne[1], own->ne[2]);
        w->data = weight;
        kernel_append(c->graph, ggml_mul(c->tensors, node->src[0], w), node->data);
    }
    return status;
}

/* Bytes in whole cache lines. */
static size_t collect_lines(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

/* Memory for rows in and out, gathered; may run the graph first to have the old rows out of the way. */
static char *collect_rows(struct collect *c, size_t bytes, enum ggml_status *status) {
    *status = collect_room(c, 1, c->rows_used && c->rows_used + bytes > c->rows_most);
    if (*status != GGML_STATUS_SUCCESS) {
        return NULL;
    }
    if (c->rows_used + bytes > c->rows_cap) {
        /* Nodes of the graph point into the old rows: only an empty one may move. */
        SLUICE_CHECK(c->rows_used == 0);
        const size_t cap = bytes > c->rows_most ? bytes : c->rows_most;
        void *p = NULL;
        if (posix_memalign(&p, 64, cap)) {
            *status = GGML_STATUS_ALLOC_FAILED;
            return NULL;
        }
        free(c->rows);
        c->rows = p;
        c->rows_cap = cap;
    }
    char *at = c->rows + c->rows_used;
    c->rows_used += bytes;
    return at;
}

enum ggml_status collect_add_expert(struct collect *c, const struct route *route, struct ggml_tensor *node,
                                    uint32_t place, const void *weights) {
    const struct ggml_tensor *w = node->src[0], *in = node->src[1];
    const int32_t n = route_rows(route, place);
    const int32_t *list = route->list + route->first[place];
    const size_t in_row = ggml_row_size(in->type, in->ne[0]), out_row = (size_t)node->ne[0] * sizeof(float);
    enum ggml_status status = collect_room(c, 1, false);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    char *in_rows = route_row(route, in, list[0]), *out_rows = route_row(route, node, list[0]);
    if (n > 1) {
        const size_t in_bytes = collect_lines((size_t)n * in_row);
        in_rows = collect_rows(c, in_bytes + collect_lines((size_t)n * out_row), &status);
        if (!in_rows) {
            return status;
        }
        out_rows = in_rows + in_bytes;
        for (int32_t r = 0; r < n; r++) {
            memcpy(in_rows + (size_t)r * in_row, route_row(route, in, list[r]), in_row);
        }
        SLUICE_CHECK(c->n_scatter < COLLECT_NODES);
        c->scatter[c->n_scatter++] = (struct collect_scatter){.node = node, .rows = out_rows, .list = list, .n = n};
    }
    struct ggml_tensor *tw = ggml_new_tensor_3d(c->tensors, w->type, w->ne[0], w->ne[1], 1);
    struct ggml_tensor *ti = ggml_new_tensor_3d(c->tensors, in->type, in->ne[0], 1, n);
    struct ggml_tensor *tz = ggml_new_tensor_2d(c->tensors, GGML_TYPE_I32, 1, n);
    tw->data = (void *)(uintptr_t)weights;
    ti->data = in_rows;
    tz->data = c->ids;
    struct ggml_tensor *to = ggml_mul_mat_id(c->tensors, tw, ti, tz);
    memcpy(to->op_params, node->op_params, sizeof to->op_params);
    kernel_append(c->graph, to, out_rows);
    return status;
}

/* Room for the progress of n more experts; may run the graph first, whose jobs point to what there is. */
static enum ggml_status collect_progress(struct collect *c, uint32_t n) {
    const bool full = n > c->cap_progress - c->n_progress;
    const enum ggml_status status = collect_room(c, 2, full && c->n_jobs);
    if (status == GGML_STATUS_SUCCESS && n > c->cap_progress - c->n_progress) {
        free(c->progress);
        c->cap_progress = 4 * n; /* two jobs a block, and a block may begin behind another */
        c->progress = calloc(c->cap_progress, sizeof *c->progress);
        c->cap_progress = c->progress ? c->cap_progress : 0;
        return c->progress ? status : GGML_STATUS_ALLOC_FAILED;
    }
    return status;
}

enum ggml_status collect_add_kernel(struct collect *c, struct hold *h, struct ggml_tensor *const *node,
                                    const uint32_t *part, int n) {
    struct ggml_tensor *in = node[0]->src[1];
    const enum ggml_type type = kernel_row_type(c->traits, node[0]);
    assert(type != GGML_TYPE_COUNT && n <= KERNEL_MATS);
    enum ggml_status status = collect_room(c, 2, c->n_jobs == COLLECT_JOBS || c->n_scatter);
    if (status == GGML_STATUS_SUCCESS) {
        status = collect_progress(c, h->route->n);
    }
    char *rows = in->data;
    size_t rank_bytes = in->nb[1], token_bytes = in->nb[2];
    if (type != in->type && status == GGML_STATUS_SUCCESS) {
        rank_bytes = collect_lines(ggml_row_size(type, in->ne[0]));
        token_bytes = rank_bytes * (size_t)in->ne[1];
        rows = collect_rows(c, token_bytes * (size_t)in->ne[2], &status);
    }
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    struct kernel_job *j = &c->jobs[c->n_jobs++];
    c->all_jobs++;
    *j = (struct kernel_job){
        .hold = h,
        .traits = c->traits(node[0]->src[0]->type),
        .convert = c->traits(type)->from_float,
        .n_mats = n,
        .route = h->route,
        .progress = c->progress + c->n_progress,
        .idle = &c->idle,
        .rows = rows,
        .rank_bytes = in->ne[1] == 1 ? 0 : rank_bytes,
        .token_bytes = token_bytes,
    };
    memcpy(j->node, node, (size_t)n * sizeof *node);
    memcpy(j->part, part, (size_t)n * sizeof *part);
    c->n_progress += h->route->n;
    kernel_add(c->tensors, c->graph, j);
    return status;
}
