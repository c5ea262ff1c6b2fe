/* stats.h - medians, and how far they can be trusted. */
#ifndef SLUICE_BENCH_STATS_H
#define SLUICE_BENCH_STATS_H

#include <stdbool.h>
#include <stddef.h>

enum { BENCH_RESAMPLES = 2000 }; /* of a bootstrap */

/* The seconds of each token of one run, in order. Not owned. */
struct bench_series {
    const double *wall; /* seconds per token, each >= 0 */
    size_t n;           /* tokens */
};

/* A figure and its 95 % interval. All three are NaN when there was nothing to compute it from. */
struct bench_interval {
    double mid;  /* the figure itself, from the sample as it is */
    double low;  /* 2.5 % of the resampled figures lie below */
    double high; /* 2.5 % lie above */
};

/* Sort v and return its median: the middle value, or the mean of the two middle ones. NaN for n = 0. */
double bench_median(double *v, size_t n);

/* The value below which the share `q` (0..1) of the SORTED v lies, between neighbours linearly. NaN for n = 0. */
double bench_quantile(const double *v, size_t n, double q);

/* Tokens per second of one run: tokens over the sum of their seconds. 0 when empty or when no time passed. */
double bench_rate(const struct bench_series *s);

/*
 * Median over the runs of the tokens per second, with its bootstrap interval: tokens are drawn with
 * replacement within each run. Empty runs are left out. The same input gives the same output, always.
 * False when there is no memory.
 */
bool bench_bootstrap_rate(const struct bench_series *runs, size_t n_runs, struct bench_interval *out);

/* The same for the ratio of two such medians, a over b, each resampled on its own. */
bool bench_bootstrap_ratio(const struct bench_series *a, size_t n_a, const struct bench_series *b, size_t n_b,
                           struct bench_interval *out);

/*
 * The best that a disk and a processor allow together when reads and computation overlap completely:
 * 1 / max(token_bytes / bytes_per_s, resident_s) tokens per second. A limit that is unknown is 0 and
 * does not limit; NaN when neither limits.
 */
double bench_bound(double token_bytes, double bytes_per_s, double resident_s);

#endif
