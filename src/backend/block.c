/*
 * block.c - running a split of the graph: expert matmuls on slices that lie in slots.
 *
 * A split is (part of) an MoE block: one MUL_MAT_ID per expert tensor and cheap operations between.
 * For each MUL_MAT_ID the routed experts are grouped, and every expert becomes a MUL_MAT_ID of its
 * own over a one-expert weight that points into a slot. ggml computes the rows of one expert
 * independently of which other experts there are, so the bytes are those of the stock node,
 * provided that all rows of one expert stay together: kernels for many rows may differ from those
 * for few.
 *
 * Nodes are collected into one graph for the inner CPU backend and run only when something must be
 * waited for, so a block whose experts are all in memory is one graph computation (a computation
 * costs a wake-up of all compute threads). When experts are missing, those in memory are computed
 * first and the others in the order in which they arrive.
 *
 * Two ways to hold experts:
 *   held     all routed experts of the block fit in the cache at once: acquired together, with all
 *            parts that the split will use, so that every read of the block is under way at once
 *   rolling  more experts than slots (a prompt against a small cache): per node, a window of
 *            experts moves over the list; each is released as soon as its rows are done
 *
 * Decoding one token takes the kernel of kernel.c where it can, which waits inside the graph; what is
 * described here is the path for several tokens and the reference that the kernel is compared with.
 *
 * One row is computed in place. Several rows of an expert are gathered, computed and scattered:
 * a one-expert MUL_MAT_ID wants its rows back to back.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/backend.h"
#include "backend/kernel.h"
#include "backend/route.h"
#include "stream/error.h"

enum {
    BLOCK_JOBS = 32,           /* kernel jobs in a graph */
    BLOCK_NODES = 512,         /* nodes collected before the graph is run anyway */
    BLOCK_TENSORS = 4,         /* tensors made per expert and node: weight, input, ids, output */
    BLOCK_ROW_BYTES = 8 << 20, /* bytes of gathered rows before the graph is run anyway */
    BLOCK_WINDOW = 64,         /* experts held at once in rolling mode, at most */
};

/* Rows that must go back to a node's output after the graph ran. */
struct block_scatter {
    struct ggml_tensor *node; /* where to */
    const char *rows;         /* computed rows, ne[0] floats each */
    const int32_t *list;      /* token * K + k of each */
    int32_t n;                /* how many */
};

struct block_exec {
    ggml_backend_t cpu;     /* computes everything */
    struct engine *engine;  /* holds the experts */
    ggml_threadpool_t pool; /* for CPU backends without OpenMP, else NULL */
    int n_threads;          /* of the CPU backend */

    struct ggml_context *graph_ctx; /* holds graph, for good */
    struct ggml_cgraph *graph;      /* nodes collected */
    struct ggml_context *tensors;   /* tensors made for it, reset after every run */
    kernel_traits_fn traits;        /* for the decode kernel; NULL: none, or switched off */
    struct kernel_job *jobs;        /* BLOCK_JOBS entries, part of the graph */
    int n_jobs;                     /* entries used */
    struct block_scatter *scatter;  /* BLOCK_NODES entries: to do after the run */
    int n_scatter;                  /* entries used */
    char *rows;                     /* gathered inputs and their outputs, rows_cap bytes */
    size_t rows_used, rows_cap;     /* bytes */
    int32_t *zeros;                 /* expert ids of one-expert nodes: all 0; zeros_cap entries */
    int64_t zeros_cap;

    /* The routing of the current block. */
    const struct ggml_tensor *ids; /* whose routing; NULL: none */
    uint32_t group;                /* whose experts */
    uint32_t done_parts;           /* parts computed so far in this visit, a bit mask */
    enum engine_phase phase;       /* one token or several */
    struct route route;            /* rows by expert */
    uint32_t *slot;                /* by place: its slot while held, or UINT32_MAX */
    uint8_t *state;                /* by place: enum todo for the current node */
    int32_t *wanted;               /* scratch of rolling mode */
    uint32_t *granted;             /* the same */
    uint32_t cap_places;           /* entries of the four */
    bool read_failed;              /* the graph that ran last lacked weights */
    bool held;                     /* slot[] holds all of them */
};

enum todo { TODO_WAITING, TODO_OPEN, TODO_DONE }; /* not acquired, acquired, computed */

static double block_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A function of the loaded CPU backend's registry. */
static void *block_cpu_proc(const struct block_exec *x, const char *name) {
    ggml_backend_dev_t dev = ggml_backend_get_device(x->cpu);
    return ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(dev), name);
}

struct block_exec *block_create(ggml_backend_t cpu, struct engine *engine) {
    struct block_exec *x = calloc(1, sizeof *x);
    if (!x) {
        return NULL;
    }
    const struct ggml_init_params graph = {ggml_graph_overhead_custom(BLOCK_NODES, false) + 1024, NULL, true};
    const struct ggml_init_params tensors = {(size_t)(BLOCK_NODES + 1) * BLOCK_TENSORS * ggml_tensor_overhead(), NULL,
                                             true};
    x->engine = engine;
    x->graph_ctx = ggml_init(graph);
    x->tensors = ggml_init(tensors);
    x->scatter = calloc(BLOCK_NODES, sizeof *x->scatter);
    x->jobs = calloc(BLOCK_JOBS, sizeof *x->jobs);
    if (!x->graph_ctx || !x->tensors || !x->scatter || !x->jobs) {
        block_destroy(x);
        return NULL;
    }
    x->graph = ggml_new_graph_custom(x->graph_ctx, BLOCK_NODES, false);
    x->cpu = cpu;
    x->traits = sluice_device.settings.reference_kernel ? NULL : kernel_find_traits(cpu);
    return x;
}

void block_destroy(struct block_exec *x) {
    if (!x) {
        return;
    }
    assert(!x->held);
    if (x->cpu) {
        ggml_backend_free(x->cpu);
    }
    if (x->pool) {
        /* The CPU backend is gone, its registry stays: ggml never unloads what is in use. */
        ggml_backend_dev_t dev = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
        void (*pool_free)(ggml_threadpool_t);
        void *p = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(dev), "ggml_threadpool_free");
        memcpy(&pool_free, &p, sizeof p);
        pool_free(x->pool);
    }
    ggml_free(x->graph_ctx);
    ggml_free(x->tensors);
    free(x->scatter);
    free(x->jobs);
    free(x->rows);
    free(x->zeros);
    route_free(&x->route);
    free(x->slot);
    free(x->state);
    free(x->wanted);
    free(x->granted);
    free(x);
}

/* Does the CPU backend keep a team of threads of its own (OpenMP)? */
static bool block_cpu_has_openmp(const struct block_exec *x) {
    ggml_backend_get_features_t get;
    void *p = block_cpu_proc(x, "ggml_backend_get_features");
    if (!p) {
        return false;
    }
    memcpy(&get, &p, sizeof p);
    ggml_backend_dev_t dev = ggml_backend_get_device(x->cpu);
    for (struct ggml_backend_feature *f = get(ggml_backend_dev_backend_reg(dev)); f && f->name; f++) {
        if (strcmp(f->name, "OPENMP") == 0) {
            return true;
        }
    }
    return false;
}

void block_set_threads(struct block_exec *x, int n) {
    if (n < 1 || n == x->n_threads) {
        return;
    }
    ggml_backend_set_n_threads_t set;
    void *p = block_cpu_proc(x, "ggml_backend_set_n_threads");
    if (!p) {
        return;
    }
    memcpy(&set, &p, sizeof p);
    set(x->cpu, n);
    x->n_threads = n;
    if (block_cpu_has_openmp(x)) {
        return;
    }
    /* Without OpenMP every graph would start and join its threads: give it standing ones, which
     * sleep between graphs (poll 0), since the host's own threads need the cores then. */
    ggml_threadpool_t (*pool_new)(struct ggml_threadpool_params *);
    void (*pool_free)(ggml_threadpool_t);
    void (*pool_set)(ggml_backend_t, ggml_threadpool_t);
    void *p_new = block_cpu_proc(x, "ggml_threadpool_new");
    void *p_free = block_cpu_proc(x, "ggml_threadpool_free");
    void *p_set = block_cpu_proc(x, "ggml_backend_cpu_set_threadpool");
    if (!p_new || !p_free || !p_set) {
        return;
    }
    memcpy(&pool_new, &p_new, sizeof p_new);
    memcpy(&pool_free, &p_free, sizeof p_free);
    memcpy(&pool_set, &p_set, sizeof p_set);
    struct ggml_threadpool_params params = ggml_threadpool_params_default(n);
    params.poll = 0;
    ggml_threadpool_t pool = pool_new(&params);
    if (pool) {
        pool_set(x->cpu, pool);
        if (x->pool) {
            pool_free(x->pool);
        }
        x->pool = pool;
    }
}

/* ---- the collected graph --------------------------------------------------------------------- */

/* Forget what was collected. */
static void block_clear(struct block_exec *x) {
    x->n_scatter = 0;
    x->n_jobs = 0;
    x->rows_used = 0;
    ggml_graph_clear(x->graph);
    ggml_reset(x->tensors);
}

/* Run what was collected, scatter its rows, start afresh. */
static enum ggml_status block_flush(struct block_exec *x) {
    if (ggml_graph_n_nodes(x->graph) == 0) {
        return GGML_STATUS_SUCCESS;
    }
    const double t0 = block_now();
    enum ggml_status status = ggml_backend_graph_compute(x->cpu, x->graph);
    for (int i = 0; i < x->n_jobs; i++) {
        if (atomic_load(&x->jobs[i].failed)) {
            x->read_failed = true;
            status = GGML_STATUS_FAILED;
        }
    }
    for (int i = 0; i < x->n_scatter && status == GGML_STATUS_SUCCESS; i++) {
        const struct block_scatter *s = &x->scatter[i];
        const size_t row = (size_t)s->node->ne[0] * sizeof(float);
        for (int32_t r = 0; r < s->n; r++) {
            memcpy(route_row(&x->route, s->node, s->list[r]), s->rows + (size_t)r * row, row);
        }
    }
    block_clear(x);
    engine_count_compute(x->engine, x->phase, block_now() - t0);
    return status;
}

/* Views and the like are not computed. */
static bool block_is_view(const struct ggml_tensor *t) {
    return t->op == GGML_OP_NONE || t->op == GGML_OP_VIEW || t->op == GGML_OP_RESHAPE || t->op == GGML_OP_PERMUTE ||
           t->op == GGML_OP_TRANSPOSE;
}

/* Append a node of the host's graph as it is. */
static enum ggml_status block_add_plain(struct block_exec *x, struct ggml_tensor *node) {
    if (block_is_view(node)) {
        return GGML_STATUS_SUCCESS;
    }
    if (ggml_graph_n_nodes(x->graph) == BLOCK_NODES || x->n_scatter) {
        /* The node may read rows that are still to be scattered. */
        const enum ggml_status status = block_flush(x);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    }
    ggml_graph_add_node(x->graph, node);
    return GGML_STATUS_SUCCESS;
}

/* Memory for n rows in and out, gathered; may run the graph first to have the old rows out of the way. */
static char *block_rows(struct block_exec *x, size_t bytes, enum ggml_status *status) {
    *status = GGML_STATUS_SUCCESS;
    if (x->rows_used && x->rows_used + bytes > BLOCK_ROW_BYTES) {
        *status = block_flush(x);
        if (*status != GGML_STATUS_SUCCESS) {
            return NULL;
        }
    }
    if (x->rows_used + bytes > x->rows_cap) {
        /* Nodes of the graph point into the old rows: only an empty one may move. */
        assert(x->rows_used == 0);
        const size_t cap = bytes > BLOCK_ROW_BYTES ? bytes : BLOCK_ROW_BYTES;
        void *p = NULL;
        if (posix_memalign(&p, 64, cap)) {
            *status = GGML_STATUS_ALLOC_FAILED;
            return NULL;
        }
        free(x->rows);
        x->rows = p;
        x->rows_cap = cap;
    }
    char *at = x->rows + x->rows_used;
    x->rows_used += bytes;
    return at;
}

/* Append the matmul of one expert (by place) for `node`, with its weights at `weights`. */
static enum ggml_status block_add_expert(struct block_exec *x, struct ggml_tensor *node, uint32_t place,
                                         const void *weights) {
    const struct ggml_tensor *w = node->src[0], *in = node->src[1];
    const int32_t n = route_rows(&x->route, place);
    const int32_t *list = x->route.list + x->route.first[place];
    const size_t in_row = ggml_row_size(in->type, in->ne[0]), out_row = (size_t)node->ne[0] * sizeof(float);
    enum ggml_status status = GGML_STATUS_SUCCESS;
    char *in_rows, *out_rows;
    if (ggml_graph_n_nodes(x->graph) == BLOCK_NODES) {
        status = block_flush(x);
    }
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    if (n == 1) {
        in_rows = route_row(&x->route, in, list[0]);
        out_rows = route_row(&x->route, node, list[0]);
    } else {
        const size_t in_bytes = ((size_t)n * in_row + 63) / 64 * 64;
        in_rows = block_rows(x, in_bytes + ((size_t)n * out_row + 63) / 64 * 64, &status);
        if (!in_rows) {
            return status;
        }
        out_rows = in_rows + in_bytes;
        for (int32_t r = 0; r < n; r++) {
            memcpy(in_rows + (size_t)r * in_row, route_row(&x->route, in, list[r]), in_row);
        }
        assert(x->n_scatter < BLOCK_NODES);
        x->scatter[x->n_scatter++] = (struct block_scatter){.node = node, .rows = out_rows, .list = list, .n = n};
    }
    struct ggml_tensor *tw = ggml_new_tensor_3d(x->tensors, w->type, w->ne[0], w->ne[1], 1);
    struct ggml_tensor *ti = ggml_new_tensor_3d(x->tensors, in->type, in->ne[0], 1, n);
    struct ggml_tensor *tz = ggml_new_tensor_2d(x->tensors, GGML_TYPE_I32, 1, n);
    tw->data = (void *)(uintptr_t)weights;
    ti->data = in_rows;
    tz->data = x->zeros;
    struct ggml_tensor *to = ggml_mul_mat_id(x->tensors, tw, ti, tz);
    to->data = out_rows;
    memcpy(to->op_params, node->op_params, sizeof to->op_params);
    to->flags |= GGML_TENSOR_FLAG_COMPUTE; /* without it ggml skips the node silently */
    ggml_graph_add_node(x->graph, to);
    return GGML_STATUS_SUCCESS;
}

/* ---- one expert matmul ----------------------------------------------------------------------- */

/* Group the rows of a batch, whose ids are computed, and make room for as many experts and rows. */
static enum ggml_status block_route(struct block_exec *x, const struct ggml_tensor *ids, uint32_t n_expert,
                                    struct sluice_error *err) {
    const int rc = route_read(&x->route, ids, n_expert, err);
    if (rc) {
        return rc == SLUICE_ERR_MEMORY ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_FAILED;
    }
    if (n_expert > x->cap_places) {
        uint32_t *slot = reallocarray(x->slot, n_expert, sizeof *slot);
        x->slot = slot ? slot : x->slot;
        uint8_t *state = reallocarray(x->state, n_expert, sizeof *state);
        x->state = state ? state : x->state;
        int32_t *wanted = reallocarray(x->wanted, n_expert, sizeof *wanted);
        x->wanted = wanted ? wanted : x->wanted;
        uint32_t *granted = reallocarray(x->granted, n_expert, sizeof *granted);
        x->granted = granted ? granted : x->granted;
        if (!slot || !state || !wanted || !granted) {
            return GGML_STATUS_ALLOC_FAILED;
        }
        x->cap_places = n_expert;
    }
    const int64_t rows = x->route.K * x->route.T;
    if (rows > x->zeros_cap) {
        int32_t *zeros = calloc((size_t)rows, sizeof *zeros);
        if (!zeros) {
            return GGML_STATUS_ALLOC_FAILED;
        }
        free(x->zeros);
        x->zeros = zeros;
        x->zeros_cap = rows;
    }
    return GGML_STATUS_SUCCESS;
}

static void block_release_all(struct block_exec *x) {
    if (x->held) {
        engine_release(x->engine, x->slot, x->route.n);
        x->held = false;
    }
}

/* The parts of `group` that nodes from i on compute with the routing `ids`. */
static uint32_t block_parts_ahead(struct ggml_cgraph *g, int i, const struct ggml_tensor *ids, uint32_t group) {
    uint32_t parts = 0;
    for (; i < ggml_graph_n_nodes(g); i++) {
        const struct ggml_tensor *n = ggml_graph_node(g, i);
        const struct stream_weight *w = n->op == GGML_OP_MUL_MAT_ID ? buffer_weight(n->src[0]) : NULL;
        if (w && n->src[2] == ids && w->group == group) {
            parts |= 1u << w->part;
        }
    }
    return parts;
}

static void block_read_failed(struct block_exec *x, struct sluice_error *err) {
    if (!engine_take_read_error(x->engine, err)) {
        sluice_fail(err, SLUICE_ERR_IO, "reading an expert failed"); /* another context took the reason */
    }
}

/* Rolling mode: acquire waiting experts until the window is full. Waits only when nothing is held. */
static enum ggml_status block_refill(struct block_exec *x, const struct stream_weight *w, uint32_t *open, bool first,
                                     struct sluice_error *err) {
    uint32_t n = 0, got = 0;
    for (uint32_t i = 0; i < x->route.n && n + *open < BLOCK_WINDOW; i++) {
        if (x->state[i] == TODO_WAITING) {
            x->wanted[n++] = x->route.expert[i];
        }
    }
    if (n == 0) {
        return GGML_STATUS_SUCCESS;
    }
    const struct engine_want want = {.group = w->group,
                                     .parts = 1u << w->part,
                                     .expert = x->wanted,
                                     .n = n,
                                     .phase = x->phase,
                                     .first = first,
                                     .wait = *open == 0};
    const int rc = engine_acquire(x->engine, &want, x->granted, &got, err);
    if (rc) {
        return rc == SLUICE_ERR_MEMORY ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_FAILED;
    }
    for (uint32_t i = 0; i < n && got; i++) {
        if (x->granted[i] != UINT32_MAX) {
            const int32_t place = x->route.index[x->wanted[i]];
            x->slot[place] = x->granted[i];
            x->state[place] = TODO_OPEN;
            (*open)++;
        }
    }
    return GGML_STATUS_SUCCESS;
}

/* Append every open expert that is ready. n_done counts them. */
static enum ggml_status block_add_ready(struct block_exec *x, struct ggml_tensor *node, const struct stream_weight *w,
                                        uint32_t *n_done) {
    for (uint32_t i = 0; i < x->route.n; i++) {
        if (x->state[i] != TODO_OPEN) {
            continue;
        }
        const enum part_state state = engine_part_state(x->engine, x->slot[i], w->part);
        if (state == PART_FAILED) {
            x->read_failed = true;
            return GGML_STATUS_FAILED;
        }
        if (state == PART_READY) {
            const enum ggml_status status =
                block_add_expert(x, node, i, engine_part_data(x->engine, x->slot[i], w->part));
            if (status != GGML_STATUS_SUCCESS) {
                return status;
            }
            x->state[i] = TODO_DONE;
            (*n_done)++;
        }
    }
    return GGML_STATUS_SUCCESS;
}

/* Rolling mode: give back the slots of experts whose rows are computed. */
static void block_release_done(struct block_exec *x, uint32_t *open) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->route.n; i++) {
        if (x->state[i] == TODO_DONE && x->slot[i] != UINT32_MAX) {
            x->granted[n++] = x->slot[i];
            x->slot[i] = UINT32_MAX;
        }
    }
    if (n) {
        engine_release(x->engine, x->granted, n);
        *open -= n;
    }
}

/* Compute one MUL_MAT_ID on slots, all experts of the routing. */
static enum ggml_status block_run_node(struct block_exec *x, struct ggml_tensor *node, const struct stream_weight *w,
                                       bool first, struct sluice_error *err) {
    uint32_t n_done = 0, open = x->held ? x->route.n : 0;
    memset(x->state, x->held ? TODO_OPEN : TODO_WAITING, x->route.n);
    enum ggml_status status = GGML_STATUS_SUCCESS;
    while (n_done < x->route.n && status == GGML_STATUS_SUCCESS) {
        if (!x->held) {
            status = block_refill(x, w, &open, first, err);
            if (status != GGML_STATUS_SUCCESS) {
                break;
            }
        }
        const uint32_t seen = engine_seen(x->engine), before = n_done;
        status = block_add_ready(x, node, w, &n_done);
        if (status != GGML_STATUS_SUCCESS || (x->held && n_done == x->route.n)) {
            break; /* with all experts held, the graph may grow on into the next nodes */
        }
        status = block_flush(x);
        if (!x->held) {
            block_release_done(x, &open);
        } else if (status == GGML_STATUS_SUCCESS && n_done == before) {
            engine_wait(x->engine, seen, x->phase);
            continue;
        }
        if (status == GGML_STATUS_SUCCESS && n_done == before && open) {
            engine_wait(x->engine, seen, x->phase);
        }
    }
    if (!x->held) {
        /* Only after a failure is anything still open. */
        for (uint32_t i = 0; i < x->route.n; i++) {
            x->state[i] = TODO_DONE;
        }
        block_release_done(x, &open);
    }
    return status;
}

/*
 * Decode: append node i, and the next one if it shares input, routing and type, as one kernel node.
 * All experts are held, one row each. *taken: nodes appended, 0 when the kernel cannot do it.
 */
static enum ggml_status block_add_kernel(struct block_exec *x, struct ggml_cgraph *g, int i,
                                         const struct stream_weight *w, int *taken) {
    struct ggml_tensor *node = ggml_graph_node(g, i), *in = node->src[1];
    *taken = 0;
    if (!x->traits || !x->held || x->route.T != 1 || x->route.n != x->route.K || x->route.K > KERNEL_RANKS) {
        return GGML_STATUS_SUCCESS;
    }
    const enum ggml_type type = kernel_row_type(x->traits, node);
    if (type == GGML_TYPE_COUNT) {
        return GGML_STATUS_SUCCESS;
    }
    enum ggml_status status = GGML_STATUS_SUCCESS;
    if (x->n_jobs == BLOCK_JOBS || ggml_graph_n_nodes(x->graph) > BLOCK_NODES - 2 || x->n_scatter) {
        status = block_flush(x);
    }
    char *rows = in->data;
    size_t row_bytes = in->nb[1];
    if (type != in->type && status == GGML_STATUS_SUCCESS) {
        row_bytes = (ggml_row_size(type, in->ne[0]) + 63) / 64 * 64;
        rows = block_rows(x, row_bytes * (size_t)in->ne[1], &status);
    }
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    struct kernel_job *j = &x->jobs[x->n_jobs++];
    *j = (struct kernel_job){
        .engine = x->engine,
        .traits = x->traits(node->src[0]->type),
        .convert = x->traits(type)->from_float,
        .node = {node},
        .part = {w->part},
        .n_mats = 1,
        .K = (int)x->route.K,
        .rows = rows,
        .row_bytes = row_bytes,
        .phase = x->phase,
    };
    for (uint32_t p = 0; p < x->route.n; p++) {
        j->slot[x->route.list[x->route.first[p]]] = x->slot[p];
    }
    *taken = 1;
    if (i + 1 < ggml_graph_n_nodes(g)) {
        struct ggml_tensor *next = ggml_graph_node(g, i + 1);
        const struct stream_weight *v = next->op == GGML_OP_MUL_MAT_ID ? buffer_weight(next->src[0]) : NULL;
        if (v && next->src[1] == in && next->src[2] == node->src[2] && v->group == w->group && v->part != w->part &&
            next->src[0]->type == node->src[0]->type && next->nb[0] == sizeof(float)) {
            j->node[j->n_mats] = next;
            j->part[j->n_mats++] = v->part;
            x->done_parts |= 1u << v->part;
            *taken = 2;
        }
    }
    kernel_add(x->tensors, x->graph, j);
    return GGML_STATUS_SUCCESS;
}

/* Begin the block that node i starts, or go on with the one that it belongs to; then compute it. */
static enum ggml_status block_run_streamed(struct block_exec *x, struct ggml_cgraph *g, int i,
                                           const struct stream_weight *w, int *taken, struct sluice_error *err) {
    struct ggml_tensor *node = ggml_graph_node(g, i);
    const struct ggml_tensor *ids = node->src[2];
    const bool same = x->ids == ids && x->group == w->group && !(x->done_parts >> w->part & 1);
    enum ggml_status status = GGML_STATUS_SUCCESS;
    if (!x->held || !same) {
        /* The ids may be an output of nodes collected so far. */
        status = block_flush(x);
    }
    if (status == GGML_STATUS_SUCCESS && (!x->held || !same)) {
        block_release_all(x);
        status = block_route(x, ids, w->n_expert, err);
        x->phase = x->route.T == 1 ? ENGINE_GENERATION : ENGINE_PROMPT;
        if (status == GGML_STATUS_SUCCESS) {
            const struct engine_want want = {.group = w->group,
                                             .parts = block_parts_ahead(g, i, ids, w->group),
                                             .expert = x->route.expert,
                                             .n = x->route.n,
                                             .phase = x->phase,
                                             .first = !same,
                                             .all = true,
                                             .wait = true};
            uint32_t got = 0;
            const int rc = engine_acquire(x->engine, &want, x->slot, &got, err);
            x->held = got > 0;
            /* More experts than slots is no failure: they go through in a rolling window. */
            if (rc && rc != SLUICE_ERR_BUDGET) {
                status = rc == SLUICE_ERR_MEMORY ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_FAILED;
            } else if (rc && engine_capacity(x->engine, w->group) == 0) {
                status = GGML_STATUS_FAILED; /* the budget itself was refused */
            }
        }
        if (status == GGML_STATUS_SUCCESS) {
            device_print_mode();
            engine_count_block(x->engine, x->phase, (uint32_t)x->route.T, !same);
        }
    }
    if (status == GGML_STATUS_SUCCESS && x->route.n != x->route.K * x->route.T) {
        status = block_flush(x); /* some expert has several rows, whose inputs are about to be gathered */
    }
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    x->ids = ids;
    x->group = w->group;
    x->done_parts = same ? x->done_parts | 1u << w->part : 1u << w->part;
    status = block_add_kernel(x, g, i, w, taken);
    if (status == GGML_STATUS_SUCCESS && *taken == 0) {
        *taken = 1;
        status = block_run_node(x, node, w, !same, err);
    }
    return status;
}

enum ggml_status block_compute(struct block_exec *x, struct ggml_cgraph *g, struct sluice_error *err) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int i = 0; i < ggml_graph_n_nodes(g) && status == GGML_STATUS_SUCCESS; i++) {
        struct ggml_tensor *node = ggml_graph_node(g, i);
        const bool matmul = node->op == GGML_OP_MUL_MAT_ID && ggml_nelements(node) > 0;
        const struct stream_weight *w = matmul ? buffer_weight(node->src[0]) : NULL;
        if (w) {
            int taken = 0;
            status = block_run_streamed(x, g, i, w, &taken, err);
            i += taken - 1;
        } else {
            if (matmul) {
                device_note_plain("the program reads the weights into memory itself");
                device_print_mode();
            }
            status = block_add_plain(x, node);
        }
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = block_flush(x);
    }
    block_release_all(x);
    if (status != GGML_STATUS_SUCCESS) {
        x->ids = NULL;
        block_clear(x);
        if (x->read_failed) {
            x->read_failed = false;
            block_read_failed(x, err);
        }
        if (err->status == SLUICE_OK) {
            sluice_fail(err, status == GGML_STATUS_ALLOC_FAILED ? SLUICE_ERR_MEMORY : SLUICE_ERR_LLAMA,
                        status == GGML_STATUS_ALLOC_FAILED ? "out of memory in an MoE block"
                                                           : "ggml's CPU backend failed in an MoE block");
        }
    }
    return status;
}
