/* replay.h - shared by the files of `sluice replay`. */
#ifndef SLUICE_CLI_REPLAY_H
#define SLUICE_CLI_REPLAY_H

#include "cli/args.h"
#include "trace/replay.h"

enum {
    REPLAY_BUDGETS_MAX = 32, /* of one command line */
    REPLAY_DROPS_MAX = 16,   /* likewise */
};

/* A lossy setting; zeroed: lossless. */
struct replay_lossy {
    uint32_t n_expert_used; /* experts per token; 0: all */
    double drop;            /* threshold; 0: nothing is dropped */
};

/* A row of the table: one replay. */
struct replay_line {
    enum replay_policy policy;    /* who is evicted */
    uint64_t budget;              /* bytes */
    struct replay_lossy lossy;    /* what is left out */
    struct replay_result result;  /* the cache with it */
    struct replay_result what_if; /* the lossless cache, counting what would be left out; zeros for lossless */
};

/* What the command line asks for. */
struct replay_plan {
    const struct cli_config *config;             /* the command line */
    bool policies[REPLAY_POLICIES];              /* which */
    uint64_t budgets[REPLAY_BUDGETS_MAX];        /* bytes, ascending; none: chosen by the trace */
    size_t n_budgets;                            /* entries */
    struct replay_lossy lossy[REPLAY_DROPS_MAX]; /* settings beside lossless */
    size_t n_lossy;                              /* entries */
    enum replay_division division;               /* how budgets are divided */
    double disk;                                 /* --predict: MiB per second; 0: not asked for */
    double resident;                             /* --predict: tokens per second of the resident model */
};

/* One trace, replayed. */
struct replay_report {
    const struct replay_plan *plan; /* what was asked for */
    const char *path;               /* of the trace */
    struct trace trace;             /* owned */
    struct replay_facts facts;      /* what is in it */
    struct replay_line *lines;      /* by policy, budget, setting; owned */
    size_t n_lines;                 /* entries */
};

/* Is the cache too small for one token's experts? There LRU never hits. */
bool replay_below_demand(const struct replay_report *r, const struct replay_line *l);

/* Of the experts asked for, those that were in memory, percent. */
double replay_hit_rate(const struct replay_counts *n);

/* MiB read per generated token. */
double replay_mib_per_token(const struct replay_line *l);

/*
 * Tokens per second with --predict: *apart if reading and computing take turns, *together if the
 * shorter one hides behind the longer. What happens lies between.
 */
void replay_predict(const struct replay_plan *p, const struct replay_line *l, double *apart, double *together);

/* Print a trace's table to standard output. Returns an exit code. */
int replay_print(const struct replay_report *r);

/* Print all traces as one JSON object. Returns an exit code. */
int replay_print_json(const struct replay_report *r, size_t n);

/* Write the hit rates over the budgets as an SVG file. Returns an exit code. */
int replay_plot(const struct replay_report *r, size_t n, const char *path);

#endif
