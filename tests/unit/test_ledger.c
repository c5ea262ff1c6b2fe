/*
 * test_ledger.c - the memory plan: every row, every refusal with its numbers, and what auto makes of a
 * machine, a cgroup and a ceiling; from made-up facts, and from a made-up /proc and /sys.
 */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "memory/cgroup.h"
#include "memory/ledger.h"

#define MIB ((uint64_t)1 << 20)

static const struct plan_demand demand = {
    .layer = 20 * MIB, .token = 960 * MIB, .index = 17000 * MIB, .staging = 128 * MIB, .dense = 1000 * MIB};
static const struct plan_limits roomy = {.total = 64000 * MIB, .available = 60000 * MIB};

/* The plan that was made last. */
static struct sluice_plan plan;

static int make(const struct sluice_settings *s, const struct plan_demand *d, const struct plan_limits *l,
                const struct plan_process *p, uint64_t *budget, struct sluice_error *err) {
    struct plan_facts f = {.limits = *l};
    if (p) {
        f.process = *p;
    }
    memset(&plan, 0xee, sizeof plan);
    return plan_make(s, d, &f, &plan, budget, err);
}

/* Every row is in the sum, and a plan that was granted is within its limit. */
static void check_sum(void) {
    assert_int_equal(plan.total_bytes, plan.process_bytes + plan.files_bytes + plan.untouched_bytes + plan.dense_bytes +
                                           plan.cache_bytes + plan.scratch_bytes);
    assert_true(plan.limit_bytes == 0 || plan.dense_mapped || plan.total_bytes <= plan.limit_bytes);
}

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
    assert_int_equal(make(s, d, l, NULL, &budget, &err), SLUICE_OK);
    assert_int_equal(err.status, SLUICE_OK);
    assert_string_equal(err.message, "");
    check_sum();
    assert_int_equal(plan.cache_bytes, budget ? budget : d->staging);
    return budget;
}

static void refused(const struct sluice_settings *s, const char *first, const char *second, const char *third) {
    uint64_t budget = UINT64_MAX;
    struct sluice_error err = {0};
    assert_int_equal(make(s, &demand, &roomy, NULL, &budget, &err), SLUICE_ERR_BUDGET);
    assert_int_equal(err.status, SLUICE_ERR_BUDGET);
    assert_int_equal(budget, 0);
    assert_non_null(strstr(err.message, first));
    assert_non_null(strstr(err.message, second));
    assert_non_null(strstr(err.message, third));
    assert_null(strchr(err.message, '\n'));
    assert_int_equal(make(s, &demand, &roomy, NULL, &budget, NULL), SLUICE_ERR_BUDGET);
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

/* Auto gives the largest cache with which the plan and the floor are within the limit. */
static void exact(const struct sluice_settings *s, const struct plan_limits *l, uint64_t floor, uint64_t limit) {
    const uint64_t budget = granted(s, &demand, l);
    assert_int_equal(plan.limit_bytes, limit);
    assert_int_equal(plan.floor_bytes, floor);
    assert_true(budget > 0 && plan.total_bytes + floor <= limit);
    plan_set_cache(&plan, budget + 2); /* one of them may vanish in the division by the tables' share */
    assert_true(plan.total_bytes + floor > limit);
}

static void test_auto(void **state) {
    (void)state;
    struct sluice_settings s;
    sluice_settings_default(&s);
    s.policy = SLUICE_POLICY_LRU;
    assert_int_equal(granted(&s, &demand, &roomy), 17000 * MIB); /* room for all */
    struct plan_limits l = {.total = 6144 * MIB, .available = 5000 * MIB};
    assert_int_equal(plan_floor(&s, &l), 384 * MIB);
    exact(&s, &l, 384 * MIB, 5000 * MIB);
    s.floor_bytes = 1 * MIB;
    exact(&s, &l, 1 * MIB, 5000 * MIB);
    /* One token's demand or nothing. Scratch is 24 MiB and 1/256 of all other rows. */
    l.available = (1 + 24 + 1960) * MIB + 1960 * MIB / 256;
    assert_int_equal(granted(&s, &demand, &l) / MIB, 960);
    l.available -= 1 * MIB;
    assert_int_equal(granted(&s, &demand, &l), 0);
    /* With the cycle policy one layer's demand is enough. */
    s.policy = SLUICE_POLICY_CYCLE;
    assert_int_equal(granted(&s, &demand, &l) / MIB, 959);
    struct plan_demand d =
        demand; /* staging never needs more than the expert index, nor than a block when that is more */
    d.staging = 10 * MIB;
    l.available = (1 + 24 + 1020) * MIB + 1020 * MIB / 256;
    assert_int_equal(granted(&s, &d, &l) / MIB, 20);
    l.available -= 1 * MIB;
    assert_int_equal(granted(&s, &d, &l), 0);
    assert_int_equal(plan.cache_bytes, 10 * MIB);
    /* The index, to the byte. */
    l.available = (1 + 24 + 18000) * MIB + 18000 * MIB / 256 + 1 * MIB;
    assert_int_equal(granted(&s, &demand, &l), 17000 * MIB);
    l.available -= 2 * MIB;
    assert_int_equal(granted(&s, &demand, &l) / MIB, 16999);
    /* A index of less than one token's demand (forced top-k) is no reason to refuse. */
    const struct plan_demand tiny = {.layer = 1, .token = 2, .index = 2};
    assert_int_equal(granted(&s, &tiny, &roomy), 2);
    /* Nothing is known of any limit: nothing is risked, nothing is refused. */
    const struct plan_limits none = {0, 0};
    assert_int_equal(granted(&s, &demand, &none), 0);
    assert_int_equal(plan.limit_bytes, 0);
    s.cache = SLUICE_CACHE_FIXED;
    s.cache_bytes = 5000 * MIB;
    assert_int_equal(granted(&s, &demand, &none), 5000 * MIB);
}

/* A ceiling that the user sets counts beside those of machine and cgroup; the tightest wins. */
static void test_ceiling(void **state) {
    (void)state;
    struct sluice_settings s;
    sluice_settings_default(&s);
    s.memory_bytes = 3072 * MIB;
    assert_int_equal(plan_margin(&s), 96 * MIB);
    exact(&s, &roomy, 96 * MIB, 3072 * MIB);
    assert_true(plan.limit_by_setting);
    s.floor_bytes = 10 * MIB;
    exact(&s, &roomy, 10 * MIB, 3072 * MIB);
    s.floor_bytes = 0;
    struct plan_limits l = {.total = 4096 * MIB, .available = 2500 * MIB};
    exact(&s, &l, 256 * MIB, 2500 * MIB);
    assert_false(plan.limit_by_setting);
    /* The ceiling is tighter, but the machine's floor is the wider one: still within both. */
    l.available = 3100 * MIB;
    const uint64_t budget = granted(&s, &demand, &l);
    assert_true(plan.limit_by_setting && budget > 0 && plan.total_bytes + 256 * MIB <= 3100 * MIB);
    /* Without any other limit. */
    const struct plan_limits none = {0, 0};
    exact(&s, &none, 96 * MIB, 3072 * MIB);
    s.memory_bytes = 100 * MIB;
    assert_int_equal(plan_margin(&s), 32 * MIB);
}

static void refused_with(const struct sluice_settings *s, const struct plan_demand *d, const struct plan_limits *l,
                         const struct plan_process *p, const char *const *words) {
    uint64_t budget = 7;
    struct sluice_error err = {0};
    assert_int_equal(make(s, d, l, p, &budget, &err), SLUICE_ERR_BUDGET);
    assert_int_equal(budget, 0);
    for (; *words; words++) {
        if (!strstr(err.message, *words)) {
            fail_msg("'%s' is not in: %s", *words, err.message);
        }
    }
    assert_null(strchr(err.message, '\n'));
}

static void test_does_not_fit(void **state) {
    (void)state;
    struct sluice_settings s = fixed(2000 * MIB);
    const struct plan_process p = {.anon = 300 * MIB, .files = 20 * MIB, .data = 500 * MIB, .stacks = 50 * MIB};
    s.memory_bytes = 3000 * MIB;
    const char *const fixed_words[] = {"the cache does not fit",
                                       "of 3000 MiB that memory allows",
                                       "dense 1000",
                                       "cache 2000",
                                       "process 300",
                                       "untouched 150",
                                       "files 20",
                                       "scratch 37",
                                       "make it smaller",
                                       NULL};
    refused_with(&s, &demand, &roomy, &p, fixed_words);
    s.memory_bytes = 3600 * MIB;
    uint64_t budget;
    assert_int_equal(make(&s, &demand, &roomy, &p, &budget, NULL), SLUICE_OK);
    assert_int_equal(budget, 2000 * MIB);
    check_sum();
    /* The same by the machine: what the process has is its own, the rest must still be there. */
    s.memory_bytes = 0;
    struct plan_limits l = {.total = 8000 * MIB, .available = 2700 * MIB};
    const char *const machine_words[] = {"the cache does not fit", "of 3000 MiB that machine and cgroup leave", NULL};
    refused_with(&s, &demand, &l, &p, machine_words);
    /* A cache larger than the expert index is only as large as that. */
    struct plan_demand d = demand;
    d.index = 1000 * MIB;
    assert_int_equal(make(&s, &d, &l, &p, &budget, NULL), SLUICE_OK);
    assert_int_equal(budget, 1000 * MIB);
    /* Not even without a cache: for off and for auto. */
    l.available = 1000 * MIB;
    const char *const model_words[] = {"even without a cache", "cache 128", "dense 1000", NULL};
    s.cache = SLUICE_CACHE_OFF;
    refused_with(&s, &demand, &l, &p, model_words);
    s.cache = SLUICE_CACHE_AUTO;
    refused_with(&s, &demand, &l, &p, model_words);
    /* A full cgroup is a limit too. */
    l.available = 0;
    refused_with(&s, &demand, &l, &p, model_words);
    /* Dense weights in the page cache are taken away before anybody is killed. */
    l.available = 1000 * MIB;
    d = demand;
    d.dense_mapped = true;
    assert_int_equal(make(&s, &d, &l, &p, &budget, NULL), SLUICE_OK);
    assert_int_equal(budget, 0);
    assert_true(plan.dense_mapped);
    /* But a cache must not push them out. */
    s = fixed(960 * MIB);
    const char *const mapped_words[] = {"the cache does not fit", "dense 1000 (page cache)", NULL};
    refused_with(&s, &d, &l, &p, mapped_words);
}

/* What is in memory already is counted once, wherever it is. */
static void test_rows(void **state) {
    (void)state;
    struct sluice_settings s = fixed(960 * MIB);
    uint64_t budget;
    struct plan_demand d = demand;
    struct plan_process p = {.anon = 300 * MIB, .files = 20 * MIB, .data = 500 * MIB};
    assert_int_equal(make(&s, &d, &roomy, &p, &budget, NULL), SLUICE_OK);
    assert_int_equal(plan.process_bytes, 300 * MIB);
    assert_int_equal(plan.untouched_bytes, 200 * MIB);
    assert_int_equal(plan.files_bytes, 20 * MIB);
    assert_int_equal(plan.dense_bytes, 1000 * MIB);
    const uint64_t total = plan.total_bytes, limit = plan.limit_bytes;
    /* The same when the dense weights are held: read-only memory, in anon and not in data. */
    d.dense_held = d.dense;
    p.anon += d.dense;
    struct plan_limits l = roomy;
    l.available -= d.dense;
    assert_int_equal(make(&s, &d, &l, &p, &budget, NULL), SLUICE_OK);
    assert_int_equal(plan.process_bytes, 300 * MIB);
    assert_int_equal(plan.untouched_bytes, 200 * MIB);
    assert_int_equal(plan.total_bytes, total);
    assert_int_equal(plan.limit_bytes, limit);
    /* In the page cache they are file pages, all mapped or none yet. */
    d = demand;
    d.dense_mapped = true;
    p = (struct plan_process){.anon = 300 * MIB, .files = 1020 * MIB, .data = 500 * MIB};
    assert_int_equal(make(&s, &d, &roomy, &p, &budget, NULL), SLUICE_OK);
    assert_int_equal(plan.files_bytes, 64 * MIB); /* at least: which pages are whose is not known */
    p.files = 1200 * MIB;
    assert_int_equal(make(&s, &d, &roomy, &p, &budget, NULL), SLUICE_OK);
    assert_int_equal(plan.files_bytes, 200 * MIB);
    p.files = 20 * MIB;
    assert_int_equal(make(&s, &d, &roomy, &p, &budget, NULL), SLUICE_OK);
    assert_int_equal(plan.files_bytes, 20 * MIB);
    /* Addresses that are reserved (a sanitizer's shadow) are no memory. */
    p.data = 20000000 * MIB;
    assert_int_equal(make(&s, &d, &roomy, &p, &budget, NULL), SLUICE_OK);
    assert_int_equal(plan.untouched_bytes, 0);
    /* The sums of the kernel are taken one after the other: none may go below zero. */
    p.data = 100 * MIB;
    assert_int_equal(make(&s, &d, &roomy, &p, &budget, NULL), SLUICE_OK);
    assert_int_equal(plan.untouched_bytes, 0);
}

/* ---- from files ------------------------------------------------------------------------------ */

static void test_facts(void **state) {
    (void)state;
    struct plan_facts f;
    memset(&f, 0xee, sizeof f);
    plan_facts_read(&f, unit_root); /* nothing to be read */
    assert_int_equal(f.limits.total, 0);
    assert_int_equal(f.process.anon, 0);
    assert_int_equal(f.process.files, 0);
    assert_int_equal(f.process.data, 0);
    assert_int_equal(f.process.stacks, 0);
    unit_root_put("/proc/meminfo", "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n");
    unit_root_put("/proc/self/cgroup", "9:memory:/x\n");
    unit_root_put("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "3221225472\n");
    unit_root_put("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "1073741824\n");
    unit_root_put("/sys/fs/cgroup/memory/x/memory.stat", "total_inactive_file 536870912\ntotal_active_file 0\n");
    unit_root_put("/sys/fs/cgroup/memory/x/memory.max_usage_in_bytes", "1342177280\n");
    unit_root_put("/proc/self/status", "Name:\tx\nVmData:\t  819200 kB\nRssAnon:\t  307200 kB\nRssFile:\t   20480 kB\n"
                                       "RssShmem:\t    1024 kB\n");
    unit_root_put("/proc/self/maps", "00400000-00500000 rw-p 00000000 00:00 0 [heap]\n"    /* no guard below */
                                     "10000000-10001000 ---p 00000000 00:00 0 \n"          /* a guard */
                                     "10001000-10801000 rw-p 00000000 00:00 0 \n"          /* a stack of 8 MiB */
                                     "20000000-20001000 ---p 00000000 00:00 0 \n"          /* a guard */
                                     "20001000-30001000 rw-p 00000000 00:00 0 \n"          /* too large for a stack */
                                     "40000000-43f00000 ---p 00000000 00:00 0 \n"          /* room of a heap */
                                     "43f00000-44000000 rw-p 00000000 00:00 0 \n"          /* the next heap */
                                     "50000000-50001000 ---p 00000000 00:00 0 \n"          /* a guard */
                                     "50002000-50802000 rw-p 00000000 00:00 0 \n"          /* not above it */
                                     "60000000-60001000 ---p 00000000 08:01 7 /lib/x.so\n" /* a hole in a library */
                                     "60001000-60002000 rw-p 00000000 00:00 0 \n"
                                     "70000000-70001000 ---p 00000000 00:00 0 \n"
                                     "70001000-70002000 rw-p 00000000 08:01 7 /lib/x.so\n" /* a file's */
                                     "rubbish\n");
    plan_facts_read(&f, unit_root);
    assert_int_equal(f.limits.total, 3072 * MIB);
    assert_int_equal(f.limits.available, 2560 * MIB);
    assert_int_equal(f.process.anon, 301 * MIB);
    assert_int_equal(f.process.files, 20 * MIB);
    assert_int_equal(f.process.data, 800 * MIB);
    assert_int_equal(f.process.stacks, 8 * MIB);
    struct sluice_settings s;
    sluice_settings_default(&s);
    uint64_t budget;
    assert_int_equal(plan_make(&s, &demand, &f, &plan, &budget, NULL), SLUICE_OK);
    assert_int_equal(plan.limit_bytes, 2861 * MIB);
    assert_int_equal(plan.untouched_bytes, 491 * MIB);
    assert_true(plan.total_bytes <= 2861 * MIB - 256 * MIB && plan.total_bytes > 2861 * MIB - 258 * MIB);
    char rows[256];
    assert_true(plan_rows(&plan, rows, sizeof rows) < (int)sizeof rows);
    assert_non_null(strstr(rows, "untouched 491"));
    assert_int_equal(plan_cgroup_peak(unit_root), 1280 * MIB);
    /* A group that only the host can see: the mount's root is ours. */
    unit_root_put("/proc/self/cgroup", "9:memory:/nowhere/y\n0::/z\n");
    assert_int_equal(plan_cgroup_peak(unit_root), 0);
    unit_root_put("/sys/fs/cgroup/memory/memory.max_usage_in_bytes", "4096\n");
    assert_int_equal(plan_cgroup_peak(unit_root), 4096);
    unit_root_put("/proc/self/cgroup", "0::/z\n");
    assert_int_equal(plan_cgroup_peak(unit_root), 0);
    unit_root_put("/sys/fs/cgroup/z/memory.peak", "8192\n");
    assert_int_equal(plan_cgroup_peak(unit_root), 8192);
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
        cmocka_unit_test(test_off),     cmocka_unit_test(test_fixed),
        cmocka_unit_test(test_auto),    cmocka_unit_test(test_floor),
        cmocka_unit_test(test_ceiling), cmocka_unit_test(test_does_not_fit),
        cmocka_unit_test(test_rows),    cmocka_unit_test_setup_teardown(test_facts, unit_root_begin, unit_root_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
