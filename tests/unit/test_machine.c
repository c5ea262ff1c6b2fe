/*
 * test_machine.c - what is read from /proc, and where a cgroup can be made, in made-up trees of files.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/cgroup.h"
#include "bench/machine.h"
#include "unit.h"

/* Write a file under the unit_root, with the directories that it needs. */
static void test_state(void **state) {
    (void)state;
    struct bench_state s;
    bench_state_read(&s, unit_root); /* nothing is there */
    assert_true(s.load == -1 && s.steal_s == -1 && s.mhz == 0 && s.available == 0);
    unit_root_put("/proc/loadavg", "1.25 0.50 0.10 2/300 4242\n");
    unit_root_put("/proc/stat", "cpu  10 20 30 40 50 60 70 800 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n");
    unit_root_put("/proc/meminfo", "MemTotal:       1000 kB\nMemFree:  10 kB\nMemAvailable:    500 kB\n");
    unit_root_put("/proc/cpuinfo", "processor\t: 0\nmodel name\t: A Processor  @ 2 GHz\ncpu MHz\t\t: 2300.5\n");
    bench_state_read(&s, unit_root);
    assert_true(s.load == 1.25 && s.mhz == 2300.5);
    assert_int_equal(s.available, 500 * 1024);
    assert_true(s.steal_s == 800.0 / (double)sysconf(_SC_CLK_TCK));
    /* The driver knows better, where there is one. */
    unit_root_put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "3000000\n");
    unit_root_put("/sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "1000000\n");
    unit_root_put("/proc/stat", "cpu  10 20 30\n"); /* an old kernel */
    bench_state_read(&s, unit_root);
    assert_true(s.mhz == 2000 && s.steal_s == -1);
    struct bench_machine m;
    bench_machine_read(&m, ".", unit_root);
    assert_string_equal(m.processor, "A Processor  @ 2 GHz");
    assert_int_equal(m.memory, 1000 * 1024);
    assert_string_equal(m.file_system, "");
    assert_true(strncmp(m.kernel, "Linux ", 6) == 0);
    assert_true(strncmp(m.disk, "device ", 7) == 0);
}

static void expect_counts(const struct bench_cgroup *g, uint64_t peak, uint64_t kills) {
    uint64_t got_peak = 1, got_kills = 1;
    bench_cgroup_counts(g, &got_peak, &got_kills);
    assert_int_equal(got_peak, peak);
    assert_int_equal(got_kills, kills);
}

static void no_group(const char *why) {
    struct bench_cgroup g;
    struct sluice_error err;
    assert_int_equal(bench_cgroup_create(&g, "sluice-bench-1-1", 1 << 20, unit_root, &err), SLUICE_ERR_IO);
    assert_string_equal(g.dir, "");
    if (!strstr(err.message, why)) {
        fail_msg("'%s' is not in '%s'", why, err.message);
    }
    expect_counts(&g, 0, 0);
    assert_true(bench_cgroup_remove(&g));
}

/* Is there an entry of this name under the root? */
static bool there(const char *path) {
    char full[512];
    struct stat st;
    snprintf(full, sizeof full, "%s%s", unit_root, path);
    return stat(full, &st) == 0;
}

/*
 * A directory is no cgroup file system: the limit cannot be set in a new directory, so each attempt
 * fails there, and must leave nothing behind. (Real groups are made by the test of the command.)
 */
static void test_no_cgroup(void **state) {
    (void)state;
    no_group("no memory cgroups are mounted");
    unit_root_put("/proc/self/mountinfo",
                  "31 23 0:28 / /cg/cpu rw - cgroup cgroup rw,cpu\n27 1 254:0 / / rw - ext4 /dev/vda rw\n");
    no_group("no memory cgroups are mounted");
    unit_root_put("/proc/self/mountinfo", "31 23 0:28 / /cg/memory rw,relatime - cgroup cgroup rw,memory\n"
                                          "32 23 0:29 / /cg/unified rw,relatime - cgroup2 cgroup2 rw\n");
    unit_root_put("/proc/self/cgroup", "4:memory:/a/b\n0::/c\n");
    no_group("/cg/memory"); /* not even the mount point is there; version 1 has the controller */
    unit_root_put("/cg/memory/a/b/cgroup.procs", "");
    unit_root_put("/cg/unified/c/cgroup.procs", "");
    no_group("/cg/memory");
    assert_false(there("/cg/memory/a/b/sluice-bench-1-1"));
    assert_false(there("/cg/memory/a/sluice-bench-1-1"));
    assert_false(there("/cg/memory/sluice-bench-1-1"));
    unit_root_put("/proc/self/mountinfo", "32 23 0:29 / /cg/unified rw,relatime - cgroup2 cgroup2 rw\n");
    no_group("/cg/unified");
    assert_false(there("/cg/unified/c/sluice-bench-1-1"));
    assert_false(there("/cg/unified/sluice-bench-1-1"));
}

/* What the kernel says about a group, in both versions. */
static void test_counts(void **state) {
    (void)state;
    struct bench_cgroup g = {.v2 = false};
    snprintf(g.dir, sizeof g.dir, "%s/g", unit_root);
    unit_root_put("/g/memory.max_usage_in_bytes", "12345\n");
    unit_root_put("/g/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
    expect_counts(&g, 12345, 3);
    g.v2 = true;
    expect_counts(&g, 0, 0); /* kernels before 5.19 */
    unit_root_put("/g/memory.peak", "678\n");
    unit_root_put("/g/memory.events", "low 0\nhigh 7\nmax 9\noom 2\noom_kill 1\noom_group_kill 5\n");
    expect_counts(&g, 678, 1);
    assert_false(bench_cgroup_remove(&g)); /* a directory with files is no group and stays */
    assert_true(there("/g/memory.peak"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_state, unit_root_begin, unit_root_end),
        cmocka_unit_test_setup_teardown(test_no_cgroup, unit_root_begin, unit_root_end),
        cmocka_unit_test_setup_teardown(test_counts, unit_root_begin, unit_root_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
