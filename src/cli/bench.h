/*
 * bench.h - what the files of `sluice bench` share: the plan, the runs, the figures.
 */
#ifndef SLUICE_CLI_BENCH_H
#define SLUICE_CLI_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/child.h"
#include "bench/csv.h"
#include "bench/machine.h"
#include "bench/pagecache.h"
#include "bench/stats.h"
#include "cli/args.h"
#include "cli/progress.h"
#include "gguf/gguf_check.h"
#include "run/info.h"
#include "run/probe.h"
#include "run/runner.h"

enum {
    BENCH_ENTRIES_MAX = 256,       /* rows of the table */
    BENCH_RUNS_MAX = CLI_RUNS_MAX, /* of each */
    BENCH_WORDS_MAX = 32,          /* options of a --variant */
    BENCH_PROBES = 6,              /* of the disk: half before the runs, half after */
    BENCH_PATH_MAX = 512           /* bytes of a path in the temporary directory */
};

/* What a row measures. */
enum bench_kind {
    BENCH_STREAM,   /* sluice, with a cache of some size */
    BENCH_RESIDENT, /* plain llama.cpp, everything in memory, no limit */
    BENCH_MMAP      /* plain llama.cpp inside the limit: the kernel pages */
};

/* Extra options of `sluice run`, from --variant "NAME: options". */
struct bench_variant {
    char name[48];                      /* printed */
    char text[512];                     /* the words, each ended by a zero byte */
    const char *words[BENCH_WORDS_MAX]; /* pointers into text */
    int n_words;                        /* of them */
};

/* One run of one row. */
struct bench_run {
    bool started;                  /* the child ran, however it ended */
    bool failed;                   /* it ended in an error */
    bool stopped;                  /* it was asked to stop at --max-seconds */
    bool interrupted;              /* it was asked to stop because the user stops the bench */
    int round;                     /* from 1 */
    int order;                     /* its place among all runs, from 1 */
    struct bench_ended ended;      /* code, signal, seconds */
    char message[512];             /* what a failed child said last */
    struct bench_state before;     /* the machine when it started */
    struct bench_state after;      /* and when it ended */
    enum bench_dropped dropped;    /* from the page cache, before it */
    bool warmed;                   /* the model was read into the page cache before it */
    uint64_t peak;                 /* bytes, most memory */
    bool peak_of_cgroup;           /* counted by the kernel for the cgroup; else the resident set of the process */
    uint64_t kills;                /* by the kernel, because the limit was reached */
    uint64_t cache_bytes;          /* of the cache that it had */
    uint64_t prompt_tokens;        /* that it computed */
    double load_s;                 /* until the model was open */
    double first_token_s;          /* from the start of the prompt to the first token */
    char mode[256];                /* what it says it is */
    struct bench_csv csv;          /* its steps */
    double *wall;                  /* seconds of each generated token, owned */
    size_t tokens;                 /* of them */
    double prompt_s;               /* seconds in the batches of the prompt */
    double wall_s, stall_s, cpu_s; /* sums over the generation, seconds */
    uint64_t read_bytes;           /* the same, bytes */
    uint64_t hits, misses;         /* the same, experts */
    uint64_t major_faults;         /* the same */
};

/* A row of the table. */
struct bench_entry {
    char name[96];                       /* "2000 lru" */
    enum bench_kind kind;                /* see above */
    const struct bench_variant *variant; /* NULL: no extra options */
    int plain;                           /* index of the row of the same budget without a variant; -1: this is it */
    char budget[32];                     /* as given: "2000", "all" */
    char cache[32];                      /* what --cache gets */
    bool all;                            /* the whole index */
    char skipped[256];                   /* why it is not measured; "": it is */
    struct bench_run *runs;              /* config.runs of them, owned */
    /* Figures, over its runs. NaN: none. */
    struct bench_interval rate;        /* tokens per second */
    double rate_least, rate_most;      /* of its slowest and fastest run */
    struct bench_interval ratio;       /* of rate to the reference's */
    struct bench_interval plain_ratio; /* of rate to that of the same budget without the variant */
    double token_bytes;                /* read per token, bytes */
    double hit_share, stall_share;     /* 0..1 */
    double load_s, first_token_s;      /* medians, seconds */
    double prompt_rate;                /* tokens per second of the prompt, median */
    uint64_t peak;                     /* of all runs, bytes */
    double bound;                      /* tokens per second that disk and processor allow */
    double share;                      /* rate over bound */
};

/* Where the seconds per token without any reading come from. */
enum bench_compute { BENCH_COMPUTE_UNKNOWN, BENCH_COMPUTE_RESIDENT, BENCH_COMPUTE_ALL };

struct bench {
    const struct cli_config *config;          /* the command line */
    struct sluice_gguf *gguf;                 /* the model, owned */
    struct sluice_info info;                  /* what it needs */
    struct bench_machine machine;             /* facts */
    struct bench_variant *variants;           /* owned */
    size_t n_variants;                        /* of them */
    struct bench_entry *entries;              /* rows, owned */
    size_t n_entries;                         /* of them */
    int reference;                            /* index of the row that ratios are about; -1: none */
    uint64_t memory;                          /* limit, bytes; 0: none */
    bool cgroup;                              /* the limit is the kernel's */
    char no_cgroup[512];                      /* why it is not */
    bool ceiling;                             /* the limit is the child's own --memory */
    char dir[BENCH_PATH_MAX];                 /* temporary directory; "": none */
    char started[32];                         /* date and time, UTC */
    struct sluice_settings settings;          /* defaults and environment: what the probe reads with */
    struct sluice_probe probes[BENCH_PROBES]; /* of the disk, before and after */
    size_t n_probes;                          /* of them */
    size_t n_probes_before;                   /* of those, before the runs */
    double disk;                              /* bytes per second, their median; NaN: none */
    enum bench_compute compute;               /* see above */
    double compute_s;                         /* seconds per token without reading; 0: unknown */
    size_t compute_steps;                     /* tokens that it comes from */
    int done;                                 /* runs that ended */
    bool interrupted;                         /* the user stopped it */
    struct cli_progress progress;             /* the moving line */
};

/* bench_plan.c: rows from the command line. Return 0, or an exit code after printing one line. */
int bench_plan(struct bench *b);

/* bench_run.c: the temporary directory with the prompt in it; gone again after bench_clean. */
int bench_prepare(struct bench *b);
void bench_clean(struct bench *b);

/* One run of a row; failures of the child are in *run, others print a line and return an exit code. */
int bench_run(struct bench *b, const struct bench_entry *e, struct bench_run *run);

/* bench_figures.c: what the runs say. Returns 0, or an exit code after printing one line. */
int bench_figures(struct bench *b);

/* Fill the sums of a run from its steps. False when there is no memory. */
bool bench_run_sums(struct bench_run *run);

/* bench_table.c, bench_json.c: the report as text, to be freed; NULL without memory. */
char *bench_table(const struct bench *b, size_t *n);
char *bench_json(const struct bench *b, size_t *n);

/* Have the runs of this row ended in an error? */
bool bench_entry_failed(const struct bench *b, const struct bench_entry *e);

#endif
