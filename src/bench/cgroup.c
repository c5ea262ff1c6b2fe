/*
 * cgroup.c - see cgroup.h.
 *
 * A process cannot limit itself to 6 GiB in a way that counts page cache, and page cache is what a
 * mapped model is made of; only a memory cgroup does. Each run gets a group of its own, made before and
 * removed after it, so that its peak is its own.
 *
 * Where groups can be made differs: version 1 and 2 are mounted where the system likes, the path in
 * /proc/self/cgroup may be one that only the host of a container sees, and in version 2 a group that has
 * processes cannot hand out memory to groups below it. So every place from the own group up to the root of the
 * mount is tried, and the first in which one can be made and limited is taken. In version 2 that may switch
 * the memory controller on for the groups of that place, where it was off; it is not switched off again.
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

/* Names of the files of each version. */
static const struct {
    const char *limit;     /* bytes that the group may hold */
    const char *swap;      /* the same for swap (version 2) or for both (version 1) */
    const char *peak;      /* the most it held */
    const char *kills_in;  /* a file of lines "key value" */
    const char *kills_key; /* how often the kernel killed */
} files[3] = {
    [1] = {"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control",
           "oom_kill"},
    [2] = {"memory.max", "memory.swap.max", "memory.peak", "memory.events", "oom_kill"},
};

/* Write one value into a file of the group. */
static bool put(const char *dir, const char *file, const char *text) {
    char path[1300];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    const bool ok = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    const int error = errno;
    close(fd);
    errno = error;
    return ok;
}

/* The mount point of the hierarchy that has the memory controller. Returns its version, 0 when there is none. */
static int find_mount(const char *root, char *out, size_t cap) {
    char line[4096], path[300], mount[256], best[256] = "";
    int version = 0;
    snprintf(path, sizeof path, "%s/proc/self/mountinfo", root);
    FILE *f = fopen(path, "re");
    while (f && version != 1 && fgets(line, sizeof line, f)) {
        const char *type = strstr(line, " - ");
        if (!type || sscanf(line, "%*u %*u %*s %*s %255s", mount) != 1) {
            continue;
        }
        if (strncmp(type, " - cgroup2 ", 11) == 0) {
            version = 2;
            snprintf(best, sizeof best, "%s", mount);
        } else if (strncmp(type, " - cgroup ", 10) == 0) {
            const char *options = strrchr(type, ' '), *memory = options ? strstr(options, "memory") : NULL;
            if (memory && (memory[-1] == ',' || memory[-1] == ' ') && strchr(",\n", memory[6])) {
                version = 1; /* where both are mounted, the controller is here */
                snprintf(best, sizeof best, "%s", mount);
            }
        }
    }
    if (f) {
        fclose(f);
    }
    snprintf(out, cap, "%s%s", root, best);
    return version;
}

/* This process's path in that hierarchy: "/user.slice". */
static void find_own(int version, const char *root, char *out, size_t cap) {
    char line[4096], path[300];
    snprintf(out, cap, "/");
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *own = controllers ? strchr(controllers + 1, ':') : NULL;
        if (own) {
            *own++ = '\0';
            controllers++;
            if (version == 2 ? controllers[0] == '\0' : strcmp(controllers, "memory") == 0) {
                snprintf(out, cap, "%s", own);
            }
        }
    }
    if (f) {
        fclose(f);
    }
}

/* Try to make the group under `parent`. */
static bool create_under(struct bench_cgroup *g, const char *parent, const char *name, uint64_t limit) {
    char text[32];
    const int n = snprintf(g->dir, sizeof g->dir, "%s/%s", parent, name);
    if (n < 0 || n >= (int)sizeof g->dir) {
        errno = ENAMETOOLONG;
        return false;
    }
    if (g->version == 2) {
        put(parent, "cgroup.subtree_control", "+memory"); /* refused where it may not: then there is no memory.max */
    }
    if (mkdir(g->dir, 0755) != 0) {
        return false;
    }
    snprintf(text, sizeof text, "%" PRIu64, limit);
    if (!put(g->dir, files[g->version].limit, text)) {
        const int error = errno;
        rmdir(g->dir);
        errno = error;
        return false;
    }
    /* Swap would let a run hold more than the limit. Kernels without swap accounting lack the file. */
    put(g->dir, files[g->version].swap, g->version == 2 ? "0" : text);
    return true;
}

int bench_cgroup_create(struct bench_cgroup *g, const char *name, uint64_t limit, const char *root,
                        struct sluice_error *err) {
    char mount[400], own[256], parent[700];
    memset(g, 0, sizeof *g);
    g->version = find_mount(root, mount, sizeof mount);
    if (!g->version) {
        return sluice_fail(err, SLUICE_ERR_IO, "no memory cgroups are mounted");
    }
    find_own(g->version, root, own, sizeof own);
    for (;;) {
        const size_t n = strlen(own);
        snprintf(parent, sizeof parent, "%s%s", mount, n > 1 ? own : "");
        if (create_under(g, parent, name, limit)) {
            return sluice_ok(err);
        }
        char *slash = strrchr(own, '/');
        if (n <= 1 || !slash) {
            break;
        }
        *slash = '\0'; /* one up; "" is the root of the mount */
    }
    const int error = errno;
    g->dir[0] = '\0';
    return sluice_fail(err, SLUICE_ERR_IO, "no cgroup could be made under %s: %s", mount, strerror(error));
}

int bench_cgroup_entry(const struct bench_cgroup *g) {
    char path[1300];
    snprintf(path, sizeof path, "%s/cgroup.procs", g->dir);
    return open(path, O_WRONLY | O_CLOEXEC);
}

uint64_t bench_cgroup_peak(const struct bench_cgroup *g) {
    char path[1300];
    uint64_t n = 0;
    snprintf(path, sizeof path, "%s/%s", g->dir, files[g->version].peak);
    FILE *f = g->dir[0] ? fopen(path, "re") : NULL;
    if (f) {
        if (fscanf(f, "%" SCNu64, &n) != 1) {
            n = 0;
        }
        fclose(f);
    }
    return n;
}

uint64_t bench_cgroup_kills(const struct bench_cgroup *g) {
    char path[1300], line[256], key[64];
    uint64_t n, kills = 0;
    snprintf(path, sizeof path, "%s/%s", g->dir, files[g->version].kills_in);
    FILE *f = g->dir[0] ? fopen(path, "re") : NULL;
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%63s %" SCNu64, key, &n) == 2 && strcmp(key, files[g->version].kills_key) == 0) {
            kills = n;
        }
    }
    if (f) {
        fclose(f);
    }
    return kills;
}

bool bench_cgroup_remove(struct bench_cgroup *g) {
    const struct timespec moment = {.tv_nsec = 20 * 1000 * 1000};
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
