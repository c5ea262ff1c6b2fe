/*
 * test_bench_csv.c - the reader of the per-step measurements: what it takes, and that it refuses the rest by line.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/csv.h"
#include "unit.h"

#define HEAD                                                                                                           \
    "step,phase,tokens,wall_s,stall_s,expert_s,other_s,bookkeeping_s,read_bytes,reads,routed,hits,misses,"             \
    "hit_bytes,miss_bytes,evictions,queue_mean,queue_max,minor_faults,major_faults,cpu_s\n"
#define PROMPT "0,prompt,9,1.5,0.25,0.5,0.1,0.01,4096,3,10,4,6,400,600,0,1.5,4,100,7,2.75\n"
#define TOKEN  "1,generation,1,0.125,1e-05,0.0625,0,0,8192,1,8,7,1,1,1,2,0.5,1,0,3,0.25\n"

static char path[64];

/* Write the text (n bytes) and read it as CSV. */
static int read_bytes(const char *text, size_t n, bool torn, struct bench_csv *c, struct sluice_error *err) {
    strcpy(path, "csv-XXXXXX");
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, n), (ssize_t)n);
    close(fd);
    const int rc = bench_csv_read(path, torn, c, err);
    unlink(path);
    return rc;
}

static int read_text(const char *text, bool torn, struct bench_csv *c, struct sluice_error *err) {
    return read_bytes(text, strlen(text), torn, c, err);
}

static void test_good(void **state) {
    (void)state;
    struct bench_csv c;
    struct sluice_error err;
    assert_int_equal(read_text("# sluice-csv 1\n# model=x\n" HEAD PROMPT "# a remark\n" TOKEN, false, &c, &err), 0);
    assert_int_equal(c.n, 1);
    assert_true(c.total[BENCH_PROMPT_TOKENS] == 9 && c.total[BENCH_PROMPT_S] == 1.5);
    static const struct {
        enum bench_value what;
        double value;
    } token[] = {{BENCH_TOKENS, 1},        {BENCH_WALL_S, 0.125}, {BENCH_WAIT_S, 1e-05}, {BENCH_CPU_S, 0.25},
                 {BENCH_READ_BYTES, 8192}, {BENCH_HITS, 7},       {BENCH_MISSES, 1},     {BENCH_MAJOR_FAULTS, 3}};
    for (size_t i = 0; i < sizeof token / sizeof token[0]; i++) {
        assert_true(c.token[token[i].what][0] == token[i].value && c.total[token[i].what] == token[i].value);
    }
    assert_true(c.total[BENCH_ROUTED] == 8 && c.total[BENCH_RATE] == 8);
    bench_csv_free(&c);
    assert_int_equal(c.n, 0);
    /* Other columns, another order. */
    assert_int_equal(read_text("# sluice-csv 1\ncpu_s,new,major_faults,misses,hits,read_bytes,expert_s,stall_s,wall_s,"
                               "tokens,phase,step\n1,anything at all,2,3,4,5,6,7,8,9,prompt,10\n"
                               "1,anything at all,2,3,4,5,6,7,8,1,generation,11\n",
                               false, &c, &err),
                     0);
    assert_int_equal(c.n, 1);
    assert_true(c.total[BENCH_PROMPT_TOKENS] == 9 && c.total[BENCH_PROMPT_S] == 8);
    assert_true(c.total[BENCH_CPU_S] == 1 && c.total[BENCH_MAJOR_FAULTS] == 2 && c.total[BENCH_MISSES] == 3);
    assert_true(c.total[BENCH_HITS] == 4 && c.total[BENCH_READ_BYTES] == 5 && c.total[BENCH_WAIT_S] == 7);
    bench_csv_free(&c);
    /* A run that computed nothing. */
    assert_int_equal(read_text("# sluice-csv 1\n" HEAD, false, &c, &err), 0);
    assert_int_equal(c.n, 0);
    bench_csv_free(&c);
}

/* A writer that was killed leaves a part of a line, and that is no error if one knows. */
static void test_torn(void **state) {
    (void)state;
    static const char whole[] = "# sluice-csv 1\n" HEAD PROMPT TOKEN;
    const size_t n = sizeof whole - 1, head = strlen("# sluice-csv 1\n" HEAD), prompt = strlen(PROMPT);
    for (size_t cut = 0; cut <= n; cut++) {
        struct bench_csv c;
        struct sluice_error err;
        assert_int_equal(read_bytes(whole, cut, true, &c, &err), 0);
        assert_int_equal(c.n, cut == n);
        assert_true(c.total[BENCH_PROMPT_TOKENS] == (cut >= head + prompt ? 9 : 0));
        bench_csv_free(&c);
        const bool at_line = cut == n || cut == head || cut == head + prompt;
        assert_int_equal(read_bytes(whole, cut, false, &c, &err), at_line ? 0 : SLUICE_ERR_FORMAT);
        bench_csv_free(&c);
    }
}

static void refuse(const char *text, const char *why) {
    struct bench_csv c;
    struct sluice_error err;
    assert_int_equal(read_text(text, false, &c, &err), SLUICE_ERR_FORMAT);
    if (!strstr(err.message, why)) {
        fail_msg("'%s' is not in '%s'", why, err.message);
    }
    assert_null(c.token[0]);
    assert_int_equal(c.n, 0);
}

#define ROW(step, phase, tokens, wall) step "," phase "," tokens "," wall ",0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0\n"

static void test_refused(void **state) {
    (void)state;
    static const char *const rows[] = {
        ROW("x", "prompt", "1", "1"),
        ROW("-1", "prompt", "1", "1"),
        ROW("0", "", "1", "1"),
        ROW("0", "Prompt", "1", "1"),
        ROW("0", "prompt", "", "1"),
        ROW("0", "prompt", "1.5", "1"),
        ROW("0", "prompt", "1", "nan"),
        ROW("0", "prompt", "1", "inf"),
        ROW("0", "prompt", "1", "-1"),
        ROW("0", "prompt", "1", "1e999"),
        ROW("0", "prompt", "1", "0x1"),
        ROW("0", "prompt", "1", " 1"),
        ROW("0", "prompt", "1", "1.2.3"),
        ROW("0", "prompt", "1", ""),
        ROW("0", "prompt", "99999999999999999999", "1"),
        ROW("0", "generation", "2", "1"),
        ROW("0", "prompt", "0", "1"),
        "0,prompt,1\n",
        "0,prompt,1,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0\n",
        "\n",
        PROMPT ROW("0", "prompt", "1", "1"),
    };
    char text[2048];
    struct bench_csv c;
    struct sluice_error err;
    /* What the bad rows are made from is good. */
    assert_int_equal(read_text("# sluice-csv 1\n" HEAD ROW("0", "prompt", "1", "1"), false, &c, &err), 0);
    bench_csv_free(&c);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(text, sizeof text, "# sluice-csv 1\n" HEAD "%s", rows[i]);
        refuse(text, ", line ");
    }
    refuse("", "no header row");
    refuse("# sluice-csv 2\n" HEAD, "line 1: does not start");
    refuse(HEAD TOKEN, "line 1: does not start");
    refuse("# sluice-csv 1\n", "no header row");
    refuse("# sluice-csv 1\nstep,phase,tokens\n", "line 2: no column wall_s");
    refuse("# sluice-csv 1\nstep,step\n", "twice");
    static const char zero[] = "# sluice-csv 1\n" HEAD "0,prompt\0,1\n";
    assert_int_equal(read_bytes(zero, sizeof zero - 1, false, &c, &err), SLUICE_ERR_FORMAT);
    char *many = malloc(16384); /* more columns than anybody has, and a line that does not end */
    assert_non_null(many);
    strcpy(many, "# sluice-csv 1\n");
    for (int i = 0; i < 100; i++) {
        strcat(many, "x,");
    }
    strcat(many, "x\n");
    refuse(many, "too many columns");
    strcpy(many, "# sluice-csv 1\nx");
    memset(many + 16, 'x', 8000);
    strcpy(many + 8016, "\n" HEAD);
    refuse(many, "line 2: too long");
    many[15] = '#'; /* a comment may be as long as it likes: it may hold the path of a model */
    assert_int_equal(read_text(many, false, &c, &err), 0);
    bench_csv_free(&c);
    free(many);
    assert_int_equal(bench_csv_read("there-is-none.csv", false, &c, &err), SLUICE_ERR_IO);
    assert_int_equal(bench_csv_read(".", false, &c, &err), SLUICE_ERR_FORMAT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_torn),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
