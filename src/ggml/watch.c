/*
 * watch.c - what the window shows of this process, and what it may change.
 *
 * The window (src/window/) knows neither ggml nor the engine; it gets a struct of numbers and three functions, these.
 * All are called by its thread: each takes a lock of the device or the engine for as long as it takes to copy, so that
 * a block that wants it at the same moment waits for a microsecond at most. The map is copied layer by layer for the
 * same reason.
 *
 * It opens with the first context, not when the plug-in is loaded: programs load plug-ins to list devices, and
 * `sluice exec` hands the settings on to every process of a program, of which only those that run a model should want
 * the port. It stays until the process ends, whatever models come and go. A user who asked for a window and cannot have
 * it would look at some other process's: so a context that cannot open it is not made.
 */
#include "ggml/watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml/backend.h"
#include "ggml/show.h"
#include "memory/cgroup.h"
#include "cache/error.h"
#include "window/window.h"

#define WATCH_WAIT 2.0 /* seconds that the end of the process waits for the window's */

/* ---- numbers --------------------------------------------------------------------------------- */

/*
 * Of files strangers see the names, not the folders. A path begins with the text or after a blank, and reaches to the
 * next of ":;,": so it is in all messages that the window passes on.
 */
static void watch_hide(char *text) {
    for (char *p = text; *p; p++) {
        if (*p != '/' || (p > text && p[-1] != ' ')) {
            continue;
        }
        const size_t n = strcspn(p, ":;,");
        size_t last = 0;
        for (size_t i = 0; i < n; i++) {
            last = p[i] == '/' ? i : last;
        }
        memmove(p, p + last + 1, strlen(p + last + 1) + 1);
        if (!*p) {
            break;
        }
    }
}

/* Finished steps. */
static void watch_steps(struct window_numbers *out) {
    struct step_log *log = &sluice_device.steps;
    pthread_mutex_lock(&log->lock);
    memcpy(out->ended, log->shown.ended, sizeof out->ended);
    pthread_mutex_unlock(&log->lock);
}

/* What is known of the model. */
static void watch_model(struct window_numbers *out) {
    struct engine_layer layers[WINDOW_LAYERS_MAX];
    struct engine_group group = {0};
    struct engine_arena arena;
    char path[SLUICE_PATH_MAX];
    const uint32_t n = engine_layers(sluice_device.engine, layers, WINDOW_LAYERS_MAX);
    out->experts = 0;
    for (uint32_t i = 0; i < n; i++) {
        out->experts = layers[i].experts > out->experts ? layers[i].experts : out->experts;
    }
    engine_groups(sluice_device.engine, &group, 1, &arena);
    out->experts_used = group.top_k;
    engine_file_path(sluice_device.engine, path, sizeof path);
    const char *slash = strrchr(path, '/');
    snprintf(out->model, sizeof out->model, "%.*s", (int)sizeof out->model - 1, slash ? slash + 1 : path);
}

static void watch_memory(struct window_numbers *out) {
    out->anonymous_bytes = out->file_bytes = out->shared_bytes = 0; /* what cannot be read */
    plan_field_in("/proc/self/status", "RssAnon:", 1024, &out->anonymous_bytes);
    plan_field_in("/proc/self/status", "RssFile:", 1024, &out->file_bytes);
    plan_field_in("/proc/self/status", "RssShmem:", 1024, &out->shared_bytes);
}

/* The mode line. That the model was told to use another number of experts, only the window knows: it read the file. */
static void watch_mode(struct window_numbers *out) {
    static const char lossless[] = ", lossless";
    sluice_mode_line(out->mode, sizeof out->mode);
    watch_hide(out->mode); /* why something does not stream may name a file */
    if (!out->experts_own || !out->experts_used || out->experts_own == out->experts_used) {
        return;
    }
    out->lossy = true;
    char *word = strstr(out->mode, lossless);
    if (word) {
        memmove(word, word + sizeof lossless - 1, strlen(word + sizeof lossless - 1) + 1);
    }
    const size_t n = strlen(out->mode);
    snprintf(out->mode + n, sizeof out->mode - n, ", lossy: %u experts per token", out->experts_used);
}

static void watch_numbers(void *ud, struct window_numbers *out, bool all) {
    struct sluice_device *d = ud;
    struct sluice_error failed;
    char path[SLUICE_PATH_MAX];
    device_stats(&out->stats);
    watch_steps(out);
    if (!all) {
        return;
    }
    engine_file_path(d->engine, path, sizeof path);
    pthread_mutex_lock(&d->lock);
    const bool same = strcmp(path, d->described) == 0; /* else another model's file was read, and this one not yet */
    out->settings = d->settings;
    out->experts_own = same ? d->expert_used : 0;
    snprintf(out->architecture, sizeof out->architecture, "%s", same ? d->architecture : "");
    pthread_mutex_unlock(&d->lock);
    if (strcmp(out->architecture, "unknown") == 0) {
        out->architecture[0] = '\0';
    }
    out->planned = sluice_get_plan(&out->plan);
    out->lossy = out->settings.drop_cold_experts > 0;
    watch_model(out);
    watch_memory(out);
    watch_mode(out);
    sluice_warning_line(out->warning, sizeof out->warning);
    show_program(out->program, sizeof out->program);
    engine_read_error(d->engine, &failed);
    snprintf(out->error, sizeof out->error, "%s", failed.status ? failed.message : "");
    watch_hide(out->error);
}

/* ---- the map --------------------------------------------------------------------------------- */

_Static_assert((int)ENGINE_COLD == WINDOW_COLD && (int)ENGINE_READING == WINDOW_READING &&
                   (int)ENGINE_RESIDENT == WINDOW_RESIDENT && (int)ENGINE_IN_USE == WINDOW_IN_USE,
               "the window's states are the engine's");

static bool watch_layer(void *ud, uint32_t i, struct window_layer *out) {
    const struct sluice_device *d = ud;
    return engine_bundles(d->engine, i, out->state, out->uses, WINDOW_EXPERTS_MAX, &out->experts, &out->top_k);
}

/* ---- settings -------------------------------------------------------------------------------- */

static int watch_set(void *ud, const char *name, const struct sluice_settings *to, struct sluice_error *err) {
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

/* ---- life ------------------------------------------------------------------------------------ */

/* atexit, and when the plug-in is unloaded. A window that is waiting for a block is left to the end of the process. */
static void watch_close(void) {
    struct watch *w = &sluice_device.watch;
    pthread_mutex_lock(&w->lock);
    struct window *window = w->window;
    w->window = NULL;
    pthread_mutex_unlock(&w->lock);
    window_stop(window, WATCH_WAIT);
}

int watch_open(struct sluice_error *err) {
    struct watch *w = &sluice_device.watch;
    const struct sluice_settings *s = &sluice_device.settings; /* of these fields nobody changes any */
    const struct window_source source = {
        .ud = &sluice_device, .numbers = watch_numbers, .layer = watch_layer, .set = watch_set};
    const struct window_params params = {.address = s->window,
                                         .allow_remote = s->window_allow_remote,
                                         .token = getenv("SLUICE_WINDOW_TOKEN"),
                                         .chat = getenv("SLUICE_WINDOW_CHAT"),
                                         .disk = getenv("SLUICE_WINDOW_DISK")};
    pthread_mutex_lock(&w->lock);
    int rc = sluice_ok(err);
    if (!w->window) {
        rc = window_start(&w->window, &params, &source, err);
        if (rc == SLUICE_OK && sluice_device.plugin) {
            fprintf(stderr, "sluice: window: %s\n", window_url(w->window));
        }
        if (rc == SLUICE_OK && !w->at_exit) {
            w->at_exit = atexit(watch_close) == 0;
        }
    }
    pthread_mutex_unlock(&w->lock);
    return rc;
}

int sluice_window_line(char *buf, size_t cap) {
    struct watch *w = &sluice_device.watch;
    pthread_mutex_lock(&w->lock);
    const int n = w->window ? snprintf(buf, cap, "window: %s", window_url(w->window)) : snprintf(buf, cap, "%s", "");
    pthread_mutex_unlock(&w->lock);
    return n;
}
