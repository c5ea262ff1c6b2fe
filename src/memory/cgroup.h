/* cgroup.h - this process's memory control groups, every level of them. */
#ifndef SLUICE_MEMORY_CGROUP_H
#define SLUICE_MEMORY_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

/* One level: `dir` is its directory below the mount, v2 tells which names its files have. False ends the walk. */
typedef bool (*plan_cgroup_fn)(void *ud, const char *dir, bool v2);

/*
 * Call fn for each memory control group of this process, from its own up to the root of each
 * hierarchy. `root` is prepended to /proc and /sys paths ("" outside tests). Directories need not
 * exist: in a container the path is often one that only the host can see, and the mount's root,
 * which is always visited, is then the process's group.
 */
void plan_cgroup_walk(const char *root, plan_cgroup_fn fn, void *ud);

/*
 * The kernel's high-water mark of the innermost memory cgroup that has one (v2 memory.peak, v1
 * memory.max_usage_in_bytes), bytes: everything that runs in it, page cache included. 0: not readable.
 */
uint64_t plan_cgroup_peak(const char *root);

/* A line of /proc/self/mountinfo. */
struct plan_mount {
    char point[256]; /* where it is mounted, without `root` */
    char type[64];   /* "ext4", "cgroup2" */
};

/*
 * The first mount of this device ("254:0"), type and option of the file system ("memory"); NULL: of any. False when
 * there is none.
 */
bool plan_mount_find(const char *root, const char *device, const char *type, const char *option,
                     struct plan_mount *out);

/* The number in a one-line file of a directory; false when absent or not a number (cgroup v2 says "max"). */
bool plan_number_in(const char *dir, const char *file, uint64_t *value);

/* The value after `key` in a file of "key value" lines, times scale; false when absent. */
bool plan_field_in(const char *path, const char *key, uint64_t scale, uint64_t *value);

#endif
