/*
 * api.c - the public functions of include/sluice.h that concern the registered device.
 */
#include <stdio.h>
#include <string.h>

#include "ggml/backend.h"
#include "ggml/lossy.h"
#include "memory/settings.h"
#include "cache/error.h"

int sluice_register(const struct sluice_settings *s, struct sluice_error *err) {
    int rc = settings_check(s, err);
    rc = rc ? rc : device_setup(s, false, err);
    if (rc) {
        return rc;
    }
    ggml_backend_register(&sluice_device.reg);
    return SLUICE_OK;
}

int sluice_set_cache_budget(enum sluice_cache_mode cache, uint64_t bytes, struct sluice_error *err) {
    struct sluice_device *d = &sluice_device;
    if (!d->engine) {
        return sluice_fail(err, SLUICE_ERR_STATE, "sluice is not registered in this process");
    }
    if (cache == SLUICE_CACHE_FIXED && bytes == 0) {
        return sluice_fail(err, SLUICE_ERR_ARG, "a fixed cache of 0 bytes");
    }
    pthread_mutex_lock(&d->resize_lock);
    pthread_mutex_lock(&d->lock);
    const enum sluice_cache_mode cache_before = d->settings.cache;
    const uint64_t bytes_before = d->settings.cache_bytes;
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
        pthread_mutex_lock(&d->lock);
        d->settings.cache = cache_before;
        d->settings.cache_bytes = bytes_before;
        pthread_mutex_unlock(&d->lock);
    }
    pthread_mutex_unlock(&d->resize_lock);
    return rc;
}

int sluice_set_drop_cold_experts(double below, struct sluice_error *err) {
    struct sluice_device *d = &sluice_device;
    if (!d->engine) {
        return sluice_fail(err, SLUICE_ERR_STATE, "sluice is not registered in this process");
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
    struct sluice_device *d = &sluice_device;
    if (!d->engine) {
        return sluice_fail(err, SLUICE_ERR_STATE, "sluice is not registered in this process");
    }
    pthread_mutex_lock(&d->lock);
    d->settings.drop_renorm = on;
    pthread_mutex_unlock(&d->lock);
    atomic_store(&d->drop_renorm, on);
    return sluice_ok(err);
}

int sluice_set_lookahead(bool on, struct sluice_error *err) {
    struct sluice_device *d = &sluice_device;
    if (!d->engine) {
        return sluice_fail(err, SLUICE_ERR_STATE, "sluice is not registered in this process");
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
    if (sluice_device.engine) {
        device_stats(out);
    }
}

bool sluice_take_error(struct sluice_error *out) {
    pthread_mutex_lock(&sluice_device.lock);
    *out = sluice_device.last_error;
    sluice_ok(&sluice_device.last_error);
    pthread_mutex_unlock(&sluice_device.lock);
    return out->status != SLUICE_OK;
}

int sluice_mode_line(char *buf, size_t cap) {
    struct sluice_stats st;
    char why[256], dense[256], cache[96], reads[192], lossy[512];
    pthread_mutex_lock(&sluice_device.lock);
    snprintf(why, sizeof why, "%s", sluice_device.plain_reason);
    snprintf(dense, sizeof dense, "%s", sluice_device.dense_reason);
    const bool automatic = sluice_device.settings.cache == SLUICE_CACHE_AUTO; /* it may be changed meanwhile */
    pthread_mutex_unlock(&sluice_device.lock);
    sluice_get_stats(&st);
    if (st.tensors == 0) {
        return snprintf(buf, cap, "resident: %s", why[0] ? why : "no expert tensors to stream");
    }
    bool cut = false;
    const uint64_t budget = engine_budget(sluice_device.engine, &cut);
    if (!cut) {
        snprintf(cache, sizeof cache, "cache %s", automatic ? "auto, sized at the first token" : "as set");
    } else if (budget) {
        snprintf(cache, sizeof cache, "cache %llu MiB%s %s (room for %llu experts)",
                 (unsigned long long)(st.cache_bytes >> 20), automatic ? " auto" : "",
                 sluice_device.settings.policy == SLUICE_POLICY_LRU ? "lru" : "cycle", (unsigned long long)st.slots);
    } else {
        snprintf(cache, sizeof cache, "cache off%s, %llu MiB staging",
                 automatic ? " (auto: too little memory is left)" : "", (unsigned long long)(st.cache_bytes >> 20));
    }
    if (st.direct_io) {
        snprintf(reads, sizeof reads, "direct reads");
    } else {
        char reason[96];
        engine_buffered_reason(sluice_device.engine, reason, sizeof reason);
        snprintf(reads, sizeof reads, "buffered reads (%s)", reason);
    }
    lossy_describe(lossy, sizeof lossy);
    return snprintf(buf, cap, "streaming %u expert tensors (%.1f MiB), %s, %s, %u lanes, %s%s%s%s%s", st.tensors,
                    (double)st.bank_bytes / (1 << 20), cache, reads, st.lanes, lossy, why[0] ? "; not streamed: " : "",
                    why, dense[0] ? "; dense weights stay in the page cache: " : "", dense);
}

const char *sluice_version(void) {
    return SLUICE_VERSION;
}
