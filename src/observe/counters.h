/*
 * counters.h - the one table of counters, and everything that is written from it.
 *
 * A counter is a field of sluice_phase_stats, of sluice_step, of sluice_stats or of sluice_plan (include/sluice.h) and
 * one row in counters.c. The row says what the field is called in each output, how it adds up, and its help text. Every
 * function here takes plain structs, needs no lock and keeps nothing.
 */
#ifndef SLUICE_OBSERVE_COUNTERS_H
#define SLUICE_OBSERVE_COUNTERS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sluice.h"

enum { COUNTERS_PHASES = 2 }; /* by enum sluice_phase */

/* Who is told. A counter may have another name in each, where history wants it. */
enum counters_out {
    COUNTERS_CSV,    /* a column of --csv and SLUICE_CSV */
    COUNTERS_RUN,    /* --json of `sluice run` and `sluice eval` */
    COUNTERS_TOP,    /* a phase, or what is not of a phase, in `sluice top --json` */
    COUNTERS_TOTAL,  /* of both phases together, there */
    COUNTERS_WINDOW, /* the window's /stats */
    COUNTERS_FILE,   /* SLUICE_STATS */
    COUNTERS_OUTS
};

/* Finished steps, added up. Fields of eight bytes only, so that it has one layout everywhere. */
struct step_sums {
    uint64_t steps;         /* how many */
    double ended;           /* when the last one ended, seconds of clock_seconds; 0: none did */
    struct sluice_step sum; /* of their numbers; queue_max is the largest, queue_mean that of all; phase is not used */
};

/* What an output is made from. A row is written when the struct that holds it is there. */
struct counters_at {
    const struct sluice_phase_stats *live; /* a phase, as the engine counts, within a step too; NULL: not told */
    const struct step_sums *ended;         /* its finished steps; NULL: not told */
    const struct sluice_stats *stats;      /* what is not of a phase; NULL: not told */
    const struct sluice_plan *plan;        /* the memory plan; NULL: not told */
    bool resident;                         /* nothing streams: only rows that make sense without */
    const char *prefix;                    /* before the row's plain name, instead of the output's own; NULL: none */
};

/* A phase of *s, by enum sluice_phase. */
const struct sluice_phase_stats *counters_phase(const struct sluice_stats *s, int phase);

/* a / b; 0 where that is no finite number. */
double counters_ratio(double a, double b);

/* What `part` is of both together, 0..1; 0 where there is nothing. */
double counters_share(uint64_t part, uint64_t rest);

/* Add the counts of one phase to another's. */
void counters_add(struct sluice_phase_stats *to, const struct sluice_phase_stats *from);

/* Add one step that ended. */
void counters_add_step(struct step_sums *to, const struct sluice_step *s);

/* Add to *out what was counted between two snapshots, both phases together; a step's times are its own. */
void counters_between(const struct sluice_stats *before, const struct sluice_stats *now, struct sluice_step *out);

/* May these be sums of real steps? False: a number is not finite, or seconds are out of range. */
bool counters_sane(const struct step_sums *s);

/*
 * Put the counters that `out` shows into an object, those with a dot in their name into objects in it. False: no
 * memory.
 */
bool counters_json(json_t *object, enum counters_out out, const struct counters_at *at);

/* A new object with them. NULL: no memory. */
json_t *counters_object(enum counters_out out, const struct counters_at *at);

/* The columns' names, each with a comma before it. Then a row's numbers, likewise. */
void counters_csv_head(FILE *out);
void counters_csv_row(FILE *out, const struct sluice_step *s);

/* All metrics of Prometheus that are counters. `plan` may be NULL. */
void counters_metrics(FILE *out, const struct sluice_stats *s, const struct step_sums ended[COUNTERS_PHASES],
                      const struct sluice_plan *plan);

/* The lines before a metric of Prometheus. A name that ends in "_total" is a counter, else it is a gauge. */
void counters_family(FILE *out, const char *name, const char *help);

/* A number with so many digits after a point, whatever the locale's decimal sign. Not above 0: 0. */
void counters_fixed(FILE *out, double x, int digits);

#endif
