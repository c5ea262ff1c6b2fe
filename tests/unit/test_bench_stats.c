/*
 * test_bench_stats.c - medians, quantiles, the bootstrap and the bound, against values known in other ways.
 */
#include <math.h>
#include <string.h>

#include "bench/stats.h"
#include "unit.h"

static void assert_near(double got, double expected, double tolerance) {
    if (!(fabs(got - expected) <= tolerance)) {
        fail_msg("%.12g is not %.12g +- %g", got, expected, tolerance);
    }
}

static void test_median(void **state) {
    (void)state;
    double one[] = {7}, odd[] = {9, 1, 5}, even[] = {4, 1, 3, 2}, outlier[] = {1, 1000, 2};
    assert_near(bench_quantile(one, 1, 0.5), 7, 0);
    assert_near(bench_quantile(odd, 3, 0.5), 5, 0);
    assert_near(bench_quantile(even, 4, 0.5), 2.5, 0);
    assert_near(bench_quantile(outlier, 3, 0.5), 2, 0);
    assert_true(isnan(bench_quantile(one, 0, 0.5)));
}

static void test_quantile(void **state) {
    (void)state;
    double v[] = {30, 10, 0, 40, 20};
    assert_near(bench_quantile(v, 5, 0), 0, 0);
    assert_near(bench_quantile(v, 5, 1), 40, 0);
    assert_near(bench_quantile(v, 5, 0.5), 20, 0);
    assert_near(bench_quantile(v, 5, 0.025), 1, 1e-12); /* a tenth of the way from 0 to 10 */
    assert_near(bench_quantile(v, 1, 0.9), 0, 0);
    assert_true(isnan(bench_quantile(v, 0, 0.5)));
}

static void test_rate(void **state) {
    (void)state;
    const double wall[] = {0.5, 0.25, 0.25}, zero[] = {0, 0};
    assert_near(bench_bootstrap(&(struct bench_series){wall, 3}, 1, NULL, 0).mid, 3, 1e-12);
    assert_true(isnan(bench_bootstrap(&(struct bench_series){wall, 0}, 1, NULL, 0).mid));
    assert_near(bench_bootstrap(&(struct bench_series){zero, 2}, 1, NULL, 0).mid, 0, 0);
}

/* A constant has no spread: its interval is a point. */
static void test_constant(void **state) {
    (void)state;
    double wall[40];
    for (size_t i = 0; i < 40; i++) {
        wall[i] = 0.25;
    }
    const struct bench_series runs[] = {{wall, 40}, {wall, 17}, {wall, 1}};
    struct bench_interval v;
    v = bench_bootstrap(runs, 3, NULL, 0);
    assert_near(v.mid, 4, 1e-12);
    assert_near(v.low, 4, 1e-12);
    assert_near(v.high, 4, 1e-12);
    v = bench_bootstrap(runs, 3, runs, 3);
    assert_near(v.mid, 1, 1e-12);
    assert_near(v.low, 1, 1e-12);
    assert_near(v.high, 1, 1e-12);
}

/*
 * Half of the tokens take 1 s, half 3 s. The mean of n draws has the standard error 1 / sqrt(n); for n =
 * 400 that is 0.05, so the mean lies in 2 +- 1.96 * 0.05 in 95 % of the cases, and the rate in its inverse.
 */
static void test_known_spread(void **state) {
    (void)state;
    double wall[400];
    for (size_t i = 0; i < 400; i++) {
        wall[i] = i % 2 ? 3 : 1;
    }
    const struct bench_series run = {wall, 400};
    struct bench_interval v, again;
    v = bench_bootstrap(&run, 1, NULL, 0);
    assert_near(v.mid, 0.5, 1e-12);
    assert_near(v.low, 1 / 2.098, 0.004);
    assert_near(v.high, 1 / 1.902, 0.004);
    again = bench_bootstrap(&run, 1, NULL, 0); /* the same, always */
    assert_memory_equal(&v, &again, sizeof v);
    /* The ratio of two independent ones spreads sqrt(2) times as far. */
    v = bench_bootstrap(&run, 1, &run, 1);
    assert_near(v.mid, 1, 1e-12);
    assert_near(v.low, 1 - 0.0686, 0.01);
    assert_near(v.high, 1 + 0.0711, 0.01);
}

/* The median run decides, not the slow one; the interval contains the figure. */
static void test_runs(void **state) {
    (void)state;
    double fast[50], usual[50], slow[50];
    for (size_t i = 0; i < 50; i++) {
        fast[i] = 0.10 + 0.001 * (double)(i % 5);
        usual[i] = 0.11 + 0.001 * (double)(i % 5);
        slow[i] = 10;
    }
    const struct bench_series runs[] = {{slow, 50}, {fast, 50}, {usual, 50}, {NULL, 0}}, twice[] = {{fast, 50}};
    struct bench_interval v;
    v = bench_bootstrap(runs, 4, NULL, 0);
    assert_near(v.mid, 1 / 0.112, 1e-9);
    assert_true(v.low < v.mid && v.mid < v.high && v.high - v.low < 0.2);
    v = bench_bootstrap(twice, 1, runs, 4);
    assert_near(v.mid, 0.112 / 0.102, 1e-9);
}

static void test_empty(void **state) {
    (void)state;
    const double wall[] = {1};
    const struct bench_series none = {NULL, 0}, some = {wall, 1};
    struct bench_interval v;
    v = bench_bootstrap(NULL, 0, NULL, 0);
    assert_true(isnan(v.mid) && isnan(v.low) && isnan(v.high));
    v = bench_bootstrap(&none, 1, NULL, 0);
    assert_true(isnan(v.mid));
    v = bench_bootstrap(&some, 1, &none, 1);
    assert_true(isnan(v.mid) && isnan(v.low));
    v = bench_bootstrap(&none, 1, &some, 1);
    assert_true(isnan(v.mid));
}

static void test_bound(void **state) {
    (void)state;
    assert_near(bench_bound(100e6, 1e9, 0.05), 10, 1e-9); /* the disk: 0.1 s per token */
    assert_near(bench_bound(10e6, 1e9, 0.05), 20, 1e-9);  /* the processor: 0.05 s */
    assert_near(bench_bound(100e6, 1e9, 0), 10, 1e-9);    /* the processor is not known */
    assert_near(bench_bound(100e6, 0, 0.05), 20, 1e-9);   /* the disk is not known */
    assert_near(bench_bound(0, 1e9, 0.05), 20, 1e-9);     /* nothing is read */
    assert_true(isnan(bench_bound(0, 1e9, 0)));
    assert_true(isnan(bench_bound(100e6, 0, 0)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_median),   cmocka_unit_test(test_quantile),     cmocka_unit_test(test_rate),
        cmocka_unit_test(test_constant), cmocka_unit_test(test_known_spread), cmocka_unit_test(test_runs),
        cmocka_unit_test(test_empty),    cmocka_unit_test(test_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
