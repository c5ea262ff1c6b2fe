/*
 * selftest_probe.c - a device that watches what ggml asks of it, for the self-test.
 *
 * It is like ours where ggml can see it: an ACCEL device over host memory that takes the operations of MoE blocks
 * (match_block_op) on weights in its buffers. But it is not registered, so no program meets it; and every function
 * counts its calls. A function that ggml calls by another place than the one we put it in is then counted as
 * another, or not at all.
 */
#include <stdlib.h>
#include <string.h>

#include "ggml/match.h"
#include "selftest/selftest_impl.h"
#include "cache/error.h"

enum { PROBE_ALIGN = 64 }; /* bytes */

/* A buffer of the probe. */
struct probe_buffer {
    struct selftest_probe *probe; /* whose */
    void *base;                   /* first byte */
    bool own;                     /* base is to be freed */
};

/* ---- buffers ---------------------------------------------------------------------------------- */

static void probe_buffer_free(ggml_backend_buffer_t buffer) {
    struct probe_buffer *b = buffer->context;
    b->probe->calls[SELFTEST_CALL_BUFFER_FREE]++;
    if (b->own) {
        free(b->base);
    }
    free(b);
}

static void *probe_buffer_base(ggml_backend_buffer_t buffer) {
    struct probe_buffer *b = buffer->context;
    b->probe->calls[SELFTEST_CALL_BUFFER_BASE]++;
    return b->base;
}

static enum ggml_status probe_buffer_init(ggml_backend_buffer_t buffer, struct ggml_tensor *t) {
    struct probe_buffer *b = buffer->context;
    (void)t;
    b->probe->calls[SELFTEST_CALL_BUFFER_INIT]++;
    return GGML_STATUS_SUCCESS;
}

static void probe_buffer_memset(ggml_backend_buffer_t buffer, struct ggml_tensor *t, uint8_t value, size_t offset,
                                size_t size) {
    struct probe_buffer *b = buffer->context;
    b->probe->calls[SELFTEST_CALL_BUFFER_MEMSET]++;
    memset((char *)t->data + offset, value, size);
}

static void probe_buffer_set(ggml_backend_buffer_t buffer, struct ggml_tensor *t, const void *data, size_t offset,
                             size_t size) {
    struct probe_buffer *b = buffer->context;
    b->probe->calls[SELFTEST_CALL_BUFFER_SET]++;
    memcpy((char *)t->data + offset, data, size);
}

static void probe_buffer_get(ggml_backend_buffer_t buffer, const struct ggml_tensor *t, void *data, size_t offset,
                             size_t size) {
    struct probe_buffer *b = buffer->context;
    b->probe->calls[SELFTEST_CALL_BUFFER_GET]++;
    memcpy(data, (const char *)t->data + offset, size);
}

static void probe_buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    struct probe_buffer *b = buffer->context;
    b->probe->calls[SELFTEST_CALL_BUFFER_CLEAR]++;
    if (b->own) {
        memset(b->base, value, buffer->size);
    }
}

static ggml_backend_buffer_t probe_buffer_make(struct selftest_probe *p, void *base, bool own, size_t size) {
    const struct ggml_backend_buffer_i iface = {
        .free_buffer = probe_buffer_free,
        .get_base = probe_buffer_base,
        .init_tensor = probe_buffer_init,
        .memset_tensor = probe_buffer_memset,
        .set_tensor = probe_buffer_set,
        .get_tensor = probe_buffer_get,
        .clear = probe_buffer_clear,
    };
    struct probe_buffer *b = calloc(1, sizeof *b);
    if (!b) {
        if (own) {
            free(base);
        }
        return NULL;
    }
    *b = (struct probe_buffer){.probe = p, .base = base, .own = own};
    return ggml_backend_buffer_init(&p->buft, iface, b, size);
}

ggml_backend_buffer_t selftest_probe_buffer(struct selftest_probe *p, void *ptr, size_t size) {
    ggml_backend_buffer_t b = probe_buffer_make(p, ptr, false, size);
    if (b) {
        ggml_backend_buffer_set_usage(b, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    }
    return b;
}

static const char *probe_buft_name(ggml_backend_buffer_type_t t) {
    ((struct selftest_probe *)t->context)->calls[SELFTEST_CALL_BUFT_NAME]++;
    return "seam";
}

static ggml_backend_buffer_t probe_buft_alloc(ggml_backend_buffer_type_t t, size_t size) {
    struct selftest_probe *p = t->context;
    void *base = NULL;
    p->calls[SELFTEST_CALL_BUFT_ALLOC]++;
    return posix_memalign(&base, PROBE_ALIGN, size ? size : 1) ? NULL : probe_buffer_make(p, base, true, size);
}

static size_t probe_buft_alignment(ggml_backend_buffer_type_t t) {
    ((struct selftest_probe *)t->context)->calls[SELFTEST_CALL_BUFT_ALIGNMENT]++;
    return PROBE_ALIGN;
}

static bool probe_buft_is_host(ggml_backend_buffer_type_t t) {
    ((struct selftest_probe *)t->context)->calls[SELFTEST_CALL_BUFT_HOST]++;
    return true;
}

/* ---- the device ------------------------------------------------------------------------------- */

static const char *probe_dev_name(ggml_backend_dev_t dev) {
    ((struct selftest_probe *)dev->context)->calls[SELFTEST_CALL_DEV_NAME]++;
    return "seam";
}

static const char *probe_dev_description(ggml_backend_dev_t dev) {
    ((struct selftest_probe *)dev->context)->calls[SELFTEST_CALL_DEV_DESCRIPTION]++;
    return "seam";
}

static void probe_dev_memory(ggml_backend_dev_t dev, size_t *free_bytes, size_t *total) {
    ((struct selftest_probe *)dev->context)->calls[SELFTEST_CALL_DEV_MEMORY]++;
    *free_bytes = *total = 0;
}

static enum ggml_backend_dev_type probe_dev_type(ggml_backend_dev_t dev) {
    ((struct selftest_probe *)dev->context)->calls[SELFTEST_CALL_DEV_TYPE]++;
    return GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

static void probe_dev_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props *props) {
    ((struct selftest_probe *)dev->context)->calls[SELFTEST_CALL_DEV_PROPS]++;
    memset(props, 0, sizeof *props);
    props->name = props->description = "seam";
    props->type = GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

static ggml_backend_t probe_dev_init(ggml_backend_dev_t dev, const char *params) {
    struct selftest_probe *p = dev->context;
    (void)params;
    p->calls[SELFTEST_CALL_DEV_INIT]++;
    return &p->backend;
}

static ggml_backend_buffer_type_t probe_dev_buft(ggml_backend_dev_t dev) {
    struct selftest_probe *p = dev->context;
    p->calls[SELFTEST_CALL_DEV_BUFT]++;
    return &p->buft;
}

static ggml_backend_buffer_t probe_dev_host_ptr(ggml_backend_dev_t dev, void *ptr, size_t size, size_t max) {
    struct selftest_probe *p = dev->context;
    (void)max;
    p->calls[SELFTEST_CALL_DEV_HOST_PTR]++;
    return probe_buffer_make(p, ptr, false, size);
}

static bool probe_dev_op(ggml_backend_dev_t dev, const struct ggml_tensor *op) {
    struct selftest_probe *p = dev->context;
    p->calls[SELFTEST_CALL_DEV_OP]++;
    for (int i = 0; p->dense && i < GGML_MAX_SRC; i++) {
        const struct ggml_tensor *w = op->src[i];
        if (w == p->dense && w->buffer && w->data && w->buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS) {
            p->asked_dense = true;
        }
    }
    return match_block_op(op, &p->buft);
}

static bool probe_dev_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t t) {
    struct selftest_probe *p = dev->context;
    p->calls[SELFTEST_CALL_DEV_SUPPORTS_BUFT]++;
    return t == &p->buft || ggml_backend_buft_is_host(t);
}

/* ---- the backend ------------------------------------------------------------------------------ */

static const char *probe_name(ggml_backend_t backend) {
    ((struct selftest_probe *)backend->context)->calls[SELFTEST_CALL_NAME]++;
    return "seam";
}

static void probe_free(ggml_backend_t backend) {
    ((struct selftest_probe *)backend->context)->calls[SELFTEST_CALL_FREE]++;
}

static enum ggml_status probe_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    struct selftest_probe *p = backend->context;
    p->calls[SELFTEST_CALL_COMPUTE]++;
    return p->compute ? p->compute(p->ud, graph) : GGML_STATUS_SUCCESS;
}

static void probe_shown(ggml_backend_t backend, struct ggml_cgraph *graph,
                        struct ggml_backend_graph_optimize_params *params) {
    struct selftest_probe *p = backend->context;
    (void)params;
    p->calls[SELFTEST_CALL_SHOWN]++;
    if (p->shown) {
        p->shown(p->ud, graph);
    }
}

static const char *probe_reg_name(ggml_backend_reg_t reg) {
    (void)reg;
    return "seam";
}

static ggml_guid probe_guid = {0x5e, 0xa3, 0x11, 0x7c, 0x90, 0x42, 0x4d, 0x0e,
                               0x86, 0x1b, 0xf3, 0x27, 0xc4, 0x55, 0x6a, 0x98};

void selftest_probe_init(struct selftest_probe *p) {
    memset(p, 0, sizeof *p);
    p->reg = (struct ggml_backend_reg){.api_version = GGML_BACKEND_API_VERSION, .iface = {.get_name = probe_reg_name}};
    p->dev = (struct ggml_backend_device){
        .iface = {.get_name = probe_dev_name,
                  .get_description = probe_dev_description,
                  .get_memory = probe_dev_memory,
                  .get_type = probe_dev_type,
                  .get_props = probe_dev_props,
                  .init_backend = probe_dev_init,
                  .get_buffer_type = probe_dev_buft,
                  .buffer_from_host_ptr = probe_dev_host_ptr,
                  .supports_op = probe_dev_op,
                  .supports_buft = probe_dev_supports_buft},
        .reg = &p->reg,
        .context = p,
    };
    p->buft = (struct ggml_backend_buffer_type){
        .iface = {.get_name = probe_buft_name,
                  .alloc_buffer = probe_buft_alloc,
                  .get_alignment = probe_buft_alignment,
                  .is_host = probe_buft_is_host},
        .device = &p->dev,
        .context = p,
    };
    p->backend = (struct ggml_backend){
        .guid = &probe_guid,
        .iface = {.get_name = probe_name,
                  .free = probe_free,
                  .graph_compute = probe_compute,
                  .graph_optimize = probe_shown},
        .device = &p->dev,
        .context = p,
    };
}

/* ---- do calls arrive? ------------------------------------------------------------------------- */

/* Was exactly that function called since the last look, and no other? */
static bool probe_saw(struct selftest_probe *p, enum selftest_call call) {
    bool only = p->calls[call] >= 1;
    for (int i = 0; i < SELFTEST_CALLS; i++) {
        /* ggml may ask for base and alignment whenever it has to do with a buffer. */
        only = only &&
               (i == (int)call || i == SELFTEST_CALL_BUFFER_BASE || i == SELFTEST_CALL_BUFT_ALIGNMENT || !p->calls[i]);
    }
    memset(p->calls, 0, sizeof p->calls);
    return only;
}

/* Buffers and their type. Returns what did not arrive, NULL: all did. */
static const char *probe_try_buffers(struct selftest_probe *p, struct ggml_context *ctx) {
    struct ggml_tensor *t = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
    const float set[4] = {1, 2, 3, 4};
    float got[4] = {0};
    if (strcmp(ggml_backend_buft_name(&p->buft), "seam") != 0 || !probe_saw(p, SELFTEST_CALL_BUFT_NAME)) {
        return "get_name of a buffer type";
    }
    if (ggml_backend_buft_get_alignment(&p->buft) != PROBE_ALIGN || !probe_saw(p, SELFTEST_CALL_BUFT_ALIGNMENT)) {
        return "get_alignment";
    }
    if (!ggml_backend_buft_is_host(&p->buft) || !probe_saw(p, SELFTEST_CALL_BUFT_HOST)) {
        return "is_host";
    }
    ggml_backend_buffer_t b = ggml_backend_buft_alloc_buffer(&p->buft, 256);
    if (!b || b->buft != &p->buft || b->size != 256 || !probe_saw(p, SELFTEST_CALL_BUFT_ALLOC)) {
        return "alloc_buffer"; /* b is lost: what it is cannot be told */
    }
    const char *lost = NULL;
    char *base = ggml_backend_buffer_get_base(b);
    if (base != ((struct probe_buffer *)b->context)->base || !probe_saw(p, SELFTEST_CALL_BUFFER_BASE)) {
        lost = "get_base";
    } else if (ggml_backend_tensor_alloc(b, t, base) != GGML_STATUS_SUCCESS || t->buffer != b || t->data != base ||
               !probe_saw(p, SELFTEST_CALL_BUFFER_INIT)) {
        lost = "init_tensor";
    } else if (ggml_backend_tensor_set(t, set, 0, sizeof set), !probe_saw(p, SELFTEST_CALL_BUFFER_SET)) {
        lost = "set_tensor";
    } else if (ggml_backend_tensor_memset(t, 0, 4, 4), !probe_saw(p, SELFTEST_CALL_BUFFER_MEMSET)) {
        lost = "memset_tensor";
    } else if (ggml_backend_tensor_get(t, got, 0, sizeof got), !probe_saw(p, SELFTEST_CALL_BUFFER_GET)) {
        lost = "get_tensor";
    } else if (got[0] != 1 || got[1] != 0 || got[3] != 4) {
        lost = "a value";
    } else if (ggml_backend_buffer_clear(b, 0), !probe_saw(p, SELFTEST_CALL_BUFFER_CLEAR)) {
        lost = "clear";
    }
    ggml_backend_buffer_free(b);
    return lost ? lost : probe_saw(p, SELFTEST_CALL_BUFFER_FREE) ? NULL : "free_buffer";
}

/* The device and its backend, likewise. */
static const char *probe_try_device(struct selftest_probe *p, struct ggml_context *ctx) {
    struct ggml_tensor *op = ggml_sqr(ctx, ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4));
    struct ggml_backend_dev_props props = {0};
    size_t free_bytes = 1, total = 1;
    float data[4];
    if (strcmp(ggml_backend_dev_name(&p->dev), "seam") != 0 || !probe_saw(p, SELFTEST_CALL_DEV_NAME)) {
        return "get_name of a device";
    }
    if (strcmp(ggml_backend_dev_description(&p->dev), "seam") != 0 || !probe_saw(p, SELFTEST_CALL_DEV_DESCRIPTION)) {
        return "get_description";
    }
    if (ggml_backend_dev_memory(&p->dev, &free_bytes, &total), !probe_saw(p, SELFTEST_CALL_DEV_MEMORY)) {
        return "get_memory";
    }
    if (ggml_backend_dev_type(&p->dev) != GGML_BACKEND_DEVICE_TYPE_ACCEL || !probe_saw(p, SELFTEST_CALL_DEV_TYPE)) {
        return "get_type";
    }
    if (ggml_backend_dev_get_props(&p->dev, &props), !probe_saw(p, SELFTEST_CALL_DEV_PROPS)) {
        return "get_props";
    }
    if (ggml_backend_dev_buffer_type(&p->dev) != &p->buft || !probe_saw(p, SELFTEST_CALL_DEV_BUFT)) {
        return "get_buffer_type";
    }
    if (ggml_backend_dev_supports_op(&p->dev, op) || !probe_saw(p, SELFTEST_CALL_DEV_OP)) {
        return "supports_op";
    }
    if (!ggml_backend_dev_supports_buft(&p->dev, &p->buft) || !probe_saw(p, SELFTEST_CALL_DEV_SUPPORTS_BUFT)) {
        return "supports_buft";
    }
    ggml_backend_buffer_t b = ggml_backend_dev_buffer_from_host_ptr(&p->dev, data, sizeof data, sizeof data);
    if (!b || !probe_saw(p, SELFTEST_CALL_DEV_HOST_PTR)) {
        return "buffer_from_host_ptr";
    }
    ggml_backend_buffer_free(b);
    memset(p->calls, 0, sizeof p->calls);
    ggml_backend_t backend = ggml_backend_dev_init(&p->dev, NULL);
    if (backend != &p->backend || !probe_saw(p, SELFTEST_CALL_DEV_INIT)) {
        return "init_backend";
    }
    if (ggml_backend_get_device(backend) != &p->dev || strcmp(ggml_backend_name(backend), "seam") != 0 ||
        !probe_saw(p, SELFTEST_CALL_NAME)) {
        return "get_name of a backend";
    }
    if (ggml_backend_graph_compute(backend, ggml_new_graph_custom(ctx, 4, false)) != GGML_STATUS_SUCCESS ||
        !probe_saw(p, SELFTEST_CALL_COMPUTE)) {
        return "graph_compute";
    }
    ggml_backend_free(backend);
    return probe_saw(p, SELFTEST_CALL_FREE) ? NULL : "free";
}

enum selftest_assumption selftest_check_vtables(struct selftest *s) {
    const struct ggml_init_params params = {8 * ggml_tensor_overhead() + ggml_graph_overhead_custom(4, false) + 1024,
                                            NULL, true};
    struct selftest_probe p;
    selftest_probe_init(&p);
    struct ggml_context *ctx = ggml_init(params);
    if (!ctx) {
        sluice_fail(s->err, SLUICE_ERR_MEMORY, "out of memory");
        return SELFTEST_HOLDS;
    }
    const char *lost = probe_try_buffers(&p, ctx);
    lost = lost ? lost : probe_try_device(&p, ctx);
    ggml_free(ctx);
    return lost ? selftest_broken(s, SELFTEST_VTABLES, "%s does not arrive", lost) : SELFTEST_HOLDS;
}
