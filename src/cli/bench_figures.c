/*
 * bench_figures.c - from runs to the figures of the table.
 *
 * tok/s is tokens over the sum of their seconds, per run; a row has the median of its runs. Shares and
 * hit rates are over all tokens of a row. The bound is what the disk and the processor allow together if
 * reading and computing overlapped without a gap: a token cannot be ready before its bytes are read, nor
 * before it is computed. The processor's part is measured without any reading: by the resident baseline, or else by
 * those tokens of the row `all` that missed nothing.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"

enum { COMPUTE_STEPS_MIN = 8 }; /* tokens without reading that are enough to name a time per token */

bool bench_run_sums(struct bench_run *run) {
    run->wall = calloc(run->csv.n + 1, sizeof *run->wall);
    if (!run->wall) {
        return false;
    }
    for (size_t i = 0; i < run->csv.n; i++) {
        const struct bench_step *s = &run->csv.steps[i];
        if (!s->generation) {
            run->prompt_s += s->wall_s;
            continue;
        }
        run->wall[run->tokens++] = s->wall_s;
        run->wall_s += s->wall_s;
        run->stall_s += s->stall_s;
        run->cpu_s += s->cpu_s;
        run->read_bytes += s->read_bytes;
        run->hits += s->hits;
        run->misses += s->misses;
        run->major_faults += s->major_faults;
    }
    return true;
}

/* Did this run give tokens that may be counted? One that the user broke off did not end by itself: left out. */
static bool usable(const struct bench_run *r) {
    return r->started && !r->failed && !r->interrupted && r->tokens > 0;
}

bool bench_entry_failed(const struct bench *b, const struct bench_entry *e) {
    for (int64_t i = 0; i < b->config->bench.runs; i++) {
        if (e->runs[i].failed) {
            return true;
        }
    }
    return false;
}

/* The seconds per token of each usable run. `series` has room for BENCH_RUNS_MAX. */
static size_t series_of(const struct bench *b, const struct bench_entry *e, struct bench_series *series) {
    size_t n = 0;
    for (int64_t i = 0; i < b->config->bench.runs; i++) {
        if (usable(&e->runs[i])) {
            series[n++] = (struct bench_series){.wall = e->runs[i].wall, .n = e->runs[i].tokens};
        }
    }
    return n;
}

static double share(double part, double whole) {
    return whole > 0 ? part / whole : NAN;
}

/* Everything about a row that needs no other row. False without memory. */
static bool entry_figures(const struct bench *b, struct bench_entry *e) {
    struct bench_series series[BENCH_RUNS_MAX];
    double load[BENCH_RUNS_MAX], first[BENCH_RUNS_MAX], bytes[BENCH_RUNS_MAX], prompt[BENCH_RUNS_MAX];
    double stall = 0, wall = 0, hits = 0, routed = 0;
    size_t n = 0;
    e->rate_least = e->rate_most = NAN;
    for (int64_t i = 0; i < b->config->bench.runs; i++) {
        const struct bench_run *r = &e->runs[i];
        e->peak = r->peak > e->peak ? r->peak : e->peak;
        if (!usable(r)) {
            continue;
        }
        const double rate = share((double)r->tokens, r->wall_s);
        e->rate_least = n == 0 || rate < e->rate_least ? rate : e->rate_least;
        e->rate_most = n == 0 || rate > e->rate_most ? rate : e->rate_most;
        load[n] = r->load_s;
        first[n] = r->first_token_s;
        prompt[n] = share((double)r->prompt_tokens, r->prompt_s);
        bytes[n++] = (double)r->read_bytes / (double)r->tokens;
        stall += r->stall_s;
        wall += r->wall_s;
        hits += (double)r->hits;
        routed += (double)(r->hits + r->misses);
    }
    e->load_s = bench_median(load, n);
    e->first_token_s = bench_median(first, n);
    e->prompt_rate = bench_median(prompt, n);
    e->token_bytes = e->kind == BENCH_STREAM ? bench_median(bytes, n) : NAN;
    e->stall_share = e->kind == BENCH_STREAM ? share(stall, wall) : NAN;
    e->hit_share = share(hits, routed);
    return bench_bootstrap_rate(series, series_of(b, e, series), &e->rate);
}

/* Seconds per token of tokens that waited for nothing. */
static void find_compute(struct bench *b) {
    double seconds = 0;
    size_t tokens = 0;
    for (size_t i = 0; i < b->n_entries; i++) {
        const struct bench_entry *e = &b->entries[i];
        size_t resident = 0;
        for (int64_t r = 0; e->kind == BENCH_RESIDENT && r < b->config->bench.runs; r++) {
            resident += usable(&e->runs[r]) ? e->runs[r].tokens : 0;
        }
        if (resident >= COMPUTE_STEPS_MIN) {
            b->compute = BENCH_COMPUTE_RESIDENT;
            b->compute_s = 1 / e->rate.mid;
            b->compute_steps = resident;
            return;
        }
        for (int64_t r = 0; e->all && !e->variant && r < b->config->bench.runs; r++) {
            for (size_t s = 0; usable(&e->runs[r]) && s < e->runs[r].csv.n; s++) {
                const struct bench_step *step = &e->runs[r].csv.steps[s];
                if (step->generation && step->misses == 0 && step->hits > 0) {
                    seconds += step->wall_s;
                    tokens++;
                }
            }
        }
    }
    if (tokens >= COMPUTE_STEPS_MIN) {
        b->compute = BENCH_COMPUTE_ALL;
        b->compute_s = seconds / (double)tokens;
        b->compute_steps = tokens;
    }
}

static void find_disk(struct bench *b) {
    double rates[BENCH_PROBES];
    for (size_t i = 0; i < b->n_probes; i++) {
        rates[i] = b->probes[i].per_second;
    }
    b->disk = bench_median(rates, b->n_probes);
}

/* Ratio of the rates of two rows. */
static bool ratio(const struct bench *b, const struct bench_entry *e, int to, struct bench_interval *out) {
    struct bench_series a[BENCH_RUNS_MAX], z[BENCH_RUNS_MAX];
    *out = (struct bench_interval){NAN, NAN, NAN};
    if (to < 0 || e == &b->entries[to]) {
        return true;
    }
    const size_t n_a = series_of(b, e, a), n_z = series_of(b, &b->entries[to], z);
    return bench_bootstrap_ratio(a, n_a, z, n_z, out);
}

int bench_figures(struct bench *b) {
    bool ok = true;
    for (size_t i = 0; i < b->n_entries; i++) {
        ok = ok && entry_figures(b, &b->entries[i]);
    }
    /* A reference without a figure is none: the next that has one takes its place. */
    for (size_t i = 0; i < b->n_entries && (b->reference < 0 || isnan(b->entries[b->reference].rate.mid)); i++) {
        b->reference = isnan(b->entries[i].rate.mid) ? b->reference : (int)i;
    }
    find_compute(b);
    find_disk(b);
    for (size_t i = 0; ok && i < b->n_entries; i++) {
        struct bench_entry *e = &b->entries[i];
        e->bound = e->share = NAN;
        if (e->kind == BENCH_STREAM && !isnan(e->token_bytes)) {
            e->bound = bench_bound(e->token_bytes, isnan(b->disk) ? 0 : b->disk, b->compute_s);
            e->share = share(e->rate.mid, e->bound);
        }
        ok = ratio(b, e, b->reference, &e->ratio) && ratio(b, e, e->plain, &e->plain_ratio);
    }
    return ok ? 0 : cli_fail(CLI_EXIT_FAILED, b->config->command, "no memory for the statistics");
}
