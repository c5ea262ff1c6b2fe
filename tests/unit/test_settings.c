/* test_settings.c - settings and sizes from text: everything understood completely, or refused by name. */
#include "unit.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory/settings.h"
#include "sluice.h"

#define K ((uint64_t)1 << 10)
#define M ((uint64_t)1 << 20)
#define G ((uint64_t)1 << 30)
#define T ((uint64_t)1 << 40)

static const struct {
    const char *text;
    uint64_t bytes;
} sizes[] = {
    {"0", 0},
    {"1", M},
    {"2048", 2048 * M},
    {"007", 7 * M},
    {"1B", 1},
    {"1b", 1},
    {"4096b", 4096},
    {"1K", K},
    {"1k", K},
    {"1KB", K},
    {"1kb", K},
    {"1KiB", K},
    {"1kIb", K},
    {"3M", 3 * M},
    {"3MB", 3 * M},
    {"2000MiB", 2000 * M},
    {"2000mib", 2000 * M},
    {"2000MIB", 2000 * M},
    {"4G", 4 * G},
    {"4GB", 4 * G},
    {"4GiB", 4 * G},
    {"4GIB", 4 * G},
    {"2T", 2 * T},
    {"2TB", 2 * T},
    {"2TiB", 2 * T},
    {"1.5", 3 * M / 2},
    {"1.5G", 3 * G / 2},
    {"0.5KiB", 512},
    {"1.25TiB", T + T / 4},
    {"0.000001M", 1},
    {"1.999999M", 2097150},
    {"1.0", M},
    {"0.0", 0},
    /* Up to 2^63 - 1 bytes. */
    {"9223372036854775807B", INT64_MAX},
    {"9007199254740991K", INT64_MAX - 1023},
    {"8796093022207", INT64_MAX - M + 1},
    {"8589934591GiB", INT64_MAX - G + 1},
    {"8388607T", INT64_MAX - T + 1},
    {"8388607.5T", INT64_MAX - T / 2 + 1},
};

static const char *const not_sizes[] = {
    "",
    " ",
    "x",
    "B",
    "GiB",
    "-1",
    "+1",
    "-0",
    " 1",
    "1 ",
    "1 G",
    "1\n",
    "12x",
    "1GiBx",
    "1GG",
    "1BB",
    "1Bi",
    "1iB",
    "1Ki",
    "1Gi",
    "1.",
    ".5",
    "1.G",
    "1..5",
    "1.5.5",
    "1,5",
    "1,5G",
    "1e3",
    "0x10",
    "1'000",
    "1_000",
    "nan",
    "inf",
    "auto",
    "off",
    "1P",
    "1EiB",
    "0.5B",
    "1.5b",
    "1.0000001",
    "\xc2\xbd",
    /* 2^63 bytes and more, and what wraps around. */
    "9223372036854775808B",
    "18446744073709551615B",
    "18446744073709551616B",
    "18446744073709551617B",
    "9007199254740992K",
    "8796093022208",
    "8796093022208MiB",
    "8589934592G",
    "8388608T",
    "17592186044416MiB",
    "17179869184GiB",
    "16777216TiB",
    "16777217TiB",
    "99999999999999999999999999999999999999T",
};

static void check_sizes(void) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t bytes = 77;
        if (!sluice_parse_size(sizes[i].text, &bytes) || bytes != sizes[i].bytes) {
            fail_msg("\"%s\" is %llu, expected %llu", sizes[i].text, (unsigned long long)bytes,
                     (unsigned long long)sizes[i].bytes);
        }
    }
    for (size_t i = 0; i < sizeof not_sizes / sizeof *not_sizes; i++) {
        uint64_t bytes = 77;
        if (sluice_parse_size(not_sizes[i], &bytes) || bytes != 77) {
            fail_msg("\"%s\" parsed as %llu", not_sizes[i], (unsigned long long)bytes);
        }
    }
    uint64_t bytes = 77;
    assert_false(sluice_parse_size(NULL, &bytes));
}

static void test_sizes(void **state) {
    (void)state;
    check_sizes();
}

/*
 * In Turkish, I and i are different letters, and in many languages the decimal sign is a comma. A
 * host program may have called setlocale. Made here, since few machines have that locale.
 */
static void test_locale(void **state) {
    (void)state;
    unit_in_turkish(check_sizes);
}

static void test_default(void **state) {
    (void)state;
    struct sluice_settings s;
    memset(&s, 0xee, sizeof s);
    sluice_settings_default(&s);
    assert_int_equal(s.cache, SLUICE_CACHE_AUTO);
    assert_int_equal(s.policy, SLUICE_POLICY_CYCLE);
    assert_int_equal(s.io, SLUICE_IO_AUTO);
    assert_int_equal(s.io_threads, 4);
    assert_int_equal(s.floor_bytes, 0);
    assert_int_equal(s.memory_bytes, 0);
    assert_int_equal(s.dense, SLUICE_DENSE_ANON);
    assert_true(s.lookahead);
    assert_int_equal(s.staging_bytes, 256 << 20);
    assert_true(s.direct_io);
    assert_false(s.force_cache);
    assert_false(s.quiet);
    assert_true(s.publish);
    assert_false(s.reference_kernel);
    assert_true(s.drop_cold_experts == 0);
    assert_false(s.drop_renorm);
    assert_false(s.drop_in_prefill);
    assert_false(s.drop_reproducible);
}

/* Settings from code may be anything. */
static void test_check(void **state) {
    (void)state;
    const double wrong[] = {-0.1, 1.1, (double)NAN, (double)INFINITY, -(double)INFINITY};
    struct sluice_settings s;
    struct sluice_error err;
    sluice_settings_default(&s);
    assert_int_equal(settings_check(&s, &err), SLUICE_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        s.drop_cold_experts = wrong[i];
        assert_int_equal(settings_check(&s, &err), SLUICE_ERR_ARG);
        assert_non_null(strstr(err.message, "drop_cold_experts"));
    }
    s.drop_cold_experts = 0.5;
    assert_int_equal(settings_check(&s, &err), SLUICE_OK);
    s.cache = SLUICE_CACHE_OFF;
    assert_int_equal(settings_check(&s, &err), SLUICE_ERR_ARG);
    assert_non_null(strstr(err.message, "needs a cache"));
    s.drop_cold_experts = 0;
    assert_int_equal(settings_check(&s, &err), SLUICE_OK);
    s.io_threads = 65;
    assert_int_equal(settings_check(&s, &err), SLUICE_ERR_ARG);
    s.io_threads = 4;
    s.cache = SLUICE_CACHE_FIXED;
    assert_int_equal(settings_check(&s, &err), SLUICE_ERR_ARG);
    sluice_settings_default(&s);
    s.io = 1; /* what SLUICE_IO_URING was to programs that were compiled with it */
    assert_int_equal(settings_check(&s, &err), SLUICE_ERR_ARG);
    assert_non_null(strstr(err.message, "uring, 1, was removed"));
    s.io = SLUICE_IO_AUTO;
    assert_int_equal(settings_check(&s, &err), SLUICE_OK);
}

static void set(struct sluice_settings *s, const char *name, const char *value) {
    struct sluice_error err;
    memset(&err, 0xee, sizeof err);
    if (sluice_settings_set(s, name, value, &err)) {
        fail_msg("%s=%s: %s", name, value, err.message);
    }
    assert_int_equal(err.status, SLUICE_OK);
    assert_string_equal(err.message, "");
}

static void test_set(void **state) {
    (void)state;
    struct sluice_settings s;
    sluice_settings_default(&s);
    set(&s, "cache", "4GiB");
    assert_int_equal(s.cache, SLUICE_CACHE_FIXED);
    assert_int_equal(s.cache_bytes, 4 * G);
    set(&s, "cache", "off");
    assert_int_equal(s.cache, SLUICE_CACHE_OFF);
    set(&s, "cache", "auto");
    assert_int_equal(s.cache, SLUICE_CACHE_AUTO);
    set(&s, "cache", "0");
    assert_int_equal(s.cache, SLUICE_CACHE_OFF);
    set(&s, "cache", "2048");
    assert_int_equal(s.cache_bytes, 2 * G);
    set(&s, "staging", "64MiB");
    assert_int_equal(s.staging_bytes, 64 << 20);
    set(&s, "cache_floor", "512MiB");
    assert_int_equal(s.floor_bytes, 512 * M);
    set(&s, "memory", "3GiB");
    assert_int_equal(s.memory_bytes, 3 * G);
    set(&s, "dense", "mmap");
    assert_int_equal(s.dense, SLUICE_DENSE_MMAP);
    set(&s, "dense", "lock");
    assert_int_equal(s.dense, SLUICE_DENSE_LOCK);
    set(&s, "dense", "anon");
    assert_int_equal(s.dense, SLUICE_DENSE_ANON);
    set(&s, "cache_policy", "lru");
    set(&s, "force_cache", "1");
    assert_true(s.force_cache);
    set(&s, "force_cache", "0");
    assert_false(s.force_cache);
    set(&s, "io", "pread");
    assert_int_equal(s.io, SLUICE_IO_PREAD);
    set(&s, "io", "auto");
    assert_int_equal(s.io, SLUICE_IO_AUTO);
    set(&s, "io_threads", "1");
    assert_int_equal(s.io_threads, 1);
    set(&s, "io_threads", "64");
    assert_int_equal(s.io_threads, 64);
    set(&s, "lookahead", "0");
    assert_false(s.lookahead);
    set(&s, "direct_io", "0");
    assert_false(s.direct_io);
    set(&s, "kernel", "reference");
    assert_true(s.reference_kernel);
    set(&s, "kernel", "fused");
    assert_false(s.reference_kernel);
    set(&s, "publish", "0");
    assert_false(s.publish);
    set(&s, "publish", "1");
    assert_true(s.publish);
    set(&s, "quiet", "1");
    assert_true(s.quiet);
    set(&s, "drop_cold_experts", "0.5");
    assert_true(s.drop_cold_experts == 0.5);
    set(&s, "drop_cold_experts", "1");
    assert_true(s.drop_cold_experts == 1);
    set(&s, "drop_cold_experts", "0.000000001");
    assert_true(s.drop_cold_experts == 1 / 1e9);
    set(&s, "drop_cold_experts", "0.25000000000000000000000000000000000000000000000");
    assert_true(s.drop_cold_experts == 0.25);
    set(&s, "drop_cold_experts", "0");
    assert_true(s.drop_cold_experts == 0);
    set(&s, "drop_renorm", "off");
    assert_false(s.drop_renorm);
    set(&s, "drop_renorm", "on");
    assert_true(s.drop_renorm);
    set(&s, "drop_in_prefill", "1");
    assert_true(s.drop_in_prefill);
    set(&s, "drop_reproducible", "1");
    assert_true(s.drop_reproducible);
    assert_string_equal(s.cold_model, "");
    set(&s, "cold_model", "/models/a b-Q2_K.gguf");
    assert_string_equal(s.cold_model, "/models/a b-Q2_K.gguf");
    assert_int_equal(sluice_settings_set(&s, "quiet", "0", NULL), SLUICE_OK); /* err may be NULL */
}

static const char *const bad[][2] = {
    {"drop_cold_experts", ""},
    {"drop_cold_experts", "1.01"},
    {"drop_cold_experts", "1.0000000001"},
    {"drop_cold_experts", "-0.5"},
    {"drop_cold_experts", "-0"},
    {"drop_cold_experts", "+0.5"},
    {"drop_cold_experts", "nan"},
    {"drop_cold_experts", "inf"},
    {"drop_cold_experts", "0,5"},
    {"drop_cold_experts", "0x1"},
    {"drop_cold_experts", "1e-3"},
    {"drop_cold_experts", ".5"},
    {"drop_cold_experts", "0."},
    {"drop_cold_experts", "0.5 "},
    {"drop_cold_experts", "99999999999999999999999999999999999999999999999999999999999999999999999"},
    {"drop_renorm", "1"},
    {"drop_renorm", "ON"},
    {"drop_in_prefill", "on"},
    {"drop_reproducible", "yes"},
    {"cold_model", ""},
    {"cache", ""},
    {"cache", "12x"},
    {"cache", "AUTO"},
    {"cache", "auto "},
    {"cache", "-1"},
    {"cache", "on"},
    {"cache", "99999999999999GiB"},
    {"staging", "0"},
    {"staging", "auto"},
    {"cache_floor", ""},
    {"cache_floor", "auto"},
    {"cache_floor", "1,5G"},
    {"memory", ""},
    {"memory", "0"},
    {"memory", "auto"},
    {"memory", "-3GiB"},
    {"dense", ""},
    {"dense", "Anon"},
    {"dense", "mlock"},
    {"dense", "anonymous"},
    {"cache_policy", ""},
    {"cache_policy", "LRU"},
    {"cache_policy", "lru2"},
    {"cache_policy", "cycles"},
    {"force_cache", ""},
    {"force_cache", "2"},
    {"force_cache", "yes"},
    {"force_cache", "01"},
    {"io", ""},
    {"io", "uring"},
    {"io", "Uring"},
    {"io", "io_uring"},
    {"io", "pread "},
    {"io", "1"},
    {"io_threads", ""},
    {"io_threads", "0"},
    {"io_threads", "65"},
    {"io_threads", "-1"},
    {"io_threads", "+4"},
    {"io_threads", " 4"},
    {"io_threads", "4 "},
    {"io_threads", "4.0"},
    {"io_threads", "0x4"},
    {"io_threads", "4294967300"},
    {"io_threads", "18446744073709551620"},
    {"direct_io", "true"},
    {"lookahead", "2"},
    {"lookahead", ""},
    {"direct_io", "-1"},
    {"quiet", "1 "},
    {"publish", ""},
    {"publish", "on"},
    {"kernel", ""},
    {"kernel", "1"},
    {"kernel", "Fused"},
    {"window", ""},
    {"window", "on"},
    {"window", "OFF"},
    {"window", "127.0.0.1"},
    {"window", "example.org:8090"},
    {"window", "127.0.0.1:65536"},
    {"window", "[0000:0000:0000:0000:0000:0000:0000:0001]:0000000000000000000080"},
    {"window_allow_remote", ""},
    {"window_allow_remote", "yes"},
};

/* A value with every field set to something else than its default. */
static struct sluice_settings filled(void) {
    struct sluice_settings s;
    memset(&s, 0, sizeof s);
    s.cache = SLUICE_CACHE_FIXED;
    s.cache_bytes = 123;
    s.floor_bytes = 456;
    s.memory_bytes = 789;
    s.dense = SLUICE_DENSE_LOCK;
    s.force_cache = true;
    s.io = SLUICE_IO_PREAD;
    s.io_threads = 7;
    s.publish = true;
    s.quiet = true;
    return s;
}

static void test_bad_values(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sluice_settings s = filled();
        const struct sluice_settings before = s;
        struct sluice_error err = {0};
        if (sluice_settings_set(&s, bad[i][0], bad[i][1], &err) != SLUICE_ERR_ARG) {
            fail_msg("%s=%s was taken", bad[i][0], bad[i][1]);
        }
        assert_memory_equal(&s, &before, sizeof s);
        assert_int_equal(err.status, SLUICE_ERR_ARG);
        assert_non_null(strstr(err.message, bad[i][0]));
        assert_int_equal(sluice_settings_set(&s, bad[i][0], bad[i][1], NULL), SLUICE_ERR_ARG);
    }
    struct sluice_settings s = filled();
    const struct sluice_settings before = s;
    struct sluice_error err = {0};
    assert_int_equal(sluice_settings_set(&s, "Cache", "1", &err), SLUICE_ERR_ARG);
    assert_int_equal(sluice_settings_set(&s, "", "1", &err), SLUICE_ERR_ARG);
    assert_int_equal(sluice_settings_set(&s, "cashe", "1", &err), SLUICE_ERR_ARG);
    assert_non_null(strstr(err.message, "cashe"));
    assert_memory_equal(&s, &before, sizeof s);
}

static const char *const variables[] = {"SLUICE_CACHE",       "SLUICE_CACHE_FLOOR", "SLUICE_CACHE_POLICY",
                                        "SLUICE_FORCE_CACHE", "SLUICE_IO_THREADS",  "SLUICE_DIRECT_IO",
                                        "SLUICE_QUIET",       "SLUICE_KERNEL",      "SLUICE_MEMORY",
                                        "SLUICE_DENSE",       "SLUICE_IO",          "SLUICE_LOOKAHEAD",
                                        "SLUICE_PUBLISH",     "SLUICE_WINDOW",      "SLUICE_WINDOW_ALLOW_REMOTE"};

static int clear_environment(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        unsetenv(variables[i]);
    }
    return 0;
}

static void test_environment(void **state) {
    (void)state;
    struct sluice_error err;
    struct sluice_settings s = filled();
    const struct sluice_settings before = s;
    assert_int_equal(sluice_settings_from_env(&s, &err), SLUICE_OK);
    assert_memory_equal(&s, &before, sizeof s); /* nothing set, nothing changed */
    setenv("SLUICE_CACHE", "2000MiB", 1);
    setenv("SLUICE_CACHE_FLOOR", "300MiB", 1);
    setenv("SLUICE_MEMORY", "6GiB", 1);
    setenv("SLUICE_DENSE", "mmap", 1);
    setenv("SLUICE_CACHE_POLICY", "lru", 1);
    setenv("SLUICE_FORCE_CACHE", "0", 1);
    setenv("SLUICE_IO", "pread", 1);
    setenv("SLUICE_IO_THREADS", "9", 1);
    setenv("SLUICE_DIRECT_IO", "1", 1);
    setenv("SLUICE_LOOKAHEAD", "1", 1);
    setenv("SLUICE_QUIET", "0", 1);
    setenv("SLUICE_PUBLISH", "0", 1);
    setenv("SLUICE_KERNEL", "reference", 1);
    setenv("SLUICE_WINDOW", "[::1]:8090", 1);
    setenv("SLUICE_WINDOW_ALLOW_REMOTE", "1", 1);
    assert_int_equal(sluice_settings_from_env(&s, &err), SLUICE_OK);
    assert_int_equal(s.cache_bytes, 2000 * M);
    assert_int_equal(s.floor_bytes, 300 * M);
    assert_int_equal(s.memory_bytes, 6 * G);
    assert_int_equal(s.dense, SLUICE_DENSE_MMAP);
    assert_int_equal(s.io, SLUICE_IO_PREAD);
    assert_int_equal(s.io_threads, 9);
    assert_false(s.force_cache);
    assert_true(s.direct_io);
    assert_false(s.quiet);
    assert_false(s.publish);
    assert_true(s.reference_kernel);
    assert_string_equal(s.window, "[::1]:8090");
    assert_true(s.window_allow_remote);
}

/* A window that other machines reach is only taken by someone who says so. */
static void test_window(void **state) {
    (void)state;
    struct sluice_settings s;
    struct sluice_error err;
    sluice_settings_default(&s);
    assert_string_equal(s.window, "");
    assert_false(s.window_allow_remote);
    static const char *const here[] = {"0", "8090", "127.0.0.1:0", "localhost:8090", "[::1]:8090", "off"};
    for (size_t i = 0; i < sizeof here / sizeof *here; i++) {
        assert_int_equal(sluice_settings_set(&s, "window", here[i], &err), SLUICE_OK);
        assert_int_equal(settings_check(&s, &err), SLUICE_OK);
    }
    assert_string_equal(s.window, ""); /* off */
    static const char *const remote[] = {"0.0.0.0:8090", "192.168.1.7:0", "[::]:8090", "[fe80::1]:8090"};
    for (size_t i = 0; i < sizeof remote / sizeof *remote; i++) {
        s.window_allow_remote = false;
        assert_int_equal(sluice_settings_set(&s, "window", remote[i], &err), SLUICE_OK);
        assert_int_equal(settings_check(&s, &err), SLUICE_ERR_ARG);
        assert_non_null(strstr(err.message, "--allow-remote"));
        s.window_allow_remote = true;
        assert_int_equal(settings_check(&s, &err), SLUICE_OK);
    }
    strcpy(s.window, "nonsense"); /* from a program, not from text */
    assert_int_equal(settings_check(&s, &err), SLUICE_ERR_ARG);
}

static void test_bad_environment(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        clear_environment(NULL);
        setenv("SLUICE_CACHE", "1GiB", 1); /* good ones beside the bad one */
        setenv("SLUICE_IO_THREADS", "2", 1);
        setenv(variables[i], "bogus", 1);
        struct sluice_settings s = filled();
        const struct sluice_settings before = s;
        struct sluice_error err = {0};
        assert_int_equal(sluice_settings_from_env(&s, &err), SLUICE_ERR_ARG);
        assert_non_null(strstr(err.message, variables[i]));
        assert_non_null(strstr(err.message, "bogus"));
        assert_memory_equal(&s, &before, sizeof s);
        /* Set but empty is a value, and a bad one. */
        setenv(variables[i], "", 1);
        assert_int_equal(sluice_settings_from_env(&s, &err), SLUICE_ERR_ARG);
        assert_memory_equal(&s, &before, sizeof s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_locale),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_default),
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_window),
        cmocka_unit_test_setup_teardown(test_environment, clear_environment, clear_environment),
        cmocka_unit_test_setup_teardown(test_bad_environment, clear_environment, clear_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
