/*
 * fuzz_tables.c - tables of text: route traces (`sluice replay`) and the rows of --csv (`sluice bench`).
 *
 * An input is given to both readers; the first line decides whose it is. A trace that is accepted is replayed by every
 * policy, with budgets and lossy settings that depend on the input, unless its cache has so many bundles that making
 * the tables would be all that is measured; and it is reported as a page, as JSON and as a picture. Rows that are
 * accepted go through the statistics. The input is at the same time a step's numbers, which the writer of --csv gets:
 * what it writes, the reader must take.
 *
 * What must hold: hits and misses are all that was asked for, by count and by bytes; a cache that holds every expert
 * evicts nothing and misses each expert once; the report can be printed, and no text of the file moves a terminal's
 * cursor; rows are read the same with and without a torn end.
 */
#include "fuzz.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "bench/csv.h"
#include "bench/stats.h"
#include "cli/commands.h"
#include "cli/replay.c" /* the report of one trace */
#include "observe/csv.h"

enum {
    BUNDLES = 4096, /* a trace with more is only looked through */
    ROWS = 16       /* with more, no bootstrap: it draws 2000 times */
};

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    fuzz_quiet();
    return 0;
}

/* ---- traces ---------------------------------------------------------------------------------- */

static void check_counts(const struct replay_counts *n) {
    FUZZ_CHECK(n->hits + n->misses == n->routed);
    FUZZ_CHECK(n->lost_reads <= n->lost);
    FUZZ_CHECK(!isnan(n->weight) && !isnan(n->lost_weight));
}

/* Distinct experts that a lossless replay asks for. */
static uint64_t distinct(const struct trace *t) {
    uint64_t n = 0;
    uint8_t *seen = calloc((size_t)t->head.n_layers * t->head.n_expert, 1);
    FUZZ_CHECK(seen != NULL);
    for (size_t i = 0; i < t->n_rows; i++) {
        uint8_t *s = &seen[(size_t)t->rows[i].layer * t->head.n_expert + t->rows[i].expert];
        n += !*s && !t->rows[i].dropped;
        *s |= !t->rows[i].dropped;
    }
    free(seen);
    return n;
}

/* What `sluice replay` does with the trace, in all three forms. */
static void check_report(const char *path, uint64_t chance, uint64_t index) {
    const struct cli_config config = {.command = "fuzz"};
    struct replay_plan plan = {.config = &config,
                               .policies = {true, true},
                               .budgets = {index / 9, index},
                               .n_budgets = index ? 2 : 0,
                               .lossy = {{.n_expert_used = 1 + (chance >> 3 & 3), .drop = 0.5}},
                               .disk = 1800,
                               .resident = 4.5};
    struct replay_report r = {.plan = &plan, .path = path};
    /* Thresholds go by weights; without any, that is an error of the command. */
    plan.n_lossy = chance & 1;
    plan.lossy[0].drop = chance & 2 ? plan.lossy[0].drop : 0;
    if (replay_one(&r) == 0) {
        FUZZ_CHECK(replay_print(&r) == 0);
        FUZZ_CHECK(replay_print_json(&r, 1) == 0);
        FUZZ_CHECK(replay_plot(&r, 1, fuzz_path("plot.svg")) == 0);
    }
    trace_free(&r.trace);
    free(r.lines);
}

/* Nothing that a terminal would obey. */
static bool harmless(const char *text) {
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == 127) {
            return false;
        }
    }
    return true;
}

static void check_trace(const char *path, uint64_t chance) {
    struct trace t;
    struct sluice_error err;
    struct replay_facts f;
    const int rc = trace_read(&t, path, &err);
    FUZZ_CHECK(rc == 0 || (!t.rows && !t.head.layers && err.message[0]));
    if (rc) {
        return;
    }
    const struct trace_head *h = &t.head;
    FUZZ_CHECK(t.n_rows > 0 && h->n_layers > 0 && h->n_layers <= TRACE_LAYERS_MAX && h->n_expert > 0);
    FUZZ_CHECK((uint64_t)h->n_layers * h->n_expert <= TRACE_BUNDLES_MAX);
    for (size_t i = 0; i < t.n_rows; i++) {
        const struct trace_row *r = &t.rows[i];
        FUZZ_CHECK(r->layer < h->n_layers && r->expert < h->n_expert && r->slot <= TRACE_SLOT_MAX);
        FUZZ_CHECK(r->phase < TRACE_PHASES && r->residency <= TRACE_PREFETCHED && r->dropped <= TRACE_COPIED);
    }
    FUZZ_CHECK(harmless(h->arch) && harmless(h->model) && harmless(h->policy));
    FUZZ_CHECK(replay_facts(&t, &f, &err) == 0);
    check_counts(&f.phase[0]);
    check_counts(&f.phase[1]);
    if ((uint64_t)h->n_layers * h->n_expert <= BUNDLES) {
        check_report(path, chance, f.bank_bytes);
        const uint64_t budgets[] = {0, f.bank_bytes / 7, f.token_slot_bytes, UINT64_MAX};
        for (int p = 0; p < REPLAY_POLICIES; p++, chance = chance * 6364136223846793005 + 1442695040888963407) {
            struct replay_result r;
            struct replay_options o = {.policy = (enum replay_policy)p,
                                       .division =
                                           (enum replay_division)(chance >> 40 & 1 ? 0 : 1 + (chance >> 41 & 1)),
                                       .budget = budgets[chance >> 44 & 3]};
            if (chance >> 50 & 1) {
                o.n_expert_used = 1 + (chance >> 51 & 3);
                o.drop = (double)(chance >> 53 & 7) / 7;
                o.what_if = chance >> 57 & 1;
            }
            FUZZ_CHECK(replay_run(&t, &o, &r, &err) == 0);
            check_counts(&r.phase[0]);
            check_counts(&r.phase[1]);
            if (o.budget == UINT64_MAX && !o.n_expert_used && o.drop <= 0) {
                FUZZ_CHECK(r.evictions == 0);
                FUZZ_CHECK(r.phase[0].misses + r.phase[1].misses == distinct(&t));
            }
        }
    }
    trace_free(&t);
}

/* ---- rows of --csv --------------------------------------------------------------------------- */

static void check_rows(const char *path) {
    struct bench_csv whole, torn;
    struct sluice_error err;
    const int rc = bench_csv_read(path, false, &whole, &err);
    FUZZ_CHECK(rc == 0 || (!whole.token[0] && whole.n == 0 && err.message[0]));
    const int torn_rc = bench_csv_read(path, true, &torn, &err);
    FUZZ_CHECK(rc != 0 || (torn_rc == 0 && torn.n == whole.n));
    if (torn_rc == 0 && torn.n) {
        double *wall = torn.token[BENCH_WALL_S];
        for (size_t i = 0; i < torn.n; i++) {
            FUZZ_CHECK(wall[i] >= 0 && isfinite(wall[i]) && torn.token[BENCH_TOKENS][i] == 1);
        }
        const struct bench_series series = {.wall = wall, .n = torn.n};
        if (torn.n <= ROWS) {
            FUZZ_CHECK(bench_bootstrap(&series, 1, NULL, 0).mid >= 0);
            (void)bench_bootstrap(&series, 1, &series, 1);
        }
        FUZZ_CHECK(bench_quantile(wall, torn.n, 0.5) >= 0);
    }
    bench_csv_free(&whole);
    bench_csv_free(&torn);
}

/* A number of seconds that a step can have: the writer is given what was measured, not anything. */
static double seconds(double x) {
    return x > 1e8 ? 1e8 : x;
}

/* Write steps whose numbers are the input's, and read them. */
static void check_writer(const uint8_t *data, size_t size) {
    struct csv *c = NULL;
    struct sluice_error err;
    struct bench_csv back;
    char path[4096];
    size_t n = 0, tokens = 0;
    strcpy(path, fuzz_path("steps.csv"));
    FUZZ_CHECK(csv_open(&c, path, &err) == 0);
    for (; n < 4 && size; n++) {
        struct sluice_step s;
        const size_t some = size < sizeof s ? size : sizeof s;
        memset(&s, 0, sizeof s);
        memcpy(&s, data, some);
        data += some;
        size -= some;
        s.phase = s.reads & 1 ? SLUICE_PHASE_GENERATION : SLUICE_PHASE_PROMPT;
        tokens += s.phase == SLUICE_PHASE_GENERATION;
        s.tokens >>= 1; /* like the other counts: 64 bits, the highest not used */
        s.tokens = s.phase == SLUICE_PHASE_GENERATION || s.tokens == 0 ? 1 : s.tokens;
        double *times[] = {&s.wall_s, &s.stall_s, &s.expert_s, &s.other_s, &s.bookkeeping_s, &s.cpu_s};
        uint64_t *counts[] = {&s.read_bytes, &s.hits, &s.misses, &s.major_faults};
        for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
            *times[i] = seconds(*times[i]);
        }
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            *counts[i] >>= 1;
        }
        FUZZ_CHECK(csv_row(c, &s, &err) == 0);
    }
    csv_fact(c, "text", "%.*s", (int)size, (const char *)data); /* may hold line ends */
    FUZZ_CHECK(csv_close(c, &err) == 0);
    FUZZ_CHECK(bench_csv_read(path, false, &back, &err) == 0 && back.n == tokens);
    bench_csv_free(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *path = fuzz_write("table", data, size);
    check_trace(path, fuzz_hash(data, size));
    check_rows(path);
    /* Only what is no table of either kind: else every execution would pay for it. */
    if (size && data[0] != '#') {
        check_writer(data, size);
    }
    return 0;
}
