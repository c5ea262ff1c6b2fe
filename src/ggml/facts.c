/*
 * facts.c - what the registered device tells those who watch it.
 *
 * Steps, traces and the window (src/observe, src/window) know neither ggml nor the device. They ask a source, which is
 * filled in here, and begin with the first context: programs load plug-ins to list devices, and `sluice exec` hands the
 * settings on to every process of a program, of which only those that run a model have something to show.
 */
#include "ggml/facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml/device.h"
#include "ggml/mode.h"
#include "ggml/tracing.h"
#include "gguf.h"

static void facts_stats(void *ud, struct sluice_stats *out) {
    device_stats(ud, out);
}

static void facts_fill(void *ud, struct facts *out) {
    struct sluice_device *d = ud;
    engine_file_at(d->engine, 0, out->model, sizeof out->model);
    pthread_mutex_lock(&d->lock);
    const bool same = strcmp(out->model, d->described) == 0; /* else another model's file was read, this one not yet */
    out->settings = d->settings;
    out->experts_own = same ? d->expert_used : 0;
    snprintf(out->architecture, sizeof out->architecture, "%s", same ? d->architecture : "");
    pthread_mutex_unlock(&d->lock);
    out->threads = atomic_load(&d->threads);
    out->planned = mode_plan(d, &out->plan);
    mode_line(d, out->mode, sizeof out->mode);
    mode_warning(d, out->warning, sizeof out->warning);
}

static uint64_t facts_version(void *ud) {
    struct sluice_device *d = ud;
    const double below = atomic_load_explicit(&d->drop_below, memory_order_relaxed);
    const uint64_t renorm = atomic_load_explicit(&d->drop_renorm, memory_order_relaxed);
    uint64_t bits;
    memcpy(&bits, &below, sizeof bits);
    return bits * 2 + renorm + ((uint64_t)atomic_load_explicit(&d->threads, memory_order_relaxed) << 1);
}

void facts_setup(struct sluice_device *d) {
    d->source = (struct facts_source){
        .ud = d, .engine = d->engine, .stats = facts_stats, .facts = facts_fill, .version = facts_version};
    d->steps.source = d->tracing.source = d->watch.source = &d->source;
    d->watch.steps = &d->steps;
}

/* ---- the model's file ------------------------------------------------------------------------- */

/* The architecture and the experts per token, once for each model. Here, where nothing is measured: it parses the whole
 * metadata. Programs may load one model after the other. */
static void facts_read_model(struct sluice_device *d) {
    char path[sizeof d->described], name[sizeof d->architecture] = "";
    engine_file_at(d->engine, 0, path, sizeof path);
    pthread_mutex_lock(&d->lock);
    const bool known = strcmp(path, d->described) == 0;
    pthread_mutex_unlock(&d->lock);
    if (!path[0] || known) {
        return; /* programs may make a context without weights first, to see what they need */
    }
    const struct gguf_init_params params = {.no_alloc = true};
    struct gguf_context *g = gguf_init_from_file(path, params);
    const int64_t key = g ? gguf_find_key(g, "general.architecture") : -1;
    if (key >= 0 && gguf_get_kv_type(g, key) == GGUF_TYPE_STRING) {
        snprintf(name, sizeof name, "%s", gguf_get_val_str(g, key));
    }
    char used[sizeof name + 32];
    snprintf(used, sizeof used, "%s.expert_used_count", name);
    const int64_t count = g ? gguf_find_key(g, used) : -1;
    const bool number = count >= 0 && gguf_get_kv_type(g, count) == GGUF_TYPE_UINT32;
    const uint32_t own = number ? gguf_get_val_u32(g, count) : 0;
    gguf_free(g);
    pthread_mutex_lock(&d->lock);
    memcpy(d->architecture, name, sizeof name);
    snprintf(d->described, sizeof d->described, "%s", path);
    d->expert_used = own;
    pthread_mutex_unlock(&d->lock);
}

/* Of a device that has something to show: atexit has no argument. One is registered in a process. */
static struct sluice_device *_Atomic facts_shown;

/* atexit, and when the plug-in is unloaded. */
static void facts_end(void) {
    struct sluice_device *d = facts_shown;
    watch_close(&d->watch);
    step_unpublish(&d->steps);
}

int facts_context(struct sluice_device *d, struct sluice_error *err) {
    const bool traced = route_trace_wanted(&d->tracing), watched = d->settings.window[0];
    if ((d->settings.publish || watched) && !atomic_exchange(&facts_shown, d)) {
        atexit(facts_end);
    }
    if (d->csv_wanted || traced || watched) {
        facts_read_model(d);
    }
    step_publish(&d->steps);
    if (traced) {
        tracing_read_model(&d->tracing, d->engine);
    }
    return watched ? watch_open(&d->watch, d->plugin, err) : SLUICE_OK;
}
