/*
 * selftest_static.c - the part of the self-test that needs no model: versions, numbers, fields, single nodes.
 *
 * A plug-in and its program need not have been compiled with the same headers: ggml's loader compares one
 * interface version and nothing else, and a build that links us in compares nothing. Tensors are public structs
 * whose fields we read, and operations are numbers of an enum that grows in the middle. So a tensor is made by
 * the library and looked at with our headers, and the library is asked for the names of our numbers.
 */
#include <stdatomic.h>
#include <string.h>

#include "ggml/backend.h"
#include "ggml/kernel.h"
#include "selftest/selftest_impl.h"
#include "ggml-cpu.h"
#include "cache/error.h"

/* Operations that match.c, collect.c and kernel.c know by number, and what ggml calls them. */
static const struct {
    enum ggml_op op;  /* by our headers */
    const char *name; /* by theirs */
} selftest_ops[] = {
    {GGML_OP_NONE, "NONE"},         {GGML_OP_MUL_MAT_ID, "MUL_MAT_ID"},
    {GGML_OP_MUL_MAT, "MUL_MAT"},   {GGML_OP_GLU, "GLU"},
    {GGML_OP_UNARY, "UNARY"},       {GGML_OP_MUL, "MUL"},
    {GGML_OP_ADD_ID, "ADD_ID"},     {GGML_OP_CLAMP, "CLAMP"},
    {GGML_OP_SCALE, "SCALE"},       {GGML_OP_SQR, "SQR"},
    {GGML_OP_VIEW, "VIEW"},         {GGML_OP_RESHAPE, "RESHAPE"},
    {GGML_OP_PERMUTE, "PERMUTE"},   {GGML_OP_TRANSPOSE, "TRANSPOSE"},
    {GGML_OP_GET_ROWS, "GET_ROWS"}, {GGML_OP_REPEAT, "REPEAT"},
    {GGML_OP_ARGSORT, "ARGSORT"},   {GGML_OP_CUSTOM, "CUSTOM"},
};

/* Types, the same way, with the size of their blocks. */
static const struct {
    enum ggml_type type; /* by our headers */
    const char *name;    /* by theirs */
    int64_t block;       /* values of a block */
    size_t bytes;        /* of a block */
} selftest_types[] = {
    {GGML_TYPE_F32, "f32", 1, 4},     {GGML_TYPE_I32, "i32", 1, 4},       {GGML_TYPE_I8, "i8", 1, 1},
    {GGML_TYPE_Q8_0, "q8_0", 32, 34}, {GGML_TYPE_Q4_K, "q4_K", 256, 144},
};

static enum selftest_assumption selftest_check_numbers(struct selftest *s) {
    for (size_t i = 0; i < sizeof selftest_ops / sizeof selftest_ops[0]; i++) {
        const char *name = ggml_op_name(selftest_ops[i].op);
        if (!name || strcmp(name, selftest_ops[i].name) != 0) {
            return selftest_broken(s, SELFTEST_NUMBERS, "operation %d is %s, not %s", (int)selftest_ops[i].op,
                                   name ? name : "unknown", selftest_ops[i].name);
        }
    }
    for (size_t i = 0; i < sizeof selftest_types / sizeof selftest_types[0]; i++) {
        const enum ggml_type type = selftest_types[i].type;
        const char *name = ggml_type_name(type);
        if (!name || strcmp(name, selftest_types[i].name) != 0 || ggml_blck_size(type) != selftest_types[i].block ||
            ggml_type_size(type) != selftest_types[i].bytes) {
            return selftest_broken(s, SELFTEST_NUMBERS, "type %d is %s with blocks of %zu bytes, not %s with %zu",
                                   (int)type, name ? name : "unknown", ggml_type_size(type), selftest_types[i].name,
                                   selftest_types[i].bytes);
        }
    }
    return SELFTEST_HOLDS;
}

/* Does a matmul of the library have what we put into it where we look for it? ctx has room for five tensors. */
static const char *selftest_wrong_field(struct ggml_context *ctx) {
    struct ggml_tensor *w = ggml_new_tensor_3d(ctx, GGML_TYPE_Q8_0, 64, 3, 5);
    struct ggml_tensor *in = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 64, 1, 7);
    struct ggml_tensor *all = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 5, 7);
    struct ggml_tensor *ids = ggml_view_2d(ctx, all, 2, 7, all->nb[1], 4);
    struct ggml_tensor *out = ggml_mul_mat_id(ctx, w, in, ids);
    ggml_set_name(out, "selftest");
    ggml_set_output(out);
    const bool shape = w->ne[0] == 64 && w->ne[1] == 3 && w->ne[2] == 5 && w->ne[3] == 1;
    const bool strides = w->nb[0] == 34 && w->nb[1] == 68 && w->nb[2] == 204 && w->nb[3] == 1020;
    const bool flags = (out->flags & GGML_TENSOR_FLAG_OUTPUT) && !(out->flags & GGML_TENSOR_FLAG_COMPUTE);
    const bool out_shape = out->ne[0] == 3 && out->ne[1] == 2 && out->ne[2] == 7;
    return w->type != GGML_TYPE_Q8_0 || out->type != GGML_TYPE_F32                   ? "type"
           : !shape || !out_shape                                                    ? "ne"
           : !strides                                                                ? "nb"
           : out->op != GGML_OP_MUL_MAT_ID || w->op != GGML_OP_NONE                  ? "op"
           : out->src[0] != w || out->src[1] != in || out->src[2] != ids             ? "src"
           : out->src[3] || w->src[0]                                                ? "src"
           : !flags                                                                  ? "flags"
           : ids->view_src != all || ids->view_offs != 4 || ids->nb[1] != all->nb[1] ? "view_src"
           : out->data || out->buffer || out->extra                                  ? "data"
           : strcmp(out->name, "selftest") != 0                                      ? "name"
                                                                                     : NULL;
}

static enum selftest_assumption selftest_check_layout(struct selftest *s) {
    /* A tensor has a header before it, of 32 bytes up to now; the struct itself must not be larger than the rest. */
    const size_t own = sizeof(struct ggml_tensor), theirs = ggml_tensor_overhead();
    if (theirs < own || theirs - own > 64) {
        return selftest_broken(s, SELFTEST_LAYOUT, "a tensor takes %zu bytes with its header, ours %zu without", theirs,
                               own);
    }
    const struct ggml_init_params params = {8 * theirs, NULL, true};
    struct ggml_context *ctx = ggml_init(params);
    if (!ctx) {
        sluice_fail(s->err, SLUICE_ERR_MEMORY, "out of memory");
        return SELFTEST_HOLDS;
    }
    const char *wrong = selftest_wrong_field(ctx);
    ggml_free(ctx);
    return wrong ? selftest_broken(s, SELFTEST_LAYOUT, "field %s of a tensor", wrong) : SELFTEST_HOLDS;
}

static enum selftest_assumption selftest_check_services(struct selftest *s, ggml_backend_reg_t reg,
                                                        ggml_backend_set_n_threads_t *set_threads) {
    void *p = ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads");
    if (!p) {
        return selftest_broken(s, SELFTEST_SERVICES, "ggml_backend_set_n_threads is not there");
    }
    memcpy(set_threads, &p, sizeof p);
    if (s->kernel && !kernel_find_traits(s->cpu)) {
        return selftest_broken(s, SELFTEST_SERVICES, "ggml_get_type_traits_cpu is not there");
    }
    return SELFTEST_HOLDS;
}

/* What the threads of a custom node saw. */
struct selftest_threads {
    _Atomic uint32_t calls[64]; /* by the thread's number */
    _Atomic uint32_t strange;   /* calls with numbers that cannot be */
    _Atomic uint32_t count;     /* threads that there are, as each was told; they must agree */
};

static void selftest_custom_node(struct ggml_tensor *dst, int ith, int nth, void *userdata) {
    (void)dst;
    struct selftest_threads *t = userdata;
    uint32_t none = 0;
    if (ith < 0 || ith >= nth || nth > 64) {
        atomic_fetch_add(&t->strange, 1);
        return;
    }
    if (!atomic_compare_exchange_strong(&t->count, &none, (uint32_t)nth) && none != (uint32_t)nth) {
        atomic_fetch_add(&t->strange, 1);
    }
    atomic_fetch_add(&t->calls[ith], 1);
}

/* Two custom nodes, of which one is flagged for computation. */
static enum selftest_assumption selftest_check_nodes(struct selftest *s) {
    const struct ggml_init_params params = {4 * ggml_tensor_overhead() + ggml_graph_overhead_custom(4, false) + 1024,
                                            NULL, true};
    struct selftest_threads flagged = {0}, other = {0};
    float data[2] = {0, 0};
    struct ggml_context *ctx = ggml_init(params);
    if (!ctx) {
        sluice_fail(s->err, SLUICE_ERR_MEMORY, "out of memory");
        return SELFTEST_HOLDS;
    }
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 4, false);
    struct selftest_threads *who[2] = {&other, &flagged};
    for (int i = 0; i < 2; i++) {
        struct ggml_tensor *t =
            ggml_custom_4d(ctx, GGML_TYPE_F32, 1, 1, 1, 1, NULL, 0, selftest_custom_node, GGML_N_TASKS_MAX, who[i]);
        t->data = &data[i];
        t->flags |= i ? GGML_TENSOR_FLAG_COMPUTE : 0;
        ggml_graph_add_node(graph, t);
    }
    const enum ggml_status status = ggml_backend_graph_compute(s->cpu, graph);
    ggml_free(ctx);
    if (status != GGML_STATUS_SUCCESS) {
        return selftest_broken(s, SELFTEST_CUSTOM, "a graph of custom nodes ends with status %d", (int)status);
    }
    if (atomic_load(&other.count)) {
        return selftest_broken(s, SELFTEST_FLAGS, "a node without the compute flag is computed");
    }
    if (!atomic_load(&flagged.count)) {
        return selftest_broken(s, SELFTEST_FLAGS, "a node with the compute flag is not computed");
    }
    uint32_t once = 0;
    for (uint32_t i = 0; i < atomic_load(&flagged.count); i++) {
        once += atomic_load(&flagged.calls[i]) == 1;
    }
    if (atomic_load(&flagged.strange) || once != atomic_load(&flagged.count)) {
        return selftest_broken(s, SELFTEST_CUSTOM, "%u of %u threads called it once", once,
                               atomic_load(&flagged.count));
    }
    return SELFTEST_HOLDS;
}

enum selftest_assumption selftest_check_static(struct selftest *s) {
    const ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(ggml_backend_get_device(s->cpu));
    if (backend_api_version(reg) != backend_api_ours()) {
        return selftest_broken(s, SELFTEST_API, "it is %d, ours %d", backend_api_version(reg), backend_api_ours());
    }
    enum selftest_assumption a = selftest_check_numbers(s);
    if (a == SELFTEST_HOLDS) {
        a = selftest_check_layout(s);
    }
    if (a == SELFTEST_HOLDS && s->err->status == SLUICE_OK) {
        ggml_backend_set_n_threads_t set_threads = NULL;
        a = selftest_check_services(s, reg, &set_threads);
        if (a == SELFTEST_HOLDS) {
            set_threads(s->cpu, SELFTEST_THREADS);
            a = selftest_check_nodes(s);
            set_threads(s->cpu, SELFTEST_THREADS_BLOCK);
        }
    }
    return a;
}
