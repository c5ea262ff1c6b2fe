/*
 * show.c - what `sluice top` sees of this process.
 *
 * The file is written at the end of each step: a microsecond, where the shortest step takes a millisecond. In a long
 * step it is written at the end of a split, once a tenth of a second. It is made when a context is made for a model
 * that streams, and removed with the last such model or at the end of the process, whichever is first. Where it cannot
 * be made there is nothing to see, which is no reason not to run.
 */
#include "ggml/show.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml/backend.h"
#include "cache/clock.h"

enum { SHOW_EVERY_MS = 100 }; /* within a step */

/* Bring the file, if there is one, up to the counters *st at time t. Caller holds the log's lock. */
static void show_write(struct step_log *log, const struct sluice_stats *st, double t) {
    struct stat_data *d = &log->shown;
    struct engine_layer layers[STAT_LAYERS_MAX];
    if (!log->stat) {
        return;
    }
    const double below = atomic_load_explicit(&sluice_device.drop_below, memory_order_relaxed);
    /* The arena was cut: now auto is decided. Or what is lossy was changed. */
    const bool renorm = atomic_load_explicit(&sluice_device.drop_renorm, memory_order_relaxed);
    if (d->stats.cache_bytes != st->cache_bytes || log->shown_below != below || log->shown_renorm != renorm ||
        !d->mode[0]) {
        log->shown_below = below;
        log->shown_renorm = renorm;
        sluice_mode_line(d->mode, sizeof d->mode);
        engine_file_path(sluice_device.engine, d->model, sizeof d->model);
    }
    d->updated = t;
    d->threads = (uint64_t)sluice_device.threads;
    d->stats = *st;
    d->n_layers = engine_layers(sluice_device.engine, layers, STAT_LAYERS_MAX);
    for (uint32_t i = 0; i < d->n_layers; i++) {
        d->layer[i] = (struct stat_layer){.resident = layers[i].resident, .experts = layers[i].experts};
    }
    stat_write(log->stat, d);
    log->shown_at = t;
}

void show_step(struct step_log *log, const struct sluice_step *s, double t) {
    if (s->tokens) {
        struct stat_data *d = &log->shown;
        counters_add_step(&d->ended[s->phase], s);
        d->ended[s->phase].ended = t;
        d->step[d->n_steps++ % STAT_STEPS] = *s;
    }
    show_write(log, &log->last, t); /* each: the last one before a pause is what will be looked at */
}

void show_split(double t) {
    struct step_log *log = &sluice_device.steps;
    pthread_mutex_lock(&log->lock);
    if (log->stat && t - log->shown_at >= 1e-3 * SHOW_EVERY_MS) {
        struct sluice_stats st;
        device_stats(&st);
        show_write(log, &st, t);
    }
    pthread_mutex_unlock(&log->lock);
}

void show_program(char *name, int n) {
    FILE *f = fopen("/proc/self/comm", "re");
    name[0] = '\0';
    if (f) {
        if (!fgets(name, n, f)) {
            name[0] = '\0';
        }
        fclose(f);
    }
    name[strcspn(name, "\n")] = '\0';
}

void step_publish(void) {
    struct step_log *log = &sluice_device.steps;
    struct sluice_stats st;
    device_stats(&st);
    if (!sluice_device.settings.publish || st.tensors == 0) {
        return;
    }
    pthread_mutex_lock(&log->lock);
    if (!log->stat && stat_create(&log->stat, NULL) == SLUICE_OK) {
        show_program(log->shown.program, sizeof log->shown.program);
        snprintf(log->shown.version, sizeof log->shown.version, "%s", SLUICE_VERSION);
        log->shown.mode[0] = '\0'; /* of a model that is gone */
        if (!log->at_exit) {
            log->at_exit = atexit(step_unpublish) == 0;
        }
    }
    show_write(log, &st, clock_seconds());
    pthread_mutex_unlock(&log->lock);
}

void step_unpublish(void) {
    struct step_log *log = &sluice_device.steps;
    pthread_mutex_lock(&log->lock);
    stat_remove(log->stat);
    log->stat = NULL;
    pthread_mutex_unlock(&log->lock);
}
