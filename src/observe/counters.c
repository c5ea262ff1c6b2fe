/*
 * counters.c - the one table of counters.
 *
 * The same numbers are told in many places: the summary of `sluice run` and its JSON, CSV files, SLUICE_STATS, the
 * window's /stats and /metrics, `sluice top`. Written by hand in each they had come to disagree. Here a number is one
 * row, and a new one is in every output that its row names.
 *
 * Three kinds of structs hold counters. The engine counts by phase while it works (sluice_phase_stats); a step says
 * what was counted while it ran, together with times that only it can measure (sluice_step); the rest has no phase
 * (sluice_stats, sluice_plan). A row may be in the first two: then the step's number is the difference of two
 * snapshots of the engine's. Where an output has both at hand it shows the engine's, which moves within a long step
 * too; but tokens and times are told of finished steps, so that tokens per second are right at any moment and the parts
 * of the time add up.
 *
 * The order of the rows is that of the columns in a CSV file: new rows with a column go after the last that has one.
 */
#include "observe/counters.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

enum kind { COUNT, COUNT_32, SECONDS, REAL, FLAG, WEIGHT_KEPT, IO };

enum rule { SUM, LARGEST, MEAN }; /* MEAN: over `submits`, the number of times that it was measured */

#define IN(out)    (1u << COUNTERS_##out)
#define PHASE(f)   .phase = 1 + offsetof(struct sluice_phase_stats, f)
#define STEP(f)    .step = 1 + offsetof(struct step_sums, sum.f)
#define WHOLE(f)   .whole = 1 + offsetof(struct sluice_stats, f)
#define PLAN(f)    .plan = 1 + offsetof(struct sluice_plan, f)
#define AS(out, n) .as[COUNTERS_##out] = (n)

enum {
    STEPS = IN(CSV) | IN(RUN) | IN(TOP), /* outputs that are made of finished steps */
    ALL = STEPS | IN(WINDOW) | IN(FILE)
};

static const struct counter {
    const char *name;              /* its column; its key in JSON, where "_s" becomes "_seconds" */
    enum kind kind;                /* how it is stored and written */
    enum rule rule;                /* how steps add up */
    bool ended;                    /* finished steps tell it, where the engine's counter is at hand as well */
    bool resident;                 /* it means something when nothing streams */
    size_t phase;                  /* 1 + where it is in struct sluice_phase_stats; 0: it is not */
    size_t step;                   /* 1 + where it is in struct step_sums; 0: likewise */
    size_t whole;                  /* 1 + where it is in struct sluice_stats; 0: likewise */
    size_t plan;                   /* 1 + where it is in struct sluice_plan; 0: likewise */
    unsigned in;                   /* the outputs that show it, IN() */
    const char *as[COUNTERS_OUTS]; /* its key there, where that is another */
    const char *metric;            /* Prometheus' name; NULL: not shown there */
    const char *label;             /* one more label of that; NULL: none */
    const char *help;              /* what it is, for Prometheus; the first row of a metric has it */
} table[] = {
    /* ---- of a phase and of a step ---- */
    {.name = "steps",
     .step = 1 + offsetof(struct step_sums, steps),
     .in = IN(RUN) | IN(TOP) | IN(WINDOW),
     .resident = true,
     .metric = "sluice_steps_total",
     .help = "Steps (one llama_decode each) that ended."},
    {.name = "tokens",
     PHASE(tokens),
     STEP(tokens),
     .ended = true,
     .in = IN(CSV) | IN(TOP) | IN(WINDOW) | IN(FILE),
     AS(FILE, "tokens_total"),
     .metric = "sluice_tokens_total",
     .help = "Tokens of the steps that ended."},
    {.name = "wall_s",
     .kind = SECONDS,
     STEP(wall_s),
     .in = STEPS | IN(WINDOW),
     .resident = true,
     AS(RUN, "step_seconds")},
    {.name = "stall_s",
     .kind = SECONDS,
     PHASE(stall_s),
     STEP(stall_s),
     .ended = true,
     .in = STEPS | IN(WINDOW),
     AS(RUN, "wait_seconds"),
     .metric = "sluice_step_seconds_total",
     .label = "part=\"stall\"",
     .help = "Time of the steps that ended, by what it was spent on."},
    {.name = "expert_s",
     .kind = SECONDS,
     PHASE(compute_s),
     STEP(expert_s),
     .ended = true,
     .in = STEPS | IN(WINDOW),
     AS(RUN, "expert_compute_seconds"),
     AS(WINDOW, "compute_seconds"),
     .metric = "sluice_step_seconds_total",
     .label = "part=\"compute\""},
    {.name = "other_s",
     .kind = SECONDS,
     STEP(other_s),
     .in = STEPS | IN(WINDOW),
     .resident = true,
     .metric = "sluice_step_seconds_total",
     .label = "part=\"other\""},
    {.name = "bookkeeping_s",
     .kind = SECONDS,
     STEP(bookkeeping_s),
     .in = STEPS | IN(WINDOW),
     .metric = "sluice_step_seconds_total",
     .label = "part=\"bookkeeping\""},
    {.name = "read_bytes",
     PHASE(read_bytes),
     STEP(read_bytes),
     .in = ALL | IN(TOTAL),
     AS(FILE, "read_bytes_total"),
     .metric = "sluice_read_bytes_total",
     .help = "Bytes read from the model's files, rounding included."},
    {.name = "reads",
     PHASE(reads),
     STEP(reads),
     .in = ALL,
     .metric = "sluice_reads_total",
     .help = "Read requests completed."},
    {.name = "routed", PHASE(routed), STEP(routed), .in = ALL},
    {.name = "hits",
     PHASE(hits),
     STEP(hits),
     .in = ALL | IN(TOTAL),
     AS(FILE, "hits_total"),
     .metric = "sluice_expert_hits_total",
     .help = "Experts that a block asked for and found in memory or on their way."},
    {.name = "misses",
     PHASE(misses),
     STEP(misses),
     .in = ALL | IN(TOTAL),
     AS(FILE, "misses_total"),
     .metric = "sluice_expert_misses_total",
     .help = "Experts that a block asked for and had to be read."},
    {.name = "hit_bytes",
     PHASE(hit_bytes),
     STEP(hit_bytes),
     .in = ALL,
     .metric = "sluice_expert_hit_bytes_total",
     .help = "Weight bytes of the hits."},
    {.name = "miss_bytes",
     PHASE(miss_bytes),
     STEP(miss_bytes),
     .in = ALL,
     .metric = "sluice_expert_miss_bytes_total",
     .help = "Weight bytes of the misses."},
    {.name = "evictions", STEP(evictions), WHOLE(evictions), .in = STEPS},
    {.name = "queue_mean", .kind = REAL, .rule = MEAN, STEP(queue_mean), .in = IN(CSV) | IN(RUN)},
    {.name = "queue_max", .rule = LARGEST, STEP(queue_max), .in = IN(CSV) | IN(RUN)},
    {.name = "minor_faults", STEP(minor_faults), .in = STEPS, .resident = true},
    {.name = "major_faults", STEP(major_faults), .in = STEPS, .resident = true},
    {.name = "cpu_s", .kind = SECONDS, STEP(cpu_s), .in = STEPS, .resident = true},
    {.name = "rows", PHASE(rows), .in = IN(FILE)},
    {.name = "blocks",
     PHASE(blocks),
     .in = IN(TOTAL) | IN(WINDOW) | IN(FILE),
     .metric = "sluice_blocks_total",
     .help = "MoE blocks executed, one layer of one batch each."},
    {.name = "examined",
     PHASE(drop.examined),
     STEP(drop.examined),
     .in = ALL,
     AS(RUN, "drop.examined"),
     AS(WINDOW, "dropped.examined"),
     .metric = "sluice_routings_examined_total",
     .help = "Routings whose weight lossy settings looked at."},
    {.name = "dropped",
     PHASE(drop.dropped),
     STEP(drop.dropped),
     .in = ALL,
     AS(RUN, "drop.dropped"),
     AS(WINDOW, "dropped.dropped"),
     .metric = "sluice_routings_dropped_total",
     .help = "Routings left out by lossy settings."},
    {.name = "avoided_bytes",
     PHASE(drop.avoided_bytes),
     STEP(drop.avoided_bytes),
     .in = ALL,
     AS(RUN, "drop.avoided_bytes"),
     AS(WINDOW, "dropped.avoided_bytes"),
     .metric = "sluice_avoided_bytes_total",
     .help = "Weight bytes that were not read because of lossy settings."},
    {.name = "weight",
     .kind = REAL,
     PHASE(drop.weight),
     STEP(drop.weight),
     .in = ALL,
     AS(RUN, "drop.weight"),
     AS(WINDOW, "dropped.weight")},
    {.name = "kept_weight", /* what is left of the one before */
     .kind = WEIGHT_KEPT,
     PHASE(drop),
     .metric = "sluice_router_weight_total",
     .label = "fate=\"kept\"",
     .help = "Router weights of the routings examined, by what became of them."},
    {.name = "dropped_weight",
     .kind = REAL,
     PHASE(drop.dropped_weight),
     STEP(drop.dropped_weight),
     .in = ALL,
     AS(RUN, "drop.dropped_weight"),
     AS(WINDOW, "dropped.dropped_weight"),
     .metric = "sluice_router_weight_total",
     .label = "fate=\"dropped\""},
    {.name = "substituted",
     PHASE(drop.substituted),
     STEP(drop.substituted),
     .in = ALL,
     AS(RUN, "drop.substituted"),
     AS(WINDOW, "dropped.substituted"),
     .metric = "sluice_routings_substituted_total",
     .help = "Routings computed from the cold model."},
    {.name = "cold_bytes", STEP(cold_bytes), WHOLE(cold.read_bytes), .in = IN(CSV) | IN(RUN)},
    {.name = "substituted_weight",
     .kind = REAL,
     PHASE(drop.substituted_weight),
     STEP(drop.substituted_weight),
     .in = IN(RUN) | IN(WINDOW) | IN(FILE),
     AS(RUN, "drop.substituted_weight"),
     AS(WINDOW, "dropped.substituted_weight"),
     .metric = "sluice_router_weight_total",
     .label = "fate=\"substituted\""},
    {.name = "experts",
     PHASE(drop.experts),
     STEP(drop.experts),
     .in = IN(RUN) | IN(FILE),
     AS(RUN, "drop.experts"),
     AS(FILE, "dropped_experts")},
    {.name = "experts_there",
     PHASE(drop.experts_there),
     STEP(drop.experts_there),
     .in = IN(RUN) | IN(FILE),
     AS(RUN, "drop.experts_there"),
     AS(FILE, "dropped_there")},
    {.name = "submits", STEP(submits), WHOLE(submits)}, /* for queue_mean */

    /* ---- of the process ---- */
    {.name = "cache_bytes",
     WHOLE(cache_bytes),
     .in = IN(RUN) | IN(TOP) | IN(WINDOW) | IN(FILE),
     AS(RUN, "bytes"),
     AS(WINDOW, "cache.bytes"),
     .metric = "sluice_cache_bytes",
     .help = "Slot memory of the expert cache."},
    {.name = "bank_bytes",
     WHOLE(bank_bytes),
     .in = IN(RUN) | IN(TOP) | IN(WINDOW),
     AS(WINDOW, "model.expert_bytes"),
     .metric = "sluice_expert_bytes",
     .help = "Expert weights that stream, all models."},
    {.name = "slots",
     WHOLE(slots),
     .in = IN(RUN) | IN(TOP) | IN(WINDOW),
     AS(WINDOW, "cache.slots"),
     .metric = "sluice_cache_slots",
     .help = "Bundles (one expert of one layer) that fit."},
    {.name = "resident",
     WHOLE(resident),
     .in = IN(RUN) | IN(TOP) | IN(WINDOW),
     AS(WINDOW, "cache.resident"),
     .metric = "sluice_cache_resident_bundles",
     .help = "Bundles in memory or on their way."},
    {.name = "evictions",
     WHOLE(evictions),
     .in = IN(RUN) | IN(WINDOW) | IN(FILE),
     AS(WINDOW, "cache.evictions"),
     .metric = "sluice_cache_evictions_total",
     .help = "Bundles evicted."},
    {.name = "foreseen_asked",
     WHOLE(foreseen.asked),
     .in = IN(RUN) | IN(WINDOW),
     AS(RUN, "foreseen.asked"),
     AS(WINDOW, "lookahead.asked"),
     .metric = "sluice_foreseen_asked_total",
     .help = "Bundles expected before their use and not in memory."},
    {.name = "foreseen_begun",
     WHOLE(foreseen.begun),
     .in = IN(RUN) | IN(WINDOW) | IN(FILE),
     AS(RUN, "foreseen.begun"),
     AS(WINDOW, "lookahead.begun"),
     .metric = "sluice_foreseen_begun_total",
     .help = "Of those, bundles whose reading began before the demand."},
    {.name = "foreseen_used",
     WHOLE(foreseen.used),
     .in = IN(RUN) | IN(WINDOW) | IN(FILE),
     AS(RUN, "foreseen.used"),
     AS(WINDOW, "lookahead.used"),
     .metric = "sluice_foreseen_used_total",
     .help = "Of those, bundles that the router then picked."},
    {.name = "foreseen_read_bytes",
     WHOLE(foreseen.read_bytes),
     .in = IN(RUN) | IN(WINDOW),
     AS(RUN, "foreseen.read_bytes"),
     AS(WINDOW, "lookahead.read_bytes"),
     .metric = "sluice_foreseen_read_bytes_total",
     .help = "Bytes read ahead of their use."},
    {.name = "foreseen_pauses",
     WHOLE(foreseen.pauses),
     .in = IN(RUN) | IN(WINDOW),
     AS(RUN, "foreseen.pauses"),
     AS(WINDOW, "lookahead.pauses")},
    {.name = "token_bytes", WHOLE(token_bytes), .in = IN(RUN) | IN(WINDOW), AS(WINDOW, "model.token_bytes")},
    {.name = "layer_bytes", WHOLE(layer_bytes), .in = IN(RUN)},
    {.name = "layers", .kind = COUNT_32, WHOLE(layers), .in = IN(FILE)},
    {.name = "tensors", .kind = COUNT_32, WHOLE(tensors), .in = IN(WINDOW) | IN(FILE), AS(WINDOW, "model.tensors")},
    {.name = "lanes", .kind = COUNT_32, WHOLE(lanes), .in = IN(RUN) | IN(WINDOW), AS(WINDOW, "disk.lanes")},
    {.name = "io", .kind = IO, WHOLE(io), .in = IN(RUN) | IN(WINDOW) | IN(FILE), AS(WINDOW, "disk.io")},
    {.name = "direct_io",
     .kind = FLAG,
     WHOLE(direct_io),
     .in = IN(RUN) | IN(WINDOW) | IN(FILE),
     AS(WINDOW, "disk.direct")},
    {.name = "cold_copies", WHOLE(cold.copies), .in = IN(WINDOW) | IN(FILE), AS(WINDOW, "cold.copies")},
    {.name = "cold_hits", WHOLE(cold.hits), .in = IN(WINDOW) | IN(FILE), AS(WINDOW, "cold.hits")},
    {.name = "cold_reads", WHOLE(cold.reads), .in = IN(WINDOW) | IN(FILE), AS(WINDOW, "cold.reads")},
    {.name = "cold_read_bytes",
     WHOLE(cold.read_bytes),
     .in = IN(WINDOW) | IN(FILE),
     AS(WINDOW, "cold.read_bytes"),
     .metric = "sluice_cold_read_bytes_total",
     .help = "Bytes read from the cold model's file."},
    {.name = "cold_cache_bytes", WHOLE(cold.cache_bytes), .in = IN(WINDOW) | IN(FILE), AS(WINDOW, "cold.cache_bytes")},
    {.name = "cold_tensors",
     .kind = COUNT_32,
     WHOLE(cold.tensors),
     .in = IN(WINDOW) | IN(FILE),
     AS(WINDOW, "cold.tensors")},

    /* ---- the memory plan ---- */
    {.name = "limit_bytes", PLAN(limit_bytes), .in = IN(RUN)},
    {.name = "limit_by_setting", .kind = FLAG, PLAN(limit_by_setting), .in = IN(RUN)},
    {.name = "total_bytes", PLAN(total_bytes), .in = IN(RUN) | IN(WINDOW) | IN(FILE), AS(FILE, "plan_bytes")},
    {.name = "process_bytes",
     PLAN(process_bytes),
     .in = IN(RUN) | IN(WINDOW),
     .metric = "sluice_memory_plan_bytes",
     .label = "part=\"process\"",
     .help = "What the process is expected to use at most, by part."},
    {.name = "files_bytes",
     PLAN(files_bytes),
     .in = IN(RUN) | IN(WINDOW),
     .metric = "sluice_memory_plan_bytes",
     .label = "part=\"files\""},
    {.name = "untouched_bytes",
     PLAN(untouched_bytes),
     .in = IN(RUN) | IN(WINDOW),
     .metric = "sluice_memory_plan_bytes",
     .label = "part=\"untouched\""},
    {.name = "dense_bytes",
     PLAN(dense_bytes),
     .in = IN(RUN) | IN(WINDOW) | IN(FILE),
     .metric = "sluice_memory_plan_bytes",
     .label = "part=\"dense\""},
    {.name = "cache_bytes",
     PLAN(cache_bytes),
     .in = IN(RUN) | IN(WINDOW),
     .metric = "sluice_memory_plan_bytes",
     .label = "part=\"cache\""},
    {.name = "scratch_bytes",
     PLAN(scratch_bytes),
     .in = IN(RUN) | IN(WINDOW),
     .metric = "sluice_memory_plan_bytes",
     .label = "part=\"scratch\""},
    {.name = "floor_bytes", PLAN(floor_bytes), .in = IN(RUN) | IN(WINDOW)},
    {.name = "dense_mapped", .kind = FLAG, PLAN(dense_mapped), .in = IN(RUN) | IN(WINDOW) | IN(FILE)},
};

enum { ROWS = sizeof table / sizeof *table };

/* Integers and reals are told apart by the row: what is added up has eight bytes. */
static bool real(const struct counter *c) {
    return c->kind == SECONDS || c->kind == REAL || c->kind == WEIGHT_KEPT;
}

/* The field of a struct, by 1 + its offset. */
static void *field(const void *base, size_t at) {
    return (char *)(uintptr_t)base + at - 1;
}

const struct sluice_phase_stats *counters_phase(const struct sluice_stats *s, int phase) {
    return phase == SLUICE_PHASE_PROMPT ? &s->prompt : &s->generation;
}

double counters_ratio(double a, double b) {
    const double x = b > 0 ? a / b : 0;
    return isfinite(x) ? x : 0;
}

/* ---- adding up ------------------------------------------------------------------------------- */

/* *to += after - before, of an integer or a real; before NULL: 0. */
static void add(const struct counter *c, void *to, const void *before, const void *after) {
    if (real(c)) {
        *(double *)to += *(const double *)after - (before ? *(const double *)before : 0);
    } else {
        *(uint64_t *)to += *(const uint64_t *)after - (before ? *(const uint64_t *)before : 0);
    }
}

void counters_add(struct sluice_phase_stats *to, const struct sluice_phase_stats *from) {
    for (const struct counter *c = table; c < table + ROWS; c++) {
        if (c->phase && c->kind != WEIGHT_KEPT) {
            add(c, field(to, c->phase), NULL, field(from, c->phase));
        }
    }
}

void counters_add_step(struct step_sums *to, const struct sluice_step *s) {
    const struct step_sums one = {.steps = 1, .sum = *s};
    const uint64_t submits = to->sum.submits + s->submits;
    if (submits) {
        const double sum = to->sum.queue_mean * (double)to->sum.submits + s->queue_mean * (double)s->submits;
        to->sum.queue_mean = sum / (double)submits;
    }
    for (const struct counter *c = table; c < table + ROWS; c++) {
        if (c->step && c->rule == LARGEST) {
            uint64_t *largest = field(to, c->step);
            const uint64_t n = *(const uint64_t *)field(&one, c->step);
            *largest = n > *largest ? n : *largest;
        } else if (c->step && c->rule == SUM) {
            add(c, field(to, c->step), NULL, field(&one, c->step));
        }
    }
}

void counters_between(const struct sluice_stats *before, const struct sluice_stats *now, struct sluice_step *out) {
    struct step_sums to = {.sum = *out};
    for (const struct counter *c = table; c < table + ROWS; c++) {
        for (int p = 0; c->step && c->phase && !c->ended && p < COUNTERS_PHASES; p++) {
            add(c, field(&to, c->step), field(counters_phase(before, p), c->phase),
                field(counters_phase(now, p), c->phase));
        }
        if (c->step && c->whole) {
            add(c, field(&to, c->step), field(before, c->whole), field(now, c->whole));
        }
    }
    *out = to.sum;
    if (out->submits) {
        out->queue_mean = (double)(now->queue_sum - before->queue_sum) / (double)out->submits;
    }
}

bool counters_sane(const struct step_sums *s) {
    for (const struct counter *c = table; c < table + ROWS; c++) {
        const double x = c->step && real(c) ? *(const double *)field(s, c->step) : 0;
        if (!isfinite(x) || (c->kind == SECONDS && (x < -1e-3 || x > 1e12))) { /* parts may be a rounding below 0 */
            return false;
        }
    }
    return true;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Where the row's number is, of what is told; NULL: it is not. */
static const void *counter_at(const struct counter *c, const struct counters_at *at) {
    if (c->step && at->ended && (c->ended || !c->phase || !at->live)) {
        return field(at->ended, c->step);
    }
    return c->phase && at->live                ? field(at->live, c->phase)
           : c->whole && !c->step && at->stats ? field(at->stats, c->whole)
           : c->plan && at->plan               ? field(at->plan, c->plan)
                                               : NULL;
}

static json_t *counter_json(const struct counter *c, const void *at) {
    switch (c->kind) {
    case COUNT_32:
        return json_integer(*(const uint32_t *)at);
    case SECONDS:
    case REAL:
        return json_real(*(const double *)at);
    case FLAG:
        return json_boolean(*(const bool *)at);
    case IO:
        return json_string("pread"); /* the only way that there is */
    default:                         /* counts stay far below 2^63 */
        return json_integer((json_int_t) * (const uint64_t *)at);
    }
}

/* Put a value, which it takes, under a key or under "object.key". The object is made when it is not there. */
static bool put(json_t *o, const char *path, json_t *value) {
    const char *dot = strchr(path, '.');
    char name[32];
    if (dot) {
        snprintf(name, sizeof name, "%.*s", (int)(dot - path), path);
        if (!json_object_get(o, name)) {
            json_object_set_new(o, name, json_object()); /* if that fails, so does the next */
        }
        o = json_object_get(o, name);
        path = dot + 1;
    }
    return json_object_set_new(o, path, value) == 0;
}

bool counters_json(json_t *object, enum counters_out out, const struct counters_at *at) {
    bool ok = object != NULL;
    for (const struct counter *c = table; ok && c < table + ROWS; c++) {
        const void *from = c->in & 1u << out && (c->resident || !at->resident) ? counter_at(c, at) : NULL;
        if (from) {
            char key[64];
            const bool seconds = c->kind == SECONDS;
            snprintf(key, sizeof key, "%s%.*s%s", at->prefix ? at->prefix : "",
                     (int)strlen(c->name) - (seconds ? 2 : 0), c->name, seconds ? "_seconds" : "");
            ok = put(object, c->as[out] && !at->prefix ? c->as[out] : key, counter_json(c, from));
        }
    }
    return ok;
}

/* ---- text ------------------------------------------------------------------------------------ */

void counters_fixed(FILE *out, double x, int digits) {
    uint64_t unit = 1;
    for (int i = 0; i < digits; i++) {
        unit *= 10;
    }
    const double scaled = x > 0 && x < 1e11 ? round(x * (double)unit) : 0; /* parts may be -0 or a rounding below 0 */
    const uint64_t n = (uint64_t)scaled;
    fprintf(out, "%" PRIu64 ".%0*" PRIu64, n / unit, digits, n % unit);
}

void counters_csv_head(FILE *out) {
    for (const struct counter *c = table; c < table + ROWS; c++) {
        if (c->in & IN(CSV)) {
            fprintf(out, ",%s", c->name);
        }
    }
}

/* An eight-byte counter. */
static void write_number(FILE *out, const struct counter *c, const void *at, int digits) {
    if (c->kind == WEIGHT_KEPT) {
        const struct sluice_drop_stats *d = at;
        counters_fixed(out, d->weight - d->dropped_weight - d->substituted_weight, digits);
    } else if (real(c)) {
        counters_fixed(out, *(const double *)at, digits);
    } else {
        fprintf(out, "%" PRIu64, *(const uint64_t *)at);
    }
}

void counters_csv_row(FILE *out, const struct sluice_step *s) {
    const struct step_sums one = {.steps = 1, .sum = *s};
    for (const struct counter *c = table; c < table + ROWS; c++) {
        if (c->in & IN(CSV)) {
            fputc(',', out);
            write_number(out, c, field(&one, c->step), 7);
        }
    }
}

void counters_family(FILE *out, const char *name, const char *help) {
    static const char total[] = "_total";
    const size_t n = strlen(name), tail = sizeof total - 1;
    const bool counter = n > tail && strcmp(name + n - tail, total) == 0;
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, counter ? "counter" : "gauge");
}

/* The lines of a row: one, or one for each phase. */
static void metric_lines(FILE *out, const struct counter *c, const struct sluice_stats *s,
                         const struct step_sums *ended, const struct sluice_plan *plan) {
    static const char *const name[] = {[SLUICE_PHASE_PROMPT] = "prompt", [SLUICE_PHASE_GENERATION] = "generation"};
    const bool phases = c->phase || c->step;
    for (int p = 0; p < (phases ? COUNTERS_PHASES : 1); p++) {
        const struct counters_at at = {.live = counters_phase(s, p), .ended = &ended[p], .stats = s, .plan = plan};
        const char *label = c->label ? c->label : "";
        if (phases) {
            fprintf(out, "%s{phase=\"%s\"%s%s} ", c->metric, name[p], label[0] ? "," : "", label);
        } else {
            fprintf(out, label[0] ? "%s{%s} " : "%s%s ", c->metric, label);
        }
        write_number(out, c, counter_at(c, &at), 6);
        fputc('\n', out);
    }
}

void counters_metrics(FILE *out, const struct sluice_stats *s, const struct step_sums ended[COUNTERS_PHASES],
                      const struct sluice_plan *plan) {
    for (const struct counter *c = table; c < table + ROWS; c++) {
        if (!c->help || (c->plan && !plan)) {
            continue; /* not a metric's first row */
        }
        counters_family(out, c->metric, c->help);
        for (const struct counter *row = c; row < table + ROWS; row++) {
            if (row->metric && strcmp(row->metric, c->metric) == 0) {
                metric_lines(out, row, s, ended, plan);
            }
        }
    }
}
