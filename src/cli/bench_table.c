/*
 * bench_table.c - the report for people: what was measured on what, a row per variant, what it means.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"

static const double MIB = 1024.0 * 1024.0, GIB = 1024.0 * 1024.0 * 1024.0;

/* A number in a column; "-" where there is none. */
static void cell(FILE *out, int width, int digits, double x) {
    if (isnan(x)) {
        fprintf(out, " %*s", width, "-");
    } else {
        fprintf(out, " %*.*f", width, digits, x);
    }
}

static void print_head(FILE *out, const struct bench *b) {
    const struct cli_bench *c = &b->config->bench;
    const struct bench_machine *m = &b->machine;
    fprintf(out, "%s, %s (%s, %.2f GiB, one token needs %.1f MiB)\n", b->started, b->gguf->shards[0].path,
            b->gguf->architecture, (double)b->info.total_bytes / GIB, (double)b->info.token_bytes / MIB);
    fprintf(out, "%s, %d processors, %.1f GiB memory, %s, %s on %s\n", m->processor, sluice_cpu_count(),
            (double)m->memory / GIB, m->kernel, m->file_system[0] ? m->file_system : "unknown file system", m->disk);
    fprintf(out,
            "prompt %" PRId64 " tokens, %" PRId64 " tokens measured per run; runs of each row: %" PRId64 "; medians\n",
            c->prompt, c->gen, c->runs);
    if (b->memory && b->cgroup) {
        fprintf(out, "memory limit %.2f GiB, kept by the kernel (cgroup); peaks are the kernel's\n",
                (double)b->memory / GIB);
    } else if (b->memory) {
        fprintf(out, "memory limit %.2f GiB, %s (%s); peaks are of the process alone\n", (double)b->memory / GIB,
                b->ceiling ? "kept by sluice itself, --memory" : "NOT KEPT BY ANYTHING", b->no_cgroup);
    } else {
        fprintf(out, "no memory limit; peaks are of the process alone\n");
    }
}

/* What was dropped before the runs that stream, and whether it was always the same. */
static void print_cold(FILE *out, const struct bench *b) {
    int how[3] = {0};
    for (size_t i = 0; i < b->n_entries; i++) {
        for (int64_t r = 0; b->entries[i].kind != BENCH_RESIDENT && r < b->config->bench.runs; r++) {
            how[b->entries[i].runs[r].dropped] += b->entries[i].runs[r].started;
        }
    }
    fprintf(out, "dropped before each run:");
    for (int i = 0; i < 3; i++) {
        if (how[i]) {
            fprintf(out, " %s (%d runs)", bench_dropped_name((enum bench_dropped)i), how[i]);
        }
    }
    fprintf(out, "\n");
}

static void print_row(FILE *out, const struct bench_entry *e) {
    fprintf(out, "%-16s", e->name);
    cell(out, 8, 2, e->rate.mid);
    if (isnan(e->rate.mid)) {
        fprintf(out, " %15s %15s", "-", "-");
    } else {
        char text[2][48];
        snprintf(text[0], sizeof text[0], "%.2f..%.2f", e->rate.low, e->rate.high);
        snprintf(text[1], sizeof text[1], "%.2f..%.2f", e->rate_least, e->rate_most);
        fprintf(out, " %15s %15s", text[0], text[1]);
    }
    cell(out, 9, 1, e->token_bytes / MIB);
    cell(out, 6, 1, 100 * e->hit_share);
    cell(out, 6, 1, 100 * e->stall_share);
    cell(out, 7, 2, e->load_s);
    cell(out, 8, 2, e->first_token_s);
    cell(out, 8, 0, e->peak ? (double)e->peak / MIB : NAN);
    cell(out, 8, 2, e->bound);
    cell(out, 7, 0, 100 * e->share);
    fputc('\n', out);
}

static void print_ratio(FILE *out, const char *name, const char *to, const struct bench_interval *r) {
    if (!isnan(r->mid)) {
        fprintf(out, "  %s / %s: %.2f (%.2f..%.2f)\n", name, to, r->mid, r->low, r->high);
    }
}

static void print_ratios(FILE *out, const struct bench *b) {
    bool heading = false;
    for (size_t i = 0; i < b->n_entries; i++) {
        const struct bench_entry *e = &b->entries[i];
        if (!heading && (!isnan(e->ratio.mid) || !isnan(e->plain_ratio.mid))) {
            fprintf(out, "\nratios of tok/s, with 95 %% interval\n");
            heading = true;
        }
        if (b->reference >= 0) {
            print_ratio(out, e->name, b->entries[b->reference].name, &e->ratio);
        }
        if (e->plain >= 0 && e->plain != b->reference) {
            print_ratio(out, e->name, b->entries[e->plain].name, &e->plain_ratio);
        }
    }
}

/* How each run that was not as planned ended. */
static void print_remarks(FILE *out, const struct bench *b) {
    for (size_t i = 0; i < b->n_entries; i++) {
        const struct bench_entry *e = &b->entries[i];
        if (e->skipped[0]) {
            fprintf(out, "%s: left out: %s\n", e->name, e->skipped);
        }
        if (e->share > 1) {
            fprintf(out, "%s: over its bound: the runs met a faster disk or processor than the probes did\n", e->name);
        }
        for (int64_t r = 0; r < b->config->bench.runs; r++) {
            const struct bench_run *run = &e->runs[r];
            if (run->failed && run->ended.signal) {
                fprintf(out, "%s, round %d: FAILED, signal %d: %s\n", e->name, run->round, run->ended.signal,
                        run->message);
            } else if (run->failed) {
                fprintf(out, "%s, round %d: FAILED, exit code %d: %s\n", e->name, run->round, run->ended.code,
                        run->message);
            } else if (run->stopped) {
                fprintf(out, "%s, round %d: stopped after %zu tokens in %.0f s%s\n", e->name, run->round, run->tokens,
                        run->ended.seconds, run->tokens ? "" : " (the prompt was not done)");
            } else if (run->interrupted) {
                fprintf(out, "%s, round %d: broken off by the user, not counted\n", e->name, run->round);
            } else if (run->started && run->prompt_tokens != (uint64_t)b->config->bench.prompt) {
                fprintf(out, "%s, round %d: the prompt has only %" PRIu64 " tokens\n", e->name, run->round,
                        run->prompt_tokens);
            }
        }
    }
}

static void print_bound(FILE *out, const struct bench *b) {
    if (b->n_probes) {
        fprintf(out, "disk, random experts of this model, %" PRIu32 " lanes, %s:", (uint32_t)b->settings.io_threads,
                b->probes[0].direct ? "direct" : "buffered");
        for (size_t i = 0; i < b->n_probes; i++) {
            fprintf(out, "%s %.0f",
                    i == b->n_probes_before ? " | after:"
                    : i                     ? ","
                                            : " before:",
                    b->probes[i].per_second / MIB);
        }
        fprintf(out, " MiB/s; median %.0f\n", b->disk / MIB);
    }
    switch (b->compute) {
    case BENCH_COMPUTE_RESIDENT:
        fprintf(out, "computing alone: %.4f s per token, from %zu tokens of the resident baseline\n", b->compute_s,
                b->compute_steps);
        break;
    case BENCH_COMPUTE_ALL:
        fprintf(out, "computing alone: %.4f s per token, from %zu tokens of 'all' that missed nothing\n", b->compute_s,
                b->compute_steps);
        break;
    case BENCH_COMPUTE_UNKNOWN:
        if (b->n_probes) {
            fprintf(out,
                    "computing alone: not measured (no --baseline resident, and too few tokens of 'all' without "
                    "a miss);\nthe bound is the disk's alone, so the share is too low where the processor limits\n");
        }
        break;
    }
}

static void print_page(FILE *out, const struct bench *b) {
    print_head(out, b);
    print_cold(out, b);
    if (b->interrupted) {
        int planned = 0;
        for (size_t i = 0; i < b->n_entries; i++) {
            planned += b->entries[i].skipped[0] ? 0 : (int)b->config->bench.runs;
        }
        fprintf(out, "PARTIAL: interrupted after %d of %d runs\n", b->done, planned);
    }
    fprintf(out, "\n%-16s %8s %15s %15s %9s %6s %6s %7s %8s %8s %8s %7s\n", "cache", "tok/s", "95 % interval",
            "slowest..fastest", "MiB/token", "hit %", "wait %", "load s", "first s", "peak MiB", "bound", "share %");
    for (size_t i = 0; i < b->n_entries; i++) {
        print_row(out, &b->entries[i]);
    }
    print_ratios(out, b);
    fputc('\n', out);
    print_bound(out, b);
    print_remarks(out, b);
    fprintf(out, "What the columns mean, and what not to conclude: docs/benchmark-method.md\n");
}

char *bench_table(const struct bench *b, size_t *n) {
    char *page = NULL;
    *n = 0;
    FILE *out = open_memstream(&page, n);
    if (!out) {
        return NULL;
    }
    print_page(out, b);
    if (ferror(out) | (fclose(out) != 0)) {
        free(page);
        return NULL;
    }
    return page;
}
