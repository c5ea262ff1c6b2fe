/*
 * cgroup.c - see cgroup.h.
 *
 * A process cannot limit itself to 6 GiB in a way that counts page cache, and page cache is what a
 * mapped model is made of; only a memory cgroup does. Each run gets a group of its own, made before and
 * removed after it, so that its peak is its own.
 *
 * Where a group can be made differs: the path in /proc/self/cgroup may be one that only the host of a container
 * sees, and in version 2 a group that has processes cannot hand out memory to groups below it. So every level from
 * the process's own group up to the root of the mount is tried, and the first in which a group can be made and
 * limited is taken. In version 2 that may switch the memory controller on for the groups of that level, where it was
 * off; it is not switched off again.
 */
#include "bench/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cache/error.h"
#include "memory/cgroup.h"

enum { CGROUP_FILE = 600 }; /* bytes of the path of a group's file */

/* Names of the files of version 1 and 2. */
static const struct {
    const char *limit; /* bytes that the group may hold */
    const char *swap;  /* the same for swap (version 2) or for both together (version 1) */
    const char *peak;  /* the most it held */
    const char *kills; /* has a line "oom_kill N" */
} files[2] = {
    {"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"},
    {"memory.max", "memory.swap.max", "memory.peak", "memory.events"},
};

/* A group that is to be made, and the last level where it could not. */
struct attempt {
    struct bench_cgroup *group; /* its directory stays "" until it is made */
    const char *name;           /* of its directory */
    uint64_t limit;             /* bytes */
    int error;                  /* errno of the last level that was tried; 0: none was */
    bool v2;                    /* version of the hierarchy that is tried; the first one that has the controller */
    char level[512];            /* that level */
};

static int open_file(const char *dir, const char *file) {
    char path[CGROUP_FILE];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    return open(path, O_WRONLY | O_CLOEXEC);
}

/* Write one value into a file of a group. False with errno. */
static bool set(const char *dir, const char *file, const char *text) {
    const int fd = open_file(dir, file);
    const bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    const int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    errno = error;
    return ok;
}

/* plan_cgroup_fn: try to make the group at one level. True: the next one is to be tried. */
static bool create_under(void *ud, const char *parent, bool v2) {
    struct attempt *a = ud;
    struct bench_cgroup *g = a->group;
    char dir[sizeof g->dir], limit[32];
    if (a->error && a->v2 != v2) {
        return false; /* where both versions are mounted, version 1 comes first and has the controller */
    }
    a->v2 = v2;
    snprintf(a->level, sizeof a->level, "%s", parent);
    const int n = snprintf(dir, sizeof dir, "%s/%s", parent, a->name);
    if (n < 0 || n >= (int)sizeof dir) {
        a->error = ENAMETOOLONG;
        return true;
    }
    if (v2) {
        set(parent, "cgroup.subtree_control", "+memory"); /* refused where it may not: then there is no memory.max */
    }
    if (mkdir(dir, 0755) != 0) {
        a->error = errno;
        return true;
    }
    snprintf(limit, sizeof limit, "%" PRIu64, a->limit);
    g->entry = set(dir, files[v2].limit, limit) ? open_file(dir, "cgroup.procs") : -1;
    if (g->entry < 0) {
        a->error = errno;
        g->entry = 0;
        rmdir(dir);
        return true;
    }
    /* Swap would let a run hold more than the limit. Kernels without swap accounting lack the file. */
    set(dir, files[v2].swap, v2 ? "0" : limit);
    g->v2 = v2;
    memcpy(g->dir, dir, sizeof dir);
    return false;
}

int bench_cgroup_create(struct bench_cgroup *g, const char *name, uint64_t limit, const char *root,
                        struct sluice_error *err) {
    struct attempt a = {.group = g, .name = name, .limit = limit};
    *g = (struct bench_cgroup){.dir = ""};
    plan_cgroup_walk(root, create_under, &a);
    if (!g->dir[0] && !a.error) {
        return sluice_fail(err, SLUICE_ERR_IO, "no memory cgroups are mounted");
    }
    return g->dir[0]
               ? sluice_ok(err)
               : sluice_fail(err, SLUICE_ERR_IO, "no cgroup could be made under %s: %s", a.level, strerror(a.error));
}

void bench_cgroup_counts(const struct bench_cgroup *g, uint64_t *peak, uint64_t *kills) {
    char path[CGROUP_FILE];
    if (!g->dir[0] || !plan_number_in(g->dir, files[g->v2].peak, peak)) {
        *peak = 0;
    }
    snprintf(path, sizeof path, "%s/%s", g->dir, files[g->v2].kills);
    if (!g->dir[0] || !plan_field_in(path, "oom_kill ", 1, kills)) {
        *kills = 0;
    }
}

bool bench_cgroup_remove(struct bench_cgroup *g) {
    const struct timespec moment = {.tv_nsec = 20 * 1000 * 1000};
    if (g->entry) {
        close(g->entry);
        g->entry = 0;
    }
    for (int i = 0; g->dir[0] && i < 100; i++) { /* a process that was just reaped may still count for a moment */
        if (rmdir(g->dir) == 0 || errno == ENOENT) {
            g->dir[0] = '\0';
        } else if (errno != EBUSY) {
            break;
        } else {
            nanosleep(&moment, NULL);
        }
    }
    return g->dir[0] == '\0';
}
