/* limits.h - how much memory this process may still take. */
#ifndef SLUICE_MEMORY_LIMITS_H
#define SLUICE_MEMORY_LIMITS_H

#include <stdint.h>

struct plan_limits {
    uint64_t total;     /* bytes: the cgroup's limit, or the machine's memory */
    uint64_t available; /* bytes that can still be taken without swapping or being killed; page cache counts as free */
};

/*
 * Read the machine's memory and the limits of this process's cgroups (v2, and v1 up to the root)
 * and keep the tightest. `root` is prepended to /proc and /sys paths ("" outside tests). What
 * cannot be read does not limit; if nothing can, both are 0.
 */
void plan_limits_read(struct plan_limits *l, const char *root);

#endif
