/* csv.h - the measurements of each step that `sluice run --csv FILE` wrote. */
#ifndef SLUICE_BENCH_CSV_H
#define SLUICE_BENCH_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sluice.h"

/* One batch. */
struct bench_step {
    bool generation;       /* one generated token; false: a batch of the prompt */
    uint64_t tokens;       /* in the batch; 1 in a generation */
    uint64_t read_bytes;   /* from the files, rounding included */
    uint64_t hits;         /* experts that were in memory or on their way */
    uint64_t misses;       /* experts that had to be read */
    uint64_t major_faults; /* pages that the kernel had to fetch */
    double wall_s;         /* seconds from start to end */
    double stall_s;        /* of those, with nothing to compute because a read was missing */
    double expert_s;       /* seconds in expert matmuls */
    double cpu_s;          /* processor seconds of all threads */
};

struct bench_csv {
    struct bench_step *steps; /* in order, owned */
    size_t n;                 /* of them */
};

/*
 * Read the whole file. Nothing in it is trusted: SLUICE_ERR_FORMAT with file and line unless it starts
 * with "# sluice-csv 1", has a header row with every column that is needed (others may be there), and
 * every row has as many fields as the header, each a number in its range. With `torn` a last line
 * without its newline is left out: its writer may have been killed. On failure *out is empty.
 */
int bench_csv_read(const char *path, bool torn, struct bench_csv *out, struct sluice_error *err);

/* Free the steps. */
void bench_csv_free(struct bench_csv *c);

#endif
