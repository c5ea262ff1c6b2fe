/*
 * kernel.c - decoding one token: wait inside the computation, not between computations.
 *
 * The reference path (block.c) makes a stock MUL_MAT_ID of every expert and runs a graph whenever
 * it must wait. Each run wakes and joins all compute threads, and a whole expert arrives before a
 * row of it is computed. Here the experts of a token are one ggml node on the CPU backend's own
 * threads. Every thread takes chunks of rows from experts that are ready, in the order in which
 * they become ready, and sleeps only when nothing is. Gate and up, which share their input, are one
 * node, and the input is converted once for all experts instead of once for each. A block is one
 * graph, whatever is missing.
 *
 * Same bytes: a row's result is ggml's vec_dot of that type on the same converted input, computed
 * whole by one thread, as in the stock node; which thread does it, and when, does not matter.
 *
 * Threads that wait sleep (stream/event.c): a spinning one would take the core of a reader. While one
 * waits and another computes, the read is hidden; what counts as stall is the time in which all wait
 * (stream/idle.h). No thread leaves this node while a part is outstanding, so all means all.
 */
#include "backend/kernel.h"

#include <dlfcn.h>
#include <string.h>

#include "stream/clock.h"

enum { KERNEL_CHUNK = 64 }; /* rows taken at a time, as in ggml's own kernel for one column */

kernel_traits_fn kernel_find_traits(ggml_backend_t cpu) {
    /* The CPU backend may be a library that was loaded privately: ask that library, not the process. */
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(ggml_backend_get_device(cpu));
    void *inside = ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads");
    Dl_info info;
    kernel_traits_fn fn = NULL;
    if (inside && dladdr(inside, &info) && info.dli_fname) {
        void *lib = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        if (lib) {
            void *p = dlsym(lib, "ggml_get_type_traits_cpu");
            memcpy(&fn, &p, sizeof fn);
            dlclose(lib); /* only drops our reference: ggml keeps the library */
        }
    }
    return fn;
}

enum ggml_type kernel_row_type(kernel_traits_fn traits, const struct ggml_tensor *node) {
    const struct ggml_tensor *w = node->src[0], *in = node->src[1];
    const struct ggml_type_traits_cpu *t = traits(w->type);
    if (!t || !t->vec_dot || in->nb[0] != sizeof(float) || node->nb[0] != sizeof(float)) {
        return GGML_TYPE_COUNT;
    }
    if (t->vec_dot_type != in->type && !traits(t->vec_dot_type)->from_float) {
        return GGML_TYPE_COUNT;
    }
    return in->ne[0] % ggml_blck_size(t->vec_dot_type) == 0 ? t->vec_dot_type : GGML_TYPE_COUNT;
}

/* The node that converts the input: threads share each row's blocks, as ggml does. */
static void kernel_convert(struct ggml_tensor *dst, int ith, int nth, void *userdata) {
    (void)dst;
    const struct kernel_job *j = userdata;
    const struct ggml_tensor *in = j->node[0]->src[1];
    const enum ggml_type type = j->traits->vec_dot_type;
    const int64_t block = ggml_blck_size(type), blocks = in->ne[0] / block;
    const int64_t from = blocks * ith / nth, to = blocks * (ith + 1) / nth;
    for (int64_t r = 0; r < in->ne[1] && from < to; r++) {
        j->convert((const float *)((const char *)in->data + (size_t)r * in->nb[1]) + from * block,
                   j->rows + (size_t)r * j->row_bytes + (size_t)from * ggml_type_size(type), (to - from) * block);
    }
}

/* Chunks of rows of matrix m for rank k, until another thread took the last. */
static void kernel_rows(struct kernel_job *j, int m, int k) {
    const struct ggml_tensor *node = j->node[m], *w = node->src[0], *in = node->src[1];
    const char *weights = engine_part_data(j->engine, j->slot[k], j->part[m]);
    const char *row = j->rows + (size_t)(k % in->ne[1]) * j->row_bytes;
    float *out = (float *)((char *)node->data + (size_t)k * node->nb[1]);
    const int n = (int)w->ne[0];
    for (;;) {
        const int64_t from =
            (int64_t)atomic_fetch_add_explicit(&j->next[m * KERNEL_RANKS + k], 1, memory_order_relaxed) * KERNEL_CHUNK;
        if (from >= w->ne[1]) {
            return;
        }
        const int64_t to = from + KERNEL_CHUNK < w->ne[1] ? from + KERNEL_CHUNK : w->ne[1];
        for (int64_t r = from; r < to; r++) {
            j->traits->vec_dot(n, out + r, 0, weights + (size_t)r * w->nb[1], 0, row, 0, 1);
        }
    }
}

/* The node that multiplies. */
static void kernel_multiply(struct ggml_tensor *dst, int ith, int nth, void *userdata) {
    (void)dst;
    (void)ith;
    struct kernel_job *j = userdata;
    uint64_t left[KERNEL_MATS]; /* ranks whose chunks are not all taken, as far as this thread knows */
    for (int m = 0; m < j->n_mats; m++) {
        left[m] = j->K == 64 ? UINT64_MAX : ((uint64_t)1 << j->K) - 1;
    }
    for (;;) {
        const uint32_t seen = engine_seen(j->engine);
        bool waiting = false, worked = false;
        for (int m = 0; m < j->n_mats; m++) {
            for (int k = 0; k < j->K; k++) {
                if (!(left[m] >> k & 1)) {
                    continue;
                }
                const enum part_state state = engine_part_state(j->engine, j->slot[k], j->part[m]);
                if (state == PART_READY) {
                    kernel_rows(j, m, k);
                    left[m] &= ~((uint64_t)1 << k);
                    worked = true;
                } else if (state == PART_FAILED) {
                    atomic_store_explicit(&j->failed, true, memory_order_relaxed);
                    return;
                } else {
                    waiting = true;
                }
            }
        }
        if (!waiting) {
            return;
        }
        if (!worked) {
            idle_enter(j->idle, nth, clock_seconds());
            engine_wait(j->engine, seen);
            idle_leave(j->idle, nth, clock_seconds());
        }
    }
}

void kernel_add(struct ggml_context *ctx, struct ggml_cgraph *graph, struct kernel_job *job) {
    const struct ggml_tensor *in = job->node[0]->src[1];
    if (job->traits->vec_dot_type != in->type) {
        struct ggml_tensor *c = ggml_custom_4d(ctx, GGML_TYPE_I8, (int64_t)job->row_bytes, in->ne[1], 1, 1, NULL, 0,
                                               kernel_convert, GGML_N_TASKS_MAX, job);
        c->data = job->rows;
        c->flags |= GGML_TENSOR_FLAG_COMPUTE;
        ggml_graph_add_node(graph, c);
    }
    struct ggml_tensor *node = job->node[0];
    struct ggml_tensor *t = ggml_custom_4d(ctx, GGML_TYPE_F32, node->ne[0], node->ne[1], 1, 1, NULL, 0, kernel_multiply,
                                           GGML_N_TASKS_MAX, job);
    t->data = node->data;
    t->flags |= GGML_TENSOR_FLAG_COMPUTE;
    ggml_graph_add_node(graph, t);
}
