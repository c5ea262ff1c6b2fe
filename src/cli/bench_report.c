/*
 * bench_report.c - the report: for people, what was measured on what, a row per variant, what it means; for programs,
 * everything, raw values included, in base units (bytes, seconds, tokens), so that each figure can be computed again.
 * Keys are added, never renamed.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/bench_impl.h"
#include "cli/json.h"

extern char **environ;

static const double MIB = 1024.0 * 1024.0, GIB = 1024.0 * 1024.0 * 1024.0;

static const char *const dropped_names[BENCH_DROPPED_KINDS] = {"nothing", "the model's pages",
                                                               "the machine's page cache"};

/* ---- for people ------------------------------------------------------------------------------- */

static void print_head(FILE *out, const struct bench *b) {
    const struct cli_bench *c = &b->config->bench;
    const struct bench_machine *m = &b->machine;
    int planned = 0, dropped[BENCH_DROPPED_KINDS] = {0};
    fprintf(out, "%s, %s (%s, %.2f GiB, one token needs %.1f MiB)\n", b->started, b->gguf->shards[0].path,
            b->gguf->architecture, (double)b->info.total_bytes / GIB, (double)b->info.token_bytes / MIB);
    fprintf(out, "%s, %d processors, %.1f GiB memory, %s, %s on %s\n", m->processor, sluice_cpu_count(),
            (double)m->memory / GIB, m->kernel, m->file_system[0] ? m->file_system : "unknown file system", m->disk);
    fprintf(out,
            "prompt %" PRId64 " tokens, %" PRId64 " tokens measured per run; runs of each row: %" PRId64 "; medians\n",
            c->prompt, c->gen, c->runs);
    if (b->cgroup) {
        fprintf(out, "memory limit %.2f GiB, kept by the kernel (cgroup); peaks are the kernel's\n",
                (double)b->memory / GIB);
    } else if (b->memory) {
        fprintf(out, "memory limit %.2f GiB, %s (%s); peaks are of the process alone\n", (double)b->memory / GIB,
                b->ceiling ? "kept by sluice itself, --memory" : "NOT KEPT BY ANYTHING", b->no_cgroup);
    } else {
        fprintf(out, "no memory limit; peaks are of the process alone\n");
    }
    for (size_t i = 0; i < b->n_entries; i++) { /* was it always the same? */
        const struct bench_entry *e = &b->entries[i];
        planned += e->skipped[0] ? 0 : (int)c->runs;
        for (int64_t r = 0; e->kind != BENCH_RESIDENT && r < c->runs; r++) {
            dropped[e->runs[r].dropped] += e->runs[r].end != BENCH_NOT_STARTED;
        }
    }
    fprintf(out, "dropped before each run:");
    for (int i = 0; i < BENCH_DROPPED_KINDS; i++) {
        if (dropped[i]) {
            fprintf(out, " %s (%d runs)", dropped_names[i], dropped[i]);
        }
    }
    fputc('\n', out);
    if (b->interrupted) {
        fprintf(out, "PARTIAL: interrupted after %d of %d runs\n", b->done, planned);
    }
}

/* A number in a column; "-" where there is none. */
static void print_cell(FILE *out, int width, int digits, double x) {
    if (isnan(x)) {
        fprintf(out, " %*s", width, "-");
    } else {
        fprintf(out, " %*.*f", width, digits, x);
    }
}

static void print_span(FILE *out, double from, double to) {
    char text[48] = "-";
    if (!isnan(from)) {
        snprintf(text, sizeof text, "%.2f..%.2f", from, to);
    }
    fprintf(out, " %15s", text);
}

static void print_rows(FILE *out, const struct bench *b) {
    fprintf(out, "\n%-16s %8s %15s %15s", "cache", "tok/s", "95 % interval", "slowest..fastest");
    for (int f = 0; f < BENCH_FIGURES; f++) {
        if (bench_figures[f].heading) {
            fprintf(out, " %*s", bench_figures[f].width, bench_figures[f].heading);
        }
    }
    fputc('\n', out);
    for (size_t i = 0; i < b->n_entries; i++) {
        const struct bench_entry *e = &b->entries[i];
        fprintf(out, "%-16s", e->name);
        print_cell(out, 8, 2, e->rate.mid);
        print_span(out, e->rate.low, e->rate.high);
        print_span(out, e->slowest, e->fastest);
        for (int f = 0; f < BENCH_FIGURES; f++) {
            const struct bench_figure_info *info = &bench_figures[f];
            if (info->heading) {
                print_cell(out, info->width, info->digits, e->figure[f] / info->unit);
            }
        }
        fputc('\n', out);
    }
}

static void print_ratio(FILE *out, const struct bench *b, size_t row, int to, const struct bench_interval *r,
                        bool *headed) {
    if (!isnan(r->mid)) {
        fprintf(out, "%s  %s / %s: %.2f (%.2f..%.2f)\n", *headed ? "" : "\nratios of tok/s, with 95 % interval\n",
                b->entries[row].name, b->entries[to].name, r->mid, r->low, r->high);
        *headed = true;
    }
}

static void print_bound(FILE *out, const struct bench *b) {
    if (b->n_probes) {
        fprintf(out,
                "disk, random experts of this model, %" PRIu32 " lanes, %s: before:", (uint32_t)b->settings.io_threads,
                b->probes[0].direct ? "direct" : "buffered");
        for (size_t i = 0; i < b->n_probes; i++) {
            const char *before = i == 0 ? "" : i == b->n_probes_before ? " | after:" : ",";
            fprintf(out, "%s %.0f", before, b->probes[i].per_second / MIB);
        }
        fprintf(out, " MiB/s; median %.0f\n", b->disk / MIB);
    }
    if (b->compute_steps) {
        fprintf(out, "computing alone: %.4f s per token, from %zu tokens of %s\n", b->compute_s, b->compute_steps,
                b->compute == BENCH_RESIDENT ? "the resident baseline" : "'all' that missed nothing");
    } else if (b->n_probes) {
        fprintf(out, "computing alone: not measured (no --baseline resident, and too few tokens of 'all' without "
                     "a miss);\nthe bound is the disk's alone, so the share is too low where the processor limits\n");
    }
}

/* What was not as planned. */
static void print_remarks(FILE *out, const struct bench *b) {
    char text[640];
    for (size_t i = 0; i < b->n_entries; i++) {
        const struct bench_entry *e = &b->entries[i];
        if (e->skipped[0]) {
            fprintf(out, "%s: left out: %s\n", e->name, e->skipped);
        }
        if (e->figure[BENCH_SHARE] > 1) {
            fprintf(out, "%s: over its bound: the runs met a faster disk or processor than the probes did\n", e->name);
        }
        for (int64_t r = 0; r < b->config->bench.runs; r++) {
            if (bench_remark(b, &e->runs[r], text, sizeof text)) {
                fprintf(out, "%s, round %d: %s\n", e->name, e->runs[r].round, text);
            }
        }
    }
}

void bench_table(const struct bench *b, FILE *out) {
    bool headed = false;
    print_head(out, b);
    print_rows(out, b);
    for (size_t i = 0; i < b->n_entries; i++) {
        const struct bench_entry *e = &b->entries[i];
        print_ratio(out, b, i, b->reference, &e->ratio, &headed);
        if (e->plain != b->reference) {
            print_ratio(out, b, i, e->plain, &e->plain_ratio, &headed);
        }
    }
    fputc('\n', out);
    print_bound(out, b);
    print_remarks(out, b);
    fprintf(out, "What the columns mean, and what not to conclude: docs/benchmark-method.md\n");
}

/* ---- for programs: every function returns NULL without memory --------------------------------- */

/* A number; null for none, which JSON has no number for. */
static json_t *real(double x) {
    return isfinite(x) ? json_real(x) : json_null();
}

/* A count, or a number; what exceeds an integer cannot have been measured. */
static json_t *number(bool count, double x) {
    return count ? json_integer(x < 9e18 ? (json_int_t)x : INT64_MAX) : real(x);
}

/* Text that may be "", which then is null. */
static json_t *some(const char *text) {
    return cli_json_text(text[0] ? text : NULL);
}

static json_t *interval_json(const struct bench_interval *v) {
    return json_pack("{s:o, s:o, s:o}", "median", real(v->mid), "low", real(v->low), "high", real(v->high));
}

/* In struct bench_state, what is below 0, and no clock, is not known. */
static json_t *state_json(const struct bench_state *s) {
    return json_pack("{s:o, s:o, s:o, s:I}", "load_average", real(s->load >= 0 ? s->load : NAN), "mhz",
                     real(s->mhz > 0 ? s->mhz : NAN), "steal_seconds", real(s->steal_s >= 0 ? s->steal_s : NAN),
                     "available_bytes", (json_int_t)s->available);
}

/* The generated tokens of a run, column by column. */
static json_t *steps_json(const struct bench_csv *c) {
    json_t *o = json_object();
    bool ok = o != NULL;
    for (int v = 0; ok && v < BENCH_VALUES; v++) {
        json_t *list = bench_values[v].each ? json_array() : NULL;
        for (size_t i = 0; list && i < c->n; i++) {
            ok = json_array_append_new(list, number(bench_values[v].count, c->token[v][i])) == 0 && ok;
        }
        ok = (!bench_values[v].each || cli_json_put(o, bench_values[v].key, list)) && ok;
    }
    return cli_json_whole(o, ok);
}

static json_t *run_json(const struct bench_run *r) {
    static const char *const ends[] = {"not started", "complete", "stopped", "interrupted", "failed"};
    json_t *o = json_pack("{s:s, s:i, s:i, s:f, s:o, s:o, s:o, s:o, s:s, s:b, s:o, s:o, s:I, s:s, s:I}", "state",
                          ends[r->end], "round", r->round, "order", r->order, "seconds", r->seconds, "exit_code",
                          r->signal ? json_null() : json_integer(r->code), "signal",
                          r->signal ? json_integer(r->signal) : json_null(), "message",
                          cli_json_text(r->end == BENCH_FAILED ? r->message : NULL), "mode", cli_json_text(r->mode),
                          "dropped", dropped_names[r->dropped], "warmed", r->warmed, "before", state_json(&r->before),
                          "after", state_json(&r->after), "peak_bytes", (json_int_t)r->peak, "peak_of",
                          r->peak_of_cgroup ? "cgroup" : "process", "kills", (json_int_t)r->kills);
    bool ok = o != NULL;
    for (int v = 0; ok && v < BENCH_VALUES; v++) {
        const double x = v == BENCH_RATE && r->csv.n == 0 ? NAN : r->csv.total[v];
        ok = !bench_values[v].key || cli_json_put(o, bench_values[v].key, number(bench_values[v].count, x));
    }
    return cli_json_whole(o, ok && cli_json_put(o, "steps", steps_json(&r->csv)));
}

static json_t *entry_json(const struct bench *b, const struct bench_entry *e) {
    static const char *const kinds[] = {"stream", "resident", "mmap"};
    json_t *options = json_array(), *runs = json_array();
    bool ok = options && runs;
    for (int i = 0; ok && e->variant && i < e->variant->n_words; i++) {
        ok = json_array_append_new(options, cli_json_text(e->variant->words[i])) == 0;
    }
    for (int64_t i = 0; ok && i < b->config->bench.runs; i++) {
        ok = !e->runs[i].order || json_array_append_new(runs, run_json(&e->runs[i])) == 0;
    }
    json_t *o = json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", cli_json_text(e->name), "kind",
                          kinds[e->kind], "budget", some(e->budget), "options", options, "skipped", some(e->skipped),
                          "tokens_per_second", interval_json(&e->rate), "slowest_run", real(e->slowest), "fastest_run",
                          real(e->fastest), "ratio", interval_json(&e->ratio), "ratio_to_plain",
                          interval_json(&e->plain_ratio));
    for (int f = 0; f < BENCH_FIGURES; f++) {
        const double x = bench_figures[f].count && isnan(e->figure[f]) ? 0 : e->figure[f];
        ok = cli_json_put(o, bench_figures[f].key, number(bench_figures[f].count, x)) && ok;
    }
    return cli_json_whole(o, cli_json_put(o, "runs", runs) && ok);
}

/* What of the environment reaches the runs. */
static json_t *environment_json(void) {
    json_t *o = json_object();
    bool ok = o != NULL;
    for (char **p = environ; ok && *p; p++) {
        char name[64];
        const size_t n = strcspn(*p, "=");
        if ((*p)[n] && n < sizeof name && (strncmp(*p, "SLUICE_", 7) == 0 || strncmp(*p, "OMP_", 4) == 0)) {
            snprintf(name, sizeof name, "%.*s", (int)n, *p);
            ok = cli_json_put(o, name, cli_json_text(*p + n + 1));
        }
    }
    return cli_json_whole(o, ok);
}

static json_t *settings_json(const struct bench *b) {
    const struct cli_config *c = b->config;
    const char *kept_by = !b->memory ? NULL : b->cgroup ? "cgroup" : b->ceiling ? "sluice" : "nothing";
    return json_pack(
        "{s:o, s:o, s:o, s:I, s:o, s:I, s:I, s:I, s:I, s:f, s:f, s:s?, s:o, s:s?, s:o, s:o}", "model",
        cli_json_text(c->model), "budgets", cli_json_text(c->bench.budgets), "baselines",
        cli_json_text(c->bench.baselines), "prompt_tokens", (json_int_t)c->bench.prompt, "prompt_file",
        cli_json_text(c->prompt_file), "tokens", (json_int_t)c->bench.gen, "runs", (json_int_t)c->bench.runs, "threads",
        (json_int_t)(c->n_threads ? c->n_threads : sluice_cpu_count()), "lanes", (json_int_t)b->settings.io_threads,
        "max_seconds", c->bench.max_seconds, "probe_seconds", c->bench.probe_seconds, "drop_caches", c->bench.drop,
        "memory_limit_bytes", b->memory ? json_integer((json_int_t)b->memory) : json_null(), "memory_limit_kept_by",
        kept_by, "no_cgroup_because", some(b->no_cgroup), "environment", environment_json());
}

static json_t *bound_json(const struct bench *b) {
    json_t *probes = json_array();
    bool ok = probes != NULL;
    for (size_t i = 0; ok && i < b->n_probes; i++) {
        const struct sluice_probe *p = &b->probes[i];
        ok =
            json_array_append_new(
                probes, json_pack("{s:s, s:I, s:I, s:f, s:f, s:b}", "when", i < b->n_probes_before ? "before" : "after",
                                  "bytes", (json_int_t)p->bytes, "slices", (json_int_t)p->slices, "seconds", p->seconds,
                                  "bytes_per_second", p->per_second, "direct", p->direct)) == 0;
    }
    const char *from = !b->compute_steps              ? "unknown"
                       : b->compute == BENCH_RESIDENT ? "resident baseline"
                                                      : "tokens of 'all' without a miss";
    return json_pack("{s:o, s:o, s:o, s:s, s:I}", "bytes_per_second", real(b->disk), "probes",
                     cli_json_whole(probes, ok), "compute_seconds_per_token",
                     real(b->compute_steps ? b->compute_s : NAN), "compute_from", from, "compute_tokens",
                     (json_int_t)b->compute_steps);
}

bool bench_json(const struct bench *b, FILE *out) {
    const struct bench_machine *m = &b->machine;
    json_t *machine =
        json_pack("{s:o, s:i, s:I, s:o, s:o, s:o}", "processor", cli_json_text(m->processor), "processors",
                  sluice_cpu_count(), "memory_bytes", (json_int_t)m->memory, "kernel", cli_json_text(m->kernel), "disk",
                  cli_json_text(m->disk), "file_system", cli_json_text(m->file_system));
    json_t *model = json_pack("{s:o, s:o, s:I, s:I, s:I, s:I}", "architecture", cli_json_text(b->gguf->architecture),
                              "name", cli_json_text(b->gguf->name), "bank_bytes", (json_int_t)b->info.expert_bytes,
                              "dense_bytes", (json_int_t)b->info.dense_bytes, "token_demand_bytes",
                              (json_int_t)b->info.token_bytes, "layer_demand_bytes", (json_int_t)b->info.layer_bytes);
    json_t *variants = json_array();
    bool ok = variants != NULL;
    for (size_t i = 0; ok && i < b->n_entries; i++) {
        ok = json_array_append_new(variants, entry_json(b, &b->entries[i])) == 0;
    }
    json_t *o = json_pack(
        "{s:i, s:s, s:s, s:s, s:b, s:o, s:o, s:o, s:o, s:o, s:o}", "sluice_bench", 1, "sluice", sluice_version(),
        "llama_cpp", SLUICE_LLAMA_VERSION, "started", b->started, "complete", !b->interrupted, "settings",
        settings_json(b), "machine", machine, "model", model, "bound", bound_json(b), "reference",
        cli_json_text(b->reference >= 0 ? b->entries[b->reference].name : NULL), "variants", variants);
    ok = ok && o && json_dumpf(o, out, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) == 0 && fputc('\n', out) != EOF;
    json_decref(o);
    return ok && fflush(out) == 0;
}
