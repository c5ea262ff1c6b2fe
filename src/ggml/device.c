/*
 * device.c - what the parts of a device share: failures, notes for the mode line, counters.
 *
 * A device is a parameter of everything that needs it. ggml hands it back to us: it is the context of the
 * ggml_backend_dev_t (backend.c) and of the buffer type (buffer.c).
 */
#include "ggml/device.h"

#include <stdio.h>

#include "cache/error.h"

void device_report(struct sluice_device *d, const struct sluice_error *err) {
    pthread_mutex_lock(&d->lock);
    d->last_error = *err;
    pthread_mutex_unlock(&d->lock);
    if (d->plugin) {
        fprintf(stderr, "sluice: %s\n", err->message);
    }
}

bool device_refuses(struct sluice_device *d) {
    struct sluice_error err = d->bad_settings;
    if (err.status || (d->selftest.refused && d->selftest.refused(&err))) {
        device_report(d, &err);
        return true;
    }
    return false;
}

void device_note(struct sluice_device *d, enum device_note what, const char *why) {
    pthread_mutex_lock(&d->lock);
    if (!d->note[what][0]) {
        snprintf(d->note[what], sizeof d->note[what], "%s", why);
    }
    pthread_mutex_unlock(&d->lock);
}

struct sluice_settings device_settings(struct sluice_device *d) {
    pthread_mutex_lock(&d->lock);
    const struct sluice_settings settings = d->settings;
    pthread_mutex_unlock(&d->lock);
    return settings;
}

void device_stats(struct sluice_device *d, struct sluice_stats *out) {
    engine_stats(d->engine, out);
    cold_add_stats(&d->cold, out);
}

void device_keep_stats(struct sluice_device *d) {
    struct sluice_stats s;
    device_stats(d, &s);
    pthread_mutex_lock(&d->lock);
    struct sluice_stats *last = &d->last_stats;
    if (s.tensors >= last->tensors) {
        *last = s;
    } else {
        /* Buffers of a model go one by one: what there was stays as it was with all of them. */
        s.cold.tensors = last->cold.tensors;
        s.cold.cache_bytes = last->cold.cache_bytes;
        last->prompt = s.prompt;
        last->generation = s.generation;
        last->evictions = s.evictions;
        last->foreseen = s.foreseen;
        last->cold = s.cold;
    }
    pthread_mutex_unlock(&d->lock);
}

void device_last_stats(struct sluice_device *d, struct sluice_stats *out) {
    device_keep_stats(d);
    pthread_mutex_lock(&d->lock);
    *out = d->last_stats;
    pthread_mutex_unlock(&d->lock);
}
