/* dense.h - dense weights of one mapped model file: which they are, and moving them out of the page cache. */
#ifndef SLUICE_GGML_DENSE_H
#define SLUICE_GGML_DENSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ggml/maps.h"
#include "ggml/pages.h"
#include "sluice.h"
#include "cache/file.h"

/* A growing list of ranges, sorted by address. */
struct dense_list {
    struct pages_range *range; /* by index */
    size_t n, cap;             /* how many, and room */
};

/* What is known of the dense weights of a file. Zeroed is empty. */
struct dense {
    struct dense_list noted;  /* weights that graphs read through the mapping */
    struct dense_list held;   /* whole pages that are anonymous memory now */
    struct dense_list plain;  /* experts that graphs read in place: never fenced */
    struct dense_list fenced; /* whole pages of experts that are inaccessible now */
    uint64_t noted_bytes;     /* sum of noted */
    uint64_t held_bytes;      /* sum of held; 0: all are in the mapping */
};

/* The mapping that they are in. */
struct dense_map {
    char *start;                       /* address of the file's first byte, whether or not it is still mapped */
    struct maps_id id;                 /* which mappings are of this file */
    const struct stream_file *file;    /* to read from */
    const struct pages_range *experts; /* n_experts ranges, sorted by address, to be fenced */
    size_t n_experts;                  /* how many */
    int threads;                       /* that read */
};

/* Note that a graph reads weights at [at, at + len). Noting them again costs a search. False: no memory. */
bool dense_note(struct dense *d, char *at, size_t len);

/*
 * Replace the noted weights in place by anonymous, read-only memory with the same bytes, and give
 * back the page cache under the whole file (with buffered reads: under the dense weights). Other
 * threads may be reading the weights meanwhile. A failure leaves the mapping readable as it was,
 * perhaps with a part held; only SLUICE_ERR_STATE means that a part of the mapping was lost, and
 * that nothing may be computed any more.
 */
int dense_hold(struct dense *d, const struct dense_map *m, struct sluice_error *err);

/* Make the whole pages of the experts inaccessible that hold nothing else. Best effort: a page left out costs nothing.
 */
void dense_fence(struct dense *d, const struct dense_map *m);

/* Lock the held weights in memory. On failure none is locked; the message names RLIMIT_MEMLOCK. */
int dense_lock(struct dense *d, struct sluice_error *err);

/* Is any byte of [at, at + len) fenced? */
bool dense_is_fenced(const struct dense *d, const char *at, size_t len);

/*
 * A graph is going to read experts at [at, at + len) in place: do not fence them, and where they are
 * fenced, map the file again. SLUICE_ERR_STATE: not possible, they must not be touched.
 */
int dense_leave(struct dense *d, const struct dense_map *m, char *at, size_t len, struct sluice_error *err);

/* Free the lists. The memory goes when llama.cpp unmaps the model. */
void dense_free(struct dense *d);

#endif
