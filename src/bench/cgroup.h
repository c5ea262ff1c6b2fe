/* cgroup.h - a memory limit that the kernel enforces on a child, and the kernel's own count of its peak. */
#ifndef SLUICE_BENCH_CGROUP_H
#define SLUICE_BENCH_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "sluice.h"

struct bench_cgroup {
    char dir[512]; /* the group's directory; "": none */
    bool v2;       /* version 2; else 1 */
    int entry;     /* a descriptor to which a process writes "0" to move itself into the group; 0: none */
};

/*
 * Make a group called `name` under this process's own memory group (or the lowest one above it where that is
 * allowed) that may hold at most `limit` bytes, without swap. SLUICE_ERR_IO with the reason when that is
 * not allowed: then nothing is left behind. `root` is put before /proc paths and mount points ("" outside tests).
 */
int bench_cgroup_create(struct bench_cgroup *g, const char *name, uint64_t limit, const char *root,
                        struct sluice_error *err);

/*
 * *peak: the most that the group ever held, bytes, page cache included; 0: the kernel does not say. *kills: how often
 * the kernel killed a process of the group for want of memory.
 */
void bench_cgroup_counts(const struct bench_cgroup *g, uint64_t *peak, uint64_t *kills);

/* Remove the group; its processes must have ended. False when it is still there. Accepts one without a directory. */
bool bench_cgroup_remove(struct bench_cgroup *g);

#endif
