/*
 * speed.c - see speed.h.
 *
 * A rate in bytes per second would not do: it differs between types by a factor of two, and a small model's token
 * mostly consists of the starts and ends of some hundred operations, at which all threads wait for each other. So a
 * whole token is made up: one graph with a matmul for every weight that a token multiplies with, of its shape and type,
 * an expert matmul of top-k experts for every expert tensor, and as many small operations as the model's graph has.
 * Attention over the context is left out; it costs nothing at first and grows with the context.
 *
 * The weights are zeros: no kernel looks at values. They lie one after the other in a pool, which is written to first,
 * since all pages that were never written are one page in the processor's first cache. A pool that is smaller than the
 * model is used again from its beginning; it has to be larger than the processor's caches, unless the model is not.
 */
#include "run/speed.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "cache/clock.h"
#include "cache/error.h"

enum {
    SPEED_SAMPLES = 256,  /* tokens measured at most */
    SPEED_LEAST = 3,      /* at least, unless they take four times as long as they may */
    SPEED_STARTS = 64,    /* small computations measured */
    SPEED_ALIGN = 64,     /* bytes, of weights in the pool */
    SPEED_MATMULS = 8192, /* matmuls of a token at most: a damaged header is no reason for more */
    SPEED_OTHERS = 16384, /* small operations at most */
};

static const uint64_t SPEED_POOL_LEAST = 64ull << 20; /* bytes */
static const uint64_t SPEED_ROWS_MOST = 1ull << 28;   /* floats of inputs and outputs, for the same reason */

/*
 * Of the nodes of llama.cpp's graph of one token, how many compute something. The others are views, reshapes and
 * permutations. Counted in the graph of qwen3moe (v0.5.0): 38 of 63 in a layer.
 */
static const double SPEED_COMPUTING = 0.6;

/* What is being put together. */
struct token {
    ggml_backend_t cpu;         /* owned */
    struct ggml_context *ctx;   /* of all tensors, owned */
    struct ggml_cgraph *graph;  /* of the token, in ctx */
    struct ggml_cgraph *start;  /* of one small operation, in ctx */
    ggml_backend_buffer_t pool; /* buffer over the pool, owned */
    ggml_backend_buffer_t rows; /* all other tensors, owned */
    void *memory;               /* the pool, mapped */
    uint64_t bytes;             /* of it */
    uint64_t at;                /* where the next weight is put */
    uint64_t row_values;        /* floats of the matmuls' inputs and outputs so far */
    struct ggml_tensor **input; /* vectors by length, as made; owned */
    uint32_t n_inputs;          /* of them */
    struct ggml_tensor *ids;    /* 0, 1, 2, ... for expert matmuls */
    int64_t n_ids;              /* of them */
    int64_t width;              /* the model's: what the small operations work on */
};

static void token_free(struct token *t) {
    ggml_backend_buffer_free(t->rows);
    ggml_backend_buffer_free(t->pool);
    ggml_free(t->ctx);
    ggml_backend_free(t->cpu);
    free(t->input);
    if (t->memory) {
        munmap(t->memory, t->bytes);
    }
}

/* Weights of which a token needs some rows only, or none. */
static bool is_table(const struct sluice_gguf *g, const struct sluice_gguf_tensor *t) {
    if (strcmp(t->name, "token_embd.weight") == 0) { /* it is the output matrix too, where there is no other */
        for (size_t i = 0; i < g->n_tensors; i++) {
            if (strcmp(g->tensors[i].name, "output.weight") == 0) {
                return true;
            }
        }
        return false;
    }
    static const char *const parts[] = {"token_embd", "position_embd", "token_types", "rope_freqs", ".nextn."};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strstr(t->name, parts[i])) {
            return true;
        }
    }
    return false;
}

/* How many rows of `row` bytes a token multiplies with: of experts top-k, of tables none, of vectors none. */
static bool multiplies(const struct sluice_speed_params *p, const struct sluice_gguf_tensor *t, uint64_t *slices) {
    const size_t n = strlen(t->name);
    *slices = 1;
    if (sluice_info_streams(t, p->info->experts)) {
        *slices = p->info->top_k_max < t->ne[2] ? p->info->top_k_max : t->ne[2];
        return *slices > 0;
    }
    return n > 7 && strcmp(t->name + n - 7, ".weight") == 0 && t->ne[1] > 1 && t->ne[2] == 1 && t->ne[3] == 1 &&
           !is_table(p->gguf, t);
}

/* A vector of n floats as input. One of each length is enough: it stays in the cache in a real token too. */
static struct ggml_tensor *input_of(struct token *t, int64_t n) {
    for (uint32_t i = 0; i < t->n_inputs; i++) {
        if (t->input[i]->ne[0] == n) {
            return t->input[i];
        }
    }
    struct ggml_tensor **grown = reallocarray(t->input, t->n_inputs + 1, sizeof *grown);
    if (!grown) {
        return NULL;
    }
    t->input = grown;
    return t->input[t->n_inputs++] = ggml_new_tensor_3d(t->ctx, GGML_TYPE_F32, n, 1, 1);
}

/* Put a weight at the next place of the pool, from the beginning again at its end. False: it does not fit into it at
 * all. */
static bool place(struct token *t, struct ggml_tensor *w) {
    const uint64_t bytes = ggml_nbytes(w);
    if (bytes > t->bytes) {
        return false;
    }
    t->at = t->at + bytes > t->bytes ? 0 : t->at;
    const bool ok = ggml_backend_tensor_alloc(t->pool, w, (char *)t->memory + t->at) == GGML_STATUS_SUCCESS;
    t->at += (bytes + SPEED_ALIGN - 1) / SPEED_ALIGN * SPEED_ALIGN;
    return ok;
}

/* One matmul, if the backend can do it: for types that it has no dot product for, it says yes all the same. */
static bool add_matmul(struct token *t, enum ggml_type type, int64_t ne0, int64_t ne1, int64_t slices, bool expert) {
    if (!sluice_gguf_multiplies(type)) {
        return false;
    }
    const uint64_t values = (uint64_t)ne0 + (uint64_t)ne1 * (uint64_t)slices; /* input and output */
    if (values > SPEED_ROWS_MOST - t->row_values) {
        return false;
    }
    t->row_values += values;
    struct ggml_tensor *in = input_of(t, ne0);
    struct ggml_tensor *w = ggml_new_tensor_3d(t->ctx, type, ne0, ne1, expert ? slices : 1);
    if (!in || !place(t, w)) {
        return false;
    }
    struct ggml_tensor *ids = expert ? ggml_view_2d(t->ctx, t->ids, slices, 1, t->ids->nb[1], 0) : NULL;
    struct ggml_tensor *node = expert ? ggml_mul_mat_id(t->ctx, w, in, ids) : ggml_mul_mat(t->ctx, w, in);
    if (!ggml_backend_supports_op(t->cpu, node)) {
        return false;
    }
    ggml_build_forward_expand(t->graph, node);
    return true;
}

/* All of one weight's: in pieces where it is larger than half of the pool. */
static void add_weight(struct token *t, const struct sluice_gguf_tensor *w, uint64_t slices, bool expert,
                       struct sluice_speed *out) {
    const uint64_t slice = w->bytes / (w->ne[2] ? w->ne[2] : 1), row = slice / w->ne[1];
    uint64_t most = row ? t->bytes / 2 / row / slices : 0; /* rows at a time */
    most = most ? most : 1;
    for (uint64_t done = 0; done < w->ne[1] && out->matmuls < SPEED_MATMULS;) {
        const uint64_t rows = w->ne[1] - done < most ? w->ne[1] - done : most;
        if (!add_matmul(t, (enum ggml_type)w->type, (int64_t)w->ne[0], (int64_t)rows, (int64_t)slices, expert)) {
            return;
        }
        out->matmuls++;
        out->weight_bytes += rows * row * slices;
        done += rows;
    }
}

/* A small operation, like the many between the matmuls. */
static struct ggml_tensor *add_small(struct token *t, struct ggml_cgraph *graph, bool norm) {
    struct ggml_tensor *in = input_of(t, t->width);
    struct ggml_tensor *node = !in ? NULL : norm ? ggml_rms_norm(t->ctx, in, 1e-6f) : ggml_add(t->ctx, in, in);
    if (node) {
        ggml_build_forward_expand(graph, node);
    }
    return node;
}

/* The sum over the model's weights of what a token multiplies with, bytes. */
static uint64_t active_bytes(const struct sluice_speed_params *p) {
    uint64_t sum = 0, slices;
    for (size_t i = 0; i < p->gguf->n_tensors; i++) {
        const struct sluice_gguf_tensor *t = &p->gguf->tensors[i];
        if (multiplies(p, t, &slices)) {
            sum += t->bytes / t->ne[2] * slices + SPEED_ALIGN;
        }
    }
    return sum;
}

static bool set_threads(ggml_backend_t cpu, int n) {
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(ggml_backend_get_device(cpu));
    void *p = ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads");
    ggml_backend_set_n_threads_t fn;
    if (!p) {
        return false;
    }
    memcpy(&fn, &p, sizeof fn);
    fn(cpu, n);
    return true;
}

/* Backend, pool and empty graphs. */
static int token_open(struct token *t, const struct sluice_speed_params *p, struct sluice_error *err) {
    const uint64_t active = active_bytes(p);
    const uint64_t most = p->max_bytes < SPEED_POOL_LEAST ? SPEED_POOL_LEAST : p->max_bytes;
    const size_t nodes = 2 * (size_t)SPEED_MATMULS + SPEED_OTHERS + 64; /* expert matmuls have a view of the ids each */
    t->bytes = active < most ? active : most;
    if (active == 0) {
        return sluice_fail(err, SLUICE_ERR_ARG, "it has no weights to multiply with");
    }
    t->cpu = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    if (!t->cpu || !set_threads(t->cpu, p->n_threads)) {
        return sluice_fail(err, SLUICE_ERR_LLAMA, "this llama.cpp has no CPU backend");
    }
    t->memory = mmap(NULL, t->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (t->memory == MAP_FAILED) {
        t->memory = NULL;
        return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory for made-up weights");
    }
    madvise(t->memory, t->bytes, MADV_HUGEPAGE); /* as slots and dense weights have */
    memset(t->memory, 0, t->bytes);
    t->ctx = ggml_init((struct ggml_init_params){
        .mem_size = 2 * nodes * ggml_tensor_overhead() + 2 * ggml_graph_overhead_custom(nodes, false),
        .no_alloc = true,
    });
    t->pool = ggml_backend_cpu_buffer_from_ptr(t->memory, t->bytes);
    if (!t->ctx || !t->pool) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory for made-up weights");
    }
    t->graph = ggml_new_graph_custom(t->ctx, nodes, false);
    t->start = ggml_new_graph_custom(t->ctx, 16, false);
    t->n_ids = p->info->top_k_max ? (int64_t)p->info->top_k_max : 1;
    t->ids = ggml_new_tensor_2d(t->ctx, GGML_TYPE_I32, t->n_ids, 1);
    return 0;
}

/* Fill the graphs, and give memory to what is no weight. */
static int token_build(struct token *t, const struct sluice_speed_params *p, struct sluice_speed *out,
                       struct sluice_error *err) {
    uint64_t slices;
    for (size_t i = 0; i < p->gguf->n_tensors; i++) {
        const struct sluice_gguf_tensor *w = &p->gguf->tensors[i];
        if (multiplies(p, w, &slices)) {
            t->width = t->width ? t->width : (int64_t)w->ne[0];
            add_weight(t, w, slices, sluice_info_streams(w, p->info->experts), out);
        }
    }
    if (out->matmuls == 0) {
        return sluice_fail(err, SLUICE_ERR_LLAMA, "the CPU backend cannot multiply with its types of weights");
    }
    const double computing = SPEED_COMPUTING * (p->nodes < SPEED_OTHERS ? p->nodes : SPEED_OTHERS);
    while (out->others + out->matmuls < computing && add_small(t, t->graph, out->others % 4 == 0)) {
        out->others++;
    }
    if (!add_small(t, t->start, false)) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory for a made-up token");
    }
    t->rows = ggml_backend_alloc_ctx_tensors(t->ctx, t->cpu);
    if (!t->rows) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory for a made-up token");
    }
    ggml_backend_buffer_clear(t->rows, 0);
    for (int64_t i = 0; i < t->n_ids; i++) {
        const int32_t id = (int32_t)i;
        ggml_backend_tensor_set(t->ids, &id, (size_t)i * sizeof id, sizeof id);
    }
    return 0;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Compute a graph again and again. *n of the times are in sorted[], ascending. */
static int repeat(struct token *t, struct ggml_cgraph *graph, const struct sluice_speed_params *p, double seconds,
                  uint32_t least, double sorted[SPEED_SAMPLES], uint32_t *n, struct sluice_error *err) {
    const double begin = clock_seconds();
    *n = 0;
    for (uint32_t i = 0;; i++) {
        const double start = clock_seconds();
        if (ggml_backend_graph_compute(t->cpu, graph) != GGML_STATUS_SUCCESS) {
            return sluice_fail(err, SLUICE_ERR_LLAMA, "the CPU backend did not compute a made-up token");
        }
        const double now = clock_seconds();
        if (i > 0) { /* the first one wakes threads and fills caches */
            sorted[(*n)++] = now - start;
        }
        if (p->interrupted && p->interrupted(p->user)) {
            return sluice_fail(err, SLUICE_ERR_STATE, "interrupted");
        }
        if (*n == SPEED_SAMPLES || (*n >= least && now - begin >= seconds) ||
            (*n > 0 && now - begin >= 4 * seconds && seconds > 0)) {
            break;
        }
    }
    qsort(sorted, *n, sizeof *sorted, by_value);
    return 0;
}

int sluice_speed_measure(const struct sluice_speed_params *p, struct sluice_speed *out, struct sluice_error *err) {
    struct token t = {0};
    double times[SPEED_SAMPLES];
    uint32_t n = 0;
    memset(out, 0, sizeof *out);
    int rc = token_open(&t, p, err);
    rc = rc ? rc : token_build(&t, p, out, err);
    rc = rc ? rc : repeat(&t, t.graph, p, p->seconds, SPEED_LEAST, times, &n, err);
    if (rc == 0) {
        out->token_s = times[n / 2];
        out->fastest_s = times[0];
        out->slow_s = times[n * 9 / 10];
        out->tokens = n;
        rc = repeat(&t, t.start, p, 0, SPEED_STARTS, times, &n, err);
        out->graph_s = rc ? 0 : times[n / 2];
    }
    token_free(&t);
    return rc;
}
