/*
 * bench.c - `sluice bench`: the command line, the order of the runs, the report.
 *
 * Order is half of an honest measurement. Machines drift: caches fill, neighbours come and go, processors
 * get hot. So no row's runs are taken in one go: each round runs every row once, and every second round
 * runs them in reverse, so that a drift meets all rows alike. Each run is a process of its own and starts with the
 * page cache dropped (bench_run.c). docs/benchmark-method.md has the reasons and the limits of all this.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/bench_impl.h"
#include "cli/commands.h"

/* Half of the disk's probes, with the page cache out of the way by direct reads. */
static int probe(struct bench *b) {
    struct sluice_probe_params params = {
        .lanes = (uint32_t)b->settings.io_threads,
        .direct = b->settings.direct_io,
        .seconds = b->config->bench.probe_seconds,
        .max_bytes = 16ull << 30,
        .interrupted = cli_interrupted_by,
    };
    struct sluice_error err;
    for (int i = 0; i < BENCH_PROBES / 2 && params.seconds > 0 && !cli_interrupted(); i++) {
        params.seed = b->n_probes + 1; /* each reads other experts, and every bench the same */
        cli_progress_seconds(&b->progress, "reading random experts", i * params.seconds);
        const int rc = sluice_probe_disk(b->gguf, &params, &b->probes[b->n_probes], &err);
        cli_progress_clear(&b->progress);
        if (rc && !cli_interrupted()) {
            return cli_fail(CLI_EXIT_FAILED, b->config->command, "%s", err.message);
        }
        b->n_probes += rc == 0; /* one that was interrupted does not count */
    }
    return 0;
}

/* A line for each run, as it ends: a long bench is watched, and the state of the machine belongs to it. */
static void log_run(const struct bench *b, const struct bench_entry *e, const struct bench_run *r) {
    char text[640];
    if (b->config->quiet || r->end == BENCH_NOT_STARTED) {
        return;
    }
    fprintf(stderr, "round %d, %s: ", r->round, e->name);
    if (r->csv.n) {
        fprintf(stderr, "%.2f tok/s; ", r->csv.total[BENCH_RATE]);
    }
    if (bench_remark(b, r, text, sizeof text)) {
        fprintf(stderr, "%s; ", text);
    }
    fprintf(stderr, "at start: load %.2f, %.1f GiB available", r->before.load, (double)r->before.available / (1 << 30));
    if (r->before.mhz > 0) {
        fprintf(stderr, ", %.0f MHz", r->before.mhz);
    }
    if (r->before.steal_s >= 0) {
        fprintf(stderr, "; stolen meanwhile %.1f s", r->after.steal_s - r->before.steal_s);
    }
    fputc('\n', stderr);
}

static int run_round(struct bench *b, int round) {
    for (size_t i = 0; i < b->n_entries && !cli_interrupted(); i++) {
        const struct bench_entry *e = &b->entries[round % 2 ? b->n_entries - 1 - i : i];
        struct bench_run *run = &e->runs[round];
        if (e->skipped[0]) {
            continue;
        }
        run->round = round + 1;
        run->order = b->done + 1;
        const int rc = bench_run(b, e, run);
        if (rc) {
            return rc;
        }
        b->done += run->end != BENCH_NOT_STARTED && run->end != BENCH_INTERRUPTED;
        log_run(b, e, run);
    }
    return 0;
}

/* Check the model, read the settings, make the rows. */
static int prepare(struct bench *b) {
    const struct cli_config *c = b->config;
    struct sluice_error err;
    const time_t now = time(NULL);
    struct tm utc;
    if (!c->model) {
        return cli_fail(CLI_EXIT_USAGE, c->command, "no model: give one with -m (see sluice bench --help)");
    }
    if (sluice_gguf_check(c->model, &b->gguf, &err) || sluice_info_collect(b->gguf, &b->info, &err)) {
        return cli_fail(CLI_EXIT_FAILED, c->command, "%s", err.message);
    }
    sluice_settings_default(&b->settings);
    if (sluice_settings_from_env(&b->settings, &err)) {
        return cli_fail(CLI_EXIT_USAGE, c->command, "%s", err.message);
    }
    unsetenv("SLUICE_CSV"); /* every run has a file of its own */
    unsetenv("SLUICE_STATS");
    strftime(b->started, sizeof b->started, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    bench_machine_read(&b->machine, c->model, "");
    const int rc = bench_plan(b);
    if (rc == 0 && b->info.expert_tensors == 0) {
        return cli_fail(CLI_EXIT_FAILED, c->command, "%s: has no experts: nothing would stream", c->model);
    }
    return rc ? rc : bench_prepare(b);
}

/* From the first probe to the report. `json`: where the object goes; NULL: nowhere. */
static int measure(struct bench *b, FILE *json) {
    const struct cli_config *c = b->config;
    FILE *table = json == stdout ? stderr : stdout;
    int rc = probe(b);
    b->n_probes_before = b->n_probes;
    for (int round = 0; rc == 0 && round < c->bench.runs && !cli_interrupted(); round++) {
        rc = run_round(b, round);
    }
    rc = rc ? rc : probe(b);
    b->interrupted = cli_interrupted();
    cli_progress_clear(&b->progress);
    if (rc && !b->done) {
        return rc;
    }
    bench_figures_find(b); /* what was measured before a failure is worth printing too */
    bench_table(b, table);
    if (fflush(table) != 0 || ferror(table)) {
        rc = cli_fail(CLI_EXIT_FAILED, c->command, "standard output: %s", strerror(errno));
    }
    if (json && !bench_json(b, json)) {
        rc = cli_fail(CLI_EXIT_FAILED, c->command, "%s: %s", c->bench.json, strerror(errno));
    }
    for (size_t i = 0; i < b->n_entries; i++) {
        for (int64_t r = 0; r < c->bench.runs; r++) {
            rc = b->entries[i].runs[r].end == BENCH_FAILED ? CLI_EXIT_FAILED : rc;
        }
    }
    return rc;
}

static void free_all(struct bench *b) {
    bench_clean(b);
    for (size_t i = 0; i < b->n_entries; i++) {
        for (int64_t r = 0; b->entries[i].runs && r < b->config->bench.runs; r++) {
            bench_csv_free(&b->entries[i].runs[r].csv);
        }
        free(b->entries[i].runs);
    }
    free(b->entries);
    sluice_gguf_free(b->gguf);
}

static int bench_main(struct cli_config *c) {
    static struct bench bench;
    FILE *json = NULL;
    bench.config = c;
    cli_interrupt_install_all();
    cli_progress_start(&bench.progress, c->quiet);
    int rc = prepare(&bench);
    if (rc == 0 && c->bench.json) { /* before hours of work, not after */
        json = strcmp(c->bench.json, "-") == 0 ? stdout : fopen(c->bench.json, "we");
        rc = json ? 0 : cli_fail(CLI_EXIT_FAILED, c->command, "%s: %s", c->bench.json, strerror(errno));
    }
    rc = rc ? rc : measure(&bench, json);
    if (json && json != stdout && fclose(json) != 0 && rc == 0) {
        rc = cli_fail(CLI_EXIT_FAILED, c->command, "%s: %s", c->bench.json, strerror(errno));
    }
    free_all(&bench);
    if (cli_interrupted()) {
        cli_interrupt_die();
    }
    return rc;
}

const struct cli_command cli_bench_command = {
    .name = "sluice bench",
    .summary = "measure speed, bytes and memory at several cache sizes",
    .usage = "sluice bench -m MODEL [--budgets LIST] [options]",
    .about = "Measures how fast a model generates at several cache sizes. Each run is a process of its\n"
             "own; rows take turns and reverse their order every second round; caches are dropped\n"
             "before each run; figures are medians with 95 % intervals. Defaults are in parentheses.",
    .groups = {{"What is measured", "--model --budgets --variant --baseline"},
               {"How", "--memory --gen --prompt --file --runs --threads --max-seconds --drop-caches --probe-seconds"},
               {"Output", "--json --keep --quiet"}},
    .notes = "Columns: tok/s, generated tokens per second, median of the runs; 95 % interval, by bootstrap\n"
             "over tokens; the slowest and the fastest run; MiB read per token; share of experts that\n"
             "were in memory; share of time waited for reads; seconds to load and to the first token,\n"
             "cold; peak memory; bound, what disk and processor allow; share of that bound.\n"
             "What not to conclude from them: docs/benchmark-method.md. Ctrl-C prints what there is.\n\n"
             "Example: sluice bench -m model.gguf --budgets 0,2000,4000 --memory 6G --baseline resident \\\n"
             "           --variant \"lru: --cache-policy lru\" --json report.json",
    .max_args = 0,
    .run = bench_main,
};
