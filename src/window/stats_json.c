/*
 * stats_json.c - everything that is told, as JSON: what a page needs to draw itself without asking twice.
 *
 * Names carry their units. What is not known is null, never 0: a page must not draw a line at zero for it.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cache/clock.h"
#include "window/impl.h"

/* A number, or null where it is negative. */
static json_t *known(double x) {
    return x >= 0 ? json_real(x) : json_null();
}

/* A count; counters stay far below 2^63. */
static json_int_t count(uint64_t n) {
    return (json_int_t)n;
}

/* Text of others (file names): what is no UTF-8 becomes '?'. */
static json_t *text_json(const char *text) {
    json_t *o = json_string(text);
    if (o) {
        return o;
    }
    char clean[512];
    size_t i = 0;
    for (; text[i] && i + 1 < sizeof clean; i++) {
        clean[i] = (unsigned char)text[i] < 0x80 ? text[i] : '?';
    }
    clean[i] = '\0';
    return json_string(clean);
}

/* Sums of a phase. */
static json_t *phase_json(const struct window_numbers *x, int phase) {
    const struct sluice_phase_stats *s = counters_phase(&x->stats, phase);
    json_t *o = counters_object(COUNTERS_WINDOW, &(struct counters_at){.live = s, .ended = &x->ended[phase]});
    json_object_set_new(o, "tokens_done", json_real((double)s->rows / (x->stats.layers ? x->stats.layers : 1)));
    return o;
}

/* What comes before its counters. */
static json_t *model_json(const struct window_numbers *x) {
    return json_pack("{s:o,s:o,s:I,s:I,s:o}", "name", text_json(x->model), "architecture",
                     text_json(x->facts.architecture), "layers", count(x->stats.layers), "experts", count(x->experts),
                     "experts_used", x->experts_used ? json_integer(x->experts_used) : json_null());
}

static json_t *now_json(const struct rates_now *r) {
    return json_pack("{s:o,s:o,s:f,s:o,s:o,s:o,s:o,s:o,s:o}", "prompt_tokens_per_second",
                     known(r->tokens_per_s[SLUICE_PHASE_PROMPT]), "generation_tokens_per_second",
                     known(r->tokens_per_s[SLUICE_PHASE_GENERATION]), "read_bytes_per_second", r->bytes_per_s,
                     "hit_rate", known(r->hits), "hit_rate_bytes", known(r->hit_bytes), "compute_share",
                     known(r->part[0]), "stall_share", known(r->part[1]), "other_share", known(r->part[2]),
                     "bookkeeping_share", known(r->part[3]));
}

static json_t *memory_json(const struct window_numbers *x) {
    const uint64_t limit = x->facts.planned ? x->facts.plan.limit_bytes : 0;
    const char *by = x->facts.plan.limit_by_setting ? "setting" : "machine";
    return json_pack("{s:o,s:s?,s:o,s:{s:I,s:I,s:I,s:I}}", "limit_bytes",
                     limit ? json_integer(count(limit)) : json_null(), "limit_by", limit ? by : NULL, "plan",
                     x->facts.planned ? counters_object(COUNTERS_WINDOW, &(struct counters_at){.plan = &x->facts.plan})
                                      : json_null(),
                     "used", "total_bytes", count(x->anonymous_bytes + x->file_bytes + x->shared_bytes),
                     "anonymous_bytes", count(x->anonymous_bytes), "file_bytes", count(x->file_bytes), "shared_bytes",
                     count(x->shared_bytes));
}

static json_t *chat_json(const struct window_chat *c) {
    return !c->there ? json_null()
                     : json_pack("{s:s?,s:i}", "url", c->same_host ? NULL : c->origin, "port", (int)c->port);
}

/* One setting. Takes the value. A reason is why it cannot be changed. */
static json_t *setting(json_t *value, bool lossy, const char *reason) {
    return json_pack("{s:o,s:b,s:b,s:s}", "value", value, "changeable", reason[0] == '\0', "lossy", (int)lossy,
                     "reason", reason);
}

/* The cache's, with its size for programs. */
static json_t *cache_setting(const struct sluice_settings *s) {
    char text[48] = "auto";
    if (s->cache == SLUICE_CACHE_OFF) {
        snprintf(text, sizeof text, "off");
    } else if (s->cache == SLUICE_CACHE_FIXED && s->cache_bytes % (1 << 20)) {
        snprintf(text, sizeof text, "%lluB", (unsigned long long)s->cache_bytes);
    } else if (s->cache == SLUICE_CACHE_FIXED) {
        snprintf(text, sizeof text, "%lluMiB", (unsigned long long)(s->cache_bytes >> 20));
    }
    json_t *o = setting(json_string(text), false, "");
    json_t *bytes = s->cache == SLUICE_CACHE_FIXED ? json_integer(count(s->cache_bytes)) : json_null();
    if (json_object_set_new(o, "bytes", bytes)) {
        json_decref(o);
        return NULL;
    }
    return o;
}

json_t *stats_settings(const struct window *w) {
    static const char fixed[] = "fixed when the program starts";
    static const char loaded[] = "fixed when the model is loaded: start again with --n-expert-used K "
                                 "(stock programs: --override-kv ARCHITECTURE.expert_used_count=int:K)";
    static const char *const dense[] = {
        [SLUICE_DENSE_ANON] = "anon", [SLUICE_DENSE_MMAP] = "mmap", [SLUICE_DENSE_LOCK] = "lock"};
    const struct window_numbers *x = &w->now;
    const struct sluice_settings *s = &x->facts.settings;
    const char *slash = strrchr(s->cold_model, '/');
    const bool drops = s->drop_cold_experts > 0;
    const bool fewer = x->facts.experts_own && x->experts_used && x->facts.experts_own != x->experts_used;
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", //
                     "cache", cache_setting(s),                                   //
                     "drop_cold_experts", setting(json_real(s->drop_cold_experts), drops, ""), "drop_renorm",
                     setting(json_boolean(s->drop_renorm), drops && s->drop_renorm, ""), "lookahead",
                     setting(json_boolean(s->lookahead), false, ""), "n_expert_used",
                     setting(x->experts_used ? json_integer(x->experts_used) : json_null(), fewer, loaded),
                     "drop_in_prefill", setting(json_boolean(s->drop_in_prefill), drops && s->drop_in_prefill, fixed),
                     "drop_reproducible", setting(json_boolean(s->drop_reproducible), false, fixed), "cold_model",
                     setting(s->cold_model[0] ? text_json(slash ? slash + 1 : s->cold_model) : json_null(),
                             drops && s->cold_model[0], fixed),
                     "cache_policy",
                     setting(json_string(s->policy == SLUICE_POLICY_LRU ? "lru" : "cycle"), false, fixed), "dense",
                     setting(json_string(dense[s->dense]), false, fixed), "io",
                     setting(json_string(s->io == SLUICE_IO_PREAD ? "pread" : "auto"), false, fixed), "io_threads",
                     setting(json_integer(s->io_threads), false, fixed), "memory",
                     setting(s->memory_bytes ? json_integer(count(s->memory_bytes)) : json_null(), false, fixed),
                     "staging", setting(json_integer(count(s->staging_bytes)), false, fixed));
}

json_t *stats_json(struct window *w) {
    static const char *const phase[] = {[SLUICE_PHASE_PROMPT] = "prompt", [SLUICE_PHASE_GENERATION] = "generation"};
    struct window_numbers *x = &w->now;
    struct rates_now r;
    struct timespec real;
    w->source.numbers(w->source.ud, x, true);
    const double t = clock_seconds();
    rates_get(&w->rates, t, &r);
    clock_gettime(CLOCK_REALTIME, &real); /* cannot fail for this clock */
    const struct sluice_stats *s = &x->stats;
    json_t *o = json_pack(
        "{s:i,s:s,s:o,s:I,s:f,s:f,s:o,s:o,s:b,s:o,s:o,s:s,s:o,s:o,s:o,s:{},s:{},s:{},s:o,"
        "s:{s:o,s:f,s:f},s:o,s:o,s:{s:I,s:I}}",
        "api", 1, "version", SLUICE_VERSION, "program", text_json(x->program), "pid", (json_int_t)getpid(),
        "time_seconds", (double)real.tv_sec + 1e-9 * (double)real.tv_nsec, "uptime_seconds", t - w->started, //
        "model", model_json(x), "mode", text_json(x->facts.mode), "lossy", (int)x->lossy, "warning",
        text_json(x->facts.warning), "error", text_json(x->error), "phase", r.phase < 0 ? "idle" : phase[r.phase],
        "now", now_json(&r),                                                                                //
        "prompt", phase_json(x, SLUICE_PHASE_PROMPT), "generation", phase_json(x, SLUICE_PHASE_GENERATION), //
        "cache", "lookahead", "cold", /* of counters alone */
        "memory", memory_json(x), "disk", "probed_bytes_per_second", w->disk > 0 ? json_real(w->disk) : json_null(),
        "best_bytes_per_second", w->rates.best, "now_bytes_per_second", r.bytes_per_s, //
        "settings", stats_settings(w), "chat", chat_json(&w->chat), "page", "readers", count(w->events.readers),
        "readers_dropped", count(w->events.dropped));
    bool ok = counters_json(o, COUNTERS_WINDOW, &(struct counters_at){.stats = s});
    /* What there is none of is null. */
    ok = ok && (s->tensors || json_object_set_new(o, "model", json_null()) == 0) &&
         (s->cold.tensors || json_object_set_new(o, "cold", json_null()) == 0);
    if (!ok) {
        json_decref(o);
        return NULL;
    }
    return o;
}

char *stats_text(json_t *object, size_t *n) {
    /* 15 digits are what a double holds of a decimal number: 0.1 stays 0.1. */
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(object);
    *n = text ? strlen(text) : 0;
    return text;
}
