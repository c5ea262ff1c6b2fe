/*
 * metrics.c - the counters as Prometheus reads them (text format 0.0.4).
 *
 * By its conventions: base units, counters end in _total, one family per thing with labels for its kinds, and no rates,
 * which whoever asks computes over the time that he likes. Numbers are written from integers: printf's decimal point is
 * the locale's, which is the host program's affair.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cache/clock.h"
#include "window/impl.h"

static void family(FILE *out, const char *name, const char *type, const char *help) {
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void whole(FILE *out, const char *name, const char *labels, uint64_t n) {
    fprintf(out, "%s%s %" PRIu64 "\n", name, labels, n);
}

/* To the millionth. */
static void fraction(FILE *out, const char *name, const char *labels, double x) {
    const uint64_t n = x > 0 ? (uint64_t)(x * 1e6 + 0.5) : 0;
    fprintf(out, "%s%s %" PRIu64 ".%06" PRIu64 "\n", name, labels, n / 1000000, n % 1000000);
}

static void single(FILE *out, const char *name, const char *type, const char *help, uint64_t n) {
    family(out, name, type, help);
    whole(out, name, "", n);
}

/* A label's value. Text of others (file names) that is no UTF-8, which all of the answer must be, becomes '?'. */
static void quoted(FILE *out, const char *text) {
    json_t *valid = json_string(text);
    fputc('"', out);
    for (const char *p = text; *p; p++) {
        if (*p == '"' || *p == '\\') {
            fputc('\\', out);
        }
        if (*p == '\n') {
            fputs("\\n", out);
        } else {
            fputc((unsigned char)*p < 0x80 || valid ? *p : '?', out);
        }
    }
    fputc('"', out);
    json_decref(valid);
}

static const char *const phase_label[WINDOW_PHASES] = {
    [SLUICE_PHASE_PROMPT] = "{phase=\"prompt\"}",
    [SLUICE_PHASE_GENERATION] = "{phase=\"generation\"}",
};

/* Families of which each phase has one number: a field of struct sluice_phase_stats. */
static void by_phase(FILE *out, const struct sluice_stats *s) {
    static const struct {
        const char *name, *help; /* of the family */
        size_t offset;           /* of the field, a uint64_t */
    } families[] = {
#define FIELD(f) offsetof(struct sluice_phase_stats, f)
        {"sluice_blocks_total", "MoE blocks executed, one layer of one batch each.", FIELD(blocks)},
        {"sluice_expert_hits_total", "Experts that a block asked for and found in memory or on their way.",
         FIELD(hits)},
        {"sluice_expert_misses_total", "Experts that a block asked for and had to be read.", FIELD(misses)},
        {"sluice_expert_hit_bytes_total", "Weight bytes of the hits.", FIELD(hit_bytes)},
        {"sluice_expert_miss_bytes_total", "Weight bytes of the misses.", FIELD(miss_bytes)},
        {"sluice_reads_total", "Read requests completed.", FIELD(reads)},
        {"sluice_read_bytes_total", "Bytes read from the model's files, rounding included.", FIELD(read_bytes)},
        {"sluice_routings_examined_total", "Routings whose weight lossy settings looked at.", FIELD(drop.examined)},
        {"sluice_routings_dropped_total", "Routings left out by lossy settings.", FIELD(drop.dropped)},
        {"sluice_routings_substituted_total", "Routings computed from the cold model.", FIELD(drop.substituted)},
        {"sluice_avoided_bytes_total", "Weight bytes that were not read because of lossy settings.",
         FIELD(drop.avoided_bytes)},
#undef FIELD
    };
    const struct sluice_phase_stats *phase[WINDOW_PHASES] = {
        [SLUICE_PHASE_PROMPT] = &s->prompt,
        [SLUICE_PHASE_GENERATION] = &s->generation,
    };
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        family(out, families[i].name, "counter", families[i].help);
        for (int p = 0; p < WINDOW_PHASES; p++) {
            whole(out, families[i].name, phase_label[p],
                  *(const uint64_t *)(const void *)((const char *)phase[p] + families[i].offset));
        }
    }
    family(out, "sluice_router_weight_total", "counter",
           "Router weights of the routings examined, by what became of them.");
    for (int p = 0; p < WINDOW_PHASES; p++) {
        static const char *const label[WINDOW_PHASES][3] = {
            [SLUICE_PHASE_PROMPT] = {"{phase=\"prompt\",fate=\"kept\"}", "{phase=\"prompt\",fate=\"dropped\"}",
                                     "{phase=\"prompt\",fate=\"substituted\"}"},
            [SLUICE_PHASE_GENERATION] = {"{phase=\"generation\",fate=\"kept\"}",
                                         "{phase=\"generation\",fate=\"dropped\"}",
                                         "{phase=\"generation\",fate=\"substituted\"}"},
        };
        const struct sluice_drop_stats *d = &phase[p]->drop;
        fraction(out, "sluice_router_weight_total", label[p][0], d->weight - d->dropped_weight - d->substituted_weight);
        fraction(out, "sluice_router_weight_total", label[p][1], d->dropped_weight);
        fraction(out, "sluice_router_weight_total", label[p][2], d->substituted_weight);
    }
}

/* Finished steps. */
static void steps(FILE *out, const struct window_phase *phase) {
    static const char *const part[] = {"compute", "stall", "other", "bookkeeping"};
    static const char *const name[WINDOW_PHASES] = {
        [SLUICE_PHASE_PROMPT] = "prompt", [SLUICE_PHASE_GENERATION] = "generation"};
    family(out, "sluice_steps_total", "counter", "Steps (one llama_decode each) that ended.");
    for (int p = 0; p < WINDOW_PHASES; p++) {
        whole(out, "sluice_steps_total", phase_label[p], phase[p].steps);
    }
    family(out, "sluice_tokens_total", "counter", "Tokens of the steps that ended.");
    for (int p = 0; p < WINDOW_PHASES; p++) {
        whole(out, "sluice_tokens_total", phase_label[p], phase[p].tokens);
    }
    family(out, "sluice_step_seconds_total", "counter", "Time of the steps that ended, by what it was spent on.");
    for (int p = 0; p < WINDOW_PHASES; p++) {
        const double s[] = {phase[p].compute_s, phase[p].stall_s, phase[p].other_s, phase[p].bookkeeping_s};
        for (int i = 0; i < 4; i++) {
            char labels[64];
            snprintf(labels, sizeof labels, "{phase=\"%s\",part=\"%s\"}", name[p], part[i]);
            fraction(out, "sluice_step_seconds_total", labels, s[i]);
        }
    }
}

static void memory(FILE *out, const struct window_numbers *x) {
    const struct sluice_stats *s = &x->stats;
    single(out, "sluice_cache_bytes", "gauge", "Slot memory of the expert cache.", s->cache_bytes);
    single(out, "sluice_cache_slots", "gauge", "Bundles (one expert of one layer) that fit.", s->slots);
    single(out, "sluice_cache_resident_bundles", "gauge", "Bundles in memory or on their way.", s->resident);
    single(out, "sluice_cache_evictions_total", "counter", "Bundles evicted.", s->evictions);
    single(out, "sluice_expert_bytes", "gauge", "Expert weights that stream, all models.", s->bank_bytes);
    if (x->planned) {
        const struct sluice_plan *p = &x->plan;
        const uint64_t row[] = {p->process_bytes, p->files_bytes, p->untouched_bytes,
                                p->dense_bytes,   p->cache_bytes, p->scratch_bytes};
        static const char *const label[] = {"{part=\"process\"}", "{part=\"files\"}", "{part=\"untouched\"}",
                                            "{part=\"dense\"}",   "{part=\"cache\"}", "{part=\"scratch\"}"};
        family(out, "sluice_memory_plan_bytes", "gauge", "What the process is expected to use at most, by part.");
        for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
            whole(out, "sluice_memory_plan_bytes", label[i], row[i]);
        }
        if (p->limit_bytes) {
            single(out, "sluice_memory_limit_bytes", "gauge", "What the process may use.", p->limit_bytes);
        }
    }
    single(out, "process_resident_memory_bytes", "gauge", "Resident memory size in bytes.",
           x->anonymous_bytes + x->file_bytes + x->shared_bytes);
}

char *metrics_text(struct window *w, size_t *n) {
    struct window_numbers *x = &w->now;
    const struct sluice_stats *s = &x->stats;
    char *text = NULL;
    FILE *out = open_memstream(&text, n);
    if (!out) {
        return NULL;
    }
    w->source.numbers(w->source.ud, x, true);
    family(out, "sluice_info", "gauge", "What runs: always 1.");
    fputs("sluice_info{version=", out);
    quoted(out, SLUICE_VERSION);
    fputs(",program=", out);
    quoted(out, x->program);
    fputs(",model=", out);
    quoted(out, x->model);
    fputs(",architecture=", out);
    quoted(out, x->architecture);
    fputs("} 1\n", out);
    single(out, "sluice_lossy", "gauge", "1 when settings in force change the output.", x->lossy);
    family(out, "sluice_window_uptime_seconds", "gauge", "Time since the window opened.");
    fraction(out, "sluice_window_uptime_seconds", "", clock_seconds() - w->started);
    steps(out, x->phase);
    by_phase(out, s);
    memory(out, x);
    single(out, "sluice_foreseen_asked_total", "counter", "Bundles expected before their use and not in memory.",
           s->foreseen.asked);
    single(out, "sluice_foreseen_begun_total", "counter", "Of those, bundles whose reading began before the demand.",
           s->foreseen.begun);
    single(out, "sluice_foreseen_used_total", "counter", "Of those, bundles that the router then picked.",
           s->foreseen.used);
    single(out, "sluice_foreseen_read_bytes_total", "counter", "Bytes read ahead of their use.",
           s->foreseen.read_bytes);
    single(out, "sluice_cold_read_bytes_total", "counter", "Bytes read from the cold model's file.",
           s->cold.read_bytes);
    single(out, "sluice_window_readers", "gauge", "Pages that watch now.", w->events.readers);
    single(out, "sluice_window_readers_dropped_total", "counter", "Readers disconnected for being slow.",
           w->events.dropped);
    const bool bad = ferror(out) != 0;
    if (fclose(out) || bad) {
        free(text);
        return NULL;
    }
    return text;
}
