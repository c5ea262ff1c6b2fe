/* csv.h - what is measured of a run, and the part of it that `sluice run --csv FILE` wrote step by step. */
#ifndef SLUICE_BENCH_CSV_H
#define SLUICE_BENCH_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sluice.h"

/* The values of a run, in the order of the report. Where nothing else is said, of the generated tokens. */
enum bench_value {
    BENCH_STEP,          /* number of a row of the CSV file, which only rises */
    BENCH_PHASE,         /* of a row: 1 generation, 0 prompt */
    BENCH_CACHE_BYTES,   /* size of the cache that it had */
    BENCH_LOAD_S,        /* seconds until the model was open */
    BENCH_FIRST_TOKEN_S, /* seconds from the start of the prompt to the first token */
    BENCH_PROMPT_TOKENS, /* tokens of the prompt that it computed */
    BENCH_PROMPT_S,      /* seconds in the batches of the prompt */
    BENCH_TOKENS,        /* generated tokens */
    BENCH_WALL_S,        /* seconds from start to end of each */
    BENCH_RATE,          /* tokens per second */
    BENCH_WAIT_S,        /* of BENCH_WALL_S, seconds with nothing to compute because a read was missing */
    BENCH_CPU_S,         /* processor seconds of all threads */
    BENCH_READ_BYTES,    /* from the files, rounding included */
    BENCH_HITS,          /* experts that were in memory or on their way */
    BENCH_MISSES,        /* experts that had to be read */
    BENCH_MAJOR_FAULTS,  /* pages that the kernel had to fetch */
    BENCH_ROUTED,        /* hits and misses together */
    BENCH_ONE,           /* 1: what a value is divided by that is a figure by itself */
    BENCH_VALUES
};

/* What each of them is called. */
extern const struct bench_value_info {
    const char *key;    /* in the report; NULL: not there */
    const char *column; /* of the CSV file; NULL: not there */
    bool count;         /* a whole number; else seconds or a rate */
    bool each;          /* the report has it of each token, too */
} bench_values[BENCH_VALUES];

struct bench_csv {
    size_t n;                    /* generated tokens */
    double *token[BENCH_VALUES]; /* of each of them, what the CSV has; else NULL. One allocation, owned */
    double total[BENCH_VALUES];  /* of the run; what no column has is the reader's to fill in */
};

/*
 * Read the whole file. Nothing in it is trusted: SLUICE_ERR_FORMAT with file and line unless it starts
 * with "# sluice-csv 1", has a header row with every column that is needed (others may be there), and
 * every row has as many fields as the header, each a number in its range. Counts are exact up to 2^53. With `torn` a
 * last line without its newline is left out: its writer may have been killed. On failure *out is empty.
 */
int bench_csv_read(const char *path, bool torn, struct bench_csv *out, struct sluice_error *err);

/* Free the values of the tokens. */
void bench_csv_free(struct bench_csv *c);

#endif
