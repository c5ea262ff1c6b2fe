/*
 * numbers.c - everything that is told: as JSON, what a page needs to draw itself without asking twice, and as
 * Prometheus reads it (text format 0.0.4).
 *
 * In JSON names carry their units. What is not known is null, never 0: a page must not draw a line at zero for it.
 *
 * Metrics go by Prometheus' conventions: base units, counters end in _total, one family per thing with labels for its
 * kinds. There are no rates: Prometheus computes them over any time. What is counted comes from the table of counters
 * (observe/counters.c).
 */
#include <inttypes.h>
#include <stdio.h>
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

json_t *stats_string(const char *text) {
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
    return json_pack("{s:o,s:o,s:I,s:I,s:o}", "name", stats_string(x->model), "architecture",
                     stats_string(x->facts.architecture), "layers", count(x->stats.layers), "experts",
                     count(x->experts), "experts_used", x->experts_used ? json_integer(x->experts_used) : json_null());
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
        "api", 1, "version", SLUICE_VERSION, "program", stats_string(x->program), "pid", (json_int_t)getpid(),
        "time_seconds", (double)real.tv_sec + 1e-9 * (double)real.tv_nsec, "uptime_seconds", t - w->started, //
        "model", model_json(x), "mode", stats_string(x->facts.mode), "lossy", (int)x->lossy, "warning",
        stats_string(x->facts.warning), "error", stats_string(x->error), "phase", r.phase < 0 ? "idle" : phase[r.phase],
        "now", now_json(&r),                                                                                //
        "prompt", phase_json(x, SLUICE_PHASE_PROMPT), "generation", phase_json(x, SLUICE_PHASE_GENERATION), //
        "cache", "lookahead", "cold", /* of counters alone */
        "memory", memory_json(x), "disk", "probed_bytes_per_second", w->disk > 0 ? json_real(w->disk) : json_null(),
        "best_bytes_per_second", w->rates.best, "now_bytes_per_second", r.bytes_per_s, //
        "settings", settings_json(w), "chat", chat_json(&w->chat), "page", "readers", count(w->events.readers),
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

/* ---- metrics --------------------------------------------------------------------------------- */

static void single(FILE *out, const char *name, const char *help, uint64_t n) {
    counters_family(out, name, help);
    fprintf(out, "%s %" PRIu64 "\n", name, n);
}

/* A label and its value. */
static void label(FILE *out, const char *before, const char *text) {
    json_t *valid = stats_string(text);
    fprintf(out, "%s=\"", before);
    for (const char *p = valid ? json_string_value(valid) : ""; *p; p++) {
        if (*p == '"' || *p == '\\') {
            fputc('\\', out);
        }
        fprintf(out, *p == '\n' ? "\\n" : "%c", *p);
    }
    fputc('"', out);
    json_decref(valid);
}

char *metrics_text(struct window *w, size_t *n) {
    struct window_numbers *x = &w->now;
    char *text = NULL;
    FILE *out = open_memstream(&text, n);
    if (!out) {
        return NULL;
    }
    w->source.numbers(w->source.ud, x, true);
    counters_family(out, "sluice_info", "What runs: always 1.");
    label(out, "sluice_info{version", SLUICE_VERSION);
    label(out, ",program", x->program);
    label(out, ",model", x->model);
    label(out, ",architecture", x->facts.architecture);
    fputs("} 1\n", out);
    single(out, "sluice_lossy", "1 when settings in force change the output.", x->lossy);
    counters_family(out, "sluice_window_uptime_seconds", "Time since the window opened.");
    fputs("sluice_window_uptime_seconds ", out);
    counters_fixed(out, clock_seconds() - w->started, 6);
    fputc('\n', out);
    counters_metrics(out, &x->stats, x->ended, x->facts.planned ? &x->facts.plan : NULL);
    if (x->facts.planned && x->facts.plan.limit_bytes) {
        single(out, "sluice_memory_limit_bytes", "What the process may use.", x->facts.plan.limit_bytes);
    }
    single(out, "process_resident_memory_bytes", "Resident memory size in bytes.",
           x->anonymous_bytes + x->file_bytes + x->shared_bytes);
    single(out, "sluice_window_readers", "Pages that watch now.", w->events.readers);
    single(out, "sluice_window_readers_dropped_total", "Readers disconnected for being slow.", w->events.dropped);
    const bool bad = ferror(out) != 0;
    if (fclose(out) || bad) {
        free(text);
        return NULL;
    }
    return text;
}
