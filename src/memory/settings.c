/*
 * settings.c - settings from text.
 *
 * One table for the environment of host programs and for the command's flags, so that a value
 * means the same everywhere. Parsing is strict: a value is understood completely or refused by
 * name. (An engine whose BMOE_CACHE_MB=auto parsed as 0, cache off, shows why.)
 */
#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/address.h"
#include "memory/settings.h"
#include "sluice.h"
#include "cache/error.h"

enum { SETTINGS_THREADS = 64 /* reads in flight at most */ };

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

/* A setting. */
struct setting {
    const char *name;                                                      /* in sluice_settings_set */
    bool (*set)(void *field, const char *value, const struct setting *as); /* false: not a value */
    size_t offset;                                                         /* of its field in sluice_settings */
    const char *const *words; /* those that it can be, by number, then NULL; NULL: it is none */
    const char *values;       /* what is a value, for the message */
};

static bool set_bool(void *field, const char *v, const struct setting *as) {
    (void)as;
    if ((v[0] != '0' && v[0] != '1') || v[1]) {
        return false;
    }
    *(bool *)field = v[0] == '1';
    return true;
}

/* The place of a text among `words`; -1: it is none of them. */
static int word_number(const char *const *words, const char *v) {
    for (int i = 0; words[i]; i++) {
        if (strcmp(words[i], v) == 0) {
            return i;
        }
    }
    return -1;
}

/* An enum of which the words are the values from 0 on. */
static bool set_word(void *field, const char *v, const struct setting *as) {
    const int i = word_number(as->words, v);
    if (i >= 0) {
        *(int *)field = i;
    }
    return i >= 0;
}

/* A bool with words for false and true. */
static bool set_either(void *field, const char *v, const struct setting *as) {
    const int i = word_number(as->words, v);
    *(bool *)field = i == 1;
    return i >= 0;
}

static bool set_io(void *field, const char *v, const struct setting *as) {
    const int i = word_number(as->words, v);
    *(enum sluice_io *)field = i == 1 ? SLUICE_IO_PREAD : SLUICE_IO_AUTO;
    return i >= 0;
}

static bool set_size(void *field, const char *v, const struct setting *as) {
    (void)as;
    return sluice_parse_size(v, field);
}

static bool set_size_above_0(void *field, const char *v, const struct setting *as) {
    return set_size(field, v, as) && *(uint64_t *)field > 0;
}

static bool set_threads(void *field, const char *v, const struct setting *as) {
    char *end;
    (void)as;
    errno = 0;
    const long n = strtol(v, &end, 10);
    if (v[0] < '0' || v[0] > '9' || *end || errno || n < 1 || n > SETTINGS_THREADS) {
        return false;
    }
    *(int *)field = (int)n;
    return true;
}

/*
 * A decimal number from 0 to 1 with any number of digits after the point. No sign, no exponent, no nan; not strtod,
 * which asks the locale.
 */
static bool set_share(void *field, const char *v, const struct setting *as) {
    double whole = 0, part = 0, scale = 1;
    (void)as;
    if (*v < '0' || *v > '9') {
        return false;
    }
    for (; *v >= '0' && *v <= '9'; v++) {
        whole = whole * 10 + (*v - '0');
    }
    if (*v == '.') {
        v++;
        if (*v < '0' || *v > '9') {
            return false;
        }
        for (; *v >= '0' && *v <= '9'; v++) {
            if (scale < 1e18) { /* a double does not hold more digits, and so nothing overflows */
                part = part * 10 + (*v - '0');
                scale *= 10;
            }
        }
    }
    *(double *)field = whole + part / scale;
    return !*v && *(double *)field <= 1;
}

static bool set_cache(void *field, const char *v, const struct setting *as) {
    struct sluice_settings *s = field;
    uint64_t bytes = 0;
    (void)as;
    if (strcmp(v, "auto") == 0) {
        s->cache = SLUICE_CACHE_AUTO;
        return true;
    }
    if (strcmp(v, "off") != 0 && !sluice_parse_size(v, &bytes)) {
        return false;
    }
    s->cache = bytes ? SLUICE_CACHE_FIXED : SLUICE_CACHE_OFF;
    s->cache_bytes = bytes;
    return true;
}

static bool set_file(void *field, const char *v, const struct setting *as) {
    const size_t n = strlen(v);
    (void)as;
    if (n == 0 || n >= sizeof((struct sluice_settings *)0)->cold_model) {
        return false;
    }
    memcpy(field, v, n + 1);
    return true;
}

static bool set_window(void *field, const char *v, const struct setting *as) {
    struct plan_address a;
    const bool off = strcmp(v, "off") == 0;
    (void)as;
    if (!off && !plan_address_parse(v, &a)) {
        return false;
    }
    snprintf(field, SLUICE_ADDRESS_MAX, "%s", off ? "" : v); /* the parser takes no longer ones */
    return true;
}

#define FIELD(name) offsetof(struct sluice_settings, name)
#define WORDS(...)  ((const char *const[]){__VA_ARGS__, NULL})

static const struct setting settings_table[] = {
    {"cache", set_cache, 0, NULL, "auto, off, 0 or a size such as 2000MiB or 4GiB"},
    {"cache_floor", set_size, FIELD(floor_bytes), NULL, "a size such as 512MiB"},
    {"memory", set_size_above_0, FIELD(memory_bytes), NULL, "a size such as 3GiB, not 0"},
    {"staging", set_size_above_0, FIELD(staging_bytes), NULL, "a size such as 256MiB, not 0"},
    {"dense", set_word, FIELD(dense), WORDS("anon", "mmap", "lock"), "anon, mmap or lock"},
    {"cache_policy", set_word, FIELD(policy), WORDS("cycle", "lru"), "cycle or lru"},
    {"force_cache", set_bool, FIELD(force_cache), NULL, "0 or 1"},
    {"io", set_io, FIELD(io), WORDS("auto", "pread"),
     "auto or pread; uring was removed, it made no run faster and some slower"},
    {"io_threads", set_threads, FIELD(io_threads), NULL, "1..64"},
    {"direct_io", set_bool, FIELD(direct_io), NULL, "0 or 1"},
    {"lookahead", set_bool, FIELD(lookahead), NULL, "0 or 1"},
    {"kernel", set_either, FIELD(reference_kernel), WORDS("fused", "reference"), "fused or reference"},
    {"publish", set_bool, FIELD(publish), NULL, "0 or 1"},
    {"quiet", set_bool, FIELD(quiet), NULL, "0 or 1"},
    {"drop_cold_experts", set_share, FIELD(drop_cold_experts), NULL, "a number from 0 to 1, such as 0.5"},
    {"drop_renorm", set_either, FIELD(drop_renorm), WORDS("off", "on"), "on or off"},
    {"drop_in_prefill", set_bool, FIELD(drop_in_prefill), NULL, "0 or 1"},
    {"drop_reproducible", set_bool, FIELD(drop_reproducible), NULL, "0 or 1"},
    {"cold_model", set_file, FIELD(cold_model), NULL, "a file name"},
    {"window", set_window, FIELD(window), NULL, "an address and a port such as 127.0.0.1:8090, a port, or off"},
    {"window_allow_remote", set_bool, FIELD(window_allow_remote), NULL, "0 or 1"},
};

_Static_assert(sizeof(enum sluice_dense) == sizeof(int) && sizeof(enum sluice_policy) == sizeof(int),
               "set_word stores an int");

enum { SETTINGS_N = sizeof settings_table / sizeof *settings_table };

/* Set row i, leaving *s alone when the value is bad; `as` is the name that the user wrote. */
static int settings_apply(struct sluice_settings *s, size_t i, const char *as, const char *value,
                          struct sluice_error *err) {
    struct sluice_settings next = *s;
    const struct setting *row = &settings_table[i];
    if (!row->set((char *)&next + row->offset, value, row)) {
        return sluice_fail(err, SLUICE_ERR_ARG, "%s: '%.64s' is not a value (%s)", as, value, row->values);
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

const char *settings_word(const struct sluice_settings *s, const char *name) {
    const struct setting *row = settings_table;
    while (strcmp(row->name, name) != 0) {
        row++;
        assert(row < settings_table + SETTINGS_N);
    }
    const void *field = (const char *)s + row->offset;
    if (row->set == set_io) {
        return row->words[*(const enum sluice_io *)field == SLUICE_IO_PREAD];
    }
    return row->words[row->set == set_either ? *(const bool *)field : *(const int *)field];
}

void settings_variable(const char *name, char out[SETTINGS_NAME]) {
    size_t n = (size_t)snprintf(out, SETTINGS_NAME, "SLUICE_%s", name);
    for (n = n < SETTINGS_NAME ? n : SETTINGS_NAME - 1; n > 0; n--) {
        out[n - 1] = out[n - 1] >= 'a' && out[n - 1] <= 'z' ? (char)(out[n - 1] - 'a' + 'A') : out[n - 1];
    }
}

int sluice_settings_from_env(struct sluice_settings *s, struct sluice_error *err) {
    struct sluice_settings next = *s;
    for (size_t i = 0; i < SETTINGS_N; i++) {
        char name[SETTINGS_NAME];
        settings_variable(settings_table[i].name, name);
        const char *value = getenv(name);
        if (value) {
            const int rc = settings_apply(&next, i, name, value, err);
            if (rc) {
                return rc;
            }
        }
    }
    *s = next;
    return sluice_ok(err);
}

int settings_check(const struct sluice_settings *s, struct sluice_error *err) {
    if (s->io_threads < 1 || s->io_threads > SETTINGS_THREADS) {
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
        return sluice_fail(err, SLUICE_ERR_ARG, "dense: %d is not one of anon (0), mmap (1) and lock (2)",
                           (int)s->dense);
    }
    struct plan_address a;
    if (s->window[0] && !plan_address_parse(s->window, &a)) {
        return sluice_fail(err, SLUICE_ERR_ARG, "window: '%.64s' is not an address with a port", s->window);
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
