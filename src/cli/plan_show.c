/*
 * plan_show.c - what `sluice plan` says: its facts, and both ways to print them.
 *
 * One table for people and for JSON, so that neither can say more than the other. Each number has its source in one of
 * four words: measured, on this machine just now; derived, by arithmetic from the model's header or by llama.cpp's own
 * from it; assumed, because it has to be something and nobody said what; and unknown, with the reason.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/json.h"
#include "cli/plan.h"
#include "observe/counters.h"

enum { FACTS_MAX = 32 /* rows of the table of facts */ };

/* Where a number comes from. */
enum outlook_source { PLAN_NOT_KNOWN, PLAN_MEASURED, PLAN_DERIVED, PLAN_ASSUMED };

/* A row of the table. */
struct outlook_fact {
    const char *key;            /* in JSON */
    const char *label;          /* for people */
    const char *unit;           /* "bytes", "tokens", "seconds", ...; "" for a bare count */
    double value;               /* nothing, with PLAN_NOT_KNOWN */
    enum outlook_source source; /* see above */
    const char *how;            /* in what way, or why it is not known; points into struct outlook or is static */
};

/* "measured" */
static const char *source_name(enum outlook_source s) {
    static const char *const names[] = {
        [PLAN_NOT_KNOWN] = "unknown",
        [PLAN_MEASURED] = "measured",
        [PLAN_DERIVED] = "derived",
        [PLAN_ASSUMED] = "assumed",
    };
    return names[s];
}

/* "streaming"; NULL: it is not known. */
static const char *mode_name(enum outlook_mode m) {
    static const char *const names[] = {
        [PLAN_UNKNOWN] = NULL, [PLAN_RESIDENT] = "resident", [PLAN_STREAMING] = "streaming", [PLAN_NONE] = "none"};
    return names[m];
}

/* The table while it is filled. */
struct table {
    struct outlook_fact *f; /* rows */
    size_t n;               /* of them */
};

static void add(struct table *t, const char *key, const char *label, const char *unit, enum outlook_source source,
                double value, const char *how) {
    if (t->n < FACTS_MAX) {
        t->f[t->n++] = (struct outlook_fact){
            .key = key, .label = label, .unit = unit, .value = value, .source = source, .how = how};
    }
}

/* A number that is there if `known`, else unknown for the reason `why`. */
static void add_if(struct table *t, bool known, const char *key, const char *label, const char *unit,
                   enum outlook_source source, double value, const char *how, const char *why) {
    add(t, key, label, unit, known ? source : PLAN_NOT_KNOWN, known ? value : 0, known ? how : why);
}

static void add_model(struct table *t, const struct outlook *p) {
    const struct sluice_info *i = &p->info;
    const char *header = "from the header";
    add(t, "layers", "layers", "", PLAN_DERIVED, (double)i->layers, header);
    add(t, "moe_layers", "with experts", "", PLAN_DERIVED, (double)i->moe_layers, header);
    add(t, "experts", "experts in each", "", PLAN_DERIVED, (double)i->experts, header);
    const bool routed = i->expert_tensors && i->top_k_max;
    const char *why = i->expert_tensors ? "the header does not say how many experts a token uses" : "it has no experts";
    add_if(t, routed, "top_k", "used by a token", "", PLAN_DERIVED, (double)i->top_k_max, header, why);
    add(t, "expert_weights", "expert weights", "bytes", PLAN_DERIVED, (double)i->expert_bytes, header);
    add(t, "dense_weights", "other weights", "bytes", PLAN_DERIVED, (double)i->dense_bytes,
        "from the header; always in memory");
    add_if(t, routed, "expert_bytes_per_token", "experts of a token", "bytes", PLAN_DERIVED, (double)i->token_bytes,
           "layers x top-k x slices", why);
    add(t, "file_present", "of the files, there", "bytes", PLAN_MEASURED, (double)p->present_bytes,
        p->present_bytes < p->whole_bytes ? "the download is not complete" : "all of them");
}

static void add_memory(struct table *t, const struct outlook *p) {
    const bool dry = !p->dry_why[0];
    const char *lost = dry ? "llama.cpp did not say" : p->dry_why;
    const bool asked = p->config->n_prompt != 0;
    add(t, "prompt", "planned for a prompt of", "tokens", PLAN_ASSUMED, (double)p->tokens,
        asked ? "as given" : "nothing else was said (--prompt-tokens)");
    add_if(t, dry, "context", "context", "tokens", PLAN_ASSUMED, p->dry.n_ctx,
           "as given, or the default of run (--ctx)", p->dry_why);
    add_if(t, dry, "micro_batch", "micro-batch", "tokens", PLAN_DERIVED, p->dry.n_ubatch, "what run chooses for that",
           p->dry_why);
    add_if(t, dry && p->dry.kv_known, "kv_cache", "KV cache", "bytes", PLAN_DERIVED, (double)p->dry.kv_bytes,
           "llama.cpp's arithmetic, nothing allocated", lost);
    add_if(t, dry && p->dry.compute_known, "compute_buffers", "compute buffers", "bytes", PLAN_DERIVED,
           (double)p->dry.compute_bytes, "llama.cpp's arithmetic, nothing allocated", lost);
    const bool has = p->has_memory;
    const double kv = p->dry.kv_known ? (double)p->dry.kv_bytes : 0;
    add_if(t, has, "program", "program and vocabulary", "bytes", PLAN_MEASURED,
           (double)p->memory.process_bytes + (double)p->memory.files_bytes - kv,
           "this process, which has just what a run has", lost);
    add_if(t, has, "cache", "expert cache", "bytes", PLAN_DERIVED, (double)p->memory.cache_bytes,
           "what run takes by itself", lost);
    add_if(t, has, "memory_needed", "all memory of the process", "bytes", PLAN_DERIVED, (double)p->memory.total_bytes,
           "the memory plan that run makes", lost);
    add_if(t, has, "memory_peak", "touched in the end", "bytes", PLAN_DERIVED, (double)outlook_peak(p, &p->memory),
           "when the cache is full", lost);
    add_if(t, has && p->memory.limit_bytes, "memory_limit", "memory it may use", "bytes",
           p->memory.limit_by_setting ? PLAN_ASSUMED : PLAN_MEASURED, (double)p->memory.limit_bytes,
           p->memory.limit_by_setting ? "as given (--memory)" : "what machine and cgroup leave",
           has ? "the kernel does not say" : lost);
}

static void add_speed(struct table *t, const struct outlook *p) {
    const bool computed = !p->speed_why[0];
    const bool read = p->input.disk.mid > 0;
    add_if(t, read, "disk", "disk, as run reads", "bytes/s", PLAN_MEASURED, p->input.disk.mid,
           "direct reads of this file's experts", p->disk_why);
    add_if(t, computed, "token_compute", "computing a token", "seconds", PLAN_MEASURED, p->speed.token_s,
           "a made-up token of this model's matmuls", p->speed_why);
    add_if(t, computed, "computation_start", "starting a computation", "seconds", PLAN_MEASURED, p->speed.graph_s,
           "a graph of one small operation", p->speed_why);
    add_if(t, computed, "resident_tokens_per_second", "all in memory", "tokens/s", PLAN_DERIVED,
           p->resident.tokens_per_s.mid, "from it; attention over a long context is left out", p->speed_why);
}

/*
 * The memory plan is a promise: it counts every byte that was allocated, whoever may touch it, and an allowance for
 * tables. The kernel counts pages that were touched: those of the program, the KV cache, weights, slots, and the
 * compute buffers of a prompt, which fill the micro-batch that was chosen for it.
 */
uint64_t outlook_peak(const struct outlook *p, const struct sluice_plan *memory) {
    return memory->process_bytes + memory->files_bytes + memory->dense_bytes + memory->cache_bytes +
           p->dry.compute_bytes;
}

/* The table of facts. Returns how many were written to f[FACTS_MAX]. */
static size_t list_facts(const struct outlook *p, struct outlook_fact *f) {
    struct table t = {.f = f};
    add_model(&t, p);
    add_memory(&t, p);
    add_speed(&t, p);
    return t.n;
}

/* ---- for people ------------------------------------------------------------------------------- */

static const double MIB = 1024 * 1024;

/* "17.28 GiB", "45.0 MiB", "1.31 GiB/s", "0.166 s", "4096 tokens" */
static void value_text(const struct outlook_fact *f, char *buf, size_t cap) {
    const double x = f->value;
    if (f->source == PLAN_NOT_KNOWN) {
        snprintf(buf, cap, "-");
    } else if (strcmp(f->unit, "bytes") == 0) {
        snprintf(buf, cap, x >= 1024 * MIB ? "%.2f GiB" : "%.1f MiB", x >= 1024 * MIB ? x / 1024 / MIB : x / MIB);
    } else if (strcmp(f->unit, "bytes/s") == 0) {
        snprintf(buf, cap, "%.0f MiB/s", x / MIB);
    } else if (strcmp(f->unit, "seconds") == 0) {
        snprintf(buf, cap, x < 0.01 ? "%.3f ms" : "%.1f ms", x * 1000);
    } else if (strcmp(f->unit, "tokens/s") == 0) {
        snprintf(buf, cap, x < 100 ? "%.2f tok/s" : "%.0f tok/s", x);
    } else {
        snprintf(buf, cap, "%.0f%s%s", x, f->unit[0] ? " " : "", f->unit);
    }
}

static void print_facts(const struct outlook *p, FILE *out) {
    struct outlook_fact f[FACTS_MAX];
    const size_t n = list_facts(p, f);
    for (size_t i = 0; i < n; i++) {
        char value[64];
        value_text(&f[i], value, sizeof value);
        fprintf(out, "  %-25s%14s  %-10s%s\n", f[i].label, value, source_name(f[i].source), f[i].how);
    }
}

static void print_disk(const struct outlook *p, FILE *out) {
    fprintf(out, "\nDisk, random experts of this file, measured:\n");
    if (p->n_disk == 0) {
        fprintf(out, "  unknown: %s\n", p->disk_why);
        return;
    }
    fprintf(out, "  %-18s%10s%20s\n", "reads in flight", "MiB/s", "slowest..fastest");
    for (size_t i = 0; i < p->n_disk; i++) {
        const struct outlook_disk *l = &p->disk[i];
        char span[48];
        snprintf(span, sizeof span, "%.0f..%.0f", l->rate[0] / MIB, l->rate[l->n - 1] / MIB);
        fprintf(out, "  %-18" PRIu32 "%10.0f%20s%s\n", l->threads, l->rate[l->n / 2] / MIB, span,
                l->threads == (uint32_t)p->settings.io_threads ? "  as run reads" : "");
    }
}

static bool is_known(const struct predict_range *r) {
    return r->low >= 0 && r->mid >= 0 && r->high >= 0;
}

/* "3.48 (2.1..4.4)"; "unknown" */
static void range_text(const struct predict_range *r, double unit, const char *format, char *buf, size_t cap) {
    char low[24], mid[24], high[24];
    if (!is_known(r)) {
        snprintf(buf, cap, "unknown");
        return;
    }
    snprintf(low, sizeof low, format, fmin(r->low, r->high) / unit);
    snprintf(mid, sizeof mid, format, r->mid / unit);
    snprintf(high, sizeof high, format, fmax(r->low, r->high) / unit);
    snprintf(buf, cap, "%s (%s..%s)", mid, low, high);
}

static const char *speed_format(const struct predict_range *r) {
    return r->mid < 100 ? "%.2f" : "%.0f";
}

static const char *bytes_format(const struct predict_range *r) {
    return r->mid < 100 * MIB ? "%.2f" : "%.0f";
}

static void print_rows(const struct outlook *p, FILE *out) {
    char speed[96], bytes[96], cache[32], total[32];
    if (p->n_rows == 0 && p->resident.tokens_per_s.mid < 0) {
        return;
    }
    fprintf(out, "\nGeneration to expect, derived (in brackets: no locality and a slow disk, to much of both):\n");
    fprintf(out, "  %-12s%10s%12s%28s%26s\n", "cache", "MiB", "memory MiB", "tokens per second", "MiB read per token");
    for (size_t i = 0; i < p->n_rows; i++) {
        const struct outlook_row *r = &p->rows[i];
        range_text(&r->speed.tokens_per_s, 1, speed_format(&r->speed.tokens_per_s), speed, sizeof speed);
        range_text(&r->speed.read_bytes, MIB, bytes_format(&r->speed.read_bytes), bytes, sizeof bytes);
        snprintf(cache, sizeof cache, r->cache_bytes < 100 * 1024 * 1024 ? "%.1f" : "%.0f",
                 (double)r->cache_bytes / MIB);
        snprintf(total, sizeof total, "%.0f", (double)r->total_bytes / MIB);
        fprintf(out, "  %-12s%10s%12s%28s%26s%s\n", r->name, cache, r->total_bytes ? total : "-", speed, bytes,
                r->fits ? "" : "  does not fit");
    }
    range_text(&p->resident.tokens_per_s, 1, speed_format(&p->resident.tokens_per_s), speed, sizeof speed);
    snprintf(total, sizeof total, "%.0f", (double)p->resident_bytes / MIB);
    fprintf(out, "  %-12s%10s%12s%28s%26s%s\n", "--resident", "-", p->resident_bytes ? total : "-", speed, "-",
            p->resident_bytes && !p->resident_fits ? "  does not fit" : "");
}

static void print_page(FILE *out, const void *what) {
    const struct outlook *p = what;
    const char *mode = mode_name(p->mode);
    fprintf(out, "%s\n%s: %s\n\n", p->gguf->shards[0].path, mode ? mode : "unknown", p->mode_why);
    print_facts(p, out);
    print_disk(p, out);
    print_rows(p, out);
    if (p->command[0]) {
        fprintf(out, "\n%s%s\n  %s\n", p->smaller_ctx ? "It fits with a smaller context" : "Recommended",
                p->present_bytes < p->whole_bytes ? ", when the download is complete:" : ":", p->command);
    }
    if (p->mode == PLAN_RESIDENT && p->info.expert_tensors && p->command[0]) {
        fprintf(out, "  (each expert is read when it is first used; with --resident all are read at the start)\n");
    }
}

/* ---- for programs: what is not known is null, with the reason beside it; bytes and counts are integers ------- */

/* A text, or null for "". */
static json_t *text_or_null(const char *text) {
    return text[0] ? cli_json_text(text) : json_null();
}

static json_t *fact_json(const struct outlook_fact *f) {
    const bool known = f->source != PLAN_NOT_KNOWN;
    const bool whole = !f->unit[0] || strcmp(f->unit, "bytes") == 0 || strcmp(f->unit, "tokens") == 0;
    return json_pack("{s:o, s:s, s:s, s:o}", "value",
                     !known  ? json_null()
                     : whole ? json_integer((json_int_t)f->value)
                             : json_real(f->value),
                     "unit", f->unit, "source", source_name(f->source), known ? "how" : "reason",
                     cli_json_text(f->how));
}

static json_t *facts_json(const struct outlook *p) {
    struct outlook_fact f[FACTS_MAX];
    const size_t n = list_facts(p, f);
    json_t *o = json_object();
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        ok = cli_json_put(o, f[i].key, fact_json(&f[i]));
    }
    return cli_json_whole(o, ok);
}

/* low is the smaller number, whichever is worse. */
static json_t *range_json(const struct predict_range *r) {
    return is_known(r) ? json_pack("{s:f, s:f, s:f}", "low", fmin(r->low, r->high), "mid", r->mid, "high",
                                   fmax(r->low, r->high))
                       : json_null();
}

static json_t *disk_json(const struct outlook *p) {
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < p->n_disk; i++) {
        const struct outlook_disk *l = &p->disk[i];
        const struct predict_range r = {.low = l->rate[0], .mid = l->rate[l->n / 2], .high = l->rate[l->n - 1]};
        ok = json_array_append_new(list, json_pack("{s:I, s:o, s:s}", "lanes", (json_int_t)l->threads,
                                                   "bytes_per_second", range_json(&r), "source", "measured")) == 0;
    }
    return cli_json_whole(list, ok);
}

/* Why a prediction is null; null when it is not. */
static json_t *why_unknown(const struct outlook *p, const struct predict_row *r) {
    if (r->tokens_per_s.mid >= 0) {
        return json_null();
    }
    return text_or_null(p->speed_why[0]  ? p->speed_why
                        : p->disk_why[0] ? p->disk_why
                                         : "it is not known how many bytes a token reads");
}

static json_t *row_json(const struct outlook *p, const struct outlook_row *r) {
    return json_pack("{s:s, s:b, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:o}", "name", r->name, "auto", r->is_auto,
                     "cache_bytes", r->cache_bytes, "memory_bytes", cli_json_known(r->total_bytes), "peak_bytes",
                     cli_json_known(r->peak_bytes), "fits", p->has_memory ? json_boolean(r->fits) : json_null(),
                     "why_not", text_or_null(r->why_not), "tokens_per_second", range_json(&r->speed.tokens_per_s),
                     "read_bytes_per_token", range_json(&r->speed.read_bytes), "source", "derived", "reason",
                     why_unknown(p, &r->speed));
}

static json_t *rows_json(const struct outlook *p) {
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < p->n_rows; i++) {
        ok = json_array_append_new(list, row_json(p, &p->rows[i])) == 0;
    }
    return cli_json_whole(list, ok);
}

static json_t *outlook_json(const struct outlook *p) {
    json_t *resident =
        json_pack("{s:o, s:o, s:o, s:s, s:o}", "memory_bytes", cli_json_known(p->resident_bytes), "fits",
                  p->resident_bytes ? json_boolean(p->resident_fits) : json_null(), "tokens_per_second",
                  range_json(&p->resident.tokens_per_s), "source", "derived", "reason", why_unknown(p, &p->resident));
    return json_pack(
        "{s:s, s:o, s:o, s:s?, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "sluice", sluice_version(), "model",
        cli_json_text(p->gguf->shards[0].path), "architecture", cli_json_text(p->gguf->architecture), "mode",
        mode_name(p->mode), "why", cli_json_text(p->mode_why), "facts", facts_json(p), "memory",
        p->has_memory ? counters_object(COUNTERS_RUN, &(struct counters_at){.plan = &p->memory}) : json_null(), "disk",
        p->n_disk ? disk_json(p) : json_null(), "disk_reason", text_or_null(p->disk_why), "budgets", rows_json(p),
        "resident", resident, "smaller_context", cli_json_known(p->smaller_ctx), "command", text_or_null(p->command));
}

/* ---- the command line that is recommended ----------------------------------------------------- */

/* Append a word, quoted for a shell if it needs that. */
static void add_word(char *line, size_t cap, const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-+=:,@%";
    size_t n = strlen(line);
    n += (size_t)snprintf(line + n, cap - n, "%s", n ? " " : "");
    if (word[0] && word[strspn(word, plain)] == '\0') {
        snprintf(line + n, cap - n, "%s", word);
        return;
    }
    n += (size_t)snprintf(line + n, cap - n, "'");
    for (const char *c = word; *c && n + 8 < cap; c++) {
        n += (size_t)snprintf(line + n, cap - n, *c == '\'' ? "'\\''" : "%c", *c);
    }
    snprintf(line + n, cap - n, "'");
}

static void add_number(char *line, size_t cap, const char *option, uint64_t n) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, n);
    add_word(line, cap, option);
    add_word(line, cap, text);
}

/* Settings that are defaults are not named: run chooses them by the same plan. */
static void write_command(struct outlook *p) {
    const struct cli_config *c = p->config;
    char *line = p->command;
    const size_t cap = sizeof p->command;
    const char *model = p->gguf->shards[0].path;
    if ((p->mode != PLAN_STREAMING && p->mode != PLAN_RESIDENT && !p->smaller_ctx) ||
        strlen(model) > SLUICE_PATH_MAX / 2) {
        return;
    }
    add_word(line, cap, "sluice");
    add_word(line, cap, "run");
    add_word(line, cap, "-m");
    add_word(line, cap, model);
    if (p->smaller_ctx || c->n_ctx != 4096) {
        add_number(line, cap, "-c", p->smaller_ctx ? p->smaller_ctx : (uint64_t)c->n_ctx);
    }
    if (c->n_threads) {
        add_number(line, cap, "-t", (uint64_t)c->n_threads);
    }
    for (size_t i = 0; i < c->n_settings; i++) { /* plan takes no other */
        add_word(line, cap, "--memory");
        add_word(line, cap, c->settings[i].value);
    }
    add_word(line, cap, "-p");
    add_word(line, cap, "Why is the sky blue?");
}

int outlook_show(struct outlook *p) {
    write_command(p);
    const char *command = p->config->command;
    return p->config->json ? cli_json_print(command, outlook_json(p), JSON_INDENT(2) | JSON_REAL_PRECISION(6))
                           : cli_print(command, print_page, p);
}
