/*
 * bench_impl.h - what the files of `sluice bench` share: rows, their runs, their figures.
 */
#ifndef SLUICE_CLI_BENCH_IMPL_H
#define SLUICE_CLI_BENCH_IMPL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "bench/csv.h"
#include "bench/machine.h"
#include "bench/stats.h"
#include "cli/args.h"
#include "cli/progress.h"
#include "gguf/gguf_check.h"
#include "run/info.h"
#include "run/probe.h"
#include "run/runner.h"

enum {
    BENCH_ENTRIES_MAX = 256, /* rows of the table */
    BENCH_WORDS_MAX = 32,    /* options of a --variant */
    BENCH_BUDGET_MAX = 32,   /* bytes of a budget */
    BENCH_PROBES = 6,        /* of the disk: half before the runs, half after */
    BENCH_DIR_MAX = 448      /* bytes of the path of the temporary directory */
};

_Static_assert((int)CLI_RUNS_MAX <= (int)BENCH_RUNS_MAX, "the statistics have room for every run");

/* What a row measures. */
enum bench_kind {
    BENCH_STREAM,   /* sluice, with a cache of some size */
    BENCH_RESIDENT, /* plain llama.cpp, everything in memory, no limit */
    BENCH_MMAP      /* plain llama.cpp inside the limit: the kernel pages */
};

/* How a run ended. */
enum bench_end {
    BENCH_NOT_STARTED,
    BENCH_COMPLETE,
    BENCH_STOPPED,     /* it was asked to stop at --max-seconds */
    BENCH_INTERRUPTED, /* it was asked to stop because the user stops the bench */
    BENCH_FAILED
};

/* What was dropped from the page cache before a run. */
enum bench_dropped {
    BENCH_DROPPED_NOTHING, /* on purpose, or it was not possible */
    BENCH_DROPPED_FILE,    /* the pages of the model, as far as no process maps them */
    BENCH_DROPPED_ALL,     /* every clean page of the machine */
    BENCH_DROPPED_KINDS
};

/* Extra options of `sluice run`, from --variant "NAME: options". */
struct bench_variant {
    char name[48];                /* printed */
    char text[512];               /* the words, each ended by a zero byte */
    char *words[BENCH_WORDS_MAX]; /* pointers into text */
    int n_words;                  /* of them */
};

/* One run of one row. */
struct bench_run {
    enum bench_end end;         /* see above */
    int round;                  /* from 1 */
    int order;                  /* its place among all runs, from 1; 0: it was not begun */
    int code;                   /* exit code of the process; -1: a signal */
    int signal;                 /* that killed it; 0: none */
    double seconds;             /* from start to end of the process */
    char message[512];          /* of a failed run: why */
    char mode[256];             /* what the process says it is */
    struct bench_state before;  /* the machine when it started */
    struct bench_state after;   /* and when it ended */
    enum bench_dropped dropped; /* before it */
    bool warmed;                /* the model was read into the page cache before it */
    bool peak_of_cgroup;        /* counted by the kernel for the cgroup; else the resident set of the process */
    uint64_t peak;              /* most memory, bytes */
    uint64_t kills;             /* by the kernel, because the limit was reached */
    struct bench_csv csv;       /* what was measured */
};

/* Figures of a row that have a column or a key of the report: bench_figures has their names and how they are made. */
enum bench_figure {
    BENCH_TOKEN_BYTES, /* read per token */
    BENCH_HIT_SHARE,   /* of the experts asked for, those that were in memory, 0..1 */
    BENCH_WAIT_SHARE,  /* of the time of the generation, 0..1 */
    BENCH_LOAD,        /* seconds */
    BENCH_FIRST_TOKEN, /* seconds */
    BENCH_PROMPT_RATE, /* tokens per second */
    BENCH_PEAK,        /* the most of any run, bytes; NaN: unknown */
    BENCH_BOUND,       /* tokens per second that disk and processor allow */
    BENCH_SHARE,       /* of the bound that was reached */
    BENCH_FIGURES
};

/* What each of them is called, and how it is made: a quotient of two values of a run. */
extern const struct bench_figure_info {
    const char *key;              /* in the report */
    const char *heading;          /* of the column; NULL: it has none */
    int width, digits;            /* of the column */
    double unit;                  /* of the column, in those of the report */
    enum bench_value part, whole; /* the quotient; for bound, share and peak neither is used */
    bool together;                /* of the sums over all runs; else the median of the runs' quotients */
    bool count;                   /* a whole number */
} bench_figures[BENCH_FIGURES];

/* A row of the table. */
struct bench_entry {
    char name[96];                       /* "2000 lru" */
    enum bench_kind kind;                /* see above */
    const struct bench_variant *variant; /* NULL: no extra options */
    int plain;                           /* index of the row of the same budget without a variant; -1: this is it */
    char budget[BENCH_BUDGET_MAX];       /* as given: "2000", "all" */
    char cache[32];                      /* what --cache gets */
    char skipped[256];                   /* why it is not measured; "": it is */
    struct bench_run *runs;              /* config.runs of them, owned */
    /* Figures, over its runs. NaN: none. */
    struct bench_interval rate;        /* tokens per second */
    double slowest, fastest;           /* of its runs, tokens per second */
    struct bench_interval ratio;       /* of rate to the reference's */
    struct bench_interval plain_ratio; /* of rate to that of the same budget without the variant */
    double figure[BENCH_FIGURES];      /* the others */
};

struct bench {
    const struct cli_config *config;                 /* the command line */
    struct sluice_gguf *gguf;                        /* the model, owned */
    struct sluice_info info;                         /* what it needs */
    struct bench_machine machine;                    /* facts */
    struct bench_variant variants[CLI_VARIANTS_MAX]; /* config.n_variants of them */
    struct bench_entry *entries;                     /* rows, owned */
    size_t n_entries;                                /* of them */
    int reference;                                   /* index of the row that ratios are about; -1: none */
    uint64_t memory;                                 /* limit, bytes; 0: none */
    bool cgroup;                                     /* the limit is the kernel's */
    char no_cgroup[512];                             /* why it is not */
    bool ceiling;                                    /* the limit is the child's own --memory */
    char dir[BENCH_DIR_MAX];                         /* where the runs write; "": nowhere */
    char started[32];                                /* date and time, UTC */
    struct sluice_settings settings;                 /* defaults and environment: what the probe reads with */
    struct sluice_probe probes[BENCH_PROBES];        /* of the disk */
    size_t n_probes, n_probes_before;                /* of them, and of those, before the runs */
    double disk;                                     /* their median, bytes per second; NaN: none */
    enum bench_kind compute;                         /* who told compute_s: the resident baseline, or the row `all` */
    double compute_s;                                /* seconds per token without reading; 0: unknown */
    size_t compute_steps;                            /* tokens that it comes from */
    int done;                                        /* runs that ended */
    bool interrupted;                                /* the user stopped it */
    struct cli_progress progress;                    /* the moving line */
};

/* bench_plan.c: rows from the command line. Return 0, or an exit code after printing one line. */
int bench_plan(struct bench *b);

/* bench_run.c: whether and how the limit can be kept; the directory with the prompt in it, gone after bench_clean. */
int bench_prepare(struct bench *b);
void bench_clean(struct bench *b);

/* One run of a row; failures of the child are in *run, others print a line and return an exit code. */
int bench_run(struct bench *b, const struct bench_entry *e, struct bench_run *run);

/* bench_figures.c: the figures of all rows, and the bound. */
void bench_figures_find(struct bench *b);

/* "FAILED, exit code 2: no model", how a run ended if not as planned. False: as planned, and nothing is written. */
bool bench_remark(const struct bench *b, const struct bench_run *run, char *text, size_t cap);

/* bench_report.c: the report as a table; the report as JSON. False when it could not be written. */
void bench_table(const struct bench *b, FILE *out);
bool bench_json(const struct bench *b, FILE *out);

#endif
