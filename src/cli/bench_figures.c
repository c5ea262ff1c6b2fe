/*
 * bench_figures.c - from runs to the figures of the table.
 *
 * tok/s is tokens over the sum of their seconds, per run; a row has the median of its runs. The other figures are
 * quotients of two values of a run, too: their median over the runs, or, for shares, of all runs together. The bound
 * is what the disk and the processor allow together if reading and computing overlapped without a gap: a token
 * cannot be ready before its bytes are read, nor before it is computed. The processor's part is measured without any
 * reading: by the resident baseline, or else by those tokens of the row `all` that missed nothing.
 */
#include <math.h>
#include <string.h>

#include "cli/bench_impl.h"

enum { COMPUTE_STEPS_MIN = 8 }; /* tokens without reading that are enough to name a time per token */

static const double MIB = 1024.0 * 1024.0;

/* In the order of the report and of the table's columns. */
const struct bench_figure_info bench_figures[BENCH_FIGURES] = {
    [BENCH_TOKEN_BYTES] = {"read_bytes_per_token", "MiB/token", 9, 1, MIB, BENCH_READ_BYTES, .whole = BENCH_TOKENS},
    [BENCH_HIT_SHARE] = {"hit_share", "hit %", 6, 1, 0.01, BENCH_HITS, BENCH_ROUTED, .together = true},
    [BENCH_WAIT_SHARE] = {"wait_share", "wait %", 6, 1, 0.01, BENCH_WAIT_S, BENCH_WALL_S, .together = true},
    [BENCH_LOAD] = {"load_seconds", "load s", 7, 2, 1, BENCH_LOAD_S, .whole = BENCH_ONE},
    [BENCH_FIRST_TOKEN] = {"first_token_seconds", "first s", 8, 2, 1, BENCH_FIRST_TOKEN_S, .whole = BENCH_ONE},
    [BENCH_PROMPT_RATE] = {"prompt_tokens_per_second", NULL, 0, 0, 1, BENCH_PROMPT_TOKENS, .whole = BENCH_PROMPT_S},
    [BENCH_PEAK] = {"peak_bytes", "peak MiB", 8, 0, MIB, .count = true},
    [BENCH_BOUND] = {"bound_tokens_per_second", "bound", 8, 2, .unit = 1},
    [BENCH_SHARE] = {"share_of_bound", "share %", 7, 0, .unit = 0.01},
};

/* Did this run give tokens that may be counted? One that the user broke off did not end by itself: left out. */
static bool usable(const struct bench_run *r) {
    return (r->end == BENCH_COMPLETE || r->end == BENCH_STOPPED) && r->csv.n > 0;
}

/* The seconds per token of each usable run. */
static size_t series_of(const struct bench *b, const struct bench_entry *e,
                        struct bench_series series[BENCH_RUNS_MAX]) {
    size_t n = 0;
    for (int64_t i = 0; i < b->config->bench.runs; i++) {
        if (usable(&e->runs[i])) {
            series[n++] = (struct bench_series){.wall = e->runs[i].csv.token[BENCH_WALL_S], .n = e->runs[i].csv.n};
        }
    }
    return n;
}

static double quotient(double part, double whole) {
    return whole > 0 ? part / whole : NAN;
}

/* A figure that is a quotient of two values of the runs. */
static double figure_of(const struct bench *b, const struct bench_entry *e, const struct bench_figure_info *f) {
    double each[BENCH_RUNS_MAX], part = 0, whole = 0;
    size_t n = 0;
    for (int64_t i = 0; i < b->config->bench.runs; i++) {
        const double *total = e->runs[i].csv.total;
        if (usable(&e->runs[i])) {
            part += total[f->part];
            whole += total[f->whole];
            each[n++] = quotient(total[f->part], total[f->whole]);
        }
    }
    return f->together ? quotient(part, whole) : bench_quantile(each, n, 0.5);
}

/* Everything about a row that needs no other row. */
static void entry_figures(const struct bench *b, struct bench_entry *e) {
    struct bench_series series[BENCH_RUNS_MAX];
    e->rate = bench_bootstrap(series, series_of(b, e, series), NULL, 0);
    e->slowest = e->fastest = e->figure[BENCH_PEAK] = NAN;
    for (int64_t i = 0; i < b->config->bench.runs; i++) {
        const struct bench_run *r = &e->runs[i];
        e->figure[BENCH_PEAK] = r->peak ? fmax(e->figure[BENCH_PEAK], (double)r->peak) : e->figure[BENCH_PEAK];
        if (usable(r)) { /* fmin and fmax take the other one for NaN */
            e->slowest = fmin(e->slowest, r->csv.total[BENCH_RATE]);
            e->fastest = fmax(e->fastest, r->csv.total[BENCH_RATE]);
        }
    }
    for (int f = 0; f < BENCH_PEAK; f++) {
        e->figure[f] = figure_of(b, e, &bench_figures[f]);
    }
    if (e->kind != BENCH_STREAM) { /* what plain llama.cpp reads and waits for is not counted */
        e->figure[BENCH_TOKEN_BYTES] = e->figure[BENCH_WAIT_SHARE] = NAN;
    }
}

/* Seconds per token of tokens that waited for nothing. */
static void find_compute(struct bench *b) {
    for (size_t i = 0; i < b->n_entries && b->compute_steps < COMPUTE_STEPS_MIN; i++) {
        double seconds = 0;
        const struct bench_entry *e = &b->entries[i];
        const bool all = strcmp(e->budget, "all") == 0 && !e->variant;
        b->compute = e->kind;
        b->compute_steps = 0;
        for (int64_t r = 0; (all || e->kind == BENCH_RESIDENT) && r < b->config->bench.runs; r++) {
            const struct bench_csv *c = &e->runs[r].csv;
            for (size_t s = 0; usable(&e->runs[r]) && s < c->n; s++) {
                if (!all || (c->token[BENCH_MISSES][s] == 0 && c->token[BENCH_HITS][s] > 0)) {
                    seconds += c->token[BENCH_WALL_S][s];
                    b->compute_steps++;
                }
            }
        }
        b->compute_s = all ? seconds / (double)b->compute_steps : 1 / e->rate.mid;
    }
    if (b->compute_steps < COMPUTE_STEPS_MIN) {
        b->compute_s = 0;
        b->compute_steps = 0;
    }
}

/* Ratio of the rates of two rows. */
static struct bench_interval ratio(const struct bench *b, const struct bench_entry *e, int to) {
    struct bench_series a[BENCH_RUNS_MAX], z[BENCH_RUNS_MAX];
    if (to < 0 || e == &b->entries[to]) {
        return (struct bench_interval){NAN, NAN, NAN};
    }
    return bench_bootstrap(a, series_of(b, e, a), z, series_of(b, &b->entries[to], z));
}

void bench_figures_find(struct bench *b) {
    double rates[BENCH_PROBES];
    b->reference = -1;
    for (size_t i = 0; i < b->n_entries; i++) {
        entry_figures(b, &b->entries[i]);
        const bool none = b->reference < 0, figure = !none && !isnan(b->entries[b->reference].rate.mid);
        if (!b->entries[i].skipped[0] && (none || (!figure && !isnan(b->entries[i].rate.mid)))) {
            b->reference = (int)i; /* the first that has a figure, else the first at all; baselines come first */
        }
    }
    for (size_t i = 0; i < b->n_probes; i++) {
        rates[i] = b->probes[i].per_second;
    }
    b->disk = bench_quantile(rates, b->n_probes, 0.5);
    find_compute(b);
    for (size_t i = 0; i < b->n_entries; i++) {
        struct bench_entry *e = &b->entries[i];
        const double bytes = e->figure[BENCH_TOKEN_BYTES];
        e->figure[BENCH_BOUND] = isnan(bytes) ? NAN : bench_bound(bytes, isnan(b->disk) ? 0 : b->disk, b->compute_s);
        e->figure[BENCH_SHARE] = quotient(e->rate.mid, e->figure[BENCH_BOUND]);
        e->ratio = ratio(b, e, b->reference);
        e->plain_ratio = ratio(b, e, e->plain);
    }
}

bool bench_remark(const struct bench *b, const struct bench_run *run, char *text, size_t cap) {
    const double prompt = run->csv.total[BENCH_PROMPT_TOKENS];
    text[0] = '\0';
    switch (run->end) {
    case BENCH_FAILED:
        snprintf(text, cap, "FAILED, %s %d: %s", run->signal ? "signal" : "exit code",
                 run->signal ? run->signal : run->code, run->message);
        break;
    case BENCH_STOPPED:
        snprintf(text, cap, "stopped after %zu tokens in %.0f s%s", run->csv.n, run->seconds,
                 run->csv.n ? "" : " (the prompt was not done)");
        break;
    case BENCH_INTERRUPTED:
        snprintf(text, cap, "broken off by the user, not counted");
        break;
    case BENCH_COMPLETE:
        if (prompt != (double)b->config->bench.prompt) {
            snprintf(text, cap, "the prompt has only %.0f tokens", prompt);
        }
        break;
    case BENCH_NOT_STARTED:
        break;
    }
    return text[0] != '\0';
}
