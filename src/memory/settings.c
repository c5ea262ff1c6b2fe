/*
 * settings.c - settings from text.
 *
 * One table for the environment of host programs and for the command's flags, so that a value
 * means the same everywhere. Parsing is strict: a value is understood completely or refused by
 * name. (An engine whose BMOE_CACHE_MB=auto parsed as 0, cache off, shows why.)
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/address.h"
#include "memory/settings.h"
#include "sluice.h"
#include "cache/error.h"

/*
 * Do the experts that are left get the weight of those left out? No: measured at four thresholds, their divergence from
 * the lossless run is 1.9 to 3.1 times as large then (docs/quality.md).
 */
enum { SETTINGS_RENORM = 0 };

void sluice_settings_default(struct sluice_settings *s) {
    *s = (struct sluice_settings){
        .cache = SLUICE_CACHE_AUTO,
        .staging_bytes = (uint64_t)256 << 20,
        .dense = SLUICE_DENSE_ANON,
        .policy = SLUICE_POLICY_CYCLE,
        .lookahead = true,
        .direct_io = true,
        .io = SLUICE_IO_AUTO,
        .io_threads = 4,
        .publish = true,
        .drop_renorm = SETTINGS_RENORM,
    };
}

/* Does text equal lower, which is in lower case, in any case? strcasecmp asks the locale: in Turkish, I is not i. */
static bool settings_same_letters(const char *text, const char *lower) {
    for (; *text && *lower; text++, lower++) {
        const char c = *text >= 'A' && *text <= 'Z' ? (char)(*text - 'A' + 'a') : *text;
        if (c != *lower) {
            return false;
        }
    }
    return *text == *lower;
}

bool sluice_parse_size(const char *text, uint64_t *bytes) {
    static const struct {
        const char *suffix; /* in lower case */
        int shift;          /* bytes are value << shift */
    } units[] = {
        {"", 20},    {"b", 0},  {"k", 10},  {"kb", 10},  {"kib", 10}, {"m", 20},  {"mb", 20},
        {"mib", 20}, {"g", 30}, {"gb", 30}, {"gib", 30}, {"t", 40},   {"tb", 40}, {"tib", 40},
    };
    if (!text || text[0] < '0' || text[0] > '9') {
        return false;
    }
    unsigned __int128 whole = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++) {
        whole = whole * 10 + (uint64_t)(*p - '0');
        if (whole > INT64_MAX) {
            return false;
        }
    }
    /* The fraction as a ratio of integers: exact, and independent of the locale. */
    uint64_t part = 0, scale = 1;
    if (*p == '.') {
        p++;
        if (*p < '0' || *p > '9') {
            return false;
        }
        for (; *p >= '0' && *p <= '9'; p++) {
            if (scale >= 1000000) {
                return false;
            }
            part = part * 10 + (uint64_t)(*p - '0');
            scale *= 10;
        }
    }
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (settings_same_letters(p, units[i].suffix)) {
            if (units[i].shift == 0 && scale > 1) {
                return false; /* half a byte */
            }
            const unsigned __int128 sum =
                (whole << units[i].shift) + ((unsigned __int128)part << units[i].shift) / scale;
            if (sum > INT64_MAX) {
                return false;
            }
            *bytes = (uint64_t)sum;
            return true;
        }
    }
    return false;
}

static bool settings_bool(const char *v, bool *out) {
    if (strcmp(v, "0") == 0 || strcmp(v, "1") == 0) {
        *out = v[0] == '1';
        return true;
    }
    return false;
}

static bool settings_int(const char *v, int min, int max, int *out) {
    char *end;
    errno = 0;
    const long n = strtol(v, &end, 10);
    if (v[0] < '0' || v[0] > '9' || *end || errno || n < min || n > max) {
        return false;
    }
    *out = (int)n;
    return true;
}

/*
 * A decimal number from 0 to 1, digits after the point as many as one likes. No sign, no exponent, no nan; not strtod,
 * which asks the locale.
 */
static bool settings_share(const char *v, double *out) {
    const char *p = v;
    double whole = 0, part = 0, scale = 1;
    if (*p < '0' || *p > '9') {
        return false;
    }
    for (; *p >= '0' && *p <= '9'; p++) {
        whole = whole * 10 + (*p - '0');
    }
    if (*p == '.') {
        p++;
        if (*p < '0' || *p > '9') {
            return false;
        }
        for (; *p >= '0' && *p <= '9'; p++) {
            if (scale < 1e18) { /* what a double does not hold is left away, and with it no overflow */
                part = part * 10 + (*p - '0');
                scale *= 10;
            }
        }
    }
    const double x = whole + part / scale;
    if (*p || x > 1) {
        return false;
    }
    *out = x;
    return true;
}

static bool set_cache(struct sluice_settings *s, const char *v) {
    if (strcmp(v, "auto") == 0) {
        s->cache = SLUICE_CACHE_AUTO;
        return true;
    }
    uint64_t bytes = 0;
    if (strcmp(v, "off") != 0 && !sluice_parse_size(v, &bytes)) {
        return false;
    }
    s->cache = bytes ? SLUICE_CACHE_FIXED : SLUICE_CACHE_OFF;
    s->cache_bytes = bytes;
    return true;
}

static bool set_floor(struct sluice_settings *s, const char *v) {
    return sluice_parse_size(v, &s->floor_bytes);
}

static bool set_memory(struct sluice_settings *s, const char *v) {
    return sluice_parse_size(v, &s->memory_bytes) && s->memory_bytes > 0;
}

static bool set_staging(struct sluice_settings *s, const char *v) {
    return sluice_parse_size(v, &s->staging_bytes) && s->staging_bytes > 0;
}

static bool set_dense(struct sluice_settings *s, const char *v) {
    static const char *const names[] = {
        [SLUICE_DENSE_ANON] = "anon", [SLUICE_DENSE_MMAP] = "mmap", [SLUICE_DENSE_LOCK] = "lock"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(v, names[i]) == 0) {
            s->dense = (enum sluice_dense)i;
            return true;
        }
    }
    return false;
}

static bool set_policy(struct sluice_settings *s, const char *v) {
    s->policy = strcmp(v, "lru") == 0 ? SLUICE_POLICY_LRU : SLUICE_POLICY_CYCLE;
    return s->policy == SLUICE_POLICY_LRU || strcmp(v, "cycle") == 0;
}

static bool set_force(struct sluice_settings *s, const char *v) {
    return settings_bool(v, &s->force_cache);
}

static bool set_io(struct sluice_settings *s, const char *v) {
    s->io = strcmp(v, "pread") == 0 ? SLUICE_IO_PREAD : SLUICE_IO_AUTO;
    return s->io == SLUICE_IO_PREAD || strcmp(v, "auto") == 0;
}

static bool set_threads(struct sluice_settings *s, const char *v) {
    return settings_int(v, 1, 64, &s->io_threads);
}

static bool set_direct(struct sluice_settings *s, const char *v) {
    return settings_bool(v, &s->direct_io);
}

static bool set_lookahead(struct sluice_settings *s, const char *v) {
    return settings_bool(v, &s->lookahead);
}

static bool set_kernel(struct sluice_settings *s, const char *v) {
    s->reference_kernel = strcmp(v, "reference") == 0;
    return s->reference_kernel || strcmp(v, "fused") == 0;
}

static bool set_publish(struct sluice_settings *s, const char *v) {
    return settings_bool(v, &s->publish);
}

static bool set_quiet(struct sluice_settings *s, const char *v) {
    return settings_bool(v, &s->quiet);
}

static bool set_drop(struct sluice_settings *s, const char *v) {
    return settings_share(v, &s->drop_cold_experts);
}

static bool set_renorm(struct sluice_settings *s, const char *v) {
    s->drop_renorm = strcmp(v, "on") == 0;
    return s->drop_renorm || strcmp(v, "off") == 0;
}

static bool set_prefill(struct sluice_settings *s, const char *v) {
    return settings_bool(v, &s->drop_in_prefill);
}

static bool set_reproducible(struct sluice_settings *s, const char *v) {
    return settings_bool(v, &s->drop_reproducible);
}

static bool set_cold_model(struct sluice_settings *s, const char *v) {
    const size_t n = strlen(v);
    if (n == 0 || n >= sizeof s->cold_model) {
        return false;
    }
    memcpy(s->cold_model, v, n + 1);
    return true;
}

static bool set_window(struct sluice_settings *s, const char *v) {
    struct plan_address a;
    if (strcmp(v, "off") == 0) {
        s->window[0] = '\0';
        return true;
    }
    if (!plan_address_parse(v, &a)) {
        return false;
    }
    snprintf(s->window, sizeof s->window, "%s", v); /* the parser takes no longer ones */
    return true;
}

static bool set_window_remote(struct sluice_settings *s, const char *v) {
    return settings_bool(v, &s->window_allow_remote);
}

static const struct {
    const char *name;                                      /* in sluice_settings_set */
    const char *env;                                       /* in the environment */
    bool (*set)(struct sluice_settings *s, const char *v); /* false: not a value */
    const char *values;                                    /* what is, for the message */
} settings_table[] = {
    {"cache", "SLUICE_CACHE", set_cache, "auto, off, 0 or a size such as 2000MiB or 4GiB"},
    {"cache_floor", "SLUICE_CACHE_FLOOR", set_floor, "a size such as 512MiB"},
    {"memory", "SLUICE_MEMORY", set_memory, "a size such as 3GiB, not 0"},
    {"staging", "SLUICE_STAGING", set_staging, "a size such as 256MiB, not 0"},
    {"dense", "SLUICE_DENSE", set_dense, "anon, mmap or lock"},
    {"cache_policy", "SLUICE_CACHE_POLICY", set_policy, "cycle or lru"},
    {"force_cache", "SLUICE_FORCE_CACHE", set_force, "0 or 1"},
    {"io", "SLUICE_IO", set_io, "auto or pread; uring was removed, it made no run faster and some slower"},
    {"io_threads", "SLUICE_IO_THREADS", set_threads, "1..64"},
    {"direct_io", "SLUICE_DIRECT_IO", set_direct, "0 or 1"},
    {"lookahead", "SLUICE_LOOKAHEAD", set_lookahead, "0 or 1"},
    {"kernel", "SLUICE_KERNEL", set_kernel, "fused or reference"},
    {"publish", "SLUICE_PUBLISH", set_publish, "0 or 1"},
    {"quiet", "SLUICE_QUIET", set_quiet, "0 or 1"},
    {"drop_cold_experts", "SLUICE_DROP_COLD_EXPERTS", set_drop, "a number from 0 to 1, such as 0.5"},
    {"drop_renorm", "SLUICE_DROP_RENORM", set_renorm, "on or off"},
    {"drop_in_prefill", "SLUICE_DROP_IN_PREFILL", set_prefill, "0 or 1"},
    {"drop_reproducible", "SLUICE_DROP_REPRODUCIBLE", set_reproducible, "0 or 1"},
    {"cold_model", "SLUICE_COLD_MODEL", set_cold_model, "a file name"},
    {"window", "SLUICE_WINDOW", set_window, "an address and a port such as 127.0.0.1:8090, a port, or off"},
    {"window_allow_remote", "SLUICE_WINDOW_ALLOW_REMOTE", set_window_remote, "0 or 1"},
};

enum { SETTINGS_N = sizeof settings_table / sizeof *settings_table };

/* Set row i, leaving *s alone when the value is bad; `as` is the name that the user wrote. */
static int settings_apply(struct sluice_settings *s, size_t i, const char *as, const char *value,
                          struct sluice_error *err) {
    struct sluice_settings next = *s;
    if (!settings_table[i].set(&next, value)) {
        return sluice_fail(err, SLUICE_ERR_ARG, "%s: '%.64s' is not a value (%s)", as, value, settings_table[i].values);
    }
    *s = next;
    return sluice_ok(err);
}

int sluice_settings_set(struct sluice_settings *s, const char *name, const char *value, struct sluice_error *err) {
    for (size_t i = 0; i < SETTINGS_N; i++) {
        if (strcmp(settings_table[i].name, name) == 0) {
            return settings_apply(s, i, name, value, err);
        }
    }
    return sluice_fail(err, SLUICE_ERR_ARG, "no setting is called '%.64s'", name);
}

int sluice_settings_from_env(struct sluice_settings *s, struct sluice_error *err) {
    struct sluice_settings next = *s;
    for (size_t i = 0; i < SETTINGS_N; i++) {
        const char *value = getenv(settings_table[i].env);
        if (value) {
            const int rc = settings_apply(&next, i, settings_table[i].env, value, err);
            if (rc) {
                return rc;
            }
        }
    }
    *s = next;
    return sluice_ok(err);
}

int settings_check(const struct sluice_settings *s, struct sluice_error *err) {
    if (s->io_threads < 1 || s->io_threads > 64) {
        return sluice_fail(err, SLUICE_ERR_ARG, "io_threads: %d is not within 1..64", s->io_threads);
    }
    if (s->cache == SLUICE_CACHE_FIXED && s->cache_bytes == 0) {
        return sluice_fail(err, SLUICE_ERR_ARG, "cache_bytes: 0 with a fixed cache");
    }
    if (s->io != SLUICE_IO_AUTO && s->io != SLUICE_IO_PREAD) {
        return sluice_fail(err, SLUICE_ERR_ARG,
                           "io: %d is not a way to read (uring, 1, was removed: it made no run faster)", (int)s->io);
    }
    if (s->dense > SLUICE_DENSE_LOCK) {
        return sluice_fail(err, SLUICE_ERR_ARG, "dense: %d is no place", (int)s->dense);
    }
    struct plan_address a;
    if (s->window[0] && !plan_address_parse(s->window, &a)) {
        return sluice_fail(err, SLUICE_ERR_ARG, "window: '%.64s' is no address with a port", s->window);
    }
    if (s->window[0] && !a.loopback && !s->window_allow_remote) {
        return sluice_fail(err, SLUICE_ERR_ARG,
                           "window: other machines could reach %s; if that is wanted, add --allow-remote "
                           "(SLUICE_WINDOW_ALLOW_REMOTE=1), else take 127.0.0.1",
                           a.host);
    }
    return settings_check_drop(s->drop_cold_experts, s->cache, err);
}

int settings_check_drop(double below, enum sluice_cache_mode cache, struct sluice_error *err) {
    if (!(below >= 0 && below <= 1)) { /* nan as well */
        return sluice_fail(err, SLUICE_ERR_ARG, "drop_cold_experts: %g is not within 0..1", below);
    }
    if (below > 0 && cache == SLUICE_CACHE_OFF) {
        return sluice_fail(
            err, SLUICE_ERR_ARG,
            "drop_cold_experts needs a cache: without one every expert would be left out (cache is off)");
    }
    return sluice_ok(err);
}
