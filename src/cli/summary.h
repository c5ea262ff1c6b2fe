/*
 * summary.h - what a run did, for people and as JSON.
 */
#ifndef SLUICE_CLI_SUMMARY_H
#define SLUICE_CLI_SUMMARY_H

#include <stdio.h>

#include "cli/json.h"
#include "cli/session.h"
#include "run/record.h"
#include "sluice.h"

/* One phase. */
struct cli_phase {
    uint64_t tokens;        /* tokens computed in it */
    double seconds;         /* wall time of computing them, seconds */
    struct step_sums steps; /* its steps, added up; of failed and interrupted ones nothing */
};

/* How things stand when all is computed. */
struct cli_end {
    bool streams;               /* something does */
    struct sluice_stats total;  /* counters */
    struct sluice_plan plan;    /* the memory plan in force; all zero when nothing streams */
    uint64_t peak_bytes;        /* plan_process_peak */
    uint64_t cgroup_peak_bytes; /* plan_cgroup_peak; 0: not readable */
    char mode[512];             /* the mode line, final */
};

struct cli_report {
    const struct cli_session *session;
    struct cli_phase prompt;      /* reading the prompt */
    struct cli_phase generation;  /* the steps after it */
    struct sluice_generated made; /* the generation */
    struct cli_end end;           /* when the generation had ended */
    uint64_t restored;            /* tokens of the prompt that --prompt-cache gave; not in `prompt` */
    double first_token_s;         /* from the prompt's start to the first token; 0: none was made */
    bool compared;                /* --compare-resident: comparison is filled */
    struct sluice_comparison comparison;
};

/* "  name   512 tokens in 1.00 s, ..." and where the time went. `streaming`: with what was read. */
void cli_phase_print(FILE *out, const char *name, const struct cli_phase *p, bool streaming);

/* Fill *e: nothing more is computed by the session. */
void cli_end_read(struct cli_end *e, const struct cli_session *s);

/* The lines on cache, reading ahead and memory; the first two when something streams. */
void cli_end_print(FILE *out, const struct cli_end *e);

/* A phase as a JSON object. NULL: no memory. */
json_t *cli_phase_json(const struct cli_phase *p, bool streaming);

/* What the object of a run begins with: versions, model, mode. NULL: no memory. And what it ends with. False likewise.
 */
json_t *cli_head_json(const struct cli_session *s, const struct cli_end *e);
bool cli_end_json(json_t *o, const struct cli_end *e);

/* The summary, some lines. */
void cli_summary_print(const struct cli_report *r, FILE *out);

/*
 * The same and the generated text as one JSON object on standard output. Returns an exit code, after
 * printing one line if it is not 0.
 */
int cli_summary_json(const struct cli_report *r, const char *text, size_t n_text);

#endif
