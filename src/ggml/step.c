/*
 * step.c - what a step cost.
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
 * `sluice top` is shown each step (show.c). With steps that the backend finds, the last one of a request
 * is shown when the next begins; the totals are up to date to a tenth of a second.
 *
 * Cost: three clock reads per split (one more per graph run), two getrusage and one copy of the
 * counters per step; no allocation.
 */
#include "ggml/step.h"

#include <stdio.h>
#include <string.h>

#include "ggml/backend.h"
#include "ggml/show.h"
#include "cache/clock.h"
#include "cache/error.h"

/* The step that the program began on this thread. */
static _Thread_local struct step step_explicit;

static double seconds_of(struct timeval t) {
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

static double cpu_of(const struct rusage *u) {
    return seconds_of(u->ru_utime) + seconds_of(u->ru_stime);
}

/* What the process counted since the last step ended, any step. */
static void step_count(struct step_log *log, struct sluice_step *out) {
    struct sluice_stats now;
    if (!sluice_device.engine) {
        return; /* nothing streams */
    }
    device_stats(&now);
    counters_between(&log->last, &now, out);
    out->queue_max = engine_take_queue_max(sluice_device.engine);
    log->last = now;
}

static void step_start(struct step *s, double t) {
    *s = (struct step){.open = true, .begin = t, .mark = t};
    getrusage(RUSAGE_SELF, &s->usage); /* fails for bad arguments only */
}

/* End a step at time `end`; its numbers go to *out. */
static void step_finish(struct step *s, double end, enum sluice_phase phase, uint32_t tokens, struct sluice_step *out) {
    struct step_log *log = &sluice_device.steps;
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
    pthread_mutex_lock(&log->lock);
    step_count(log, out);
    show_step(log, out, end);
    pthread_mutex_unlock(&log->lock);
    s->open = false;
}

/* ---- the plug-in's file ---------------------------------------------------------------------- */

int step_csv_open(const char *path, struct sluice_error *err) {
    return csv_open(&sluice_device.steps.csv, path, err);
}

int step_csv_close(struct sluice_error *err) {
    struct step_log *log = &sluice_device.steps;
    pthread_mutex_lock(&log->lock);
    const int rc = csv_close(log->csv, err);
    log->csv = NULL;
    pthread_mutex_unlock(&log->lock);
    return rc;
}

/* A row, and before the first one the settings. A host program cannot be failed for it: said once, then no more. */
static void step_csv_row(const struct sluice_step *row) {
    struct step_log *log = &sluice_device.steps;
    struct sluice_error err = {0};
    pthread_mutex_lock(&log->lock);
    if (log->csv && !log->csv_facts) {
        char model[1024], mode[512];
        sluice_mode_line(mode, sizeof mode);
        pthread_mutex_lock(&sluice_device.lock);
        const struct sluice_settings settings = sluice_device.settings; /* the cache's may be changed meanwhile */
        pthread_mutex_unlock(&sluice_device.lock);
        engine_file_path(sluice_device.engine, model, sizeof model);
        csv_fact(log->csv, "model", "%s", model);
        csv_fact(log->csv, "architecture", "%s",
                 sluice_device.architecture[0] ? sluice_device.architecture : "unknown");
        csv_fact(log->csv, "mode", "%s", mode);
        csv_settings(log->csv, &settings, &log->last, true);
        csv_fact(log->csv, "threads", "%d", sluice_device.threads);
        csv_fact(log->csv, "ubatch", "unknown"); /* the program's; a row's tokens tell */
        csv_fact(log->csv, "steps", "seen by the backend: first to last MoE block");
        log->csv_facts = true;
    }
    if (log->csv && csv_row(log->csv, row, &err)) {
        fprintf(stderr, "sluice: %s\n", err.message);
        csv_close(log->csv, NULL);
        log->csv = NULL;
    }
    pthread_mutex_unlock(&log->lock);
}

/* ---- steps that the backend finds ------------------------------------------------------------ */

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
    show_split(l->since);
}

void step_close(struct step *own) {
    if (own->open && own->tokens) {
        struct sluice_step row;
        step_finish(own, own->mark, own->phase, own->tokens, &row);
        step_csv_row(&row);
    }
    own->open = false;
}

/* ---- steps that the program begins ------------------------------------------------------------ */

void sluice_step_begin(void) {
    step_start(&step_explicit, clock_seconds());
    step_explicit.begin = step_explicit.mark = clock_seconds(); /* after the system call */
}

void sluice_step_end(enum sluice_phase phase, uint32_t tokens, struct sluice_step *out) {
    struct step *s = &step_explicit;
    struct sluice_step row = {0};
    if (s->open) {
        const double end = clock_seconds();
        s->s[TIMING_OTHER] += end - s->mark;
        step_finish(s, end, phase, tokens, &row);
    }
    if (out) {
        *out = row;
    }
}
