/*
 * api.c - the registered device, and the public functions of include/sluice.h, which concern it.
 *
 * The one global device of the process: ggml's registry keeps pointers to it for good, and a program that calls a
 * public function has no handle to pass. Nothing below this file and plugin.c knows which device is registered.
 */
#include "api/api.h"

#include <string.h>

#include "ggml/backend.h"
#include "ggml/budget.h"
#include "ggml/match.h"
#include "ggml/mode.h"
#include "memory/settings.h"
#include "selftest/selftest.h"
#include "cache/error.h"

struct sluice_device api_device = DEVICE_EMPTY;

/* ---- registration ------------------------------------------------------------------------------ */

/* The window changes a setting: watch.set. */
static int api_set(void *ud, const char *name, const struct sluice_settings *to, struct sluice_error *err) {
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

int api_setup(const struct sluice_settings *s, bool plugin, struct sluice_error *err) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* two threads may register at once */
    struct sluice_device *d = &api_device;
    pthread_mutex_lock(&lock);
    const bool ready = d->ready;
    const int rc = backend_setup(d, s, plugin, budget_make, err);
    if (rc == SLUICE_OK && !ready) {
        d->selftest = (struct device_selftest){.require = selftest_require, .refused = selftest_refused};
        d->watch.set = api_set;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

int sluice_register(const struct sluice_settings *s, struct sluice_error *err) {
    int rc = settings_check(s, err);
    rc = rc ? rc : api_setup(s, false, err);
    if (rc == SLUICE_OK) {
        ggml_backend_register(&api_device.reg);
    }
    return rc;
}

/* The registered device, or NULL and *err. */
static struct sluice_device *api_registered(struct sluice_error *err) {
    if (!atomic_load(&api_device.ready)) {
        sluice_fail(err, SLUICE_ERR_STATE, "sluice is not registered in this process");
        return NULL;
    }
    return &api_device;
}

/* ---- settings that change while models run ------------------------------------------------------ */

int sluice_set_cache_budget(enum sluice_cache_mode cache, uint64_t bytes, struct sluice_error *err) {
    struct sluice_device *d = api_registered(err);
    if (!d) {
        return SLUICE_ERR_STATE;
    }
    if (cache == SLUICE_CACHE_FIXED && bytes == 0) {
        return sluice_fail(err, SLUICE_ERR_ARG, "a fixed cache of 0 bytes");
    }
    pthread_mutex_lock(&d->resize_lock);
    pthread_mutex_lock(&d->lock);
    const struct sluice_settings before = d->settings;
    const struct sluice_plan plan = d->plan;
    d->settings.cache = cache;
    d->settings.cache_bytes = cache == SLUICE_CACHE_FIXED ? bytes : 0;
    pthread_mutex_unlock(&d->lock);
    int rc = engine_resize(d->engine, err);
    if (rc == SLUICE_OK) {
        rc = engine_check(d->engine, err); /* no arena yet: at least say now what cannot work */
    }
    if (rc == SLUICE_OK && d->cold.engine) {
        engine_resize(d->cold.engine, NULL); /* its part; without memory to grow it stays as it is, which works */
    }
    if (rc) {
        /* The arena is as it was: so are the settings and the plan, which the engine asked for before it failed. */
        pthread_mutex_lock(&d->lock);
        d->settings.cache = before.cache;
        d->settings.cache_bytes = before.cache_bytes;
        d->plan = plan;
        pthread_mutex_unlock(&d->lock);
    }
    pthread_mutex_unlock(&d->resize_lock);
    return rc;
}

int sluice_set_drop_cold_experts(double below, struct sluice_error *err) {
    struct sluice_device *d = api_registered(err);
    if (!d) {
        return SLUICE_ERR_STATE;
    }
    pthread_mutex_lock(&d->resize_lock);
    const int rc = settings_check_drop(below, d->settings.cache, err);
    if (rc == SLUICE_OK) {
        pthread_mutex_lock(&d->lock);
        d->settings.drop_cold_experts = below;
        pthread_mutex_unlock(&d->lock);
        atomic_store(&d->drop_below, below);
    }
    pthread_mutex_unlock(&d->resize_lock);
    return rc;
}

int sluice_set_drop_renorm(bool on, struct sluice_error *err) {
    struct sluice_device *d = api_registered(err);
    if (!d) {
        return SLUICE_ERR_STATE;
    }
    pthread_mutex_lock(&d->lock);
    d->settings.drop_renorm = on;
    pthread_mutex_unlock(&d->lock);
    atomic_store(&d->drop_renorm, on);
    return sluice_ok(err);
}

int sluice_set_lookahead(bool on, struct sluice_error *err) {
    struct sluice_device *d = api_registered(err);
    if (!d) {
        return SLUICE_ERR_STATE;
    }
    pthread_mutex_lock(&d->lock);
    d->settings.lookahead = on;
    pthread_mutex_unlock(&d->lock);
    engine_set_lookahead(d->engine, on);
    return sluice_ok(err);
}

void sluice_set_streaming(bool on) {
    match_set_streaming(on);
}

void sluice_get_stats(struct sluice_stats *out) {
    memset(out, 0, sizeof *out);
    if (atomic_load(&api_device.ready)) {
        device_stats(&api_device, out);
    }
}

bool sluice_take_error(struct sluice_error *out) {
    pthread_mutex_lock(&api_device.lock);
    *out = api_device.last_error;
    sluice_ok(&api_device.last_error);
    pthread_mutex_unlock(&api_device.lock);
    return out->status != SLUICE_OK;
}

const char *sluice_version(void) {
    return SLUICE_VERSION;
}

/* ---- what is said ------------------------------------------------------------------------------- */

int sluice_mode_line(char *buf, size_t cap) {
    return mode_line(&api_device, buf, cap);
}

int sluice_warning_line(char *buf, size_t cap) {
    return mode_warning(&api_device, buf, cap);
}

bool sluice_get_plan(struct sluice_plan *out) {
    return mode_plan(&api_device, out);
}

int sluice_plan_line(char *buf, size_t cap) {
    return mode_plan_line(&api_device, buf, cap);
}

int sluice_window_line(char *buf, size_t cap) {
    return watch_line(&api_device.watch, buf, cap);
}

/* ---- steps and traces ---------------------------------------------------------------------------- */

void sluice_step_begin(void) {
    step_begin();
}

void sluice_step_end(enum sluice_phase phase, uint32_t tokens, struct sluice_step *out) {
    step_end(&api_device.steps, phase, tokens, out);
}

int sluice_route_trace_open(const char *path, const char *probs, struct sluice_error *err) {
    return route_trace_open(&api_device.tracing, path, probs, err);
}

int sluice_route_trace_close(struct sluice_error *err) {
    return route_trace_close(&api_device.tracing, err);
}
