/*
 * kernel.c - the expert matmuls of a batch: wait inside the computation, not between computations.
 *
 * The reference path (executor.c) makes a stock MUL_MAT_ID of every expert, gathers and scatters its
 * rows, and runs a graph whenever it must wait. Each run wakes and joins all compute threads, each
 * node joins them a few times, and a whole expert arrives before a row of it is computed. Here the
 * experts of a batch are one ggml node on the CPU backend's own threads. Every thread takes chunks
 * of weight rows from experts that are ready, in the order in which they become ready, and sleeps
 * only when nothing is. Gate and up, which share their input, are one node; the input is converted
 * once for all experts; rows are read and written where they lie, so nothing is gathered or
 * scattered. A block is one graph, whatever is missing.
 *
 * Same bytes: a value is ggml's vec_dot of that type on the same converted input, as in the stock
 * node; which thread does it, when, and beside which other rows, does not matter.
 *
 * Within a chunk a tile of weight rows stays in the first cache while all rows of the expert pass:
 * with one row it is read once anyway, with many it would come from the next cache for each.
 *
 * Threads that wait sleep (cache/event.c): a spinning one would take the core of a reader.
 */
#include "ggml/kernel.h"

#include <dlfcn.h>
#include <string.h>

#include "ggml/hold.h"
#include "ggml/route.h"
#include "cache/check.h"
#include "cache/clock.h"

enum {
    KERNEL_CHUNK = 64, /* weight rows taken at a time, as in ggml's own kernel for one column */
    KERNEL_TILE = 16,  /* of those, weight rows that all rows of the batch pass at a time, as in ggml's own */
};

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

/* Floats in [from, from + n) of one row of the input. */
static void kernel_convert_part(const struct kernel_job *j, int64_t token, int64_t rank, int64_t from, int64_t n) {
    const struct ggml_tensor *in = j->node[0]->src[1];
    const enum ggml_type type = j->traits->vec_dot_type;
    const char *src = (const char *)in->data + (size_t)token * in->nb[2] + (size_t)rank * in->nb[1];
    char *dst = j->rows + (size_t)token * j->token_bytes + (size_t)rank * j->rank_bytes;
    j->convert((const float *)src + from, dst + (size_t)(from / ggml_blck_size(type)) * ggml_type_size(type), n);
}

/* The node that converts the input: threads share the rows, or each row's blocks when there are few rows. */
static void kernel_convert(struct ggml_tensor *dst, int ith, int nth, void *userdata) {
    (void)dst;
    const struct kernel_job *j = userdata;
    const struct ggml_tensor *in = j->node[0]->src[1];
    const int64_t n_rows = in->ne[1] * in->ne[2];
    if (n_rows >= nth) {
        for (int64_t r = n_rows * ith / nth; r < n_rows * (ith + 1) / nth; r++) {
            kernel_convert_part(j, r / in->ne[1], r % in->ne[1], 0, in->ne[0]);
        }
        return;
    }
    const int64_t block = ggml_blck_size(j->traits->vec_dot_type), blocks = in->ne[0] / block;
    const int64_t from = blocks * ith / nth, to = blocks * (ith + 1) / nth;
    for (int64_t r = 0; r < n_rows && from < to; r++) {
        kernel_convert_part(j, r / in->ne[1], r % in->ne[1], from * block, (to - from) * block);
    }
}

/* Chunks of a matmul's weight rows. */
static int32_t kernel_chunks(const struct ggml_tensor *node) {
    return (int32_t)((node->src[0]->ne[1] + KERNEL_CHUNK - 1) / KERNEL_CHUNK);
}

/* Weight rows [from, to) of matmul m for all rows of a place. */
static void kernel_chunk(const struct kernel_job *j, int m, uint32_t place, const char *weights, int64_t from,
                         int64_t to) {
    const struct ggml_tensor *node = j->node[m], *w = node->src[0];
    const struct route *route = j->route;
    const int n = (int)w->ne[0];
    for (int64_t tile = from; tile < to; tile += KERNEL_TILE) {
        const int64_t end = tile + KERNEL_TILE < to ? tile + KERNEL_TILE : to;
        for (int32_t i = route->first[place]; i < route->first[place + 1]; i++) {
            const int32_t id = route->list[i];
            const char *row =
                j->rows + (size_t)(id / route->K) * j->token_bytes + (size_t)(id % route->K) * j->rank_bytes;
            float *out = (float *)route_row(route, node, id);
            for (int64_t r = tile; r < end; r++) {
                j->traits->vec_dot(n, out + r, 0, weights + (size_t)r * w->nb[1], 0, row, 0, 1);
            }
        }
    }
}

/* A chunk of a place is computed, or a thread does not look at it any more: was that the last? */
static void kernel_leave(struct kernel_job *j, uint32_t place) {
    /* Release: whoever sees 0 may give the slot back, so all reading of it is before that. */
    if (atomic_fetch_sub_explicit(&j->progress[place].left, 1, memory_order_acq_rel) == 1 && !j->hold->all) {
        hold_done(j->hold, place);
        hold_roll(j->hold, false);
    }
}

/* Chunks of matmul m for a place that is ready, until another thread took the last. */
static void kernel_rows(struct kernel_job *j, int m, uint32_t place, uint32_t slot) {
    struct kernel_progress *p = &j->progress[place];
    const int64_t n_rows = j->node[m]->src[0]->ne[1];
    for (;;) {
        const int64_t from = (int64_t)atomic_fetch_add_explicit(&p->next[m], 1, memory_order_relaxed) * KERNEL_CHUNK;
        if (from >= n_rows) {
            return;
        }
        /* Asked for only with a chunk in hand: until that is computed the slot is not given back. */
        const char *weights = engine_part_data(j->hold->engine, slot, j->part[m]);
        kernel_chunk(j, m, place, weights, from, from + KERNEL_CHUNK < n_rows ? from + KERNEL_CHUNK : n_rows);
        kernel_leave(j, place);
    }
}

/* Nothing to compute for this thread now: get other experts, or sleep until something changed. */
static void kernel_wait(struct kernel_job *j, int nth, uint32_t seen) {
    idle_enter(j->idle, nth, clock_seconds());
    if (!hold_roll(j->hold, true)) {
        engine_wait(j->hold->engine, seen);
    }
    idle_leave(j->idle, nth, clock_seconds());
}

/*
 * Keep the slot of a place from being given back while this thread looks at it. Experts that pass in turns lose their
 * slots as soon as nothing is left of them, and a slot that was given back is another expert's at once, or gone. So who
 * looks counts as something that is left. False: all of the place is computed.
 */
static bool kernel_enter(struct kernel_job *j, uint32_t place) {
    _Atomic int32_t *left = &j->progress[place].left;
    int32_t n = atomic_load_explicit(left, memory_order_acquire);
    if (j->hold->all) {
        return n > 0;
    }
    while (n > 0 &&
           !atomic_compare_exchange_weak_explicit(left, &n, n + 1, memory_order_acquire, memory_order_acquire)) {
    }
    return n > 0;
}

/* Matmul m of a place: compute what can be computed of it now. True: this thread finds no more to do there. */
static bool kernel_try(struct kernel_job *j, int m, uint32_t place) {
    if (!j->hold->all && hold_stage(j->hold, place) == HOLD_WAITING) {
        return false;
    }
    if (!kernel_enter(j, place)) {
        return true;
    }
    struct engine *e = j->hold->engine;
    const uint32_t slot = hold_slot(j->hold, place);
    const enum part_state state = slot == UINT32_MAX ? PART_EMPTY : engine_part_state(e, slot, j->part[m]);
    if (state == PART_FAILED) {
        atomic_store_explicit(&j->failed, true, memory_order_relaxed);
    } else if (state == PART_READY) {
        kernel_rows(j, m, place, slot);
    }
    if (!j->hold->all) {
        kernel_leave(j, place);
    }
    return state == PART_READY;
}

/* Is there no use in going on? A read failed, or experts that were to pass could not be acquired. */
static bool kernel_failed(struct kernel_job *j) {
    if (hold_failed(j->hold)) {
        atomic_store_explicit(&j->failed, true, memory_order_relaxed);
    }
    return atomic_load_explicit(&j->failed, memory_order_relaxed);
}

/* The node that multiplies. */
static void kernel_multiply(struct ggml_tensor *dst, int ith, int nth, void *userdata) {
    (void)dst;
    (void)ith;
    struct kernel_job *j = userdata;
    /* Places whose chunks are all taken, as far as this thread knows. */
    uint64_t taken[KERNEL_MATS][KERNEL_EXPERTS / 64] = {0};
    uint32_t left = j->route->n * (uint32_t)j->n_mats;
    while (left && !kernel_failed(j)) {
        const uint32_t seen = engine_seen(j->hold->engine);
        const uint32_t before = left;
        for (int m = 0; m < j->n_mats; m++) {
            for (uint32_t i = 0; i < j->route->n; i++) {
                if (!(taken[m][i / 64] >> i % 64 & 1) && kernel_try(j, m, i)) {
                    taken[m][i / 64] |= (uint64_t)1 << i % 64;
                    left--;
                }
            }
        }
        if (left && left == before && !kernel_failed(j)) {
            kernel_wait(j, nth, seen);
        }
    }
}

void kernel_append(struct ggml_cgraph *graph, struct ggml_tensor *t, void *data) {
    t->data = data;
    t->flags |= GGML_TENSOR_FLAG_COMPUTE; /* without it ggml skips the node silently */
    ggml_graph_add_node(graph, t);
}

void kernel_add(struct ggml_context *ctx, struct ggml_cgraph *graph, struct kernel_job *job) {
    struct ggml_tensor *in = job->node[0]->src[1], *node = job->node[0];
    SLUICE_CHECK(job->route->n <= KERNEL_EXPERTS);
    int32_t left = 0;
    for (int m = 0; m < job->n_mats; m++) {
        left += kernel_chunks(job->node[m]);
    }
    for (uint32_t p = 0; p < job->route->n; p++) {
        for (int m = 0; m < job->n_mats; m++) {
            atomic_store_explicit(&job->progress[p].next[m], 0, memory_order_relaxed);
        }
        atomic_store_explicit(&job->progress[p].left, left, memory_order_relaxed);
    }
    if (job->rows != in->data) {
        struct ggml_tensor *c = ggml_custom_4d(ctx, GGML_TYPE_I8, (int64_t)job->token_bytes, in->ne[2], 1, 1, NULL, 0,
                                               kernel_convert, GGML_N_TASKS_MAX, job);
        kernel_append(graph, c, job->rows);
    }
    struct ggml_tensor *t = ggml_custom_4d(ctx, GGML_TYPE_F32, node->ne[0], node->ne[1], node->ne[2], 1, NULL, 0,
                                           kernel_multiply, GGML_N_TASKS_MAX, job);
    kernel_append(graph, t, node->data);
}
