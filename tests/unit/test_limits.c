/* test_limits.c - memory limits, from a made-up /proc and /sys. */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "memory/limits.h"

#define MIB ((uint64_t)1 << 20)

static const char meminfo[] = "MemTotal:       16777216 kB\nMemFree:          100 kB\nMemAvailable:    8388608 kB\n"
                              "Buffers:           1 kB\n";

static void expect(uint64_t total_mib, uint64_t available_mib) {
    struct plan_limits l = {1, 1};
    plan_limits_read(&l, unit_root);
    assert_int_equal(l.total, total_mib * MIB);
    assert_int_equal(l.available, available_mib * MIB);
}

static void test_nothing(void **state) {
    (void)state;
    expect(0, 0);
}

static void test_machine(void **state) {
    (void)state;
    unit_root_put("/proc/meminfo", meminfo);
    expect(16384, 8192);
    unit_root_put("/proc/self/cgroup", "0::/user.slice/x.scope\n"); /* no such group */
    expect(16384, 8192);
    unit_root_put("/proc/self/cgroup", "rubbish\n\n0:\n::\n");
    expect(16384, 8192);
}

static void test_v2(void **state) {
    (void)state;
    unit_root_put("/proc/meminfo", meminfo);
    unit_root_put("/proc/self/cgroup", "0::/a/b\n");
    unit_root_put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    unit_root_put("/sys/fs/cgroup/a/b/memory.current", "1073741824\n");
    expect(16384, 8192);
    unit_root_put("/sys/fs/cgroup/a/b/memory.max", "6442450944\n");
    expect(6144, 5120);
    /* File pages are given back before anyone is killed. */
    unit_root_put("/sys/fs/cgroup/a/b/memory.stat",
                  "anon 5\nfile 900000000\nactive_file 268435456\ninactive_file 268435456\n");
    expect(6144, 5632);
    /* But never more than the limit. */
    unit_root_put("/sys/fs/cgroup/a/b/memory.stat", "active_file 9999999999\n");
    expect(6144, 6144);
    /* Used beyond the limit. */
    unit_root_put("/sys/fs/cgroup/a/b/memory.stat", "active_file 0\n");
    unit_root_put("/sys/fs/cgroup/a/b/memory.current", "7000000000\n");
    expect(6144, 0);
}

static void test_v2_every_level(void **state) {
    (void)state;
    unit_root_put("/proc/meminfo", meminfo);
    unit_root_put("/proc/self/cgroup", "0::/a/b\n");
    unit_root_put("/sys/fs/cgroup/a/b/memory.max", "6442450944\n");
    unit_root_put("/sys/fs/cgroup/a/b/memory.current", "0\n");
    /* A parent may be tighter in what is left and wider in its limit. */
    unit_root_put("/sys/fs/cgroup/a/memory.max", "8589934592\n");
    unit_root_put("/sys/fs/cgroup/a/memory.current", "7516192768\n");
    expect(6144, 1024);
    /* The root of the mount is a group in a container. */
    unit_root_put("/sys/fs/cgroup/memory.max", "536870912\n");
    unit_root_put("/sys/fs/cgroup/memory.current", "0\n");
    expect(512, 512);
    /* Nothing above the mount counts. */
    unit_root_put("/sys/fs/memory.max", "1048576\n");
    unit_root_put("/sys/fs/memory.current", "0\n");
    expect(512, 512);
}

static void test_v2_in_a_namespace(void **state) {
    (void)state;
    unit_root_put("/proc/meminfo", meminfo);
    unit_root_put("/proc/self/cgroup", "0::/\n");
    unit_root_put("/sys/fs/cgroup/memory.max", "2147483648\n");
    unit_root_put("/sys/fs/cgroup/memory.current", "1073741824\n");
    expect(2048, 1024);
}

static void test_v1(void **state) {
    (void)state;
    unit_root_put("/proc/meminfo", meminfo);
    unit_root_put("/proc/self/cgroup", "12:cpu,cpuacct:/x\n9:memory:/docker/abc\n1:name=systemd:/x\n0::/x\n");
    unit_root_put("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "4294967296\n");
    unit_root_put("/sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "3221225472\n");
    unit_root_put("/sys/fs/cgroup/memory/docker/abc/memory.stat",
                  "inactive_file 1\nactive_file 1\ntotal_inactive_file 1048576\ntotal_active_file 2097152\n");
    expect(4096, 1027);
    /* "No limit" is a huge number there. */
    unit_root_put("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n");
    expect(16384, 8192);
    /* A container sees its own group at the root of the mount. */
    unit_root_put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
    unit_root_put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n");
    expect(1024, 1024);
}

/* "What cannot be read does not limit": without meminfo the group alone counts. */
static void test_group_alone(void **state) {
    (void)state;
    unit_root_put("/proc/self/cgroup", "0::/\n");
    unit_root_put("/sys/fs/cgroup/memory.max", "2147483648\n");
    unit_root_put("/sys/fs/cgroup/memory.current", "1073741824\n");
    expect(2048, 1024);
}

static void test_long_paths(void **state) {
    (void)state;
    unit_root_put("/proc/meminfo", meminfo);
    char line[3000] = "0::/";
    memset(line + 4, 'x', sizeof line - 6);
    line[sizeof line - 2] = '\n';
    line[sizeof line - 1] = 0;
    unit_root_put("/proc/self/cgroup", line);
    expect(16384, 8192);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nothing, unit_root_begin, unit_root_end),
        cmocka_unit_test_setup_teardown(test_machine, unit_root_begin, unit_root_end),
        cmocka_unit_test_setup_teardown(test_v2, unit_root_begin, unit_root_end),
        cmocka_unit_test_setup_teardown(test_v2_every_level, unit_root_begin, unit_root_end),
        cmocka_unit_test_setup_teardown(test_v2_in_a_namespace, unit_root_begin, unit_root_end),
        cmocka_unit_test_setup_teardown(test_v1, unit_root_begin, unit_root_end),
        cmocka_unit_test_setup_teardown(test_group_alone, unit_root_begin, unit_root_end),
        cmocka_unit_test_setup_teardown(test_long_paths, unit_root_begin, unit_root_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
