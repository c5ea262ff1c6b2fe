/* cgroup.h - a memory limit that the kernel enforces on a child, and the kernel's own count of its peak. */
#ifndef SLUICE_BENCH_CGROUP_H
#define SLUICE_BENCH_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "sluice.h"

struct bench_cgroup {
    char dir[512]; /* the group's directory; "": none */
    int version;   /* 1 or 2 */
};

/*
 * Make a group called `name` under this process's own memory group (or the highest one where that is
 * allowed) that may hold at most `limit` bytes, without swap. SLUICE_ERR_IO with the reason when that is
 * not allowed: then nothing is left behind. `root` is put before /proc paths and mount points ("" outside tests).
 */
int bench_cgroup_create(struct bench_cgroup *g, const char *name, uint64_t limit, const char *root,
                        struct sluice_error *err);

/* A descriptor to which a process writes "0" to move itself into the group; -1 with errno. The caller closes it. */
int bench_cgroup_entry(const struct bench_cgroup *g);

/* The most that the group ever held, bytes, page cache included. 0: the kernel does not say. */
uint64_t bench_cgroup_peak(const struct bench_cgroup *g);

/* How often the kernel killed a process of the group for want of memory. */
uint64_t bench_cgroup_kills(const struct bench_cgroup *g);

/* Remove the group; its processes must have ended. False when it is still there. Accepts one without a directory. */
bool bench_cgroup_remove(struct bench_cgroup *g);

#endif
