/*
 * hostile-ids FILE [plain] - the numbers of experts that reach the backend as a tensor, whatever they are.
 *
 * A router may pick an expert twice for a token, and one whose weights are not numbers may pick anything: ids are the
 * output of a computation on untrusted weights, or a table in the file. So ids are made up here, and a block is given
 * to the registered device by ggml's own scheduler, as llama.cpp would. Numbers that name an expert must give the bytes
 * that the CPU backend gives; one that does not must end the computation with an error that says so, and leave
 * everything as usable as it was. What lies beside the chosen ids in their rows is never looked at, so it is never
 * sound.
 *
 * FILE is where the experts are written; settings come from the environment. With `plain` it does not look like a model
 * file, so the weights do not stream: then they are computed from memory, and ids are checked all the same.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "sluice.h"

enum { EMBD = 48, FF = 40, MATS = 3, NODES = 64, HEAD = 64 }; /* HEAD: bytes before the weights */

/* The weights on one side. */
struct side {
    struct ggml_context *ctx;    /* holds them */
    struct ggml_tensor *w[MATS]; /* gate, up, down */
};

/* A block of experts, on both sides. */
struct block {
    int64_t experts, k, tokens; /* experts, experts of a token, tokens */
    char *memory;               /* the weights, a copy that stays readable */
    char *map;                  /* the file, mapped */
    size_t bytes;               /* of either */
    struct side stock, ours;    /* their tensors, over the copy and over the file */
    uint32_t rng;               /* of all numbers */
};

/* A graph of it. */
struct graph {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *x, *all, *weights, *out; /* inputs; output */
};

static int failures;
static bool plain; /* the weights do not stream */

static void fail(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    printf("FAIL ");
    vprintf(fmt, args);
    putchar('\n');
    va_end(args);
    failures++;
}

static void die(const char *why) {
    fprintf(stderr, "hostile-ids: %s\n", why);
    exit(2);
}

static uint32_t next(struct block *b) {
    b->rng ^= b->rng << 13;
    b->rng ^= b->rng >> 17;
    b->rng ^= b->rng << 5;
    return b->rng;
}

static float uniform(struct block *b) {
    return (float)(next(b) >> 8) / (float)(1 << 23) - 1.0f;
}

static size_t slice(void) {
    return (size_t)EMBD * FF * sizeof(float);
}

/* Make the weights, and the file with them. */
static void make_weights(struct block *b, const char *path) {
    b->bytes = slice() * (size_t)b->experts * MATS;
    b->memory = aligned_alloc(64, (b->bytes + 63) / 64 * 64);
    if (!b->memory) {
        die("no memory");
    }
    for (size_t i = 0; i < b->bytes; i += sizeof(float)) {
        const float v = uniform(b);
        memcpy(b->memory + i, &v, sizeof v);
    }
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    const char head[HEAD] = {plain ? 'X' : 'G', 'G', 'U', 'F'};
    if (fd < 0 || write(fd, head, HEAD) != HEAD || write(fd, b->memory, b->bytes) != (ssize_t)b->bytes) {
        die("the file cannot be written");
    }
    b->map = mmap(NULL, HEAD + b->bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (b->map == MAP_FAILED) {
        die("the file cannot be mapped");
    }
    close(fd);
}

static struct ggml_tensor *new_weight(struct ggml_context *ctx, const struct block *b, int m) {
    static const char *const name[MATS] = {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight",
                                           "blk.0.ffn_down_exps.weight"};
    struct ggml_tensor *w = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, m == 2 ? FF : EMBD, m == 2 ? EMBD : FF, b->experts);
    ggml_set_name(w, name[m]);
    return w;
}

/* Weights in a buffer from `base`. */
static struct side make_side(const struct block *b, ggml_backend_buffer_t buffer, char *base) {
    struct side s = {.ctx = ggml_init((struct ggml_init_params){4 * ggml_tensor_overhead(), NULL, true})};
    for (int m = 0; m < MATS; m++) {
        s.w[m] = new_weight(s.ctx, b, m);
        if (ggml_backend_tensor_alloc(buffer, s.w[m], base + (size_t)m * slice() * (size_t)b->experts) !=
            GGML_STATUS_SUCCESS) {
            die("a weight was refused");
        }
    }
    return s;
}

/* The block on them. */
static struct graph make_graph(const struct block *b, const struct side *s) {
    struct graph g = {
        .ctx = ggml_init((struct ggml_init_params){
            NODES * ggml_tensor_overhead() + ggml_graph_overhead_custom(NODES, false) + 1024, NULL, true})};
    struct ggml_context *ctx = g.ctx;
    g.graph = ggml_new_graph_custom(ctx, NODES, false);
    g.x = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, EMBD, 1, b->tokens);
    g.all = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, b->k + 5, b->tokens); /* rows longer than what is chosen of them */
    g.weights = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 1, b->k, b->tokens);
    ggml_set_input(g.x);
    ggml_set_input(g.all);
    ggml_set_input(g.weights);
    struct ggml_tensor *ids = ggml_view_2d(ctx, g.all, b->k, b->tokens, g.all->nb[1], 0);
    struct ggml_tensor *up = ggml_mul_mat_id(ctx, s->w[1], g.x, ids), *gate = ggml_mul_mat_id(ctx, s->w[0], g.x, ids);
    g.out = ggml_mul(ctx, ggml_mul_mat_id(ctx, s->w[2], ggml_swiglu_split(ctx, gate, up), ids), g.weights);
    g.out = ggml_cont(ctx, g.out);
    ggml_set_output(g.out);
    ggml_build_forward_expand(g.graph, g.out);
    return g;
}

static void set_inputs(const struct graph *g, const float *x, const int32_t *all, const float *weights) {
    ggml_backend_tensor_set(g->x, x, 0, ggml_nbytes(g->x));
    ggml_backend_tensor_set(g->all, all, 0, ggml_nbytes(g->all));
    ggml_backend_tensor_set(g->weights, weights, 0, ggml_nbytes(g->weights));
}

/* What the weights are offered as while llama.cpp loads; then they are put into a buffer over the file. */
static ggml_backend_buffer_t offer(const struct block *b, ggml_backend_dev_t dev) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){16 * ggml_tensor_overhead(), NULL, true});
    ggml_backend_buffer_t empty = ggml_backend_buft_alloc_buffer(ggml_backend_dev_buffer_type(dev), 0);
    for (int m = 0; m < MATS; m++) {
        struct ggml_tensor *w = new_weight(ctx, b, m);
        struct ggml_tensor *in = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, w->ne[0], b->k, 512);
        w->buffer = empty;
        if (!ggml_backend_dev_supports_op(
                dev, ggml_mul_mat_id(ctx, w, in, ggml_new_tensor_2d(ctx, GGML_TYPE_I32, b->k, 512)))) {
            die("the device does not want the weights");
        }
    }
    ggml_backend_buffer_free(empty);
    ggml_free(ctx);
    ggml_backend_buffer_t buffer = ggml_backend_dev_buffer_from_host_ptr(dev, b->map + HEAD, b->bytes, b->bytes);
    if (!buffer) {
        die("the device does not take the file");
    }
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    return buffer;
}

/* One choice of ids, with both sides set up for its shape. */
struct pair {
    struct block *b;
    ggml_backend_t cpu;
    ggml_backend_sched_t sched;
    struct graph stock, ours;
    float *x, *weights, *want, *got;
    int32_t *all;
};

/* Numbers that no ids are, beside those that are. */
static void fill_rest(struct pair *p) {
    const int64_t row = p->b->k + 5;
    for (int64_t t = 0; t < p->b->tokens; t++) {
        for (int64_t i = p->b->k; i < row; i++) {
            p->all[t * row + i] = i % 2 ? INT32_MAX : -1 - (int32_t)i;
        }
    }
}

static int32_t *id(struct pair *p, int64_t token, int64_t rank) {
    return &p->all[token * (p->b->k + 5) + rank];
}

/* The bytes must be the CPU backend's. */
static void same(struct pair *p, const char *what) {
    const size_t bytes = ggml_nbytes(p->stock.out);
    fill_rest(p);
    set_inputs(&p->stock, p->x, p->all, p->weights);
    set_inputs(&p->ours, p->x, p->all, p->weights);
    if (ggml_backend_graph_compute(p->cpu, p->stock.graph) != GGML_STATUS_SUCCESS) {
        die("the CPU backend does not compute");
    }
    memset(p->got, 0xff, bytes);
    const enum ggml_status status = ggml_backend_sched_graph_compute(p->sched, p->ours.graph);
    ggml_backend_tensor_get(p->stock.out, p->want, 0, bytes);
    struct sluice_error err = {0};
    if (status == GGML_STATUS_SUCCESS) {
        ggml_backend_tensor_get(p->ours.out, p->got, 0, bytes);
    } else {
        sluice_take_error(&err);
    }
    if (status != GGML_STATUS_SUCCESS || memcmp(p->got, p->want, bytes) != 0) {
        fail("%s: %" PRId64 " experts, %" PRId64 " of %" PRId64 " tokens: %s", what, p->b->experts, p->b->k,
             p->b->tokens, status == GGML_STATUS_SUCCESS ? "other bytes" : err.message);
    }
}

/* The computation must end with an error that names the number. */
static void refused(struct pair *p, const char *what, int32_t bad) {
    char number[32];
    struct sluice_error err = {0};
    snprintf(number, sizeof number, "picked expert %d ", bad);
    fill_rest(p);
    set_inputs(&p->ours, p->x, p->all, p->weights);
    const enum ggml_status status = ggml_backend_sched_graph_compute(p->sched, p->ours.graph);
    if (status == GGML_STATUS_SUCCESS || !sluice_take_error(&err) || !strstr(err.message, number)) {
        fail("%s: expert %d of %" PRId64 ": status %d, %s", what, bad, p->b->experts, (int)status, err.message);
    }
}

static void try_shape(struct block *b, ggml_backend_t cpu, ggml_backend_t ours, int64_t k, int64_t tokens) {
    ggml_backend_t backends[2] = {ours, cpu};
    struct pair p = {.b = b, .cpu = cpu};
    b->k = k;
    b->tokens = tokens;
    p.stock = make_graph(b, &b->stock);
    p.ours = make_graph(b, &b->ours);
    ggml_backend_buffer_t rest = ggml_backend_alloc_ctx_tensors(p.stock.ctx, cpu);
    p.sched = ggml_backend_sched_new(backends, NULL, 2, NODES, false, true);
    const size_t out = ggml_nbytes(p.stock.out);
    p.x = malloc(ggml_nbytes(p.stock.x));
    p.weights = malloc(ggml_nbytes(p.stock.weights));
    p.all = malloc(ggml_nbytes(p.stock.all));
    p.want = malloc(out);
    p.got = malloc(out);
    if (!rest || !p.sched || !ggml_backend_sched_alloc_graph(p.sched, p.ours.graph) || !p.x || !p.weights || !p.all ||
        !p.want || !p.got) {
        die("no memory");
    }
    for (int64_t i = 0; i < EMBD * tokens; i++) {
        p.x[i] = uniform(b);
    }
    for (int64_t i = 0; i < k * tokens; i++) {
        p.weights[i] = uniform(b);
    }
    const int32_t last = (int32_t)b->experts - 1, bad[] = {-1, last + 1, INT32_MIN, INT32_MAX, -last - 1, 65536 * 16};
    for (int round = 0; round < 3; round++) {
        for (int64_t t = 0; t < tokens; t++) { /* distinct ones, as long as there are some: a step that meets all */
            const int32_t from = (int32_t)(next(b) % (uint32_t)b->experts);
            for (int64_t r = 0; r < k; r++) {
                *id(&p, t, r) = (int32_t)((from + r) % b->experts);
            }
        }
        same(&p, "distinct");
        const size_t n = sizeof bad / sizeof bad[0];
        for (size_t i = 0; i < n; i++) {
            int32_t *at = id(&p, (int64_t)(next(b) % (uint32_t)tokens), (int64_t)(next(b) % (uint32_t)k));
            const int32_t before = *at;
            *at = bad[i];
            refused(&p, "out of range", bad[i]);
            *at = before;
        }
        same(&p, "after refusals");
        for (int64_t t = 0; t < tokens; t++) {
            for (int64_t r = 0; r < k; r++) {
                *id(&p, t, r) = (int32_t)(next(b) % (uint32_t)b->experts) / (1 + round);
            }
            *id(&p, t, k - 1) = *id(&p, t, 0);
        }
        same(&p, "repeated");
        for (int64_t i = 0; i < tokens * k; i++) {
            *id(&p, i / k, i % k) = round ? last : 0;
        }
        same(&p, "all the same");
    }
    ggml_backend_sched_free(p.sched);
    ggml_backend_buffer_free(rest);
    ggml_free(p.stock.ctx);
    ggml_free(p.ours.ctx);
    free(p.x);
    free(p.weights);
    free(p.all);
    free(p.want);
    free(p.got);
}

static void try_experts(const char *path, ggml_backend_dev_t dev, int64_t experts, const int64_t *k, int n_k,
                        int64_t tokens) {
    struct block b = {.experts = experts, .k = k[0], .rng = 0x12345679u + (uint32_t)experts};
    make_weights(&b, path);
    ggml_backend_buffer_t buffer = offer(&b, dev), copy = ggml_backend_cpu_buffer_from_ptr(b.memory, b.bytes);
    ggml_backend_t ours = ggml_backend_dev_init(dev, NULL);
    ggml_backend_t cpu = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    b.stock = make_side(&b, copy, b.memory);
    b.ours = make_side(&b, buffer, b.map + HEAD);
    struct sluice_stats st;
    sluice_get_stats(&st);
    if (st.tensors != (plain ? 0 : MATS)) {
        die(plain ? "the weights stream" : "the weights do not stream");
    }
    if (!ours || !cpu || !copy) {
        die("no backend");
    }
    for (int i = 0; i < n_k; i++) {
        try_shape(&b, cpu, ours, k[i], 1);
        try_shape(&b, cpu, ours, k[i], tokens);
    }
    ggml_free(b.stock.ctx);
    ggml_free(b.ours.ctx);
    ggml_backend_free(ours);
    ggml_backend_free(cpu);
    ggml_backend_buffer_free(buffer);
    ggml_backend_buffer_free(copy);
    munmap(b.map, HEAD + b.bytes);
    free(b.memory);
    unlink(path);
    printf("%s %" PRId64 " experts\n", failures ? "FAIL" : "ok  ", experts);
}

int main(int argc, char **argv) {
    static const int64_t few[] = {1, 2, 3, 8, 11}, many[] = {1, 8, 200};
    struct sluice_settings s;
    struct sluice_error err;
    plain = argc == 3 && strcmp(argv[2], "plain") == 0;
    if (argc != (plain ? 3 : 2)) {
        fprintf(stderr, "usage: hostile-ids FILE [plain]\n");
        return 2;
    }
    sluice_settings_default(&s);
    if (sluice_settings_from_env(&s, &err) || sluice_register(&s, &err)) {
        die(err.message);
    }
    ggml_backend_dev_t dev = ggml_backend_dev_by_name("SLUICE");
    if (!dev) {
        die("no device");
    }
    try_experts(argv[1], dev, 8, few, 5, 7);
    try_experts(argv[1], dev, 2, few, 2, 5);
    try_experts(argv[1], dev, 1024, many, 3, 6);
    try_experts(argv[1], dev, 1100, many, 3, 9); /* more than the kernel takes */
    return failures ? 1 : 0;
}
