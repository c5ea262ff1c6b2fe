/* test_predict.c - speeds predicted from made-up measurements. */
#include "unit.h"

#include <math.h>

#include "memory/predict.h"

#define MIB ((double)(1 << 20))

/* About the model and machine of docs/benchmarks.md. */
static struct predict_input machine(void) {
    return (struct predict_input){
        .compute_s = {.low = 0.2, .mid = 0.166, .high = 0.15},
        .disk = {.low = 1000 * MIB, .mid = 1300 * MIB, .high = 1600 * MIB},
        .graph_s = 10e-6,
        .token_bytes = (uint64_t)(1046 * MIB),
        .bank_bytes = (uint64_t)(16740 * MIB),
        .experts = 128,
        .top_k = 8,
        .layers = 48,
        .moe_layers = 48,
        .threads = 2,
        .lookahead = true,
    };
}

static void assert_near(double value, double expected, double share) {
    if (!(fabs(value - expected) <= share * expected)) {
        print_error("%g is not within %g %% of %g\n", value, share * 100, expected);
        fail();
    }
}

/* low <= mid <= high, all known. */
static void assert_ordered(const struct predict_range *r) {
    assert_true(r->low >= 0);
    assert_true(r->low <= r->mid);
    assert_true(r->mid <= r->high);
}

static void test_misses(void **state) {
    (void)state;
    static const double ratios[][2] = {{128, 8}, {128, 6}, {128, 2}, {32, 4}, {8, 2}, {256, 8}, {4, 4}, {1, 1}, {0, 0}};
    struct predict_range m;
    for (size_t i = 0; i < sizeof ratios / sizeof ratios[0]; i++) {
        double before = 1.0000001;
        predict_misses(0, ratios[i][0], ratios[i][1], &m);
        assert_true(m.low == 1 && fabs(m.mid - 1) < 1e-9 && m.high == 1);
        for (double share = 0; share <= 1.0001; share += 0.005) { /* more cache never misses more */
            predict_misses(share, ratios[i][0], ratios[i][1], &m);
            assert_true(m.high >= 0 && m.high <= m.mid && m.mid <= m.low);
            assert_true(m.mid <= before);
            before = m.mid + 1e-12;
        }
        predict_misses(1, ratios[i][0], ratios[i][1], &m);
        assert_true(m.low == 0 && m.mid == 0 && m.high == 0);
        predict_misses(7, ratios[i][0], ratios[i][1], &m); /* a cache larger than the expert index */
        assert_true(m.low == 0 && m.mid == 0);
    }
    /* Models are told apart by how many experts there are per expert used. */
    struct predict_range few, many;
    predict_misses(0.25, 32, 4, &few);
    predict_misses(0.25, 128, 6, &many);
    assert_true(few.mid > many.mid + 0.1);
}

/* Within a quarter of what was measured (docs/benchmarks.md, "Generation inside 6 GiB"). */
static void test_measured(void **state) {
    (void)state;
    static const struct {
        double mib, tokens; /* cache, speed */
    } seen[] = {{0, 1.28}, {500, 2.04}, {2000, 3.48}, {4000, 5.05}};
    const struct predict_input in = machine();
    struct predict_row row;
    for (size_t i = 0; i < sizeof seen / sizeof seen[0]; i++) {
        predict_cache(&in, (uint64_t)(seen[i].mib * MIB), &row);
        assert_ordered(&row.tokens_per_s);
        assert_near(row.tokens_per_s.mid, seen[i].tokens, 0.25);
        assert_true(row.tokens_per_s.low < seen[i].tokens && seen[i].tokens < row.tokens_per_s.high);
    }
    predict_resident(&in, &row);
    assert_near(row.tokens_per_s.mid, 6.03, 0.03);
}

/* Everything in the cache: nothing is read, and the disk does not matter. */
static void test_all(void **state) {
    (void)state;
    struct predict_input in = machine();
    struct predict_row row;
    in.disk = (struct predict_range){0, 0, 0};
    predict_cache(&in, in.bank_bytes, &row);
    assert_true(row.read_bytes.mid == 0 && row.read_bytes.low == 0);
    assert_ordered(&row.tokens_per_s);
    assert_true(row.tokens_per_s.mid < 1 / in.compute_s.mid); /* streaming is never faster than that */
    assert_near(row.tokens_per_s.mid, 1 / in.compute_s.mid, 0.1);
}

/* Without a cache every expert of a token is read, no more and no less. */
static void test_none(void **state) {
    (void)state;
    const struct predict_input in = machine();
    struct predict_row row;
    predict_cache(&in, 0, &row);
    assert_near(row.read_bytes.low, (double)in.token_bytes, 1e-9);
    assert_near(row.read_bytes.high, (double)in.token_bytes, 1e-9);
    assert_true(row.tokens_per_s.mid < in.disk.mid / (double)in.token_bytes); /* the disk's bound */
}

static void test_monotonous(void **state) {
    (void)state;
    struct predict_input in = machine();
    for (int slow = 0; slow < 2; slow++) {
        double before = 0;
        for (uint64_t mib = 100; mib <= 17000; mib += 100) {
            struct predict_row row;
            predict_cache(&in, mib << 20, &row);
            assert_true(row.tokens_per_s.mid >= before);
            assert_ordered(&row.tokens_per_s);
            before = row.tokens_per_s.mid - 1e-9;
        }
        in.disk = (struct predict_range){.low = 10 * MIB, .mid = 20 * MIB, .high = 30 * MIB};
    }
    /* A faster disk, a faster processor: never slower. */
    struct predict_row slow, fast;
    predict_cache(&in, (uint64_t)2000 << 20, &slow);
    in.disk.mid *= 2;
    predict_cache(&in, (uint64_t)2000 << 20, &fast);
    assert_true(fast.tokens_per_s.mid > slow.tokens_per_s.mid);
    in.compute_s.mid /= 2;
    predict_cache(&in, (uint64_t)2000 << 20, &slow);
    assert_true(slow.tokens_per_s.mid >= fast.tokens_per_s.mid);
}

/* What is not known stays unknown. */
static void test_unknown(void **state) {
    (void)state;
    struct predict_input in = machine();
    struct predict_row row;
    in.disk = (struct predict_range){0, 0, 0};
    predict_cache(&in, (uint64_t)2000 << 20, &row);
    assert_true(row.read_bytes.mid > 0); /* that is known without a disk */
    assert_true(row.tokens_per_s.low < 0 && row.tokens_per_s.mid < 0 && row.tokens_per_s.high < 0);
    in = machine();
    in.compute_s = (struct predict_range){0, 0, 0};
    predict_cache(&in, (uint64_t)2000 << 20, &row);
    assert_true(row.tokens_per_s.mid < 0);
    predict_resident(&in, &row);
    assert_true(row.tokens_per_s.mid < 0);
    in = machine();
    in.token_bytes = 0; /* no top-k in the header */
    predict_cache(&in, (uint64_t)2000 << 20, &row);
    assert_true(row.read_bytes.mid < 0 && row.tokens_per_s.mid < 0);
    in.bank_bytes = 0;
    predict_cache(&in, 0, &row);
    assert_true(row.tokens_per_s.mid < 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_misses), cmocka_unit_test(test_measured),   cmocka_unit_test(test_all),
        cmocka_unit_test(test_none),   cmocka_unit_test(test_monotonous), cmocka_unit_test(test_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
