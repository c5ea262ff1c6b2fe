/*
 * test_quality.c - perplexity, divergence and their standard errors against values that were computed by hand, and the
 * reference file: what is written comes back, and nothing else is believed.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run/quality.h"
#include "run/reference.h"
#include "unit.h"

static void assert_near(double a, double b, double tolerance) {
    if (!(fabs(a - b) <= tolerance)) {
        print_error("%.17g is not %.17g\n", a, b);
        fail();
    }
}

static void test_score(void **state) {
    (void)state;
    struct sluice_score s;
    const float even[4] = {2, 2, 2, 2}, row[3] = {0, 1, -1};
    assert_true(sluice_score_row(even, 4, 3, &s));
    assert_near(s.nll, log(4), 1e-15);
    assert_int_equal(s.top, 0); /* the first of several */
    assert_true(sluice_score_row(row, 3, 2, &s));
    assert_near(s.nll, log(1 + exp(1) + exp(-1)) + 1, 1e-15);
    assert_int_equal(s.top, 1);
    const float large[2] = {1e30f, -1e30f}; /* no overflow */
    assert_true(sluice_score_row(large, 2, 0, &s));
    assert_near(s.nll, 0, 0);
    const float hidden[3] = {-INFINITY, 0, 0}; /* a token that the model forbids */
    assert_true(sluice_score_row(hidden, 3, 1, &s));
    assert_near(s.nll, log(2), 1e-15);
    assert_false(sluice_score_row(hidden, 3, 0, &s));
    const float nothing[2] = {-INFINITY, -INFINITY}, more[2] = {INFINITY, 0}, nan1[2] = {NAN, 0}, nan2[2] = {0, NAN};
    assert_false(sluice_score_row(nothing, 2, 0, &s));
    assert_false(sluice_score_row(more, 2, 1, &s));
    assert_false(sluice_score_row(nan1, 2, 1, &s));
    assert_false(sluice_score_row(nan2, 2, 0, &s));
}

/* The divergence by the book. */
static double exact_divergence(const float *p, const float *q, uint32_t n) {
    double max_p = -INFINITY, max_q = -INFINITY, sum_p = 0, sum_q = 0, kl = 0;
    for (uint32_t i = 0; i < n; i++) {
        max_p = p[i] > max_p ? p[i] : max_p;
        max_q = q[i] > max_q ? q[i] : max_q;
    }
    for (uint32_t i = 0; i < n; i++) {
        sum_p += exp(p[i] - max_p);
        sum_q += exp(q[i] - max_q);
    }
    for (uint32_t i = 0; i < n; i++) {
        const double lp = p[i] - max_p - log(sum_p), lq = q[i] - max_q - log(sum_q);
        kl += exp(lp) * (lp - lq);
    }
    return kl;
}

static double coded_divergence(const double *table, const float *p, const float *q, uint32_t n) {
    uint16_t *codes = malloc(2 * n * sizeof *codes);
    struct sluice_score s;
    assert_non_null(codes);
    assert_true(sluice_score_row(p, n, 0, &s));
    sluice_encode_row(p, n, s.max, codes);
    assert_int_equal(codes[s.top], 0);
    assert_true(sluice_score_row(q, n, 0, &s));
    sluice_encode_row(q, n, s.max, codes + n);
    const double kl = sluice_divergence(table, codes, codes + n, n);
    free(codes);
    return kl;
}

static double *new_table(void) {
    double *table = malloc(SLUICE_CODES * sizeof *table);
    assert_non_null(table);
    sluice_code_table(table);
    return table;
}

static void test_divergence(void **state) {
    (void)state;
    double *table = new_table();
    /* 1/2, 1/2 against 1/4, 3/4: ln 2 - ln 3 / 2; and back: 3/4 ln 3 - ln 2. */
    const float even[2] = {0, 0}, odd[2] = {0, 1.09861228867f};
    assert_near(coded_divergence(table, even, odd, 2), log(2) - log(3) / 2, 1e-4);
    assert_near(coded_divergence(table, odd, even, 2), 0.75 * log(3) - log(2), 1e-4);
    /* Numbers that codes hold exactly: no rounding is left. */
    const float exact[2] = {0, 1.5f};
    assert_near(coded_divergence(table, even, exact, 2), exact_divergence(even, exact, 2), 1e-14);
    /* Adding a constant to all logits changes nothing. */
    const float shifted[2] = {100, 101.5f};
    assert_near(coded_divergence(table, exact, shifted, 2), 0, 0);
    /* What q forbids and p does not is far, and not infinitely far. */
    const float hidden[2] = {0, -INFINITY};
    assert_near(coded_divergence(table, even, hidden, 2), log(0.5) + 16, 1e-3);
    free(table);
}

/* Made-up predictions as models make them: few likely tokens, a long tail; q is p with noise. */
static void test_rounding(void **state) {
    (void)state;
    enum { N = 2560 };
    static float p[N], q[N];
    double *table = new_table();
    uint64_t seed = 4;
    double worst = 0, sum_exact = 0, sum_coded = 0;
    for (int row = 0; row < 400; row++) {
        const double noise = pow(10, -(row % 5)); /* 1 to 0.0001 nat */
        for (int i = 0; i < N; i++) {
            const double a = unit_random(&seed) / 4294967296.0, b = unit_random(&seed) / 4294967296.0;
            p[i] = (float)(-4 * log(1 - a + 1e-9) - 10);
            q[i] = (float)(p[i] + noise * (2 * b - 1));
        }
        const double exact = exact_divergence(p, q, N), coded = coded_divergence(table, p, q, N);
        const double off = (fabs(coded - exact) - 1e-7) / sqrt(exact);
        worst = off > worst ? off : worst;
        sum_exact += exact;
        sum_coded += coded;
        assert_near(coded_divergence(table, p, p, N), 0, 0);
    }
    print_message("divergence d: rounding moves it by 1e-7 + %.2g sqrt(d) at most, the sum of all by %.2g of it\n",
                  worst, fabs(sum_coded / sum_exact - 1));
    assert_true(worst < 3e-4);
    assert_near(sum_coded / sum_exact, 1, 2e-4);
    free(table);
}

static void test_mean(void **state) {
    (void)state;
    struct sluice_mean m;
    /* mean 3; squares 4 1 1 4 -> variance 10 / 4 of n, standard error sqrt(2.5 / 3); chunks 1.5 and 4.5 */
    const double v[] = {1, 2, 4, 5};
    sluice_mean_of(v, 4, 2, &m);
    assert_near(m.mean, 3, 0);
    assert_near(m.se, sqrt(2.5 / 3), 1e-15);
    assert_near(m.se_chunk, sqrt(2 * 1.5 * 1.5 / 2 / 1), 1e-15);
    sluice_mean_of(v, 3, 2, &m); /* one whole chunk: nothing to compare */
    assert_near(m.mean, 7.0 / 3, 1e-15);
    assert_true(isnan(m.se_chunk) && !isnan(m.se));
    sluice_mean_of(v, 1, 1, &m);
    assert_true(m.mean == 1 && isnan(m.se) && isnan(m.se_chunk));
    sluice_mean_of(v, 0, 1, &m);
    assert_true(isnan(m.mean) && isnan(m.se) && isnan(m.se_chunk));
    /* 0 and 1: the standard error of a share, sqrt(p (1 - p) / (n - 1)) */
    const double same[] = {1, 1, 1, 0};
    sluice_mean_of(same, 4, 0, &m);
    assert_near(m.mean, 0.75, 0);
    assert_near(m.se, sqrt(0.75 * 0.25 / 3), 1e-15);
}

static void test_quantile(void **state) {
    (void)state;
    enum { N = 10001 };
    double *v = malloc(N * sizeof *v);
    struct sluice_quantile q;
    assert_non_null(v);
    for (int i = 0; i < N; i++) {
        v[i] = i / 10000.0; /* evenly between 0 and 1: quantile q is q */
    }
    sluice_quantile_of(v, N, 0.5, &q);
    assert_near(q.value, 0.5, 1e-12);
    assert_near(q.se, sqrt(0.25 / N), 1e-5); /* sqrt(q (1 - q) / n) / density */
    sluice_quantile_of(v, N, 0.99, &q);
    assert_near(q.value, 0.99, 1e-12);
    assert_near(q.se, sqrt(0.99 * 0.01 / N), 1e-5);
    sluice_quantile_of(v, 50, 0.99, &q); /* nothing is beyond it */
    assert_near(q.value, v[48] + 0.51 * 1e-4, 1e-9);
    assert_true(isnan(q.se));
    sluice_quantile_of(v, 1, 0.99, &q);
    assert_true(q.value == 0 && isnan(q.se));
    sluice_quantile_of(v, 0, 0.99, &q);
    assert_true(isnan(q.value));
    free(v);
}

static void test_tally(void **state) {
    (void)state;
    struct sluice_tally t = {.per_chunk = 2};
    struct sluice_quality q;
    const double nll[] = {1, 2, 4, 5}, ref[] = {1, 1, 4, 4}, kl[] = {0.5, 0.1, 0.2, 0.4}, same[] = {1, 0, 1, 1};
    assert_true(sluice_tally_make(&t, 4));
    for (int i = 0; i < 4; i++) {
        sluice_tally_add(&t, nll[i], ref[i], kl[i], same[i]);
    }
    sluice_tally_finish(&t, true, &q);
    assert_int_equal(q.tokens, 4);
    assert_int_equal(q.chunks, 2);
    assert_near(q.ppl, exp(3), 1e-12);
    assert_near(q.ppl_se, exp(3) * sqrt(2.5 / 3), 1e-12);
    assert_near(q.ppl_ref, exp(2.5), 1e-12);
    assert_near(q.nll_more.mean, 0.5, 1e-15); /* 0 1 0 1: paired, so much surer than either */
    assert_near(q.nll_more.se, sqrt(0.25 / 3), 1e-15);
    assert_near(q.nll_more.se_chunk, 0, 1e-15);
    assert_near(q.kl.mean, 0.3, 1e-15);
    assert_near(q.kl_50.value, 0.3, 1e-15);
    assert_near(q.kl_max, 0.5, 0);
    assert_near(q.same.mean, 0.75, 0);
    sluice_tally_free(&t);
    t.per_chunk = 2;
    assert_true(sluice_tally_make(&t, 2)); /* an interrupted run fills it in part */
    sluice_tally_add(&t, 1, NAN, NAN, NAN);
    sluice_tally_finish(&t, false, &q);
    assert_near(q.ppl, exp(1), 1e-12);
    assert_true(isnan(q.kl.mean) && isnan(q.kl_max) && isnan(q.kl_99.value) && isnan(q.ppl_ref) && isnan(q.same.mean));
    sluice_tally_free(&t);
    sluice_tally_finish(&t, true, &q); /* nothing at all */
    assert_true(isnan(q.ppl) && isnan(q.kl_max) && q.tokens == 0);
}

enum { VOCAB = 5, CTX = 8, CHUNKS = 2, ROWS = CHUNKS * 3 };

static const char *file_name = "test_quality.ref";

static const struct sluice_reference_head head = {
    .n_vocab = VOCAB, .n_ctx = CTX, .n_chunks = CHUNKS, .batch = 1, .threads = 2, .model = 77};

static void row_of(int i, struct sluice_reference_row *row, uint16_t *codes) {
    *row = (struct sluice_reference_row){.nll = 0.5 + i, .top = (uint32_t)(i % VOCAB)};
    for (int k = 0; k < VOCAB; k++) {
        codes[k] = (uint16_t)(k == i % VOCAB ? 0 : 1000 * i + k + 1);
    }
}

/* Write a file of so many rows; finished or not. */
static void write_file(int rows, bool finish) {
    struct sluice_reference *r;
    struct sluice_error err;
    int32_t tokens[CTX * CHUNKS];
    for (int i = 0; i < CTX * CHUNKS; i++) {
        tokens[i] = i;
    }
    assert_int_equal(sluice_reference_create(&r, file_name, &head, tokens, &err), SLUICE_OK);
    for (int i = 0; i < rows; i++) {
        struct sluice_reference_row row;
        uint16_t codes[VOCAB];
        row_of(i, &row, codes);
        assert_int_equal(sluice_reference_write(r, &row, codes, &err), SLUICE_OK);
    }
    if (finish) {
        assert_int_equal(sluice_reference_finish(r, &err), SLUICE_OK);
    }
    sluice_reference_close(r);
}

static void test_file(void **state) {
    (void)state;
    struct sluice_reference *r;
    struct sluice_error err;
    int32_t tokens[CTX * CHUNKS + CTX];
    for (int i = 0; i < CTX * CHUNKS + CTX; i++) {
        tokens[i] = i;
    }
    assert_int_equal(sluice_scored_per_chunk(CTX), 3);
    assert_int_equal(sluice_scored_per_chunk(512), 255);
    assert_int_equal(sluice_scored_per_chunk(9), 4);
    assert_int_equal(sluice_scored_per_chunk(0), 0);
    write_file(ROWS, true);
    for (int chunks = 1; chunks <= CHUNKS; chunks++) { /* fewer than were saved will do */
        assert_int_equal(sluice_reference_open(&r, file_name, &err), SLUICE_OK);
        const struct sluice_reference_head *h = sluice_reference_get_head(r);
        assert_true(h->n_vocab == VOCAB && h->n_ctx == CTX && h->n_chunks == CHUNKS && h->model == 77);
        assert_true(h->batch == 1 && h->threads == 2);
        assert_int_equal(sluice_reference_match(r, VOCAB, tokens, (uint64_t)(chunks * CTX), &err), SLUICE_OK);
        for (int i = 0; i < 3 * chunks; i++) {
            struct sluice_reference_row row, want;
            uint16_t codes[VOCAB], want_codes[VOCAB];
            row_of(i, &want, want_codes);
            assert_int_equal(sluice_reference_read(r, &row, codes, &err), SLUICE_OK);
            assert_memory_equal(&row, &want, sizeof row);
            assert_memory_equal(codes, want_codes, sizeof codes);
        }
        if (chunks == CHUNKS) {
            struct sluice_reference_row row;
            uint16_t codes[VOCAB];
            assert_int_equal(sluice_reference_read(r, &row, codes, &err), SLUICE_ERR_IO);
        }
        sluice_reference_close(r);
    }
    /* Another vocabulary, another text, more than there is. */
    static const struct {
        uint32_t n_vocab;
        int wrong, chunks;
        const char *text;
    } cases[] = {{VOCAB + 1, -1, 2, "vocabulary"}, {VOCAB, 12, 2, "another text"}, {VOCAB, -1, 3, "not 3"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(sluice_reference_open(&r, file_name, &err), SLUICE_OK);
        tokens[12] = cases[i].wrong == 12 ? -1 : 12;
        assert_int_equal(sluice_reference_match(r, cases[i].n_vocab, tokens, (uint64_t)cases[i].chunks * CTX, &err),
                         SLUICE_ERR_ARG);
        assert_non_null(strstr(err.message, cases[i].text));
        sluice_reference_close(r);
    }
    unlink(file_name);
}

static void refused(enum sluice_status status, const char *text) {
    struct sluice_reference *r;
    struct sluice_error err;
    assert_int_equal(sluice_reference_open(&r, file_name, &err), status);
    assert_null(r);
    if (!strstr(err.message, text) || !strstr(err.message, file_name)) {
        print_error("'%s' is not in: %s\n", text, err.message);
        fail();
    }
}

/* Change the bytes of the file at an offset. */
static void patch(long at, const void *bytes, size_t n) {
    FILE *f = fopen(file_name, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, n, 1, f), 1);
    assert_int_equal(fclose(f), 0);
}

static void test_foreign(void **state) {
    (void)state;
    unlink(file_name);
    refused(SLUICE_ERR_IO, "No such file");
    write_file(ROWS, false);
    refused(SLUICE_ERR_FORMAT, "not complete");
    write_file(ROWS - 1, true);
    refused(SLUICE_ERR_FORMAT, "bytes, its header says");
    for (long size = 0; size < 64 + 4 * CTX * CHUNKS + ROWS * (16 + 2 * VOCAB); size += 7) {
        write_file(ROWS, true);
        assert_int_equal(truncate(file_name, size), 0);
        refused(SLUICE_ERR_FORMAT, size < 64 ? "not a reference" : "its header says");
    }
    write_file(ROWS, true);
    patch(0, "GGUF", 4);
    refused(SLUICE_ERR_FORMAT, "not a reference");
    write_file(ROWS, true);
    patch(8, "\2", 1);
    refused(SLUICE_ERR_FORMAT, "version 2");
    /* Every 32-bit number of the header that decides about sizes, with values that overflow or mean nothing. */
    static const uint32_t values[] = {0, 1, 2, 0x7fffffff, 0x80000000, 0xfffffff0, 0xffffffff};
    for (long at = 12; at < 24; at += 4) {
        for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
            if (!(at == 20 && values[i] == CHUNKS)) {
                write_file(ROWS, true);
                patch(at, &values[i], 4);
                refused(SLUICE_ERR_FORMAT, "damaged");
            }
        }
    }
    write_file(ROWS, true);
    patch(24, "\0", 1);
    refused(SLUICE_ERR_FORMAT, "damaged");
    unlink(file_name);
    /* Large numbers that are each allowed: their product must not wrap round to the file's size. */
    const uint32_t large[3] = {1 << 24, 1 << 24, 1 << 24};
    write_file(ROWS, true);
    patch(12, large, sizeof large);
    refused(SLUICE_ERR_FORMAT, "damaged");
    unlink(file_name);
}

static void test_rows(void **state) {
    (void)state;
    const long first = 64 + 4 * CTX * CHUNKS;
    const double nan = NAN;
    const uint32_t outside = VOCAB;
    const uint16_t code = 3;
    static const char *const what[] = {"nll", "top", "code"};
    for (int i = 0; i < 3; i++) {
        struct sluice_reference *r;
        struct sluice_error err;
        struct sluice_reference_row row;
        uint16_t codes[VOCAB];
        int32_t tokens[CTX];
        for (int k = 0; k < CTX; k++) {
            tokens[k] = k;
        }
        write_file(ROWS, true);
        patch(first + (i == 0   ? 0
                       : i == 1 ? 8
                                : 16),
              i == 0   ? (const void *)&nan
              : i == 1 ? (const void *)&outside
                       : &code,
              i == 0   ? 8
              : i == 1 ? 4
                       : 2);
        assert_int_equal(sluice_reference_open(&r, file_name, &err), SLUICE_OK);
        assert_int_equal(sluice_reference_match(r, VOCAB, tokens, CTX, &err), SLUICE_OK);
        print_message("%s\n", what[i]);
        assert_int_equal(sluice_reference_read(r, &row, codes, &err), SLUICE_ERR_FORMAT);
        sluice_reference_close(r);
    }
    unlink(file_name);
}

static void test_full_disk(void **state) {
    (void)state;
    struct sluice_reference *r = NULL;
    struct sluice_error err;
    const int32_t tokens[CTX * CHUNKS] = {0};
    if (access("/dev/full", W_OK)) {
        skip();
    }
    int rc = sluice_reference_create(&r, "/dev/full", &head, tokens, &err);
    rc = rc ? rc : sluice_reference_finish(r, &err); /* what was buffered meets the disk here */
    assert_int_equal(rc, SLUICE_ERR_IO);
    assert_non_null(strstr(err.message, "No space left"));
    sluice_reference_close(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_score),     cmocka_unit_test(test_divergence), cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_mean),      cmocka_unit_test(test_quantile),   cmocka_unit_test(test_tally),
        cmocka_unit_test(test_file),      cmocka_unit_test(test_foreign),    cmocka_unit_test(test_rows),
        cmocka_unit_test(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
