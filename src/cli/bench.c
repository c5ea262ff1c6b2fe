/*
 * bench.c - `sluice bench`: the command line, the order of the runs, the report.
 *
 * Order is half of an honest measurement. Machines drift: caches fill, neighbours come and go, processors
 * get hot. So no row's runs are taken in one go: each round runs every row once, and every second round
 * runs them in reverse, so that a drift meets all rows alike. Each run is a process of its own and starts with the
 * page cache dropped (bench_run.c). docs/benchmark-method.md has the reasons and the limits of all this.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/bench.h"
#include "cli/commands.h"

static bool stopped(void *user) {
    (void)user;
    return cli_interrupted();
}

/* Half of the disk's probes, with the page cache out of the way by direct reads. */
static int probe(struct bench *b) {
    const struct sluice_probe_params params = {
        .lanes = (uint32_t)b->settings.io_threads,
        .direct = b->settings.direct_io,
        .seconds = b->config->bench.probe_seconds,
        .max_bytes = 16ull << 30,
        .interrupted = stopped,
    };
    struct sluice_error err;
    for (int i = 0; i < BENCH_PROBES / 2 && params.seconds > 0 && !cli_interrupted(); i++) {
        struct sluice_probe_params p = params;
        p.seed = b->n_probes + 1; /* each reads other experts, and every bench the same */
        cli_progress_seconds(&b->progress, "reading random experts", i * params.seconds);
        const int rc = sluice_probe_disk(b->gguf, &p, &b->probes[b->n_probes], &err);
        cli_progress_clear(&b->progress);
        if (rc && cli_interrupted()) {
            return 0; /* not counted */
        }
        if (rc) {
            return cli_fail(CLI_EXIT_FAILED, b->config->command, "%s", err.message);
        }
        b->n_probes++;
    }
    return 0;
}

/* A line for each run, as it ends: a long bench is watched, and the state of the machine belongs to it. */
static void log_run(const struct bench *b, const struct bench_entry *e, const struct bench_run *r) {
    if (b->config->quiet || !r->started) {
        return;
    }
    fprintf(stderr, "round %d, %s: ", r->round, e->name);
    if (r->failed) {
        fprintf(stderr, "FAILED (%s %d): %s\n", r->ended.signal ? "signal" : "exit code",
                r->ended.signal ? r->ended.signal : r->ended.code, r->message);
        return;
    }
    if (r->tokens && r->wall_s > 0) {
        fprintf(stderr, "%.2f tok/s", (double)r->tokens / r->wall_s);
    } else {
        fprintf(stderr, "no token");
    }
    fprintf(stderr, "%s; at start: load %.2f, %.1f GiB available",
            r->stopped       ? " (stopped)"
            : r->interrupted ? " (interrupted)"
                             : "",
            r->before.load, (double)r->before.available / (1 << 30));
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
        struct bench_entry *e = &b->entries[round % 2 ? b->n_entries - 1 - i : i];
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
        b->done += run->started && !run->interrupted;
        log_run(b, e, run);
    }
    return 0;
}

/* Can a process be run in a cgroup of that limit? That one may be made does not say that it may be entered. */
static bool try_cgroup(const struct bench *b, struct sluice_error *err) {
    struct bench_cgroup group;
    struct bench_ended ended;
    char name[64], program[] = "sluice", version[] = "--version";
    char *argv[] = {program, version, NULL};
    const struct bench_child child = {
        .argv = argv,
        .program = "/proc/self/exe",
        .out = "/dev/null",
        .err = "/dev/null",
        .group = &group,
        .max_s = 60,
        .interrupted = stopped,
    };
    snprintf(name, sizeof name, "sluice-bench-%ld-0", (long)getpid());
    if (bench_cgroup_create(&group, name, b->memory, "", err)) {
        return false;
    }
    const bool ran =
        bench_child_run(&child, &ended, err) == 0; /* how it ended does not matter: the limit may be tiny */
    return bench_cgroup_remove(&group) && ran;
}

/* How the limit will be kept. Found out once, before the runs. */
static void find_limit(struct bench *b) {
    struct sluice_error err = {.message = "a group could not be removed again"};
    b->cgroup = try_cgroup(b, &err);
    b->ceiling = !b->cgroup && cli_has_option(&cli_run_command, "--memory");
    if (!b->cgroup) {
        snprintf(b->no_cgroup, sizeof b->no_cgroup, "%s", err.message);
        for (size_t i = 0; i < b->n_entries; i++) {
            struct bench_entry *e = &b->entries[i];
            if (e->kind == BENCH_MMAP && !e->skipped[0]) {
                snprintf(e->skipped, sizeof e->skipped, "needs a limit that the kernel keeps: %.200s", err.message);
                b->reference = -1; /* chosen anew from what there is */
            }
        }
    }
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
    int rc = bench_plan(b);
    if (rc == 0 && b->info.expert_tensors == 0) {
        rc = cli_fail(CLI_EXIT_FAILED, c->command, "%s: has no experts: nothing would stream", c->model);
    }
    if (rc == 0 && b->memory) {
        find_limit(b);
    }
    return rc ? rc : bench_prepare(b);
}

/* Write the report where it was asked for. */
static int report(struct bench *b, FILE *json) {
    size_t n_table, n_json = 0;
    const char *command_name = b->config->command, *path = b->config->bench.json;
    int rc = bench_figures(b);
    char *table = rc ? NULL : bench_table(b, &n_table);
    char *text = rc || !path ? NULL : bench_json(b, &n_json);
    if (!rc && (!table || (path && !text))) {
        rc = cli_fail(CLI_EXIT_FAILED, command_name, "no memory for the report");
    }
    if (!rc && path && !json) { /* standard output is the object's */
        fwrite(table, 1, n_table, stderr);
        rc = cli_write(command_name, text, n_json) && cli_write(command_name, "\n", 1) ? 0 : CLI_EXIT_FAILED;
    } else if (!rc) {
        rc = cli_write(command_name, table, n_table) ? 0 : CLI_EXIT_FAILED;
        if (json && (fwrite(text, 1, n_json, json) != n_json || fputc('\n', json) == EOF || fflush(json) != 0)) {
            rc = cli_fail(CLI_EXIT_FAILED, command_name, "%s: %s", path, strerror(errno));
        }
    }
    free(table);
    free(text);
    return rc;
}

static void free_all(struct bench *b) {
    bench_clean(b);
    for (size_t i = 0; i < b->n_entries; i++) {
        for (int64_t r = 0; b->entries[i].runs && r < b->config->bench.runs; r++) {
            bench_csv_free(&b->entries[i].runs[r].csv);
            free(b->entries[i].runs[r].wall);
        }
        free(b->entries[i].runs);
    }
    free(b->entries);
    free(b->variants);
    sluice_gguf_free(b->gguf);
}

/* From the first probe to the report. */
static int measure(struct bench *b) {
    FILE *json = NULL;
    const char *path = b->config->bench.json;
    if (path && strcmp(path, "-") != 0) { /* before hours of work, not after */
        json = fopen(path, "we");
        if (!json) {
            return cli_fail(CLI_EXIT_FAILED, b->config->command, "%s: %s", path, strerror(errno));
        }
    }
    int rc = probe(b);
    b->n_probes_before = b->n_probes;
    for (int round = 0; rc == 0 && round < b->config->bench.runs && !cli_interrupted(); round++) {
        rc = run_round(b, round);
    }
    rc = rc ? rc : probe(b);
    b->interrupted = cli_interrupted();
    cli_progress_clear(&b->progress);
    if (rc == 0 || b->done) { /* what was measured before a failure is worth printing too */
        const int printed = report(b, json);
        rc = rc ? rc : printed;
    }
    if (json && fclose(json) != 0 && rc == 0) {
        rc = cli_fail(CLI_EXIT_FAILED, b->config->command, "%s: %s", path, strerror(errno));
    }
    for (size_t i = 0; rc == 0 && i < b->n_entries; i++) {
        rc = bench_entry_failed(b, &b->entries[i]) ? CLI_EXIT_FAILED : 0;
    }
    return rc;
}

static int bench_main(struct cli_config *config) {
    struct bench bench = {.config = config};
    cli_interrupt_install_all();
    cli_progress_start(&bench.progress, config->quiet);
    int rc = prepare(&bench);
    rc = rc ? rc : measure(&bench);
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
