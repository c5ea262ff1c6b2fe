/* stats.h - medians, and how far they can be trusted. */
#ifndef SLUICE_BENCH_STATS_H
#define SLUICE_BENCH_STATS_H

#include <stddef.h>

enum {
    BENCH_RUNS_MAX = 100,  /* runs of one row */
    BENCH_RESAMPLES = 2000 /* of a bootstrap */
};

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

/* In ascending order. */
void bench_sort(double *v, size_t n);

/*
 * Sort v and return the value below which the share `q` (0..1) of it lies, linear between neighbours: 0.5 is the
 * median. NaN for n = 0.
 */
double bench_quantile(double *v, size_t n, double q);

/*
 * Median over at most BENCH_RUNS_MAX runs of their tokens per second, with its bootstrap interval: tokens are drawn
 * with replacement within each run. Empty runs are left out; a run in which no time passed has the rate 0. With `to`,
 * the ratio of this median to that of other runs, both drawn anew. The same input always gives the same output.
 */
struct bench_interval bench_bootstrap(const struct bench_series *runs, size_t n_runs, const struct bench_series *to,
                                      size_t n_to);

/*
 * The best that a disk and a processor allow together when reads and computation overlap completely:
 * 1 / max(token_bytes / bytes_per_s, resident_s) tokens per second. A limit that is unknown is 0 and
 * does not limit; NaN when neither limits.
 */
double bench_bound(double token_bytes, double bytes_per_s, double resident_s);

#endif
