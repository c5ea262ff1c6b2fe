/*
 * mode.c - what a device does, in lines for its user.
 *
 * The mode line says whether experts stream, from what and how, and everything that is not as the user might think:
 * what is lossy, what could not be streamed, which weights stay in the page cache. `sluice run`, host programs with
 * the plug-in, `sluice top` and the window show the same lines.
 */
#include "ggml/mode.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ggml/device.h"
#include "memory/ledger.h"
#include "memory/settings.h"

enum { MODE_FEW = 4 }; /* experts per token up to which leaving some out costs much quality */

/* "0.50", "1e-09", whatever sign the program's locale puts before a fraction. */
static void mode_share(double x, char *buf, size_t cap) {
    char text[32];
    size_t at = 0;
    snprintf(text, sizeof text, x < 0.01 ? "%.3g" : x * 100 == floor(x * 100) ? "%.2f" : "%.6g", x);
    for (const char *p = text; *p && at + 1 < cap; p++) {
        const bool sign = !((*p >= '0' && *p <= '9') || *p == 'e' || *p == '-');
        if (!sign || (at && buf[at - 1] != '.')) { /* a sign may be several bytes */
            buf[at++] = sign ? '.' : *p;
        }
    }
    buf[at] = '\0';
}

/* What is lossy, for the mode line. */
static int mode_lossy(struct sluice_device *d, char *buf, size_t cap) {
    const double below = atomic_load_explicit(&d->drop_below, memory_order_relaxed);
    char why[256];
    bool cut = false;
    if (!(below > 0)) {
        return snprintf(buf, cap, "lossless");
    }
    pthread_mutex_lock(&d->lock);
    snprintf(why, sizeof why, "%s", d->note[DEVICE_NOT_LOSSY]);
    pthread_mutex_unlock(&d->lock);
    if (d->engine && engine_budget(d->engine, &cut) == 0 && cut) {
        snprintf(why, sizeof why, "there is no cache");
    }
    char share[32], copies[160];
    mode_share(below, share, sizeof share);
    if (cold_describe(&d->cold, copies, sizeof copies)) {
        return snprintf(buf, cap, "lossy: cold experts below %s/k from %s%s, %s%s%s", share, copies,
                        d->settings.drop_in_prefill ? ", prompts too" : "",
                        d->settings.drop_reproducible ? "reproducible for this size of cache" : "not reproducible",
                        why[0] ? "; where nothing is: " : "", why);
    }
    return snprintf(buf, cap, "lossy: drop cold experts below %s/k%s, %s, %s%s%s", share,
                    d->settings.drop_in_prefill ? ", prompts too" : "",
                    atomic_load_explicit(&d->drop_renorm, memory_order_relaxed) ? "renormalised" : "not renormalised",
                    d->settings.drop_reproducible ? "reproducible for this size of cache" : "not reproducible",
                    why[0] ? "; where nothing is dropped: " : "", why);
}

int mode_warning(const struct sluice_device *d, char *buf, size_t cap) {
    const uint32_t k = atomic_load_explicit(&d->top_k, memory_order_relaxed);
    if (!(atomic_load_explicit(&d->drop_below, memory_order_relaxed) > 0) || k < 2 || k > MODE_FEW) {
        /* With one expert per token none is ever dropped. */
        return snprintf(buf, cap, "%s", "");
    }
    return snprintf(buf, cap,
                    "this model uses %u experts per token: each carries much of the output, and dropping them costs "
                    "much quality",
                    k);
}

int mode_line(struct sluice_device *d, char *buf, size_t cap) {
    struct sluice_stats st = {0};
    char why[256], dense[256], cache[96], reads[192], lossy[768];
    pthread_mutex_lock(&d->lock);
    snprintf(why, sizeof why, "%s", d->note[DEVICE_NOT_STREAMED]);
    snprintf(dense, sizeof dense, "%s", d->note[DEVICE_NOT_HELD]);
    const bool automatic = d->settings.cache == SLUICE_CACHE_AUTO; /* it may be changed meanwhile */
    pthread_mutex_unlock(&d->lock);
    if (atomic_load(&d->ready)) {
        device_stats(d, &st);
    }
    if (st.tensors == 0) {
        return snprintf(buf, cap, "resident: %s", why[0] ? why : "no expert tensors to stream");
    }
    bool cut = false;
    const uint64_t budget = engine_budget(d->engine, &cut);
    if (!cut) {
        snprintf(cache, sizeof cache, "cache %s", automatic ? "auto, sized at the first token" : "as set");
    } else if (budget) {
        snprintf(cache, sizeof cache, "cache %llu MiB%s %s (room for %llu experts)",
                 (unsigned long long)(st.cache_bytes >> 20), automatic ? " auto" : "",
                 settings_word(&d->settings, "cache_policy"), (unsigned long long)st.slots);
    } else {
        snprintf(cache, sizeof cache, "cache off%s, %llu MiB staging",
                 automatic ? " (auto: too little memory is left)" : "", (unsigned long long)(st.cache_bytes >> 20));
    }
    if (st.direct_io) {
        snprintf(reads, sizeof reads, "direct reads");
    } else {
        char reason[96];
        engine_buffered_reason(d->engine, reason, sizeof reason);
        snprintf(reads, sizeof reads, "buffered reads (%s)", reason);
    }
    mode_lossy(d, lossy, sizeof lossy);
    return snprintf(buf, cap, "streaming %u expert tensors (%.1f MiB), %s, %s, %u lanes, %s%s%s%s%s", st.tensors,
                    (double)st.bank_bytes / (1 << 20), cache, reads, st.lanes, lossy, why[0] ? "; not streamed: " : "",
                    why, dense[0] ? "; dense weights stay in the page cache: " : "", dense);
}

bool mode_plan(struct sluice_device *d, struct sluice_plan *out) {
    bool cut = false;
    memset(out, 0, sizeof *out);
    if (atomic_load(&d->ready)) {
        engine_budget(d->engine, &cut);
    }
    if (cut) {
        pthread_mutex_lock(&d->lock);
        *out = d->plan;
        pthread_mutex_unlock(&d->lock);
    }
    return cut;
}

int mode_plan_line(struct sluice_device *d, char *buf, size_t cap) {
    struct sluice_plan p;
    char rows[256], limit[96] = "";
    if (!mode_plan(d, &p)) {
        return snprintf(buf, cap, "%s", "");
    }
    if (p.limit_bytes) {
        snprintf(limit, sizeof limit, " of %llu (%s)", (unsigned long long)(p.limit_bytes >> 20),
                 p.limit_by_setting ? "as set" : "machine or cgroup");
    }
    plan_rows(&p, rows, sizeof rows);
    return snprintf(buf, cap, "memory: plan %llu MiB%s: %s", (unsigned long long)(p.total_bytes >> 20), limit, rows);
}

void mode_print(struct sluice_device *d) {
    const bool wanted = d->plugin && !d->settings.quiet;
    if (!wanted || atomic_load_explicit(&d->mode_printed, memory_order_relaxed) ||
        atomic_exchange(&d->mode_printed, true)) {
        return;
    }
    char line[1024];
    mode_line(d, line, sizeof line);
    fprintf(stderr, "sluice: %s\n", line);
    if (mode_warning(d, line, sizeof line) > 0) {
        fprintf(stderr, "sluice: warning: %s\n", line);
    }
    if (mode_plan_line(d, line, sizeof line) > 0) {
        fprintf(stderr, "sluice: %s\n", line);
    }
}
