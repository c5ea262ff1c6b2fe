/*
 * device.c - the device that ggml sees, and the backends it makes.
 *
 * Type ACCEL: llama.cpp offers every weight to ACCEL buffer types before any other, and gives every
 * context a backend of each ACCEL device. So a stock program streams once the plug-in is loaded,
 * without a flag.
 *
 * Each backend (one per context) carries a CPU backend of its own, which computes everything: the
 * expert matmuls on slices that lie in slots, and the cheap operations between them. So the
 * arithmetic is llama.cpp's, whatever processor and build it is.
 *
 * sluice_device is the one global object: ggml's registry keeps pointers to it for the life of the
 * process.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml/backend.h"
#include "ggml/executor.h"
#include "selftest/selftest.h"
#include "cache/error.h"

struct sluice_device sluice_device = {
    .cold = {.lock = PTHREAD_MUTEX_INITIALIZER},
    .dense_lock = PTHREAD_MUTEX_INITIALIZER,
    .resize_lock = PTHREAD_MUTEX_INITIALIZER,
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .tracing = {.lock = PTHREAD_MUTEX_INITIALIZER},
    .steps = {.lock = PTHREAD_MUTEX_INITIALIZER},
    .watch = {.lock = PTHREAD_MUTEX_INITIALIZER},
};

void device_report(const struct sluice_error *err) {
    pthread_mutex_lock(&sluice_device.lock);
    sluice_device.last_error = *err;
    pthread_mutex_unlock(&sluice_device.lock);
    if (sluice_device.plugin) {
        fprintf(stderr, "sluice: %s\n", err->message);
    }
}

bool device_refuses(void) {
    struct sluice_error err = sluice_device.bad_settings;
    if (err.status || selftest_refused(&err)) {
        device_report(&err);
        return true;
    }
    return false;
}

void device_note_plain(const char *why) {
    pthread_mutex_lock(&sluice_device.lock);
    if (!sluice_device.plain_reason[0]) {
        snprintf(sluice_device.plain_reason, sizeof sluice_device.plain_reason, "%s", why);
    }
    pthread_mutex_unlock(&sluice_device.lock);
}

void device_note_dense(const char *why) {
    pthread_mutex_lock(&sluice_device.lock);
    if (!sluice_device.dense_reason[0]) {
        snprintf(sluice_device.dense_reason, sizeof sluice_device.dense_reason, "%s", why);
    }
    pthread_mutex_unlock(&sluice_device.lock);
}

void device_note_lossy(const char *why) {
    pthread_mutex_lock(&sluice_device.lock);
    if (!sluice_device.lossy_reason[0]) {
        snprintf(sluice_device.lossy_reason, sizeof sluice_device.lossy_reason, "%s", why);
    }
    pthread_mutex_unlock(&sluice_device.lock);
}

void device_stats(struct sluice_stats *out) {
    engine_stats(sluice_device.engine, out);
    cold_add_stats(&sluice_device.cold, out);
}

void device_keep_stats(void) {
    struct sluice_stats s;
    device_stats(&s);
    pthread_mutex_lock(&sluice_device.lock);
    struct sluice_stats *last = &sluice_device.last_stats;
    if (s.tensors >= last->tensors) {
        *last = s;
    } else {
        /* Buffers of a model go one by one: what there was stays as it was with all of them. */
        last->prompt = s.prompt;
        last->generation = s.generation;
        last->evictions = s.evictions;
        last->foreseen = s.foreseen;
        const uint32_t copies = last->cold.tensors;
        const uint64_t memory = last->cold.cache_bytes;
        last->cold = s.cold;
        last->cold.tensors = copies;
        last->cold.cache_bytes = memory;
    }
    pthread_mutex_unlock(&sluice_device.lock);
}

void device_last_stats(struct sluice_stats *out) {
    device_keep_stats();
    pthread_mutex_lock(&sluice_device.lock);
    *out = sluice_device.last_stats;
    pthread_mutex_unlock(&sluice_device.lock);
}

void device_print_mode(void) {
    const bool wanted = sluice_device.plugin && !sluice_device.settings.quiet;
    if (wanted && !atomic_load_explicit(&sluice_device.mode_printed, memory_order_relaxed) &&
        !atomic_exchange(&sluice_device.mode_printed, true)) {
        char line[1024];
        sluice_mode_line(line, sizeof line);
        fprintf(stderr, "sluice: %s\n", line);
        if (sluice_warning_line(line, sizeof line) > 0) {
            fprintf(stderr, "sluice: warning: %s\n", line);
        }
        if (sluice_plan_line(line, sizeof line) > 0) {
            fprintf(stderr, "sluice: %s\n", line);
        }
    }
}

/* ---- backend: one per context ---------------------------------------------------------------- */

static const char *backend_name(ggml_backend_t backend) {
    (void)backend;
    return "SLUICE";
}

static void backend_free(ggml_backend_t backend) {
    device_keep_stats();
    executor_destroy(backend->context);
    free(backend);
}

static enum ggml_status backend_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    struct sluice_error err = {0};
    const enum ggml_status status = executor_compute(backend->context, graph, &err);
    if (status != GGML_STATUS_SUCCESS) {
        device_report(&err);
    }
    return status;
}

/* Nothing is changed; but a split is shown here before any of its graph is computed. */
static void backend_optimize(ggml_backend_t backend, struct ggml_cgraph *graph,
                             struct ggml_backend_graph_optimize_params *params) {
    (void)params;
    executor_learn(backend->context, graph);
}

static const struct ggml_backend_i backend_iface = {
    .get_name = backend_name,
    .free = backend_free,
    .graph_compute = backend_compute,
    .graph_optimize = backend_optimize,
};

static ggml_guid backend_guid = {0x51, 0x1c, 0xe0, 0x9a, 0x63, 0x0d, 0x4f, 0x21,
                                 0xb1, 0x7e, 0x5a, 0x0c, 0x88, 0xd2, 0x19, 0x33};

static void backend_set_threads(ggml_backend_t backend, int n) {
    executor_set_threads(backend->context, n);
    atomic_store(&sluice_device.threads, n);
}

/* ---- device ---------------------------------------------------------------------------------- */

static const char *dev_name(ggml_backend_dev_t dev) {
    (void)dev;
    return "SLUICE";
}

static const char *dev_description(ggml_backend_dev_t dev) {
    (void)dev;
    return "MoE experts streamed from disk";
}

static void dev_memory(ggml_backend_dev_t dev, size_t *free_bytes, size_t *total) {
    (void)dev;
    *free_bytes = *total = 0; /* none to offer: llama.cpp must not plan with it */
}

static enum ggml_backend_dev_type dev_type(ggml_backend_dev_t dev) {
    (void)dev;
    return GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

static void dev_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props *props) {
    memset(props, 0, sizeof *props);
    props->name = dev_name(dev);
    props->description = dev_description(dev);
    props->type = dev_type(dev);
    props->caps.buffer_from_host_ptr = true;
    props->caps.mmap_support = true;
}

static ggml_backend_t dev_init(ggml_backend_dev_t dev, const char *params) {
    (void)params;
    struct sluice_error err;
    if (device_refuses()) {
        return NULL;
    }
    /* What cannot work is better said here, before a prompt is read, than at the first token. */
    if (cold_match(&sluice_device.cold, &err) || engine_check(sluice_device.engine, &err)) {
        device_report(&err);
        return NULL;
    }
    buffer_advise_pages();
    if (facts_context(&sluice_device, &err)) {
        device_report(&err);
        return NULL;
    }
    ggml_backend_t backend = calloc(1, sizeof *backend);
    ggml_backend_t cpu = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    const struct executor_setup setup = {.engine = sluice_device.engine,
                                         .copies = sluice_device.cold.engine,
                                         .device = &sluice_device,
                                         .reference = sluice_device.settings.reference_kernel};
    struct executor *x = backend && cpu ? executor_create(cpu, &setup) : NULL;
    if (!x) {
        sluice_fail(&err, cpu ? SLUICE_ERR_MEMORY : SLUICE_ERR_LLAMA, "%s",
                    cpu ? "out of memory" : "this llama.cpp has no CPU backend");
        device_report(&err);
        if (cpu) {
            ggml_backend_free(cpu);
        }
        free(backend);
        return NULL;
    }
    backend->guid = &backend_guid;
    backend->iface = backend_iface;
    backend->device = dev;
    backend->context = x;
    return backend;
}

static ggml_backend_buffer_type_t dev_buffer_type(ggml_backend_dev_t dev) {
    (void)dev;
    return &sluice_device.buft;
}

static bool dev_supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op) {
    (void)dev;
    return match_supports_op(op);
}

static bool dev_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t t) {
    (void)dev;
    return t == &sluice_device.buft || ggml_backend_buft_is_host(t);
}

/* ---- registration ---------------------------------------------------------------------------- */

static const char *reg_name(ggml_backend_reg_t reg) {
    (void)reg;
    return "sluice";
}

static size_t reg_device_count(ggml_backend_reg_t reg) {
    (void)reg;
    return 1;
}

static ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, size_t index) {
    (void)reg;
    return index == 0 ? &sluice_device.dev : NULL;
}

static void *reg_proc(ggml_backend_reg_t reg, const char *name) {
    (void)reg;
    /* llama.cpp hands its thread count to every backend that offers this function. */
    if (strcmp(name, "ggml_backend_set_n_threads") == 0) {
        ggml_backend_set_n_threads_t fn = backend_set_threads;
        void *p;
        memcpy(&p, &fn, sizeof p);
        return p;
    }
    return NULL;
}

int device_setup(const struct sluice_settings *s, bool plugin, struct sluice_error *err) {
    struct sluice_device *d = &sluice_device;
    if (d->engine) {
        return sluice_fail(err, SLUICE_ERR_STATE, "sluice is already registered in this process");
    }
    d->settings = *s;
    atomic_store(&d->drop_below, s->drop_cold_experts);
    atomic_store(&d->drop_renorm, s->drop_renorm);
    d->plugin = plugin;
    struct sluice_error why;
    d->engine = engine_create(s, device_budget, NULL, &why);
    if (!d->engine) {
        return sluice_fail(err, why.status, "%s", why.message);
    }
    if (cold_setup(&d->cold, s, &why)) {
        engine_destroy(d->engine);
        d->engine = NULL;
        return sluice_fail(err, why.status, "%s", why.message);
    }
    d->reg = (struct ggml_backend_reg){
        .api_version = GGML_BACKEND_API_VERSION,
        .iface = {.get_name = reg_name,
                  .get_device_count = reg_device_count,
                  .get_device = reg_device,
                  .get_proc_address = reg_proc},
    };
    d->dev = (struct ggml_backend_device){
        .iface = {.get_name = dev_name,
                  .get_description = dev_description,
                  .get_memory = dev_memory,
                  .get_type = dev_type,
                  .get_props = dev_props,
                  .init_backend = dev_init,
                  .get_buffer_type = dev_buffer_type,
                  .buffer_from_host_ptr = buffer_from_host_ptr,
                  .supports_op = dev_supports_op,
                  .supports_buft = dev_supports_buft},
        .reg = &d->reg,
    };
    buffer_type_init(&d->buft, &d->dev);
    facts_setup(d);
    return sluice_ok(err);
}
