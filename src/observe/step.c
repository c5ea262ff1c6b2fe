/*
 * step.c - what a step cost, and telling it.
 *
 * A step is one llama_decode. Only its caller knows where it begins and ends, so a program that can
 * says so (sluice_step_begin, sluice_step_end): its time then is what the splits measured in our backend
 * (cache/timing.h), and, between them, the time from one split's end to the next one's begin. With
 * both ends known, nothing of the step is unmeasured, and nothing is computed as a remainder.
 *
 * A stock program says nothing. There every batch of a context is a step (observe/batch.h, which knows its phase too).
 * Such a step reaches from its first block to the end of its last: the first layer's
 * attention, the output head and sampling are outside of what a backend sees. Its end is only known
 * when the next begins (or the context is freed), so faults and processor time, asked of the kernel at
 * that moment, are those up to the next step's first block. Contexts that decode in turns have their
 * steps apart; where two really compute at once, the counts of a step are what happened in the process
 * since the last step ended, so that rows always add up to the totals.
 *
 * The file of `sluice top` is written at the end of each step, and in a long step at the end of a split once a tenth of
 * a second. It is made when a context is made for a model that streams, and removed with the last such model or at the
 * end of the process. Where it cannot be made there is nothing to see, which is no reason not to run. The last step of
 * a request that the backend finds is shown when the next begins.
 *
 * Cost: three clock reads per split (one more per graph run); two getrusage, a copy of the counters and a write of 1.5
 * microseconds per step, where the shortest step takes a millisecond; no allocation.
 */
#include "observe/step.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "cache/check.h"
#include "cache/clock.h"
#include "cache/error.h"

#define STEP_SHOWN 0.1 /* seconds between writes within a step */

/* The step that the program began on this thread. */
static _Thread_local struct step step_explicit;

/* ---- what `sluice top` sees ------------------------------------------------------------------- */

/* Bring the file, if there is one, up to the counters *st at time t. */
static void step_show(struct step_log *log, const struct sluice_stats *st, double t) {
    const struct facts_source *from = log->source;
    struct stat_data *d = &log->shown;
    struct engine_layer layers[STAT_LAYERS_MAX];
    assert(check_held(&log->lock));
    if (!log->stat) {
        return;
    }
    /* The arena was cut: now auto is decided. Or a setting was changed. */
    const uint64_t version = from->version(from->ud);
    if (d->stats.cache_bytes != st->cache_bytes || log->shown_version != version || !d->mode[0]) {
        struct facts facts;
        from->facts(from->ud, &facts);
        log->shown_version = version;
        d->threads = (uint64_t)facts.threads;
        snprintf(d->mode, sizeof d->mode, "%.*s", (int)sizeof d->mode - 1, facts.mode);
        snprintf(d->model, sizeof d->model, "%.*s", (int)sizeof d->model - 1, facts.model);
    }
    d->updated = t;
    d->stats = *st;
    d->n_layers = engine_layers(from->engine, layers, STAT_LAYERS_MAX);
    for (uint32_t i = 0; i < d->n_layers; i++) {
        d->layer[i] = (struct stat_layer){.resident = layers[i].resident, .experts = layers[i].experts};
    }
    stat_write(log->stat, d);
    log->shown_at = t;
}

void step_program(char *name, int n) {
    FILE *f = fopen("/proc/self/comm", "re");
    name[0] = '\0';
    if (f) {
        if (!fgets(name, n, f)) {
            name[0] = '\0';
        }
        fclose(f);
    }
    name[strcspn(name, "\n")] = '\0';
}

void step_publish(struct step_log *log) {
    struct sluice_stats st;
    struct facts facts;
    log->source->stats(log->source->ud, &st);
    log->source->facts(log->source->ud, &facts);
    if (!facts.settings.publish || st.tensors == 0) {
        return;
    }
    check_lock(&log->lock);
    if (!log->stat && stat_create(&log->stat, NULL) == SLUICE_OK) {
        step_program(log->shown.program, sizeof log->shown.program);
        snprintf(log->shown.version, sizeof log->shown.version, "%s", SLUICE_VERSION);
        log->shown.mode[0] = '\0'; /* of a model that is gone */
    }
    step_show(log, &st, clock_seconds());
    check_unlock(&log->lock);
}

void step_unpublish(struct step_log *log) {
    check_lock(&log->lock);
    stat_remove(log->stat);
    log->stat = NULL;
    check_unlock(&log->lock);
}

void step_ended(struct step_log *log, struct step_sums out[COUNTERS_PHASES]) {
    check_lock(&log->lock);
    memcpy(out, log->shown.ended, sizeof log->shown.ended);
    check_unlock(&log->lock);
}

/* ---- the end of a step ------------------------------------------------------------------------ */

static double seconds_of(struct timeval t) {
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

static double cpu_of(const struct rusage *u) {
    return seconds_of(u->ru_utime) + seconds_of(u->ru_stime);
}

static void step_start(struct step *s, double t) {
    *s = (struct step){.log = s->log, .open = true, .begin = t, .mark = t};
    getrusage(RUSAGE_SELF, &s->usage); /* fails for bad arguments only */
}

/* Add what the process counted since the last step ended, any step, and tell of this one, which ended at time t. */
static void step_tell(struct step_log *log, struct sluice_step *s, double t) {
    const struct facts_source *from = log->source;
    struct stat_data *d = &log->shown;
    check_lock(&log->lock);
    if (from && from->engine) {
        struct sluice_stats now;
        from->stats(from->ud, &now);
        counters_between(&log->last, &now, s);
        s->queue_max = engine_take_queue_max(from->engine);
        log->last = now;
    }
    if (s->tokens) {
        counters_add_step(&d->ended[s->phase], s);
        d->ended[s->phase].ended = t;
        d->step[d->n_steps++ % STAT_STEPS] = *s;
    }
    step_show(log, &log->last, t);
    check_unlock(&log->lock);
}

/* End a step at time `end`; its numbers go to *out. */
static void step_finish(struct step *s, struct step_log *log, double end, enum sluice_phase phase, uint32_t tokens,
                        struct sluice_step *out) {
    struct rusage now;
    getrusage(RUSAGE_SELF, &now);
    *out = (struct sluice_step){
        .phase = phase,
        .tokens = tokens,
        .wall_s = end - s->begin,
        .stall_s = s->s[TIMING_STALL],
        .expert_s = s->s[TIMING_EXPERT],
        .other_s = s->s[TIMING_OTHER],
        .bookkeeping_s = s->s[TIMING_BOOKKEEPING],
        .minor_faults = (uint64_t)(now.ru_minflt - s->usage.ru_minflt),
        .major_faults = (uint64_t)(now.ru_majflt - s->usage.ru_majflt),
        .cpu_s = cpu_of(&now) - cpu_of(&s->usage),
    };
    step_tell(log, out, end);
    s->open = false;
}

/* ---- the plug-in's file ----------------------------------------------------------------------- */

int step_csv_open(struct step_log *log, const char *path, struct sluice_error *err) {
    return csv_open(&log->csv, path, err);
}

int step_csv_close(struct step_log *log, struct sluice_error *err) {
    check_lock(&log->lock);
    const int rc = csv_close(log->csv, err);
    log->csv = NULL;
    check_unlock(&log->lock);
    return rc;
}

/* What stands before the first row. */
static void step_csv_facts(struct step_log *log) {
    struct facts facts;
    assert(check_held(&log->lock));
    log->source->facts(log->source->ud, &facts);
    csv_fact(log->csv, "model", "%s", facts.model);
    csv_fact(log->csv, "architecture", "%s", facts.architecture[0] ? facts.architecture : "unknown");
    csv_fact(log->csv, "mode", "%s", facts.mode);
    csv_settings(log->csv, &facts.settings, &log->last, true);
    csv_fact(log->csv, "threads", "%d", facts.threads);
    csv_fact(log->csv, "ubatch", "unknown"); /* the program's; a row's tokens tell */
    csv_fact(log->csv, "steps", "seen by the backend: first to last MoE block");
    log->csv_facts = true;
}

/* A row. A host program cannot be failed for it: said once, then no more. */
static void step_csv_row(struct step_log *log, const struct sluice_step *row) {
    struct sluice_error err = {0};
    check_lock(&log->lock);
    if (log->csv && !log->csv_facts) {
        step_csv_facts(log);
    }
    if (log->csv && csv_row(log->csv, row, &err)) {
        fprintf(stderr, "sluice: %s\n", err.message);
        csv_close(log->csv, NULL);
        log->csv = NULL;
    }
    check_unlock(&log->lock);
}

/* ---- steps that the backend finds ------------------------------------------------------------- */

void step_enter(struct step *own, double t) {
    if (!step_explicit.open && !own->open) {
        step_start(own, t);
        own->fresh = true;
    }
}

void step_block(struct step *own, const struct batch *b, bool begins) {
    if (step_explicit.open) {
        return;
    }
    if (!own->fresh && begins) {
        step_close(own); /* before anything of the new step is counted */
        step_start(own, clock_seconds());
        own->fresh = true;
    }
    own->tokens = b->rows;
    own->phase = b->phase;
}

void step_leave(struct step *own, const struct timing *l) {
    struct step *s = step_explicit.open ? &step_explicit : own;
    struct step_log *log = own->log;
    const double begin = l->since - l->s[TIMING_BOOKKEEPING] - l->s[TIMING_EXPERT] - l->s[TIMING_STALL];
    if (s == own && own->fresh) {
        own->begin = begin; /* the whole split is the step's, its routing included */
        own->fresh = false;
    } else {
        s->s[TIMING_OTHER] += begin - s->mark;
    }
    for (int i = 0; i < TIMING_PARTS; i++) {
        s->s[i] += l->s[i];
    }
    s->mark = l->since;
    if (log) {
        check_lock(&log->lock);
        if (log->stat && l->since - log->shown_at >= STEP_SHOWN) {
            struct sluice_stats st;
            log->source->stats(log->source->ud, &st);
            step_show(log, &st, l->since);
        }
        check_unlock(&log->lock);
    }
}

void step_close(struct step *own) {
    if (own->log && own->open && own->tokens) {
        struct sluice_step row;
        step_finish(own, own->log, own->mark, own->phase, own->tokens, &row);
        step_csv_row(own->log, &row);
    }
    own->open = false;
}

/* ---- steps that the program begins ------------------------------------------------------------ */

void step_begin(void) {
    step_start(&step_explicit, clock_seconds());
    step_explicit.begin = step_explicit.mark = clock_seconds(); /* after the system call */
}

void step_end(struct step_log *log, enum sluice_phase phase, uint32_t tokens, struct sluice_step *out) {
    struct step *s = &step_explicit;
    struct sluice_step row = {0};
    if (s->open) {
        const double end = clock_seconds();
        s->s[TIMING_OTHER] += end - s->mark;
        step_finish(s, log, end, phase, tokens, &row);
    }
    if (out) {
        *out = row;
    }
}
