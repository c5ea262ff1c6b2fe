/*
 * stats.c - see stats.h.
 *
 * Medians, because one slow run on a shared machine is common and must not move the figure. The
 * bootstrap, because the seconds per token are not normally distributed: most tokens hit the cache, some
 * wait for the disk, and no formula for the error of a rate of such numbers is worth trusting. Tokens are
 * drawn within their run, so that the interval is about tokens; that runs differ among themselves (the
 * machine drifts) is not in it, which is why the report shows the slowest and the fastest run beside it.
 *
 * No blocks: neighbouring tokens are correlated (a topic shares experts), but over the 64 tokens and
 * more of a run that widens the interval less than the drift between runs does.
 *
 * The random numbers are our own (splitmix64) with a fixed seed: a report can be computed again from its
 * raw values, to the last digit, on any machine.
 */
#include "bench/stats.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *v, size_t n) {
    if (n == 0) {
        return NAN;
    }
    qsort(v, n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

double bench_quantile(const double *v, size_t n, double q) {
    if (n == 0) {
        return NAN;
    }
    const double at = q * (double)(n - 1);
    const size_t low = (size_t)at;
    return low + 1 < n ? v[low] + (at - (double)low) * (v[low + 1] - v[low]) : v[n - 1];
}

double bench_rate(const struct bench_series *s) {
    double sum = 0;
    for (size_t i = 0; i < s->n; i++) {
        sum += s->wall[i];
    }
    return sum > 0 ? (double)s->n / sum : 0;
}

static uint64_t random_next(uint64_t *state) {
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* A number below n. The bias of the multiplication is n / 2^64: nothing. */
static size_t random_below(uint64_t *state, size_t n) {
    return (size_t)(((unsigned __int128)random_next(state) * n) >> 64);
}

/* Median of the runs' rates as they are; `rates` has room for n. */
static double rate_median(const struct bench_series *runs, size_t n, double *rates) {
    size_t used = 0;
    for (size_t r = 0; r < n; r++) {
        if (runs[r].n) {
            rates[used++] = bench_rate(&runs[r]);
        }
    }
    return bench_median(rates, used);
}

/* The same with tokens drawn anew. */
static double rate_resampled(const struct bench_series *runs, size_t n, double *rates, uint64_t *random) {
    size_t used = 0;
    for (size_t r = 0; r < n; r++) {
        double sum = 0;
        for (size_t i = 0; i < runs[r].n; i++) {
            sum += runs[r].wall[random_below(random, runs[r].n)];
        }
        if (runs[r].n) {
            rates[used++] = sum > 0 ? (double)runs[r].n / sum : 0;
        }
    }
    return bench_median(rates, used);
}

static double ratio(double a, double b) {
    return b > 0 ? a / b : NAN;
}

/* Ratio of a to b, or a alone when n_b is 0. */
static bool bootstrap(const struct bench_series *a, size_t n_a, const struct bench_series *b, size_t n_b, bool divide,
                      struct bench_interval *out) {
    const size_t most = n_a > n_b ? n_a : n_b;
    double *rates = malloc((most + 1) * sizeof *rates);
    double *samples = malloc(BENCH_RESAMPLES * sizeof *samples);
    uint64_t random = 20261130; /* any number; fixed, see above */
    if (!rates || !samples) {
        free(rates);
        free(samples);
        return false;
    }
    const double whole = rate_median(a, n_a, rates);
    *out = (struct bench_interval){.mid = divide ? ratio(whole, rate_median(b, n_b, rates)) : whole};
    out->low = out->high = NAN;
    if (!isnan(out->mid)) {
        for (size_t i = 0; i < BENCH_RESAMPLES; i++) {
            const double x = rate_resampled(a, n_a, rates, &random);
            samples[i] = divide ? ratio(x, rate_resampled(b, n_b, rates, &random)) : x;
        }
        qsort(samples, BENCH_RESAMPLES, sizeof *samples, by_value);
        out->low = bench_quantile(samples, BENCH_RESAMPLES, 0.025);
        out->high = bench_quantile(samples, BENCH_RESAMPLES, 0.975);
    }
    free(rates);
    free(samples);
    return true;
}

bool bench_bootstrap_rate(const struct bench_series *runs, size_t n_runs, struct bench_interval *out) {
    return bootstrap(runs, n_runs, NULL, 0, false, out);
}

bool bench_bootstrap_ratio(const struct bench_series *a, size_t n_a, const struct bench_series *b, size_t n_b,
                           struct bench_interval *out) {
    return bootstrap(a, n_a, b, n_b, true, out);
}

double bench_bound(double token_bytes, double bytes_per_s, double resident_s) {
    const double disk_s = bytes_per_s > 0 ? token_bytes / bytes_per_s : 0;
    const double s = disk_s > resident_s ? disk_s : resident_s;
    return s > 0 ? 1 / s : NAN;
}
