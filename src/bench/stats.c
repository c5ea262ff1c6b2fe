/*
 * stats.c - see stats.h.
 *
 * Medians, because one slow run on a shared machine is common and must not move the figure. The
 * bootstrap, because the seconds per token are not normally distributed: most tokens hit the cache, some
 * wait for the disk, and no formula for the error of a rate of such numbers is worth trusting. Tokens are
 * drawn within their run, so the interval is about tokens; that runs differ among themselves (the
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

void bench_sort(double *v, size_t n) {
    qsort(v, n, sizeof *v, by_value);
}

double bench_quantile(double *v, size_t n, double q) {
    if (n == 0) {
        return NAN;
    }
    bench_sort(v, n);
    const double at = q * (double)(n - 1);
    const size_t low = (size_t)at;
    return low + 1 < n ? v[low] + (at - (double)low) * (v[low + 1] - v[low]) : v[n - 1];
}

/* A number below n. The bias of the multiplication is n / 2^64: nothing. */
static size_t random_below(uint64_t *state, size_t n) {
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return (size_t)(((unsigned __int128)x * n) >> 64);
}

/* Median of the runs' rates: with tokens drawn anew, or as they are without `random`. */
static double median_rate(const struct bench_series *runs, size_t n, uint64_t *random) {
    double rates[BENCH_RUNS_MAX];
    size_t used = 0;
    for (size_t r = 0; r < n; r++) {
        double sum = 0;
        for (size_t i = 0; i < runs[r].n; i++) {
            sum += runs[r].wall[random ? random_below(random, runs[r].n) : i];
        }
        if (runs[r].n) {
            rates[used++] = sum > 0 ? (double)runs[r].n / sum : 0;
        }
    }
    return bench_quantile(rates, used, 0.5);
}

/* The figure: a median rate, or the ratio of two. */
static double figure(const struct bench_series *runs, size_t n_runs, const struct bench_series *to, size_t n_to,
                     uint64_t *random) {
    const double rate = median_rate(runs, n_runs, random);
    const double other = to ? median_rate(to, n_to, random) : 1;
    return other > 0 ? rate / other : NAN;
}

struct bench_interval bench_bootstrap(const struct bench_series *runs, size_t n_runs, const struct bench_series *to,
                                      size_t n_to) {
    double samples[BENCH_RESAMPLES];
    uint64_t random = 20261130; /* any number; fixed, see above */
    struct bench_interval out = {figure(runs, n_runs, to, n_to, NULL), NAN, NAN};
    if (isnan(out.mid)) {
        return out;
    }
    for (size_t i = 0; i < BENCH_RESAMPLES; i++) {
        samples[i] = figure(runs, n_runs, to, n_to, &random);
    }
    out.low = bench_quantile(samples, BENCH_RESAMPLES, 0.025);
    out.high = bench_quantile(samples, BENCH_RESAMPLES, 0.975);
    return out;
}

double bench_bound(double token_bytes, double bytes_per_s, double resident_s) {
    const double disk_s = bytes_per_s > 0 ? token_bytes / bytes_per_s : 0;
    const double s = disk_s > resident_s ? disk_s : resident_s;
    return s > 0 ? 1 / s : NAN;
}
