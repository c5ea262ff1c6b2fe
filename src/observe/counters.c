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

enum {
    LARGEST = 1,  /* of steps the largest counts, not the sum */
    MEAN = 2,     /* mean over `submits`, the number of times that it was measured */
    ENDED = 4,    /* finished steps tell it, where the engine's counter is at hand as well */
    RESIDENT = 8, /* it means something when nothing streams */
};

#define IN(out)       (1u << COUNTERS_##out)
#define AS(out, n)    [COUNTERS_##out] = (n)
#define NAMES(...)    __VA_ARGS__
#define SAME          NULL
#define METRIC(...)   __VA_ARGS__
#define NO_METRIC     NULL, NULL, NULL
#define AT(s, f)      (1 + offsetof(struct s, f))
#define BOTH(p, s)    AT(sluice_phase_stats, p), AT(step_sums, sum.s), 0, 0
#define PHASE(f)      AT(sluice_phase_stats, f), 0, 0, 0
#define STEP_COUNT    0, AT(step_sums, steps), 0, 0
#define STEP(f)       0, AT(step_sums, sum.f), 0, 0
#define STEP_OF(s, w) 0, AT(step_sums, sum.s), AT(sluice_stats, w), 0
#define WHOLE(f)      0, 0, AT(sluice_stats, f), 0
#define PLAN(f)       0, 0, 0, AT(sluice_plan, f)

#define ROW(name, kind, flags, at, in, as, ...)                                                                        \
    {                                                                                                                  \
        name, kind, flags, {at}, in, {as}, {                                                                           \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

enum {
    STEPS = IN(CSV) | IN(RUN) | IN(TOP), /* outputs that are made of finished steps */
    ALL = STEPS | IN(WINDOW) | IN(FILE)
};

static const struct counter {
    const char *name; /* its column; its key in JSON, where "_s" becomes "_seconds" */
    enum kind kind;   /* how it is stored and written */
    unsigned flags;   /* see above */
    struct {          /* 1 + its offset in the structs that have it; 0: not in this one */
        size_t phase; /* struct sluice_phase_stats */
        size_t step;  /* struct step_sums */
        size_t whole; /* struct sluice_stats; with `step`: what a step takes the difference of */
        size_t plan;  /* struct sluice_plan */
    } at;
    unsigned in;                   /* the outputs that show it, IN() */
    const char *as[COUNTERS_OUTS]; /* its key there, where that is another */
    struct {
        const char *name;  /* Prometheus'; NULL: not shown there */
        const char *label; /* one more label; NULL: none */
        const char *help;  /* what it is; the first row of a metric has it */
    } metric;
} table[] = {
    /* ---- of a phase and of a step ---- */
    ROW("steps", COUNT, RESIDENT, STEP_COUNT, IN(RUN) | IN(TOP) | IN(WINDOW), SAME,
        METRIC("sluice_steps_total", NULL, "Steps (one llama_decode each) that ended.")),
    ROW("tokens", COUNT, ENDED, BOTH(tokens, tokens), IN(CSV) | IN(TOP) | IN(WINDOW) | IN(FILE),
        AS(FILE, "tokens_total"), METRIC("sluice_tokens_total", NULL, "Tokens of the steps that ended.")),
    ROW("wall_s", SECONDS, RESIDENT, STEP(wall_s), STEPS | IN(WINDOW), AS(RUN, "step_seconds"), NO_METRIC),
    ROW("stall_s", SECONDS, ENDED, BOTH(stall_s, stall_s), STEPS | IN(WINDOW), AS(RUN, "wait_seconds"),
        METRIC("sluice_step_seconds_total", "part=\"stall\"",
               "Time of the steps that ended, by what it was spent on.")),
    ROW("expert_s", SECONDS, ENDED, BOTH(compute_s, expert_s), STEPS | IN(WINDOW),
        NAMES(AS(RUN, "expert_compute_seconds"), AS(WINDOW, "compute_seconds")),
        METRIC("sluice_step_seconds_total", "part=\"compute\"", NULL)),
    ROW("other_s", SECONDS, RESIDENT, STEP(other_s), STEPS | IN(WINDOW), SAME,
        METRIC("sluice_step_seconds_total", "part=\"other\"", NULL)),
    ROW("bookkeeping_s", SECONDS, 0, STEP(bookkeeping_s), STEPS | IN(WINDOW), SAME,
        METRIC("sluice_step_seconds_total", "part=\"bookkeeping\"", NULL)),
    ROW("read_bytes", COUNT, 0, BOTH(read_bytes, read_bytes), ALL | IN(TOTAL), AS(FILE, "read_bytes_total"),
        METRIC("sluice_read_bytes_total", NULL, "Bytes read from the model's files, rounding included.")),
    ROW("reads", COUNT, 0, BOTH(reads, reads), ALL, SAME,
        METRIC("sluice_reads_total", NULL, "Read requests completed.")),
    ROW("routed", COUNT, 0, BOTH(routed, routed), ALL, SAME, NO_METRIC),
    ROW("hits", COUNT, 0, BOTH(hits, hits), ALL | IN(TOTAL), AS(FILE, "hits_total"),
        METRIC("sluice_expert_hits_total", NULL,
               "Experts that a block asked for and found in memory or on their way.")),
    ROW("misses", COUNT, 0, BOTH(misses, misses), ALL | IN(TOTAL), AS(FILE, "misses_total"),
        METRIC("sluice_expert_misses_total", NULL, "Experts that a block asked for and had to be read.")),
    ROW("hit_bytes", COUNT, 0, BOTH(hit_bytes, hit_bytes), ALL, SAME,
        METRIC("sluice_expert_hit_bytes_total", NULL, "Weight bytes of the hits.")),
    ROW("miss_bytes", COUNT, 0, BOTH(miss_bytes, miss_bytes), ALL, SAME,
        METRIC("sluice_expert_miss_bytes_total", NULL, "Weight bytes of the misses.")),
    ROW("evictions", COUNT, 0, STEP_OF(evictions, evictions), STEPS, SAME, NO_METRIC),
    ROW("queue_mean", REAL, MEAN, STEP(queue_mean), IN(CSV) | IN(RUN), SAME, NO_METRIC),
    ROW("queue_max", COUNT, LARGEST, STEP(queue_max), IN(CSV) | IN(RUN), SAME, NO_METRIC),
    ROW("minor_faults", COUNT, RESIDENT, STEP(minor_faults), STEPS, SAME, NO_METRIC),
    ROW("major_faults", COUNT, RESIDENT, STEP(major_faults), STEPS, SAME, NO_METRIC),
    ROW("cpu_s", SECONDS, RESIDENT, STEP(cpu_s), STEPS, SAME, NO_METRIC),
    ROW("rows", COUNT, 0, PHASE(rows), IN(FILE), SAME, NO_METRIC),
    ROW("blocks", COUNT, 0, PHASE(blocks), IN(TOTAL) | IN(WINDOW) | IN(FILE), SAME,
        METRIC("sluice_blocks_total", NULL, "MoE blocks executed, one layer of one batch each.")),
    ROW("examined", COUNT, 0, BOTH(drop.examined, drop.examined), ALL,
        NAMES(AS(RUN, "drop.examined"), AS(WINDOW, "dropped.examined")),
        METRIC("sluice_routings_examined_total", NULL, "Routings whose weight lossy settings looked at.")),
    ROW("dropped", COUNT, 0, BOTH(drop.dropped, drop.dropped), ALL,
        NAMES(AS(RUN, "drop.dropped"), AS(WINDOW, "dropped.dropped")),
        METRIC("sluice_routings_dropped_total", NULL, "Routings left out by lossy settings.")),
    ROW("avoided_bytes", COUNT, 0, BOTH(drop.avoided_bytes, drop.avoided_bytes), ALL,
        NAMES(AS(RUN, "drop.avoided_bytes"), AS(WINDOW, "dropped.avoided_bytes")),
        METRIC("sluice_avoided_bytes_total", NULL, "Weight bytes that were not read because of lossy settings.")),
    ROW("weight", REAL, 0, BOTH(drop.weight, drop.weight), ALL,
        NAMES(AS(RUN, "drop.weight"), AS(WINDOW, "dropped.weight")), NO_METRIC),
    /* What is left of it. */
    ROW("kept_weight", WEIGHT_KEPT, 0, PHASE(drop), 0, SAME,
        METRIC("sluice_router_weight_total", "fate=\"kept\"",
               "Router weights of the routings examined, by what became of them.")),
    ROW("dropped_weight", REAL, 0, BOTH(drop.dropped_weight, drop.dropped_weight), ALL,
        NAMES(AS(RUN, "drop.dropped_weight"), AS(WINDOW, "dropped.dropped_weight")),
        METRIC("sluice_router_weight_total", "fate=\"dropped\"", NULL)),
    ROW("substituted", COUNT, 0, BOTH(drop.substituted, drop.substituted), ALL,
        NAMES(AS(RUN, "drop.substituted"), AS(WINDOW, "dropped.substituted")),
        METRIC("sluice_routings_substituted_total", NULL, "Routings computed from the cold model.")),
    ROW("cold_bytes", COUNT, 0, STEP_OF(cold_bytes, cold.read_bytes), IN(CSV) | IN(RUN), SAME, NO_METRIC),
    ROW("substituted_weight", REAL, 0, BOTH(drop.substituted_weight, drop.substituted_weight),
        IN(RUN) | IN(WINDOW) | IN(FILE),
        NAMES(AS(RUN, "drop.substituted_weight"), AS(WINDOW, "dropped.substituted_weight")),
        METRIC("sluice_router_weight_total", "fate=\"substituted\"", NULL)),
    ROW("experts", COUNT, 0, BOTH(drop.experts, drop.experts), IN(RUN) | IN(FILE),
        NAMES(AS(RUN, "drop.experts"), AS(FILE, "dropped_experts")), NO_METRIC),
    ROW("experts_there", COUNT, 0, BOTH(drop.experts_there, drop.experts_there), IN(RUN) | IN(FILE),
        NAMES(AS(RUN, "drop.experts_there"), AS(FILE, "dropped_there")), NO_METRIC),
    /* For queue_mean. */
    ROW("submits", COUNT, 0, STEP_OF(submits, submits), 0, SAME, NO_METRIC),

    /* ---- of the process ---- */
    ROW("cache_bytes", COUNT, 0, WHOLE(cache_bytes), IN(RUN) | IN(TOP) | IN(WINDOW) | IN(FILE),
        NAMES(AS(RUN, "bytes"), AS(WINDOW, "cache.bytes")),
        METRIC("sluice_cache_bytes", NULL, "Slot memory of the expert cache.")),
    ROW("bank_bytes", COUNT, 0, WHOLE(bank_bytes), IN(RUN) | IN(TOP) | IN(WINDOW), AS(WINDOW, "model.expert_bytes"),
        METRIC("sluice_expert_bytes", NULL, "Expert weights that stream, all models.")),
    ROW("slots", COUNT, 0, WHOLE(slots), IN(RUN) | IN(TOP) | IN(WINDOW), AS(WINDOW, "cache.slots"),
        METRIC("sluice_cache_slots", NULL, "Bundles (one expert of one layer) that fit.")),
    ROW("resident", COUNT, 0, WHOLE(resident), IN(RUN) | IN(TOP) | IN(WINDOW), AS(WINDOW, "cache.resident"),
        METRIC("sluice_cache_resident_bundles", NULL, "Bundles in memory or on their way.")),
    ROW("evictions", COUNT, 0, WHOLE(evictions), IN(RUN) | IN(WINDOW) | IN(FILE), AS(WINDOW, "cache.evictions"),
        METRIC("sluice_cache_evictions_total", NULL, "Bundles evicted.")),
    ROW("foreseen_asked", COUNT, 0, WHOLE(foreseen.asked), IN(RUN) | IN(WINDOW),
        NAMES(AS(RUN, "foreseen.asked"), AS(WINDOW, "lookahead.asked")),
        METRIC("sluice_foreseen_asked_total", NULL, "Bundles expected before their use and not in memory.")),
    ROW("foreseen_begun", COUNT, 0, WHOLE(foreseen.begun), IN(RUN) | IN(WINDOW) | IN(FILE),
        NAMES(AS(RUN, "foreseen.begun"), AS(WINDOW, "lookahead.begun")),
        METRIC("sluice_foreseen_begun_total", NULL, "Of those, bundles whose reading began before the demand.")),
    ROW("foreseen_used", COUNT, 0, WHOLE(foreseen.used), IN(RUN) | IN(WINDOW) | IN(FILE),
        NAMES(AS(RUN, "foreseen.used"), AS(WINDOW, "lookahead.used")),
        METRIC("sluice_foreseen_used_total", NULL, "Of those, bundles that the router then picked.")),
    ROW("foreseen_read_bytes", COUNT, 0, WHOLE(foreseen.read_bytes), IN(RUN) | IN(WINDOW),
        NAMES(AS(RUN, "foreseen.read_bytes"), AS(WINDOW, "lookahead.read_bytes")),
        METRIC("sluice_foreseen_read_bytes_total", NULL, "Bytes read ahead of their use.")),
    ROW("foreseen_pauses", COUNT, 0, WHOLE(foreseen.pauses), IN(RUN) | IN(WINDOW),
        NAMES(AS(RUN, "foreseen.pauses"), AS(WINDOW, "lookahead.pauses")), NO_METRIC),
    ROW("token_bytes", COUNT, 0, WHOLE(token_bytes), IN(RUN) | IN(WINDOW), AS(WINDOW, "model.token_bytes"), NO_METRIC),
    ROW("layer_bytes", COUNT, 0, WHOLE(layer_bytes), IN(RUN), SAME, NO_METRIC),
    ROW("layers", COUNT_32, 0, WHOLE(layers), IN(FILE), SAME, NO_METRIC),
    ROW("tensors", COUNT_32, 0, WHOLE(tensors), IN(WINDOW) | IN(FILE), AS(WINDOW, "model.tensors"), NO_METRIC),
    ROW("lanes", COUNT_32, 0, WHOLE(lanes), IN(RUN) | IN(WINDOW), AS(WINDOW, "disk.lanes"), NO_METRIC),
    ROW("io", IO, 0, WHOLE(io), IN(RUN) | IN(WINDOW) | IN(FILE), AS(WINDOW, "disk.io"), NO_METRIC),
    ROW("direct_io", FLAG, 0, WHOLE(direct_io), IN(RUN) | IN(WINDOW) | IN(FILE), AS(WINDOW, "disk.direct"), NO_METRIC),
    ROW("cold_copies", COUNT, 0, WHOLE(cold.copies), IN(WINDOW) | IN(FILE), AS(WINDOW, "cold.copies"), NO_METRIC),
    ROW("cold_hits", COUNT, 0, WHOLE(cold.hits), IN(WINDOW) | IN(FILE), AS(WINDOW, "cold.hits"), NO_METRIC),
    ROW("cold_reads", COUNT, 0, WHOLE(cold.reads), IN(WINDOW) | IN(FILE), AS(WINDOW, "cold.reads"), NO_METRIC),
    ROW("cold_read_bytes", COUNT, 0, WHOLE(cold.read_bytes), IN(WINDOW) | IN(FILE), AS(WINDOW, "cold.read_bytes"),
        METRIC("sluice_cold_read_bytes_total", NULL, "Bytes read from the cold model's file.")),
    ROW("cold_cache_bytes", COUNT, 0, WHOLE(cold.cache_bytes), IN(WINDOW) | IN(FILE), AS(WINDOW, "cold.cache_bytes"),
        NO_METRIC),
    ROW("cold_tensors", COUNT_32, 0, WHOLE(cold.tensors), IN(WINDOW) | IN(FILE), AS(WINDOW, "cold.tensors"), NO_METRIC),

    /* ---- the memory plan ---- */
    ROW("limit_bytes", COUNT, 0, PLAN(limit_bytes), IN(RUN), SAME, NO_METRIC),
    ROW("limit_by_setting", FLAG, 0, PLAN(limit_by_setting), IN(RUN), SAME, NO_METRIC),
    ROW("total_bytes", COUNT, 0, PLAN(total_bytes), IN(RUN) | IN(WINDOW) | IN(FILE), AS(FILE, "plan_bytes"), NO_METRIC),
    ROW("process_bytes", COUNT, 0, PLAN(process_bytes), IN(RUN) | IN(WINDOW), SAME,
        METRIC("sluice_memory_plan_bytes", "part=\"process\"",
               "What the process is expected to use at most, by part.")),
    ROW("files_bytes", COUNT, 0, PLAN(files_bytes), IN(RUN) | IN(WINDOW), SAME,
        METRIC("sluice_memory_plan_bytes", "part=\"files\"", NULL)),
    ROW("untouched_bytes", COUNT, 0, PLAN(untouched_bytes), IN(RUN) | IN(WINDOW), SAME,
        METRIC("sluice_memory_plan_bytes", "part=\"untouched\"", NULL)),
    ROW("dense_bytes", COUNT, 0, PLAN(dense_bytes), IN(RUN) | IN(WINDOW) | IN(FILE), SAME,
        METRIC("sluice_memory_plan_bytes", "part=\"dense\"", NULL)),
    ROW("cache_bytes", COUNT, 0, PLAN(cache_bytes), IN(RUN) | IN(WINDOW), SAME,
        METRIC("sluice_memory_plan_bytes", "part=\"cache\"", NULL)),
    ROW("scratch_bytes", COUNT, 0, PLAN(scratch_bytes), IN(RUN) | IN(WINDOW), SAME,
        METRIC("sluice_memory_plan_bytes", "part=\"scratch\"", NULL)),
    ROW("floor_bytes", COUNT, 0, PLAN(floor_bytes), IN(RUN) | IN(WINDOW), SAME, NO_METRIC),
    ROW("dense_mapped", FLAG, 0, PLAN(dense_mapped), IN(RUN) | IN(WINDOW) | IN(FILE), SAME, NO_METRIC),
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

double counters_share(uint64_t part, uint64_t rest) {
    return counters_ratio((double)part, (double)part + (double)rest);
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
        if (c->at.phase && c->kind != WEIGHT_KEPT) {
            add(c, field(to, c->at.phase), NULL, field(from, c->at.phase));
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
        if (c->at.step && c->flags & LARGEST) {
            uint64_t *largest = field(to, c->at.step);
            const uint64_t n = *(const uint64_t *)field(&one, c->at.step);
            *largest = n > *largest ? n : *largest;
        } else if (c->at.step && !(c->flags & MEAN)) {
            add(c, field(to, c->at.step), NULL, field(&one, c->at.step));
        }
    }
}

void counters_between(const struct sluice_stats *before, const struct sluice_stats *now, struct sluice_step *out) {
    struct step_sums to = {.sum = *out};
    for (const struct counter *c = table; c < table + ROWS; c++) {
        for (int p = 0; c->at.step && c->at.phase && !(c->flags & ENDED) && p < COUNTERS_PHASES; p++) {
            add(c, field(&to, c->at.step), field(counters_phase(before, p), c->at.phase),
                field(counters_phase(now, p), c->at.phase));
        }
        if (c->at.step && c->at.whole) {
            add(c, field(&to, c->at.step), field(before, c->at.whole), field(now, c->at.whole));
        }
    }
    *out = to.sum;
    if (out->submits) {
        out->queue_mean = (double)(now->queue_sum - before->queue_sum) / (double)out->submits;
    }
}

bool counters_sane(const struct step_sums *s) {
    for (const struct counter *c = table; c < table + ROWS; c++) {
        const double x = c->at.step && real(c) ? *(const double *)field(s, c->at.step) : 0;
        if (!isfinite(x) || (c->kind == SECONDS && (x < -1e-3 || x > 1e12))) { /* parts may be a rounding below 0 */
            return false;
        }
    }
    return true;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Where the row's number is, of what is told; NULL: it is not. */
static const void *counter_at(const struct counter *c, const struct counters_at *at) {
    if (c->at.step && at->ended && (c->flags & ENDED || !c->at.phase || !at->live)) {
        return field(at->ended, c->at.step);
    }
    return c->at.phase && at->live                   ? field(at->live, c->at.phase)
           : c->at.whole && !c->at.step && at->stats ? field(at->stats, c->at.whole)
           : c->at.plan && at->plan                  ? field(at->plan, c->at.plan)
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
        const void *from = c->in & 1u << out && (c->flags & RESIDENT || !at->resident) ? counter_at(c, at) : NULL;
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

json_t *counters_object(enum counters_out out, const struct counters_at *at) {
    json_t *o = json_object();
    if (!counters_json(o, out, at)) {
        json_decref(o);
        return NULL;
    }
    return o;
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
            write_number(out, c, field(&one, c->at.step), 7);
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
    const bool phases = c->at.phase || c->at.step;
    for (int p = 0; p < (phases ? COUNTERS_PHASES : 1); p++) {
        const struct counters_at at = {.live = counters_phase(s, p), .ended = &ended[p], .stats = s, .plan = plan};
        const char *label = c->metric.label ? c->metric.label : "";
        if (phases) {
            fprintf(out, "%s{phase=\"%s\"%s%s} ", c->metric.name, name[p], label[0] ? "," : "", label);
        } else {
            fprintf(out, label[0] ? "%s{%s} " : "%s%s ", c->metric.name, label);
        }
        write_number(out, c, counter_at(c, &at), 6);
        fputc('\n', out);
    }
}

void counters_metrics(FILE *out, const struct sluice_stats *s, const struct step_sums ended[COUNTERS_PHASES],
                      const struct sluice_plan *plan) {
    for (const struct counter *c = table; c < table + ROWS; c++) {
        if (!c->metric.help || (c->at.plan && !plan)) {
            continue; /* not a metric's first row */
        }
        counters_family(out, c->metric.name, c->metric.help);
        for (const struct counter *row = c; row < table + ROWS; row++) {
            if (row->metric.name && strcmp(row->metric.name, c->metric.name) == 0) {
                metric_lines(out, row, s, ended, plan);
            }
        }
    }
}
