/* pagecache.h - cold and warm starts: what the kernel keeps of files in memory. */
#ifndef SLUICE_BENCH_PAGECACHE_H
#define SLUICE_BENCH_PAGECACHE_H

#include <stdbool.h>

#include "sluice.h"

/* What was dropped before a run. */
enum bench_dropped {
    BENCH_DROPPED_NOTHING, /* on purpose, or it was not possible */
    BENCH_DROPPED_FILE,    /* the pages of the model, as far as no process maps them */
    BENCH_DROPPED_ALL,     /* every clean page of the machine */
};

/* Drop all clean pages, directory entries and inodes of the machine. False where this process may not. */
bool bench_drop_all(void);

/* Write back and drop the pages of one file. False with errno when the file cannot be opened. */
bool bench_drop_file(const char *path);

/*
 * Read the whole file through the page cache. *stop is asked between pieces; true ends it early, which
 * is no failure. Fails as reading does.
 */
int bench_warm_file(const char *path, bool (*stop)(void *user), void *user, struct sluice_error *err);

/* "all of the machine's page cache" */
const char *bench_dropped_name(enum bench_dropped d);

#endif
