/*
 * backend.c - the device that ggml sees, and the backends it makes.
 *
 * Type ACCEL: llama.cpp offers every weight to ACCEL buffer types before any other, and gives every
 * context a backend of each ACCEL device. So a stock program streams once the plug-in is loaded,
 * without a flag.
 *
 * Each backend (one per context) carries a CPU backend of its own, which computes everything: the
 * expert matmuls on slices that lie in slots, and the cheap operations between them. So the
 * arithmetic is llama.cpp's, whatever processor and build it is.
 */
#include "ggml/backend.h"

#include <stdlib.h>
#include <string.h>

#include "ggml/buffer.h"
#include "ggml/device.h"
#include "ggml/executor.h"
#include "ggml/facts.h"
#include "ggml/match.h"
#include "cache/error.h"

/* ---- backend: one per context ---------------------------------------------------------------- */

static struct sluice_device *backend_device(ggml_backend_t backend) {
    return backend->device->context;
}

static const char *backend_name(ggml_backend_t backend) {
    (void)backend;
    return "SLUICE";
}

static void backend_free(ggml_backend_t backend) {
    device_keep_stats(backend_device(backend));
    executor_destroy(backend->context);
    free(backend);
}

static enum ggml_status backend_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    const struct backend_spy *spy = backend_device(backend)->spy;
    if (spy) {
        const enum ggml_status seen = spy->split(spy->ud, graph);
        if (seen != GGML_STATUS_SUCCESS) {
            return seen;
        }
    }
    struct sluice_error err = {0};
    const enum ggml_status status = executor_compute(backend->context, graph, &err);
    if (status != GGML_STATUS_SUCCESS) {
        device_report(backend_device(backend), &err);
    }
    return status;
}

/* Nothing is changed; but a split is shown here before any of its graph is computed. */
static void backend_optimize(ggml_backend_t backend, struct ggml_cgraph *graph,
                             struct ggml_backend_graph_optimize_params *params) {
    (void)params;
    const struct backend_spy *spy = backend_device(backend)->spy;
    if (spy) {
        spy->shown(spy->ud, graph);
    }
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
    atomic_store(&backend_device(backend)->threads, n);
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

static int dev_each_weight(void *device, stream_visit_fn visit, void *ud) {
    return buffer_each_weight(device, visit, ud);
}

/* What must be in order before a context is made. What cannot work is better said here than at the first token. */
static int dev_prepare(struct sluice_device *d, struct sluice_error *err) {
    int rc = cold_match(&d->cold, dev_each_weight, d, err);
    rc = rc ? rc : engine_check(d->engine, err);
    if (rc) {
        return rc;
    }
    buffer_advise_pages(d);
    return facts_context(d, err);
}

static ggml_backend_t dev_init(ggml_backend_dev_t dev, const char *params) {
    (void)params;
    struct sluice_device *d = dev->context;
    struct sluice_error err;
    if (device_refuses(d)) {
        return NULL;
    }
    if (dev_prepare(d, &err)) {
        device_report(d, &err);
        return NULL;
    }
    ggml_backend_t backend = calloc(1, sizeof *backend);
    ggml_backend_t cpu = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    const struct executor_setup setup = {.engine = d->engine,
                                         .copies = d->cold.engine,
                                         .device = d->spy ? NULL : d,
                                         .rows_bytes = d->rows_bytes,
                                         .reference = d->settings.reference_kernel};
    struct executor *x = backend && cpu ? executor_create(cpu, &setup) : NULL;
    if (!x) {
        sluice_fail(&err, cpu ? SLUICE_ERR_MEMORY : SLUICE_ERR_LLAMA, "%s",
                    cpu ? "out of memory" : "this llama.cpp has no CPU backend");
        device_report(d, &err);
        if (cpu) {
            ggml_backend_free(cpu);
        }
        free(backend);
        return NULL;
    }
    *backend = (struct ggml_backend){.guid = &backend_guid, .iface = backend_iface, .device = dev, .context = x};
    return backend;
}

static ggml_backend_buffer_type_t dev_buffer_type(ggml_backend_dev_t dev) {
    return &((struct sluice_device *)dev->context)->buft;
}

static ggml_backend_buffer_t dev_host_ptr(ggml_backend_dev_t dev, void *ptr, size_t size, size_t max_tensor_size) {
    (void)max_tensor_size;
    return device_refuses(dev->context) ? NULL : buffer_from_host_ptr(dev->context, ptr, size);
}

static bool dev_supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op) {
    struct sluice_device *d = dev->context;
    if (d->spy) {
        d->spy->asked(d->spy->ud, op);
    }
    buffer_note_dense(d, op);
    if (!match_block_op(op, &d->buft)) {
        /* Somebody else computes it, on what lies in memory. For experts of ours that is the mapping. */
        buffer_leave_in_place(d, op);
        return false;
    }
    if (!match_is_offer(op)) {
        return true;
    }
    if (!match_would_take(op)) {
        return false;
    }
    /* The first weight that is taken: from here on all rests on ggml being the one that we know. If it is not, the
     * buffer that comes next is refused, which ends the load with the reason; declining would compute from memory. */
    if (d->selftest.require) {
        d->selftest.require(!d->settings.reference_kernel, NULL);
    }
    match_take(op);
    return true;
}

static bool dev_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t t) {
    return t == dev_buffer_type(dev) || ggml_backend_buft_is_host(t);
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
    struct sluice_device *d = reg->context;
    return index == 0 ? &d->dev : NULL;
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

int backend_setup(struct sluice_device *d, const struct sluice_settings *s, bool plugin, engine_budget_fn budget,
                  struct sluice_error *err) {
    if (atomic_load(&d->ready)) {
        return sluice_fail(err, SLUICE_ERR_STATE, "sluice is already registered in this process");
    }
    d->settings = *s;
    atomic_store(&d->drop_below, s->drop_cold_experts);
    atomic_store(&d->drop_renorm, s->drop_renorm);
    d->plugin = plugin;
    struct sluice_error why;
    d->engine = engine_create(s, budget, d, &why);
    if (!d->engine) {
        return sluice_fail(err, why.status, "%s", why.message);
    }
    if (cold_setup(&d->cold, &d->settings, &d->drop_below, &why)) { /* those that stay */
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
        .context = d,
    };
    d->dev = (struct ggml_backend_device){
        .iface = {.get_name = dev_name,
                  .get_description = dev_description,
                  .get_memory = dev_memory,
                  .get_type = dev_type,
                  .get_props = dev_props,
                  .init_backend = dev_init,
                  .get_buffer_type = dev_buffer_type,
                  .buffer_from_host_ptr = dev_host_ptr,
                  .supports_op = dev_supports_op,
                  .supports_buft = dev_supports_buft},
        .reg = &d->reg,
        .context = d,
    };
    buffer_type_init(d);
    facts_setup(d);
    atomic_store(&d->ready, true);
    return sluice_ok(err);
}

/* ---- a private device -------------------------------------------------------------------------- */

struct sluice_device *backend_create_private(const struct sluice_settings *s, engine_budget_fn budget,
                                             const struct backend_spy *spy, size_t rows_bytes,
                                             struct sluice_error *err) {
    struct sluice_device *d = malloc(sizeof *d);
    if (!d) {
        sluice_fail(err, SLUICE_ERR_MEMORY, "out of memory");
        return NULL;
    }
    *d = (struct sluice_device)DEVICE_EMPTY;
    d->spy = spy;
    d->rows_bytes = rows_bytes;
    if (backend_setup(d, s, false, budget, err)) {
        free(d);
        return NULL;
    }
    return d;
}

void backend_free_private(struct sluice_device *d) {
    if (d) {
        engine_destroy(d->engine);
        free(d);
    }
}

ggml_backend_dev_t backend_dev(struct sluice_device *d) {
    return &d->dev;
}

uint64_t backend_kernel_nodes(ggml_backend_t backend) {
    return executor_kernel_nodes(backend->context);
}

int backend_api_version(ggml_backend_reg_t reg) {
    return reg ? reg->api_version : 0; /* the first field of the struct, whatever follows */
}

int backend_api_ours(void) {
    return GGML_BACKEND_API_VERSION;
}
