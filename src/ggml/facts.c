/*
 * facts.c - what the registered device tells those who watch it.
 *
 * Steps, traces and the window (src/observe, src/window) know neither ggml nor the device. They ask a source, which is
 * filled in here, and begin with the first context: programs load plug-ins to list devices, and `sluice exec` hands the
 * settings on to every process of a program, of which only those that run a model have something to show.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml/backend.h"
#include "ggml/tracing.h"
#include "gguf.h"

static void facts_stats(void *ud, struct sluice_stats *out) {
    (void)ud;
    device_stats(out);
}

static void facts_fill(void *ud, struct facts *out) {
    struct sluice_device *d = ud;
    engine_file_path(d->engine, out->model, sizeof out->model);
    pthread_mutex_lock(&d->lock);
    const bool same = strcmp(out->model, d->described) == 0; /* else another model's file was read, this one not yet */
    out->settings = d->settings;
    out->experts_own = same ? d->expert_used : 0;
    snprintf(out->architecture, sizeof out->architecture, "%s", same ? d->architecture : "");
    pthread_mutex_unlock(&d->lock);
    out->threads = atomic_load(&d->threads);
    out->planned = sluice_get_plan(&out->plan);
    sluice_mode_line(out->mode, sizeof out->mode);
    sluice_warning_line(out->warning, sizeof out->warning);
}

static uint64_t facts_version(void *ud) {
    struct sluice_device *d = ud;
    const double below = atomic_load_explicit(&d->drop_below, memory_order_relaxed);
    const uint64_t renorm = atomic_load_explicit(&d->drop_renorm, memory_order_relaxed);
    uint64_t bits;
    memcpy(&bits, &below, sizeof bits);
    return bits * 2 + renorm + ((uint64_t)atomic_load_explicit(&d->threads, memory_order_relaxed) << 1);
}

/* The window changes a setting: window_source.set. */
static int facts_set(void *ud, const char *name, const struct sluice_settings *to, struct sluice_error *err) {
    (void)ud;
    if (strcmp(name, "cache") == 0) {
        return sluice_set_cache_budget(to->cache, to->cache_bytes, err);
    }
    if (strcmp(name, "drop_cold_experts") == 0) {
        return sluice_set_drop_cold_experts(to->drop_cold_experts, err);
    }
    if (strcmp(name, "drop_renorm") == 0) {
        return sluice_set_drop_renorm(to->drop_renorm, err);
    }
    return sluice_set_lookahead(to->lookahead, err);
}

void facts_setup(struct sluice_device *d) {
    d->source = (struct facts_source){
        .ud = d, .engine = d->engine, .stats = facts_stats, .facts = facts_fill, .version = facts_version};
    d->steps.source = d->tracing.source = d->watch.source = &d->source;
    d->watch.steps = &d->steps;
    d->watch.set = facts_set;
}

/* ---- the model's file ------------------------------------------------------------------------- */

/* The architecture and the experts per token, once for each model. Here, where nothing is measured: it parses the whole
 * metadata. Programs may load one model after the other. */
static void facts_read_model(struct sluice_device *d) {
    char path[sizeof d->described], name[sizeof d->architecture] = "";
    engine_file_path(d->engine, path, sizeof path);
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

/* atexit, and when the plug-in is unloaded. */
static void facts_end(void) {
    watch_close(&sluice_device.watch);
    step_unpublish(&sluice_device.steps);
}

int facts_context(struct sluice_device *d, struct sluice_error *err) {
    static _Atomic bool at_exit; /* facts_end will be called */
    if (!atomic_exchange(&at_exit, true)) {
        atexit(facts_end);
    }
    const bool traced = tracing_wanted(), watched = d->settings.window[0];
    if (d->csv_wanted || traced || watched) {
        facts_read_model(d);
    }
    step_publish(&d->steps);
    if (traced) {
        tracing_read_model();
    }
    return watched ? watch_open(&d->watch, d->plugin, err) : SLUICE_OK;
}

/* ---- the public functions --------------------------------------------------------------------- */

void sluice_step_begin(void) {
    step_begin();
}

void sluice_step_end(enum sluice_phase phase, uint32_t tokens, struct sluice_step *out) {
    step_end(&sluice_device.steps, phase, tokens, out);
}

int sluice_window_line(char *buf, size_t cap) {
    return watch_line(&sluice_device.watch, buf, cap);
}
