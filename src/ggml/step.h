/* step.h - what a step of a host program cost, where its time went, and who is told. */
#ifndef SLUICE_GGML_STEP_H
#define SLUICE_GGML_STEP_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

#include "observe/batch.h"
#include "observe/csv.h"
#include "observe/stat_file.h"
#include "sluice.h"
#include "cache/engine.h"
#include "cache/timing.h"

/* A step that is going on. Zeroed: none is. Used by one thread at a time. */
struct step {
    bool open;               /* it has begun */
    bool fresh;              /* found by the backend: the split that runs now is its first */
    double begin;            /* when, seconds of clock_seconds */
    double mark;             /* until when its time is booked */
    double s[TIMING_PARTS];  /* seconds booked, by part */
    struct rusage usage;     /* of the process, at its beginning */
    uint32_t tokens;         /* found by the backend: of its batch; 0: no block yet */
    enum sluice_phase phase; /* likewise */
};

/* What is told about steps, for all contexts. In sluice_device. */
struct step_log {
    pthread_mutex_t lock;     /* guards the rest */
    struct sluice_stats last; /* counters when the last step ended */
    struct csv *csv;          /* SLUICE_CSV: rows of steps that the backend found; NULL: not wanted, or failed */
    bool csv_facts;           /* its settings are written */
    struct stat_file *stat;   /* for `sluice top`; NULL: nothing streams, or not wanted */
    struct stat_data shown;   /* what is in it */
    double shown_below;       /* drop_cold_experts in its mode line */
    bool shown_renorm;        /* drop_renorm in it */
    double shown_at;          /* since when, seconds of clock_seconds */
    bool at_exit;             /* removal at the end of the process is arranged */
};

/*
 * For block.c: a split begins at time t; a block begins in it, which belongs to *b and with which that batch `begins`
 * or not; the split ends, its times are in *l, whose last switch was its end. `own` is the context's step. When the
 * thread is in a step that the program began (sluice_step_begin), that one gets the times.
 */
void step_enter(struct step *own, double t);
void step_block(struct step *own, const struct batch *b, bool begins);
void step_leave(struct step *own, const struct timing *l);

/* The context ends: so does its last step. */
void step_close(struct step *own);

/* A context was made for a model that streams: show counters from now on, if the settings allow it. */
void step_publish(void);

/* Nothing streams any more. */
void step_unpublish(void);

/* The plug-in: write a row for each step that the backend finds to this file. Once, before any step. */
int step_csv_open(const char *path, struct sluice_error *err);

/* Likewise, at the end of the process. */
int step_csv_close(struct sluice_error *err);

#endif
