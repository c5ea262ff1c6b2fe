/*
 * test_trace.c - route traces on disk: what is written is read back; the other project's layout is read; no
 * damage, cut or nonsense is accepted or harms, and messages name the line.
 */
#include "unit.h"

#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trace/trace.h"

static const char file[] = "unit-trace.csv";

/* A good file, in the layout of the other project. */
#define HEAD                                                                                                           \
    "# route_trace v1\n"                                                                                               \
    "# model=/data/some dir/m.gguf arch=qwen3moe n_layer=3 n_expert=4 n_expert_used=2\n"                               \
    "# layer=0 expert_bytes=1000 dense_bytes=77\n"                                                                     \
    "# layer=2 expert_bytes=900 dense_bytes=78\n"
#define COLUMNS "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n"
#define ROWS    "0,0,0,0,0,3,0.7,0,1000\n0,0,0,0,1,1,3e-1,1,0\n0,1,1,2,0,2,nan,2,0\n"

static void write_bytes(const char *text, size_t n) {
    FILE *f = fopen(file, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Reading fails with a message that has `what` in it. */
static void refuses(const char *text, const char *what) {
    struct trace t;
    struct sluice_error err;
    write_bytes(text, strlen(text));
    assert_int_equal(trace_read(&t, file, &err), SLUICE_ERR_FORMAT);
    if (!strstr(err.message, what)) {
        fail_msg("'%s' is not in: %s", what, err.message);
    }
    assert_null(t.rows);
    assert_null(t.head.layers);
}

static void test_foreign(void **state) {
    (void)state;
    struct trace t;
    struct sluice_error err;
    write_bytes(HEAD COLUMNS ROWS, strlen(HEAD COLUMNS ROWS));
    assert_int_equal(trace_read(&t, file, &err), SLUICE_OK);
    assert_string_equal(t.head.model, "/data/some dir/m.gguf");
    assert_string_equal(t.head.arch, "qwen3moe");
    assert_int_equal(t.head.n_layer, 3);
    assert_int_equal(t.head.n_expert, 4);
    assert_int_equal(t.head.n_expert_used, 2);
    assert_int_equal(t.head.n_layers, 2);
    assert_int_equal(t.head.layers[1].number, 2);
    assert_int_equal(t.head.layers[1].expert_bytes, 900);
    assert_int_equal(t.head.layers[1].dense_bytes, 78);
    assert_false(t.head.engine);
    assert_int_equal(t.n_rows, 3);
    assert_true(fabsf(t.rows[0].weight - 0.7f) < 1e-6f && fabsf(t.rows[1].weight - 0.3f) < 1e-6f);
    assert_true(isnan(t.rows[2].weight));
    assert_int_equal(t.rows[0].bytes, 1000);
    assert_int_equal(t.rows[0].expert, 3);
    assert_int_equal(t.rows[1].residency, TRACE_HIT);
    assert_int_equal(t.rows[1].slot, 1);
    assert_int_equal(t.rows[2].residency, TRACE_PREFETCHED);
    assert_int_equal(t.rows[2].phase, TRACE_GENERATION);
    assert_int_equal(t.rows[2].layer, 1); /* the index of layer 2 */
    assert_int_equal(t.rows[2].step, 1);
    trace_free(&t);
}

/* Lines of Windows, unknown comments and keys, an empty weight, the tenth column. */
static void test_lenient(void **state) {
    (void)state;
    static const char text[] = "# route_trace v1\r\n# by=somebody\r\n"
                               "# model=m arch=a n_layer=1 n_expert=4 n_expert_used=2 colour=blue\r\n"
                               "# layer=0 expert_bytes=10 dense_bytes=0 smell=none\r\n#\r\n"
                               "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes,dropped\r\n"
                               "4294967295,1,4294967295,0,0,3,,0,10,1\r\n";
    struct trace t;
    write_bytes(text, strlen(text));
    assert_int_equal(trace_read(&t, file, NULL), SLUICE_OK);
    assert_int_equal(t.n_rows, 1);
    assert_true(isnan(t.rows[0].weight) && t.rows[0].dropped);
    assert_int_equal(t.rows[0].turn, UINT32_MAX);
    trace_free(&t);
}

static void test_refused(void **state) {
    (void)state;
    struct trace t;
    struct sluice_error err;
    assert_int_equal(trace_read(&t, "no/such/trace", &err), SLUICE_ERR_IO);
    assert_int_equal(trace_read(&t, ".", &err), SLUICE_ERR_IO);
    refuses("", ":1: not a route trace");
    refuses("hello\n", ":1: not a route trace");
    refuses("# route_trace v2\n", ":1: not a route trace");
    refuses("# route_trace v1", ":1: the file ends in the middle");
    refuses("# route_trace v1\n", ":2: expected the columns");
    refuses(HEAD, ":5: expected the columns");
    refuses(HEAD "turn,phase,layer\n", ":5: expected the columns");
    refuses(HEAD COLUMNS, ":6: the trace has no rows");
    refuses("# route_trace v1\n" COLUMNS ROWS, ":2: no model= or no layer=");
    refuses("# route_trace v1\n# model=m arch=a n_layer=1 n_expert=4 n_expert_used=2\n" COLUMNS, "no layer=");
    refuses("# route_trace v1\n# model=m n_layer=1\n", ":2: no arch=");
    refuses("# route_trace v1\n# model=m arch=a n_layer=1 n_expert=0 n_expert_used=2\n", ":2: n_layer");
    refuses("# route_trace v1\n# model=m arch=a n_layer=1 n_expert=4 n_expert_used=5\n", ":2: n_layer");
    refuses("# route_trace v1\n# model=m arch=a n_layer=1 n_expert=99999999 n_expert_used=5\n", ":2: n_layer");
    refuses(HEAD "# layer=1 expert_bytes=5 dense_bytes=0\n", ":5: layers must be named once each, in ascending");
    refuses(HEAD "# layer=2000 expert_bytes=5 dense_bytes=0\n", ":5: layer, expert_bytes");
    refuses(HEAD "# layer=3 expert_bytes=-5 dense_bytes=0\n", ":5: layer, expert_bytes");
    refuses(HEAD "# layer=3 expert_bytes=9223372036854775807 dense_bytes=0\n", ":5: layer, expert_bytes");
    refuses(HEAD "# layer=3 expert_bytes=10 dense_bytes=0 slot_bytes=9 top_k=1\n", ":5: slot_bytes is less");
    refuses(HEAD "# sluice cache_policy=lru cache_budget=1 align=0 groups=2 lookahead=0\n", ":5: cache_budget");
    refuses(HEAD "# sluice cache_policy=lru cache_budget=1 align=4096 groups=1 lookahead=0\n", ":5: cache_budget");
    refuses(HEAD "# model=m arch=a n_layer=1 n_expert=4 n_expert_used=2\n", ":5: a second model");
    static const struct {
        const char *row, *what;
    } rows[] = {
        {"x,0,0,0,0,0,1,0,0\n", ":6: turn"},
        {"4294967296,0,0,0,0,0,1,0,0\n", ":6: turn"},
        {"0,2,0,0,0,0,1,0,0\n", ":6: phase"},
        {"0,0,-1,0,0,0,1,0,0\n", ":6: step"},
        {"0,0,0,1,0,0,1,0,0\n", ":6: layer is not one of"},
        {"0,0,0,99999,0,0,1,0,0\n", ":6: layer is not one of"},
        {"0,0,0,0,4096,0,1,0,0\n", ":6: slot"},
        {"0,0,0,0,0,4,1,0,0\n", ":6: expert is not below"},
        {"0,0,0,0,0,0,heavy,0,0\n", ":6: weight"},
        {"0,0,0,0,0,0,inf,0,0\n", ":6: weight"},
        {"0,0,0,0,0,0,1e99,0,0\n", ":6: weight"},
        {"0,0,0,0,0,0,.,0,0\n", ":6: weight"},
        {"0,0,0,0,0,0,1,3,0\n", ":6: residency"},
        {"0,0,0,0,0,0,1,0,x\n", ":6: expert_bytes"},
        {"0,0,0,0,0,0,1,0,0,0\n", ":6: there is something after"},
        {"0,0,0,0,0,0,1,0\n", ":6: residency"},
        {"\n", ":6: turn"},
        {"0,0,0,0,0,0,1,0,10", ":6: the file ends in the middle"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[1024];
        snprintf(text, sizeof text, "%s%s", HEAD COLUMNS, rows[i].row);
        refuses(text, rows[i].what);
    }
    write_bytes(HEAD COLUMNS "0,0,0\0,0,0,0,1,0,0\n", strlen(HEAD COLUMNS) + 20);
    assert_int_equal(trace_read(&t, file, &err), SLUICE_ERR_FORMAT);
    assert_non_null(strstr(err.message, ":6: not a text file"));
    char *longest = malloc(100001);
    memset(longest, '#', 100000);
    memcpy(longest, "# route_trace v1\n", 17);
    longest[100000] = 0;
    refuses(longest, ":2: the line is too long");
    free(longest);
}

/* Every prefix and ten thousand damaged copies: an error, or a trace that is in range. Sanitizers watch. */
static void test_damaged(void **state) {
    (void)state;
    const char good[] =
        HEAD "# sluice version=0 cache_policy=lru cache_budget=1 align=4096 groups=2 lookahead=0\n" COLUMNS ROWS;
    const size_t n = strlen(good);
    char bad[sizeof good];
    uint64_t seed = 5;
    int read = 0, refused = 0;
    for (size_t i = 0; i < n + 10000; i++) {
        struct trace t;
        memcpy(bad, good, n);
        if (i < n) {
            write_bytes(bad, i);
        } else {
            for (uint32_t k = unit_random(&seed) % 4; k < 4; k++) {
                bad[unit_random(&seed) % n] =
                    k % 2 ? (char)unit_random(&seed) : "0123456789,.-\n"[unit_random(&seed) % 14];
            }
            write_bytes(bad, n);
        }
        if (trace_read(&t, file, NULL)) {
            refused++;
            continue;
        }
        read++;
        for (size_t k = 0; k < t.n_rows; k++) {
            assert_true(t.rows[k].layer < t.head.n_layers && t.rows[k].expert < t.head.n_expert);
            assert_true(t.rows[k].phase < TRACE_PHASES && t.rows[k].residency <= TRACE_PREFETCHED);
        }
        trace_free(&t);
    }
    assert_true(refused > 5000 && read > 100);
}

static void fill_head(struct trace_head *h, struct trace_layer *layers) {
    *h = (struct trace_head){.n_layer = 9, .n_expert = 128, .n_expert_used = 8, .layers = layers, .n_layers = 2};
    h->engine = true;
    h->budget = 123456789;
    h->align = 4096;
    h->n_groups = 3;
    h->lookahead = true;
    strcpy(h->model, "/a b/x\ny.gguf");
    strcpy(h->arch, "qwen3moe");
    strcpy(h->policy, "cycle");
    layers[0] = (struct trace_layer){.number = 3, .top_k = 8, .expert_bytes = 5, .dense_bytes = 6, .slot_bytes = 8192};
    layers[1] = (struct trace_layer){.number = 4, .top_k = 7, .expert_bytes = 50, .slot_bytes = 4096};
}

static const float weights[] = {0,    1,           0.5f,   0.1f,        1e-8f,   0.00000001234f,
                                2.5f, 123456.789f, -0.25f, 0.99999999f, 1.0f / 3};

/* What is written comes back, more of it than the buffer holds. */
static void round_trip(void) {
    struct trace_head h;
    struct trace_layer layers[2];
    struct trace_writer *w;
    struct trace t;
    struct sluice_error err;
    enum { ROWS_N = 20000 };
    fill_head(&h, layers);
    assert_int_equal(trace_writer_open(&w, file, &err), SLUICE_OK);
    trace_writer_head(w, &h);
    uint64_t seed = 3;
    for (int i = 0; i < ROWS_N; i++) {
        const uint32_t x = unit_random(&seed);
        const struct trace_row r = {.turn = x % 5,
                                    .step = x,
                                    .layer = 3 + x % 2,
                                    .slot = (uint16_t)(x % 8),
                                    .expert = x % 128,
                                    .weight = i % 12 == 11 ? NAN : weights[i % 12],
                                    .residency = (uint8_t)(x % 3),
                                    .phase = (uint8_t)(x % 2),
                                    .bytes = x % 7 ? 0 : x,
                                    .dropped = (uint8_t)(x % 9 == 0   ? TRACE_LEFT_OUT
                                                         : x % 9 == 1 ? TRACE_COPIED
                                                                      : TRACE_KEPT)};
        trace_writer_row(w, &r);
    }
    assert_int_equal(trace_writer_close(w, &err), SLUICE_OK);
    assert_int_equal(trace_read(&t, file, &err), SLUICE_OK);
    assert_string_equal(t.head.model, "/a b/x y.gguf");
    assert_string_equal(t.head.arch, h.arch);
    assert_string_equal(t.head.policy, h.policy);
    assert_true(t.head.engine && t.head.lookahead && t.head.budget == h.budget && t.head.align == h.align);
    assert_int_equal(t.head.n_groups, 3);
    assert_int_equal(t.head.n_layers, 2);
    assert_int_equal(memcmp(t.head.layers, layers, sizeof layers), 0);
    assert_int_equal(t.n_rows, ROWS_N);
    seed = 3;
    for (int i = 0; i < ROWS_N; i++) {
        const uint32_t x = unit_random(&seed);
        const struct trace_row *r = &t.rows[i];
        assert_true(r->turn == x % 5 && r->step == x && r->layer == x % 2 && r->slot == x % 8 && r->expert == x % 128);
        assert_true(r->residency == x % 3 && r->phase == x % 2 && r->bytes == (x % 7 ? 0 : x) &&
                    r->dropped == (x % 9 < 2 ? 1 + x % 9 : 0));
        if (i % 12 == 11) {
            assert_true(isnan(r->weight));
        } else {
            const float want = weights[i % 12];
            assert_true(fabsf(r->weight - want) <= 5.1e-9f + fabsf(want) * 2e-7f);
        }
    }
    trace_free(&t);
}

static void test_round_trip(void **state) {
    (void)state;
    round_trip();
}

/* A host program may have chosen a locale whose decimal sign is a comma. */
static void test_locale(void **state) {
    (void)state;
    unit_in_turkish(round_trip);
}

static void test_write_fails(void **state) {
    (void)state;
    struct trace_writer *w;
    struct trace_head h;
    struct trace_layer layers[2];
    struct sluice_error err;
    assert_int_equal(trace_writer_open(&w, "no/such/folder", &err), SLUICE_ERR_IO);
    assert_null(w);
    assert_int_equal(trace_writer_close(NULL, &err), SLUICE_OK);
    assert_int_equal(trace_writer_open(&w, "/dev/full", &err), SLUICE_OK);
    fill_head(&h, layers);
    trace_writer_head(w, &h);
    const float p[] = {0.25f, 0.75f};
    for (int i = 0; i < 20000; i++) { /* goes on after the first write that fails */
        trace_writer_probs(w, &(struct trace_row){.layer = 3}, p, 2);
    }
    assert_int_equal(trace_writer_close(w, &err), SLUICE_ERR_IO);
    assert_non_null(strstr(err.message, "/dev/full"));
}

static void test_probs(void **state) {
    (void)state;
    struct trace_writer *w;
    const float p[] = {0.25f, 0, 0.75f};
    char text[128] = "";
    assert_int_equal(trace_writer_open(&w, file, NULL), SLUICE_OK);
    trace_writer_probs(w, &(struct trace_row){.turn = 1, .phase = 1, .step = 22, .layer = 3}, p, 3);
    assert_int_equal(trace_writer_close(w, NULL), SLUICE_OK);
    FILE *f = fopen(file, "re");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    assert_string_equal(text, "1,1,22,3,0.25,0,0.75\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_foreign),     cmocka_unit_test(test_lenient),    cmocka_unit_test(test_refused),
        cmocka_unit_test(test_damaged),     cmocka_unit_test(test_round_trip), cmocka_unit_test(test_locale),
        cmocka_unit_test(test_write_fails), cmocka_unit_test(test_probs),
    };
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(file);
    return rc;
}
