/*
 * selftest_model.c - the model of the self-test, and the engine that reads it.
 *
 * It lies in memory that has a descriptor (memfd), so that both sides have it: stock ggml by its mapping, and an
 * engine of our own by reading slices into slots, as it would from a disk. Weights are random bits in blocks with
 * sane scales: quantising would take longer than all the rest. The sizes are small, for time, but no multiples of
 * the kernel's chunks where the type allows it.
 */
#include "selftest/selftest_model.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cache/error.h"

enum { MODEL_ALIGN = 64 }; /* bytes; where tensors begin in the file */

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

void selftest_model_dims(const struct selftest_shape *sh, int mat, int64_t *ne0, int64_t *ne1) {
    *ne0 = mat == 2 ? sh->ff : sh->embd;
    *ne1 = mat == 2 ? sh->embd : sh->ff;
}

static size_t model_slice(const struct selftest_shape *sh, int mat) {
    int64_t ne0, ne1;
    selftest_model_dims(sh, mat, &ne0, &ne1);
    return ggml_row_size(sh->type, ne0) * (size_t)ne1;
}

static size_t model_padded(size_t bytes) {
    return (bytes + MODEL_ALIGN - 1) / MODEL_ALIGN * MODEL_ALIGN;
}

/* Lay out the file. */
static void model_layout(struct selftest_model *m) {
    for (int i = 0; i < SELFTEST_SHAPES; i++) {
        const struct selftest_shape *sh = &selftest_shapes[i];
        m->router[i] = m->bytes;
        m->bytes += model_padded((size_t)sh->embd * SELFTEST_EXPERTS * sizeof(float));
        for (int k = 0; k < SELFTEST_MATS; k++) {
            m->weight[i][k].offset = m->bytes;
            m->bytes += model_padded(model_slice(sh, k) * SELFTEST_EXPERTS);
        }
    }
    m->budget = 4 * m->bytes;
}

static int model_make_file(struct selftest_model *m, struct sluice_error *err) {
    m->fd = memfd_create("sluice-seam", MFD_CLOEXEC);
    if (m->fd < 0 || ftruncate(m->fd, (off_t)m->bytes)) {
        return sluice_fail(err, SLUICE_ERR_IO, "no memory file for a test model: %s", strerror(errno));
    }
    void *map = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    if (map == MAP_FAILED) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "no mapping for a test model: %s", strerror(errno));
    }
    m->map = map;
    for (int i = 0; i < SELFTEST_SHAPES; i++) {
        const struct selftest_shape *sh = &selftest_shapes[i];
        model_fill(m, GGML_TYPE_F32, m->map + m->router[i], (size_t)sh->embd * SELFTEST_EXPERTS * sizeof(float));
        for (int k = 0; k < SELFTEST_MATS; k++) {
            model_fill(m, sh->type, m->map + m->weight[i][k].offset, model_slice(sh, k) * SELFTEST_EXPERTS);
        }
    }
    return SLUICE_OK;
}

/* engine_budget_fn. */
static int model_budget(void *ud, const struct expert_index *index, uint64_t held, uint64_t *budget,
                        struct sluice_error *err) {
    (void)index;
    (void)held;
    *budget = *(const uint64_t *)ud;
    return sluice_ok(err);
}

static int model_make_engine(struct selftest_model *m, struct sluice_error *err) {
    static const char *const part[SELFTEST_MATS] = {"gate", "up", "down"};
    struct sluice_settings settings;
    sluice_settings_default(&settings);
    settings.cache = SLUICE_CACHE_FIXED;
    settings.cache_bytes = m->budget;
    settings.direct_io = false; /* of memory */
    settings.lookahead = false;
    settings.publish = false;
    settings.io_threads = 1;
    m->engine = engine_create(&settings, model_budget, &m->budget, err);
    if (!m->engine) {
        return (int)err->status;
    }
    int rc = engine_add_file(m->engine, m->fd, "the self-test's model", &m->file, err);
    m->has_file = rc == SLUICE_OK;
    for (int i = 0; i < SELFTEST_SHAPES; i++) {
        for (int k = 0; k < SELFTEST_MATS && rc == SLUICE_OK; k++) {
            struct selftest_weight *w = &m->weight[i][k];
            char name[GGML_MAX_NAME];
            snprintf(name, sizeof name, "blk.%d.ffn_%s_exps.weight", i, part[k]);
            rc = engine_add_tensor(m->engine, m->file, 1, name, w->offset, model_slice(&selftest_shapes[i], k),
                                   SELFTEST_EXPERTS, SELFTEST_TOP_K, &w->tensor, err);
            if (rc == SLUICE_OK) {
                const struct engine_tensor_info info = engine_tensor(m->engine, w->tensor);
                w->group = info.group;
                w->part = info.part;
                w->there = true;
            }
        }
    }
    return rc;
}

int selftest_model_make(struct selftest_model *m, struct sluice_error *err) {
    m->rng = 0x9e3779b9u;
    model_layout(m);
    const int rc = model_make_file(m, err);
    return rc ? rc : model_make_engine(m, err);
}

void selftest_model_free(struct selftest_model *m) {
    for (int i = 0; i < SELFTEST_SHAPES; i++) {
        for (int k = 0; k < SELFTEST_MATS; k++) {
            if (m->weight[i][k].there) {
                engine_remove_tensors(m->engine, &m->weight[i][k].tensor, 1);
            }
        }
    }
    if (m->has_file) {
        engine_drop_file(m->engine, m->file);
    }
    engine_destroy(m->engine);
    if (m->map) {
        munmap(m->map, m->bytes);
    }
    if (m->fd >= 0) {
        close(m->fd);
    }
}
