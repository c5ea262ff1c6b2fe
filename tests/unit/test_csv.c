/* test_csv.c - the file of --csv: comments, header, rows, whatever the locale, and failures to write. */
#include "unit.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "observe/csv.h"

static const char header[] =
    "step,phase,tokens,wall_s,stall_s,expert_s,other_s,bookkeeping_s,read_bytes,reads,routed,hits,misses,hit_bytes,"
    "miss_bytes,evictions,queue_mean,queue_max,minor_faults,major_faults,cpu_s,examined,dropped,avoided_bytes,weight,"
    "dropped_weight,substituted,cold_bytes\n";

/* The whole file. */
static char *contents(const char *path) {
    static char text[65536];
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    return text;
}

static const struct sluice_step step = {.phase = SLUICE_PHASE_GENERATION,
                                        .tokens = 1,
                                        .wall_s = 1.5,
                                        .stall_s = 0.25,
                                        .expert_s = 0.75,
                                        .other_s = 0.4999999,
                                        .bookkeeping_s = -1e-12,
                                        .read_bytes = UINT64_MAX,
                                        .reads = 2,
                                        .routed = 3,
                                        .hits = 4,
                                        .misses = 5,
                                        .hit_bytes = 6,
                                        .miss_bytes = 7,
                                        .evictions = 8,
                                        .submits = 99,
                                        .queue_mean = 9.5,
                                        .queue_max = 10,
                                        .minor_faults = 11,
                                        .major_faults = 12,
                                        .cpu_s = 13,
                                        .drop = {.examined = 14,
                                                 .dropped = 15,
                                                 .experts = 98,
                                                 .experts_there = 97,
                                                 .avoided_bytes = 16,
                                                 .weight = 17.25,
                                                 .dropped_weight = 0.5,
                                                 .substituted = 18,
                                                 .substituted_weight = 96},
                                        .cold_bytes = 19};
static const char row[] = "generation,1,1.5000000,0.2500000,0.7500000,0.4999999,0.0000000,18446744073709551615,2,3,4,5,"
                          "6,7,8,9.5000000,10,11,12,13.0000000,14,15,16,17.2500000,0.5000000,18,19\n";

static void check(void) {
    struct csv *c;
    struct sluice_error err;
    struct sluice_settings s;
    const struct sluice_stats st = {.cache_bytes = 4096, .direct_io = true};
    sluice_settings_default(&s);
    assert_int_equal(csv_open(&c, "unit.csv", &err), SLUICE_OK);
    csv_fact(c, "model", "%s", "a\nb\rc");
    csv_settings(c, &s, &st, true);
    assert_int_equal(csv_rows(c), 0);
    assert_int_equal(csv_row(c, &step, &err), SLUICE_OK);
    assert_int_equal(csv_rows(c), 1);
    /* In the file already, while it is open. */
    char *text = contents("unit.csv");
    assert_int_equal(strncmp(text, "# sluice-csv 1\n", 15), 0);
    assert_non_null(strstr(text, "\n# model=a b c\n"));
    assert_non_null(strstr(text, "\n# cache_bytes=4096\n"));
    assert_non_null(strstr(text, "\n# cache_policy=cycle\n"));
    assert_non_null(strstr(text, "\n# reads=direct\n"));
    char *table = strstr(text, "\nstep,");
    assert_non_null(table);
    assert_int_equal(strncmp(table + 1, header, strlen(header)), 0);
    assert_int_equal(strncmp(table + 1 + strlen(header), "1,", 2), 0);
    assert_string_equal(table + 1 + strlen(header) + 2, row);
    assert_int_equal(csv_row(c, &step, &err), SLUICE_OK);
    assert_int_equal(csv_close(c, &err), SLUICE_OK);
    text = contents("unit.csv");
    table = strstr(text, "\n2,");
    assert_non_null(table);
    assert_string_equal(table + 3, row);
    unlink("unit.csv");
}

static void test_format(void **state) {
    (void)state;
    check();
}

/* A host program's locale may have a comma for the decimal sign. */
static void test_locale(void **state) {
    (void)state;
    unit_in_turkish(check);
}

static void test_no_rows(void **state) {
    (void)state;
    struct csv *c;
    assert_int_equal(csv_open(&c, "unit.csv", NULL), SLUICE_OK);
    assert_int_equal(csv_close(c, NULL), SLUICE_OK);
    const char *text = contents("unit.csv");
    assert_string_equal(text + strlen(text) - strlen(header), header);
    unlink("unit.csv");
    assert_int_equal(csv_close(NULL, NULL), SLUICE_OK);
}

static void test_failures(void **state) {
    (void)state;
    struct csv *c;
    struct sluice_error err;
    assert_int_equal(csv_open(&c, "no/such/directory.csv", &err), SLUICE_ERR_IO);
    assert_null(c);
    assert_non_null(strstr(err.message, "no/such/directory.csv"));
    if (access("/dev/full", W_OK)) {
        skip();
    }
    assert_int_equal(csv_open(&c, "/dev/full", &err), SLUICE_OK);
    assert_int_equal(csv_row(c, &step, &err), SLUICE_ERR_IO);
    assert_non_null(strstr(err.message, "/dev/full"));
    assert_int_equal(csv_close(c, &err), SLUICE_ERR_IO);
    assert_int_equal(csv_open(&c, "/dev/full", &err), SLUICE_OK);
    assert_int_equal(csv_close(c, &err), SLUICE_ERR_IO); /* not even a header */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_locale),
        cmocka_unit_test(test_no_rows),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
