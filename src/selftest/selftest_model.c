/*
 * selftest_model.c - the model of the self-test, and a device of ours that has it.
 *
 * It lies in memory that has a descriptor (memfd), so that both sides have it: stock ggml by its mapping, and our
 * device by finding the file behind the mapping and reading slices into slots, as it would from a disk. The
 * device is the real one (src/ggml/backend.c), but not registered, so no program meets it. Weights are random bits in
 * blocks with sane scales: quantising would take longer than all the rest. The sizes are small, for time, but no
 * multiples of the kernel's chunks where the type allows it.
 *
 * While it is set up, each function that the device has is called through ggml, and its effect is looked for. A
 * function that ggml calls by another place than the one that we put it in has another effect, or none.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ggml/buffer.h"
#include "ggml/device.h"
#include "selftest/selftest_impl.h"
#include "cache/error.h"

enum {
    MODEL_ALIGN = 64, /* bytes; where tensors begin in the file */
    MODEL_TENSORS = SELFTEST_SHAPES * (1 + SELFTEST_SIDES * SELFTEST_MATS) + 4, /* with those of model_try_buffer */
    /*
     * Bytes of gathered rows. Freed memory of more than the C library's threshold for mappings, 128 KiB to begin with,
     * raises the threshold for good, and the program's later allocations keep more from the system than they would
     * have: 3 MiB of a small model's memory plan, with the usual 8 MiB of rows.
     */
    MODEL_ROWS = 96 << 10,
};

const struct selftest_shape selftest_shapes[SELFTEST_SHAPES] = {
    {GGML_TYPE_F32, "F32", 48, 80},
    {GGML_TYPE_Q8_0, "Q8_0", 96, 160},
    {GGML_TYPE_Q4_K, "Q4_K", SELFTEST_EMBD_MAX, 256},
};

static uint32_t model_random(struct selftest_model *m) {
    m->rng ^= m->rng << 13;
    m->rng ^= m->rng >> 17;
    m->rng ^= m->rng << 5;
    return m->rng;
}

float selftest_model_number(struct selftest_model *m) {
    return (float)(model_random(m) >> 8) / (float)(1 << 23) - 1.0f;
}

/* Values of a tensor: floats, or random bits with the scale that a block begins with between 2^-7 and 2^-6. */
static void model_fill(struct selftest_model *m, enum ggml_type type, char *at, size_t bytes) {
    if (type == GGML_TYPE_F32) {
        for (size_t i = 0; i < bytes; i += sizeof(float)) {
            const float v = 0.25f * selftest_model_number(m);
            memcpy(at + i, &v, sizeof v);
        }
        return;
    }
    for (size_t i = 0; i + sizeof(uint32_t) <= bytes; i += sizeof(uint32_t)) {
        const uint32_t v = model_random(m);
        memcpy(at + i, &v, sizeof v);
    }
    for (size_t i = 0; i < bytes; i += ggml_type_size(type)) {
        for (size_t k = 0; k < (type == GGML_TYPE_Q4_K ? 2u : 1u); k++) { /* Q4_K has one for the minima too */
            const uint16_t scale = (uint16_t)(0x2000 | (model_random(m) & 0x3ff));
            memcpy(at + i + k * sizeof scale, &scale, sizeof scale);
        }
    }
}

static void model_dims(const struct selftest_shape *sh, int mat, int64_t *ne0, int64_t *ne1) {
    *ne0 = mat == 2 ? sh->ff : sh->embd;
    *ne1 = mat == 2 ? sh->embd : sh->ff;
}

static size_t model_slice(const struct selftest_shape *sh, int mat) {
    int64_t ne0, ne1;
    model_dims(sh, mat, &ne0, &ne1);
    return ggml_row_size(sh->type, ne0) * (size_t)ne1;
}

static size_t model_padded(size_t bytes) {
    return (bytes + MODEL_ALIGN - 1) / MODEL_ALIGN * MODEL_ALIGN;
}

/* Lay out the file, and fill it where it is mapped. Called twice: without a mapping it measures. */
static size_t model_lay_out(struct selftest_model *m, size_t router[], size_t weight[][SELFTEST_MATS]) {
    size_t at = MODEL_ALIGN; /* after the magic number by which a mapped model is recognised */
    if (m->map) {
        memcpy(m->map, "GGUF", 4);
    }
    for (int i = 0; i < SELFTEST_SHAPES; i++) {
        const struct selftest_shape *sh = &selftest_shapes[i];
        for (int k = -1; k < SELFTEST_MATS; k++) {
            const size_t bytes = SELFTEST_EXPERTS * (k < 0 ? (size_t)sh->embd * sizeof(float) : model_slice(sh, k));
            *(k < 0 ? &router[i] : &weight[i][k]) = at;
            if (m->map) {
                model_fill(m, k < 0 ? GGML_TYPE_F32 : sh->type, m->map + at, bytes);
            }
            at += model_padded(bytes);
        }
    }
    return at;
}

/* engine_budget_fn: all fits. */
static int model_budget(void *ud, const struct expert_index *index, uint64_t held, uint64_t *budget,
                        struct sluice_error *err) {
    const struct sluice_device *d = ud;
    (void)index;
    (void)held;
    *budget = d->settings.cache_bytes;
    return sluice_ok(err);
}

static int model_make_file(struct selftest_model *m, size_t router[], size_t weight[][SELFTEST_MATS],
                           struct sluice_error *err) {
    m->rng = 0x9e3779b9u;
    m->bytes = model_lay_out(m, router, weight);
    m->fd = memfd_create("sluice-selftest", MFD_CLOEXEC);
    if (m->fd < 0 || ftruncate(m->fd, (off_t)m->bytes)) {
        return sluice_fail(err, SLUICE_ERR_IO, "no memory file for a test model: %s", strerror(errno));
    }
    void *map = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    if (map == MAP_FAILED) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "no mapping for a test model: %s", strerror(errno));
    }
    m->map = map;
    model_lay_out(m, router, weight);
    return SLUICE_OK;
}

static int model_make_device(struct selftest_model *m, struct selftest *s, const struct backend_spy *spy) {
    struct sluice_settings settings;
    sluice_settings_default(&settings);
    settings.cache = SLUICE_CACHE_FIXED;
    settings.cache_bytes = 4 * m->bytes;
    settings.direct_io = false; /* of memory */
    settings.dense = SLUICE_DENSE_MMAP;
    settings.lookahead = false;
    settings.publish = false;
    settings.io_threads = 1;
    settings.reference_kernel = !s->kernel;
    m->device = backend_create_private(&settings, model_budget, spy, MODEL_ROWS, s->err);
    const struct ggml_init_params params = {(MODEL_TENSORS + 1) * ggml_tensor_overhead(), NULL, true};
    m->ctx = ggml_init(params);
    m->side[0] = ggml_backend_cpu_buffer_from_ptr(m->map, m->bytes);
    if (!m->device || !m->ctx || !m->side[0]) {
        return s->err->status ? (int)s->err->status : sluice_fail(s->err, SLUICE_ERR_MEMORY, "out of memory");
    }
    ggml_backend_buffer_set_usage(m->side[0], GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    return SLUICE_OK;
}

/* Functions of a buffer that is not mapped. NULL: all have their effect. */
static const char *model_try_buffer(struct selftest_model *m, ggml_backend_buffer_type_t type) {
    struct ggml_tensor *t = ggml_new_tensor_1d(m->ctx, GGML_TYPE_F32, 4);
    const float set[4] = {1, 2, 3, 4};
    float got[4] = {0};
    ggml_backend_buffer_t b = ggml_backend_buft_alloc_buffer(type, 256);
    if (!b || ggml_backend_buffer_get_type(b) != type || ggml_backend_buffer_get_size(b) != 256) {
        return "alloc_buffer"; /* b is lost: what it is cannot be told */
    }
    const char *lost = NULL;
    char *base = ggml_backend_buffer_get_base(b);
    if (!base || (uintptr_t)base % MODEL_ALIGN) {
        lost = "get_base";
    } else if (ggml_backend_tensor_alloc(b, t, base) != GGML_STATUS_SUCCESS || t->buffer != b || t->data != base) {
        lost = "init_tensor";
    } else if (ggml_backend_tensor_set(t, set, 0, sizeof set), memcmp(base, set, sizeof set) != 0) {
        lost = "set_tensor";
    } else if (ggml_backend_tensor_memset(t, 0, 4, 4), memcmp(base + 4, "\0\0\0", 4) != 0) {
        lost = "memset_tensor";
    } else if (ggml_backend_tensor_get(t, got, 0, sizeof got), got[0] != 1 || got[1] != 0 || got[3] != 4) {
        lost = "get_tensor";
    } else if (ggml_backend_buffer_clear(b, 0), memcmp(base, "\0\0\0", 4) != 0) {
        lost = "clear";
    }
    ggml_backend_buffer_free(b);
    return lost;
}

/* Functions of the device. */
static const char *model_try_device(struct selftest_model *m, ggml_backend_dev_t dev, ggml_backend_buffer_type_t type) {
    struct ggml_tensor *sqr = ggml_sqr(m->ctx, ggml_new_tensor_1d(m->ctx, GGML_TYPE_F32, 4));
    struct ggml_backend_dev_props props = {0};
    size_t free_bytes = 1, total = 1;
    ggml_backend_dev_memory(dev, &free_bytes, &total);
    ggml_backend_dev_get_props(dev, &props);
    return strcmp(ggml_backend_dev_name(dev), "SLUICE") != 0              ? "get_name of a device"
           : !strstr(ggml_backend_dev_description(dev), "streamed")       ? "get_description"
           : free_bytes || total                                          ? "get_memory"
           : ggml_backend_dev_type(dev) != GGML_BACKEND_DEVICE_TYPE_ACCEL ? "get_type"
           : !props.caps.buffer_from_host_ptr                             ? "get_props"
           : !type || ggml_backend_buft_get_device(type) != dev           ? "get_buffer_type"
           : strcmp(ggml_backend_buft_name(type), "SLUICE") != 0          ? "get_name of a buffer type"
           : ggml_backend_buft_get_alignment(type) != MODEL_ALIGN         ? "get_alignment"
           : !ggml_backend_buft_is_host(type)                             ? "is_host"
           : ggml_backend_dev_supports_op(dev, sqr)                       ? "supports_op"
           : !ggml_backend_dev_supports_buft(dev, type)                   ? "supports_buft"
                                                                          : NULL;
}

/* Put the model's tensors into both buffers, and make the backend. */
static const char *model_try_model(struct selftest_model *m, ggml_backend_dev_t dev, const size_t router[],
                                   size_t weight[][SELFTEST_MATS]) {
    static const char *const part[SELFTEST_MATS] = {"gate", "up", "down"};
    m->side[1] = ggml_backend_dev_buffer_from_host_ptr(dev, m->map, m->bytes, m->bytes);
    if (!m->side[1] || ggml_backend_buffer_get_base(m->side[1]) != m->map) {
        return "buffer_from_host_ptr";
    }
    ggml_backend_buffer_set_usage(m->side[1], GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    for (int i = 0; i < SELFTEST_SHAPES; i++) {
        const struct selftest_shape *sh = &selftest_shapes[i];
        m->router[i] = ggml_new_tensor_2d(m->ctx, GGML_TYPE_F32, sh->embd, SELFTEST_EXPERTS);
        bool ok = ggml_backend_tensor_alloc(m->side[0], m->router[i], m->map + router[i]) == GGML_STATUS_SUCCESS;
        for (int k = 0; k < SELFTEST_SIDES * SELFTEST_MATS && ok; k++) {
            const int side = k / SELFTEST_MATS, mat = k % SELFTEST_MATS;
            int64_t ne0, ne1;
            model_dims(sh, mat, &ne0, &ne1);
            struct ggml_tensor *w = ggml_new_tensor_3d(m->ctx, sh->type, ne0, ne1, SELFTEST_EXPERTS);
            ggml_format_name(w, "blk.%d.ffn_%s_exps.weight", i, part[mat]);
            ok = ggml_backend_tensor_alloc(m->side[side], w, m->map + weight[i][mat]) == GGML_STATUS_SUCCESS;
            ok = ok && (side == 0 || buffer_weight(w));
            m->weight[side][i][mat] = w;
        }
        if (!ok) {
            return "init_tensor";
        }
    }
    m->backend = ggml_backend_dev_init(dev, NULL);
    if (!m->backend || ggml_backend_get_device(m->backend) != dev) {
        m->backend = NULL;
        return "init_backend";
    }
    return strcmp(ggml_backend_name(m->backend), "SLUICE") != 0 ? "get_name of a backend" : NULL;
}

enum selftest_assumption selftest_model_make(struct selftest_model *m, struct selftest *s,
                                             const struct backend_spy *spy) {
    size_t router[SELFTEST_SHAPES], weight[SELFTEST_SHAPES][SELFTEST_MATS];
    if (model_make_file(m, router, weight, s->err) || model_make_device(m, s, spy)) {
        return SELFTEST_HOLDS;
    }
    ggml_backend_dev_t dev = backend_dev(m->device);
    ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(dev);
    const char *lost = model_try_device(m, dev, type);
    lost = lost ? lost : model_try_buffer(m, type);
    lost = lost ? lost : model_try_model(m, dev, router, weight);
    /* Not for want of memory, or of a file, which the device reports. */
    *s->err = m->device->last_error;
    if (lost && m->device->note[DEVICE_NOT_STREAMED][0]) {
        sluice_fail(s->err, SLUICE_ERR_IO, "%s", m->device->note[DEVICE_NOT_STREAMED]);
    }
    return lost && !s->err->status ? selftest_broken(s, SELFTEST_VTABLES, "%s does not arrive", lost) : SELFTEST_HOLDS;
}

enum selftest_assumption selftest_model_free(struct selftest_model *m, struct selftest *s) {
    enum selftest_assumption a = SELFTEST_HOLDS;
    if (m->backend) {
        ggml_backend_free(m->backend);
    }
    for (int i = 0; i < SELFTEST_SIDES; i++) {
        if (m->side[i]) {
            ggml_backend_buffer_free(m->side[i]);
        }
    }
    struct sluice_stats left = {0};
    if (m->device) {
        device_stats(m->device, &left);
    }
    if (left.tensors) { /* and the device is left as it is: its engine has tensors */
        a = selftest_broken(s, SELFTEST_VTABLES, "free_buffer does not arrive");
    } else {
        backend_free_private(m->device);
    }
    ggml_free(m->ctx);
    if (m->map) {
        munmap(m->map, m->bytes);
    }
    if (m->fd >= 0) {
        close(m->fd);
    }
    return a;
}
