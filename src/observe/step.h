/* step.h - what a step of a host program cost, where its time went, and who is told. */
#ifndef SLUICE_OBSERVE_STEP_H
#define SLUICE_OBSERVE_STEP_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

#include "observe/batch.h"
#include "observe/csv.h"
#include "observe/facts.h"
#include "observe/stat_file.h"
#include "sluice.h"
#include "cache/timing.h"

/* A step that is going on. Zeroed: none is. Used by one thread at a time. */
struct step {
    struct step_log *log;    /* who is told of a step that the backend found; NULL: nobody */
    bool open;               /* it has begun */
    bool fresh;              /* found by the backend: the split that runs now is its first */
    double begin;            /* when, seconds of clock_seconds */
    double mark;             /* until when its time is booked */
    double s[TIMING_PARTS];  /* seconds booked, by part */
    struct rusage usage;     /* of the process, at its beginning */
    uint32_t tokens;         /* found by the backend: of its batch; 0: no block yet */
    enum sluice_phase phase; /* likewise */
};

/* What is told about steps, for all contexts. One per process, zeroed but for `lock` and `source`. */
struct step_log {
    const struct facts_source *source; /* of the counters and of what runs; set before anything else is called */
    pthread_mutex_t lock;              /* guards the rest */
    struct sluice_stats last;          /* counters when the last step ended */
    struct csv *csv;        /* SLUICE_CSV: rows of steps that the backend found; NULL: not wanted, or failed */
    bool csv_facts;         /* its settings are written */
    struct stat_file *stat; /* for `sluice top`; NULL: nothing streams, or not wanted */
    struct stat_data shown; /* what is in it */
    uint64_t shown_version; /* facts_source.version of its mode line */
    double shown_at;        /* when it was written, seconds of clock_seconds */
};

/*
 * For the executor: a split begins at time t; a block begins in it, which belongs to *b and with which that batch
 * `begins` or not; the split ends, its times are in *l, whose last switch was its end. `own` is the context's step.
 * When the thread is in a step that the program began, that one gets the times.
 */
void step_enter(struct step *own, double t);
void step_block(struct step *own, const struct batch *b, bool begins);
void step_leave(struct step *own, const struct timing *l);

/* The context ends: so does its last step. */
void step_close(struct step *own);

/* sluice_step_begin and sluice_step_end. */
void step_begin(void);
void step_end(struct step_log *log, enum sluice_phase phase, uint32_t tokens, struct sluice_step *out);

/* Copy the sums over finished steps, by enum sluice_phase. */
void step_ended(struct step_log *log, struct step_sums out[COUNTERS_PHASES]);

/* A context was made: show counters to `sluice top` from now on, if something streams and settings.publish allows it.
 */
void step_publish(struct step_log *log);

/* Nothing streams any more. */
void step_unpublish(struct step_log *log);

/* Write a row for each step that the backend finds to this file. Once, before any step. SLUICE_ERR_IO. */
int step_csv_open(struct step_log *log, const char *path, struct sluice_error *err);

/* The end of it. SLUICE_ERR_IO when some of it could not be written. */
int step_csv_close(struct step_log *log, struct sluice_error *err);

/* This program's name, as `ps` has it: at most n bytes with the terminator. "": unknown. */
void step_program(char *name, int n);

#endif
