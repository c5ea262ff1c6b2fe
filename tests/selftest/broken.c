/*
 * broken.c - a ggml that breaks one assumption: preloaded into a program.
 *
 * Every assumption that src/selftest/assumption.h names is broken by a function of ggml's that stands before the
 * library's and lies in that one respect. BROKEN names it; without it, all calls pass through. Some can break in more
 * than one direction: NAME-2 is the other. `contiguous` breaks nothing: ids that are packed are no less right.
 *
 * That a check finds nothing in a sound library proves nothing; with this library a test sees that it would.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-backend.h"
#include "ggml.h"

#define EXPORT __attribute__((visibility("default")))

static bool broken(const char *what) {
    const char *mode = getenv("BROKEN");
    return mode && strcmp(mode, what) == 0;
}

/* ggml's own function of that name, into a function pointer. */
static void real(const char *name, void *fn) {
    void *p = dlsym(RTLD_NEXT, name);
    if (!p) {
        fprintf(stderr, "broken: no function %s behind this one\n", name);
        abort();
    }
    memcpy(fn, &p, sizeof p);
}

/* ---- what a look tells ---- */

EXPORT ggml_backend_reg_t ggml_backend_dev_backend_reg(ggml_backend_dev_t dev) {
    static struct {
        int version;
        char rest[256];
    } copy;
    ggml_backend_reg_t (*fn)(ggml_backend_dev_t);
    real("ggml_backend_dev_backend_reg", &fn);
    ggml_backend_reg_t reg = fn(dev);
    if (!broken("api") || !reg) {
        return reg;
    }
    memcpy(&copy, (const void *)reg, 64); /* the struct, and maybe a little of what follows */
    copy.version++;
    return (ggml_backend_reg_t)&copy;
}

EXPORT size_t ggml_tensor_overhead(void) {
    size_t (*fn)(void);
    real("ggml_tensor_overhead", &fn);
    return fn() + (broken("layout") ? 128 : 0);
}

EXPORT void ggml_set_output(struct ggml_tensor *t) {
    void (*fn)(struct ggml_tensor *);
    real("ggml_set_output", &fn);
    fn(t);
    if (broken("layout-2")) { /* as if flags were where op_params is */
        t->op_params[0] = t->flags;
        t->flags = 0;
    }
}

EXPORT const char *ggml_op_name(enum ggml_op op) {
    const char *(*fn)(enum ggml_op);
    real("ggml_op_name", &fn);
    return fn(broken("numbers") && op > GGML_OP_MUL_MAT ? op + 1 : op); /* one was added in the middle */
}

EXPORT const char *ggml_type_name(enum ggml_type type) {
    const char *(*fn)(enum ggml_type);
    real("ggml_type_name", &fn);
    return fn(broken("numbers-2") && type == GGML_TYPE_Q4_K ? GGML_TYPE_Q5_K : type);
}

EXPORT void *ggml_backend_reg_get_proc_address(ggml_backend_reg_t reg, const char *name) {
    void *(*fn)(ggml_backend_reg_t, const char *);
    real("ggml_backend_reg_get_proc_address", &fn);
    return broken("services") && strcmp(name, "ggml_backend_set_n_threads") == 0 ? NULL : fn(reg, name);
}

EXPORT void ggml_backend_buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    void (*fn)(ggml_backend_buffer_t, uint8_t);
    real("ggml_backend_buffer_clear", &fn);
    if (!broken("vtables")) { /* else the call goes nowhere */
        fn(buffer, value);
    }
}

/* ---- what computes ---- */

static struct {
    ggml_custom_op_t fun; /* the node's */
    void *ud;             /* its data */
} customs[64];
static _Atomic unsigned customs_used;

/* Calls the node's function twice from the first thread. */
static void twice(struct ggml_tensor *dst, int ith, int nth, void *ud) {
    const size_t i = (size_t)(uintptr_t)ud;
    customs[i].fun(dst, ith, nth, customs[i].ud);
    if (ith == 0) {
        customs[i].fun(dst, ith, nth, customs[i].ud);
    }
}

EXPORT struct ggml_tensor *ggml_custom_4d(struct ggml_context *ctx, enum ggml_type type, int64_t ne0, int64_t ne1,
                                          int64_t ne2, int64_t ne3, struct ggml_tensor **args, int n_args,
                                          ggml_custom_op_t fun, int n_tasks, void *userdata) {
    struct ggml_tensor *(*fn)(struct ggml_context *, enum ggml_type, int64_t, int64_t, int64_t, int64_t,
                              struct ggml_tensor **, int, ggml_custom_op_t, int, void *);
    real("ggml_custom_4d", &fn);
    if (broken("custom")) {
        const unsigned i = atomic_fetch_add(&customs_used, 1) % 64;
        customs[i].fun = fun;
        customs[i].ud = userdata;
        fun = twice;
        userdata = (void *)(uintptr_t)i;
    }
    return fn(ctx, type, ne0, ne1, ne2, ne3, args, n_args, fun, n_tasks, userdata);
}

static void flip(struct ggml_tensor *t) {
    if (t->data && ggml_nelements(t) > 0) {
        ((unsigned char *)t->data)[0] ^= 1; /* the last bit of the first value */
    }
}

EXPORT enum ggml_status ggml_backend_graph_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    enum ggml_status (*fn)(ggml_backend_t, struct ggml_cgraph *);
    real("ggml_backend_graph_compute", &fn);
    const int n = ggml_graph_n_nodes(graph);
    bool sorts = false, multiplies = false;
    for (int i = 0; i < n; i++) {
        struct ggml_tensor *t = ggml_graph_node(graph, i);
        t->flags |= broken("flags") ? GGML_TENSOR_FLAG_COMPUTE : 0;
        t->flags &= broken("flags-2") ? ~GGML_TENSOR_FLAG_COMPUTE : -1;
        sorts = sorts || t->op == GGML_OP_ARGSORT;
        multiplies = multiplies || t->op == GGML_OP_MUL_MAT_ID;
    }
    const enum ggml_status status = fn(backend, graph);
    for (int i = 0; i < n; i++) {
        struct ggml_tensor *t = ggml_graph_node(graph, i);
        const bool matmul = t->op == GGML_OP_MUL_MAT_ID;
        if (broken("cut") && sorts && multiplies && (t->flags & GGML_TENSOR_FLAG_OUTPUT)) {
            flip(t); /* a fusion over the whole block */
        } else if (broken("rows") && matmul && t->src[0]->ne[2] == 1 && t->ne[2] > 1) {
            flip(t); /* several rows of one expert, without the others */
        } else if (broken("rows-2") && matmul && t->src[0]->ne[2] == 1 && t->ne[2] == 1) {
            flip(t); /* one row */
        } else if (broken("strides-2") && matmul && t->src[2]->op == GGML_OP_CONT) {
            flip(t); /* another result by packed ids */
        }
    }
    return status;
}

/* The dot products of the CPU backend, another for who takes them out of its table. */
static bool outsider(const void *caller) {
    Dl_info info;
    return dladdr(caller, &info) && info.dli_fname && !strstr(info.dli_fname, "libggml-cpu");
}

#define VEC_DOT(name, mode)                                                                                            \
    EXPORT void name(int n, float *s, size_t bs, const void *x, size_t bx, const void *y, size_t by, int nrc);         \
    EXPORT void name(int n, float *s, size_t bs, const void *x, size_t bx, const void *y, size_t by, int nrc) {        \
        void (*fn)(int, float *, size_t, const void *, size_t, const void *, size_t, int);                             \
        real(#name, &fn);                                                                                              \
        fn(n, s, bs, x, bx, y, by, nrc);                                                                               \
        if (broken(mode) && outsider(__builtin_return_address(0))) {                                                   \
            *(unsigned char *)s ^= 1;                                                                                  \
        }                                                                                                              \
    }
VEC_DOT(ggml_vec_dot_q4_K_q8_K, "kernel")
VEC_DOT(ggml_vec_dot_q8_0_q8_0, "kernel-2")

EXPORT struct ggml_tensor *ggml_argsort_top_k(struct ggml_context *ctx, struct ggml_tensor *a, int k) {
    struct ggml_tensor *(*fn)(struct ggml_context *, struct ggml_tensor *, int);
    real("ggml_argsort_top_k", &fn);
    struct ggml_tensor *t = fn(ctx, a, k);
    if (broken("strides")) { /* as if the rows of the view lay back to back */
        return ggml_view_2d(ctx, t->view_src, k, t->ne[1], (size_t)k * sizeof(int32_t), 0);
    }
    return broken("contiguous") ? ggml_cont(ctx, t) : t;
}

/* ---- the scheduler ---- */

static bool is_cpu(ggml_backend_t backend) {
    return ggml_backend_dev_type(ggml_backend_get_device(backend)) == GGML_BACKEND_DEVICE_TYPE_CPU;
}

EXPORT bool ggml_backend_supports_op(ggml_backend_t backend, const struct ggml_tensor *op) {
    bool (*fn)(ggml_backend_t, const struct ggml_tensor *);
    real("ggml_backend_supports_op", &fn);
    if (!is_cpu(backend)) {
        if (broken("asked") && op->op == GGML_OP_MUL_MAT) {
            return false; /* answered for the device */
        }
        if (broken("split") && op->op == GGML_OP_GLU) {
            return false; /* the activation goes to the CPU: our block in two */
        }
        if (broken("offload") && op->op == GGML_OP_MUL_MAT) {
            fn(backend, op);
            return true; /* matmuls on others' weights come to us */
        }
        if (broken("offload-2") && op->op == GGML_OP_MUL_MAT_ID) {
            return false; /* and ours go elsewhere */
        }
    }
    return fn(backend, op);
}

EXPORT bool ggml_backend_supports_buft(ggml_backend_t backend, ggml_backend_buffer_type_t buft) {
    bool (*fn)(ggml_backend_t, ggml_backend_buffer_type_t);
    real("ggml_backend_supports_buft", &fn);
    ggml_backend_dev_t dev = ggml_backend_buft_get_device(buft);
    const bool foreign = broken("host") && !is_cpu(backend) && dev != ggml_backend_get_device(backend);
    return fn(backend, buft) && !foreign; /* inputs from the CPU are copied */
}

EXPORT ggml_backend_sched_t ggml_backend_sched_new(ggml_backend_t *backends, ggml_backend_buffer_type_t *bufts, int n,
                                                   size_t size, bool parallel, bool op_offload) {
    ggml_backend_sched_t (*fn)(ggml_backend_t *, ggml_backend_buffer_type_t *, int, size_t, bool, bool);
    real("ggml_backend_sched_new", &fn);
    for (int i = 0; i < n && broken("shown"); i++) {
        /* struct ggml_backend: the functions end with graph_optimize, then comes the device. */
        void **field = (void **)backends[i];
        for (int k = 1; k < 32 && !is_cpu(backends[i]); k++) {
            if (field[k] == (void *)ggml_backend_get_device(backends[i])) {
                field[k - 1] = NULL;
                break;
            }
        }
    }
    return fn(backends, bufts, n, size, parallel, op_offload);
}

EXPORT enum ggml_status ggml_backend_sched_graph_compute(ggml_backend_sched_t sched, struct ggml_cgraph *graph) {
    enum ggml_status (*fn)(ggml_backend_sched_t, struct ggml_cgraph *);
    real("ggml_backend_sched_graph_compute", &fn);
    const enum ggml_status status = fn(sched, graph);
    return broken("failure") ? GGML_STATUS_SUCCESS : status;
}
