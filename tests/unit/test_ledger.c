/* test_budget.c - the size of the cache: every refusal with its numbers, and what auto makes of a machine. */
#include "unit.h"

#include <string.h>

#include "plan/budget.h"

#define MIB ((uint64_t)1 << 20)

static const struct plan_demand demand = {
    .layer = 20 * MIB, .token = 960 * MIB, .bank = 17000 * MIB, .reserved = 1000 * MIB};
static const struct plan_limits roomy = {.total = 64000 * MIB, .available = 60000 * MIB};

static struct sluice_settings fixed(uint64_t bytes) {
    struct sluice_settings s;
    sluice_settings_default(&s);
    s.policy = SLUICE_POLICY_LRU;
    s.cache = SLUICE_CACHE_FIXED;
    s.cache_bytes = bytes;
    return s;
}

static uint64_t granted(const struct sluice_settings *s, const struct plan_demand *d, const struct plan_limits *l) {
    uint64_t budget = UINT64_MAX;
    struct sluice_error err;
    memset(&err, 0xee, sizeof err);
    assert_int_equal(plan_cache_budget(s, d, l, &budget, &err), SLUICE_OK);
    assert_int_equal(err.status, SLUICE_OK);
    assert_string_equal(err.message, "");
    return budget;
}

static void refused(const struct sluice_settings *s, const char *first, const char *second, const char *third) {
    uint64_t budget = UINT64_MAX;
    struct sluice_error err = {0};
    assert_int_equal(plan_cache_budget(s, &demand, &roomy, &budget, &err), SLUICE_ERR_BUDGET);
    assert_int_equal(err.status, SLUICE_ERR_BUDGET);
    assert_int_equal(budget, 0);
    assert_non_null(strstr(err.message, first));
    assert_non_null(strstr(err.message, second));
    assert_non_null(strstr(err.message, third));
    assert_null(strchr(err.message, '\n'));
    assert_int_equal(plan_cache_budget(s, &demand, &roomy, &budget, NULL), SLUICE_ERR_BUDGET);
}

static void test_off(void **state) {
    (void)state;
    struct sluice_settings s = fixed(5);
    s.cache = SLUICE_CACHE_OFF;
    const struct plan_limits none = {0, 0};
    assert_int_equal(granted(&s, &demand, &none), 0);
}

static void test_fixed(void **state) {
    (void)state;
    struct sluice_settings s = fixed(960 * MIB);
    assert_int_equal(granted(&s, &demand, &roomy), 960 * MIB); /* exactly one token */
    s.cache_bytes = 17001 * MIB;
    assert_int_equal(granted(&s, &demand, &roomy), 17000 * MIB); /* never more than there is */
    s.cache_bytes = 960 * MIB - 1;
    refused(&s, "960.0 MiB is less than one token", "(960.0 MiB", "one layer 20.0 MiB");
    s.cache_bytes = 500 * MIB;
    refused(&s, "500.0 MiB", "960.0 MiB", "force");
    s.force_cache = true;
    assert_int_equal(granted(&s, &demand, &roomy), 500 * MIB);
    s.cache_bytes = 20 * MIB;
    assert_int_equal(granted(&s, &demand, &roomy), 20 * MIB); /* exactly one layer */
    s.cache_bytes = 20 * MIB - 1;
    refused(&s, "less than one layer", "(20.0 MiB", "960.0 MiB"); /* forced or not */
    s.force_cache = false;
    s.cache_bytes = 1;
    refused(&s, "less than one layer", "(20.0 MiB", "960.0 MiB");
    /* The cycle policy has no cliff at one token: nothing needs to be forced above one layer. */
    s.policy = SLUICE_POLICY_CYCLE;
    s.cache_bytes = 500 * MIB;
    assert_int_equal(granted(&s, &demand, &roomy), 500 * MIB);
    s.cache_bytes = 20 * MIB;
    assert_int_equal(granted(&s, &demand, &roomy), 20 * MIB);
    s.cache_bytes = 20 * MIB - 1;
    refused(&s, "less than one layer", "(20.0 MiB", "960.0 MiB");
}

static void test_auto(void **state) {
    (void)state;
    struct sluice_settings s;
    sluice_settings_default(&s);
    s.policy = SLUICE_POLICY_LRU;
    assert_int_equal(granted(&s, &demand, &roomy), 17000 * MIB); /* room for all */
    struct plan_limits l = {.total = 6144 * MIB, .available = 5000 * MIB};
    assert_int_equal(plan_floor(&s, &l), 384 * MIB);
    assert_int_equal(granted(&s, &demand, &l), 5000 * MIB - 384 * MIB - 1000 * MIB);
    s.floor_bytes = 1 * MIB;
    assert_int_equal(granted(&s, &demand, &l), 5000 * MIB - 1 * MIB - 1000 * MIB);
    /* One token's demand or nothing. */
    l.available = (1000 + 1 + 960) * MIB;
    assert_int_equal(granted(&s, &demand, &l), 960 * MIB);
    l.available--;
    assert_int_equal(granted(&s, &demand, &l), 0);
    /* With the cycle policy one layer's demand is enough. */
    s.policy = SLUICE_POLICY_CYCLE;
    assert_int_equal(granted(&s, &demand, &l), 960 * MIB - 1);
    l.available = (1000 + 1 + 20) * MIB;
    assert_int_equal(granted(&s, &demand, &l), 20 * MIB);
    l.available--;
    assert_int_equal(granted(&s, &demand, &l), 0);
    l.available = 0;
    assert_int_equal(granted(&s, &demand, &l), 0);
    /* The bank, to the byte. */
    l.available = (1000 + 1 + 17000) * MIB;
    assert_int_equal(granted(&s, &demand, &l), 17000 * MIB);
    l.available--;
    assert_int_equal(granted(&s, &demand, &l), 17000 * MIB - 1);
    /* A bank of less than one token's demand (forced top-k) is no reason to refuse. */
    const struct plan_demand tiny = {.layer = 1, .token = 2, .bank = 2, .reserved = 0};
    assert_int_equal(granted(&s, &tiny, &roomy), 2);
}

static void test_floor(void **state) {
    (void)state;
    struct sluice_settings s;
    sluice_settings_default(&s);
    struct plan_limits l = {0, 0};
    assert_int_equal(plan_floor(&s, &l), 256 * MIB);
    l.total = 4096 * MIB;
    assert_int_equal(plan_floor(&s, &l), 256 * MIB);
    l.total = 8192 * MIB;
    assert_int_equal(plan_floor(&s, &l), 512 * MIB);
    l.total = 1000000 * MIB;
    assert_int_equal(plan_floor(&s, &l), 2048 * MIB);
    s.floor_bytes = 7;
    assert_int_equal(plan_floor(&s, &l), 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_off),
        cmocka_unit_test(test_fixed),
        cmocka_unit_test(test_auto),
        cmocka_unit_test(test_floor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
