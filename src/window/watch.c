/*
 * watch.c - what the window shows of this process, and what it may change.
 *
 * The rest of the window knows neither engine nor models; it gets a struct of numbers and three functions, these. All
 * are called by its thread: each takes a lock of the device or the engine for as long as it takes to copy, so that a
 * block that wants it at the same moment waits for a microsecond at most. The map is copied layer by layer for the same
 * reason.
 *
 * It stays until the process ends, whatever models come and go. A user who asked for a window and cannot have it would
 * look at some other process's: so a context that cannot open it is not made.
 */
#include "window/watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/check.h"
#include "cache/error.h"
#include "memory/process.h"
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

/* What is known of the model. */
static void watch_model(struct engine *e, struct window_numbers *out) {
    struct engine_layer layers[WINDOW_LAYERS_MAX];
    struct engine_group group = {0};
    struct engine_arena arena;
    const uint32_t n = engine_layers(e, layers, WINDOW_LAYERS_MAX);
    out->experts = 0;
    for (uint32_t i = 0; i < n; i++) {
        out->experts = layers[i].experts > out->experts ? layers[i].experts : out->experts;
    }
    engine_groups(e, &group, 1, &arena);
    out->experts_used = group.top_k;
    const char *path = out->facts.model, *slash = strrchr(path, '/');
    snprintf(out->model, sizeof out->model, "%.*s", (int)sizeof out->model - 1, slash ? slash + 1 : path);
}

static void watch_memory(struct window_numbers *out) {
    struct plan_process p;
    plan_process_resident(&p, "");
    out->anonymous_bytes = p.anon - p.shared;
    out->file_bytes = p.files;
    out->shared_bytes = p.shared;
}

/* What changes the output. That the model was told to use another number of experts, only the window knows: it read the
 * file. */
static void watch_lossy(struct window_numbers *out) {
    static const char lossless[] = ", lossless";
    char *mode = out->facts.mode;
    const uint32_t own = out->facts.experts_own;
    out->lossy = out->facts.settings.drop_cold_experts > 0;
    if (!own || !out->experts_used || own == out->experts_used) {
        return;
    }
    out->lossy = true;
    char *word = strstr(mode, lossless);
    if (word) {
        memmove(word, word + sizeof lossless - 1, strlen(word + sizeof lossless - 1) + 1);
    }
    const size_t n = strlen(mode);
    snprintf(mode + n, sizeof out->facts.mode - n, ", lossy: %u experts per token", out->experts_used);
}

static void watch_numbers(void *ud, struct window_numbers *out, bool all) {
    const struct watch *w = ud;
    const struct facts_source *from = w->source;
    struct sluice_error failed;
    from->stats(from->ud, &out->stats);
    step_ended(w->steps, out->ended);
    if (!all) {
        return;
    }
    from->facts(from->ud, &out->facts);
    watch_model(from->engine, out);
    watch_memory(out);
    watch_lossy(out);
    watch_hide(out->facts.mode); /* why something does not stream may name a file */
    step_program(out->program, sizeof out->program);
    engine_read_error(from->engine, &failed);
    snprintf(out->error, sizeof out->error, "%s", failed.status ? failed.message : "");
    watch_hide(out->error);
}

/* ---- the map --------------------------------------------------------------------------------- */

static bool watch_layer(void *ud, uint32_t i, struct window_layer *out) {
    const struct watch *w = ud;
    return engine_bundles(w->source->engine, i, out->state, out->uses, WINDOW_EXPERTS_MAX, &out->experts, &out->top_k);
}

/* ---- life ------------------------------------------------------------------------------------ */

void watch_close(struct watch *w) {
    check_lock(&w->lock);
    struct window *window = w->window;
    w->window = NULL;
    check_unlock(&w->lock);
    window_stop(window, WATCH_WAIT);
}

int watch_open(struct watch *w, bool print, struct sluice_error *err) {
    struct facts facts;
    w->source->facts(w->source->ud, &facts);
    const struct window_source source = {.ud = w, .numbers = watch_numbers, .layer = watch_layer, .set = w->set};
    const struct window_params params = {.address = facts.settings.window,
                                         .allow_remote = facts.settings.window_allow_remote,
                                         .token = getenv("SLUICE_WINDOW_TOKEN"),
                                         .chat = getenv("SLUICE_WINDOW_CHAT"),
                                         .disk = getenv("SLUICE_WINDOW_DISK")};
    check_lock(&w->lock);
    int rc = sluice_ok(err);
    if (!w->window) {
        rc = window_start(&w->window, &params, &source, err);
        if (rc == SLUICE_OK && print) {
            fprintf(stderr, "sluice: window: %s\n", window_url(w->window));
        }
    }
    check_unlock(&w->lock);
    return rc;
}

int watch_line(struct watch *w, char *buf, size_t cap) {
    check_lock(&w->lock);
    const int n = w->window ? snprintf(buf, cap, "window: %s", window_url(w->window)) : snprintf(buf, cap, "%s", "");
    check_unlock(&w->lock);
    return n;
}
