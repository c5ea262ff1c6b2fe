/*
 * limits.c - memory limits, as the kernel states them.
 *
 * Two limits end a process: the machine's memory and, in containers and services, the limit of a
 * control group, of any level of the hierarchy. /proc/meminfo does not know about the latter, and
 * sizing a cache by it inside a container is how processes get killed. So all levels are read and
 * the tightest counts.
 *
 * In a control group page cache counts as used; but clean cache is given back before anyone is
 * killed, so inactive and active file pages are added to what is available, as MemAvailable does
 * for the machine.
 */
#include "plan/limits.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIMITS_PATH = 1024 }; /* bytes of a path; longer ones are not followed */

/* The number in a one-line file; false when absent or not a number (cgroup v2 says "max"). */
static bool limits_number(const char *path, uint64_t *value) {
    FILE *f = fopen(path, "re");
    if (!f) {
        return false;
    }
    const bool ok = fscanf(f, "%" SCNu64, value) == 1;
    fclose(f);
    return ok;
}

/* The value after `key` in a file of "key value" lines, times scale. */
static bool limits_field(const char *path, const char *key, uint64_t scale, uint64_t *value) {
    FILE *f = fopen(path, "re");
    if (!f) {
        return false;
    }
    char line[256];
    bool ok = false;
    const size_t n = strlen(key);
    while (!ok && fgets(line, sizeof line, f)) {
        uint64_t v;
        if (strncmp(line, key, n) == 0 && sscanf(line + n, "%" SCNu64, &v) == 1) {
            *value = v * scale;
            ok = true;
        }
    }
    fclose(f);
    return ok;
}

/* Tighten *l by one control group: its limit, its use, and the file pages in that use. */
static void limits_group(struct plan_limits *l, const char *dir, bool v2) {
    char path[LIMITS_PATH];
    uint64_t limit, used, file, total = 0;
    const char *names[2][3] = {
        {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_"},
        {"memory.max", "memory.current", ""},
    };
    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, names[v2][0]) >= sizeof path ||
        !limits_number(path, &limit)) {
        return;
    }
    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, names[v2][1]) >= sizeof path || !limits_number(path, &used)) {
        return;
    }
    if ((size_t)snprintf(path, sizeof path, "%s/memory.stat", dir) < sizeof path) {
        const char *kinds[] = {"inactive_file ", "active_file "};
        for (int i = 0; i < 2; i++) {
            char key[64];
            snprintf(key, sizeof key, "%s%s", names[v2][2], kinds[i]);
            total += limits_field(path, key, 1, &file) ? file : 0;
        }
    }
    uint64_t left = limit > used ? limit - used : 0;
    left = left + total < limit ? left + total : limit;
    if (l->total == 0 || limit < l->total) {
        l->total = limit;
    }
    if (left < l->available) {
        l->available = left;
    }
}

/* Walk one hierarchy from the process's group up to its root. */
static void limits_walk(struct plan_limits *l, const char *mount, const char *group, bool v2) {
    char dir[LIMITS_PATH];
    if ((size_t)snprintf(dir, sizeof dir, "%s%s", mount, group) >= sizeof dir) {
        return;
    }
    const size_t base = strlen(mount);
    for (;;) {
        limits_group(l, dir, v2);
        char *slash = strrchr(dir, '/');
        if (strlen(dir) <= base || !slash || (size_t)(slash - dir) < base) {
            return;
        }
        *slash = 0;
    }
}

void plan_limits_read(struct plan_limits *l, const char *root) {
    char path[LIMITS_PATH], mount[LIMITS_PATH], line[LIMITS_PATH];
    l->total = l->available = 0;
    if ((size_t)snprintf(path, sizeof path, "%s/proc/meminfo", root) >= sizeof path) {
        return;
    }
    limits_field(path, "MemTotal:", 1024, &l->total);
    if (!limits_field(path, "MemAvailable:", 1024, &l->available)) {
        l->available = UINT64_MAX; /* not known: it does not limit */
    }
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) {
            continue;
        }
        *group++ = 0;
        controllers++;
        if (strcmp(group, "/") == 0) {
            group = ""; /* inside a container's own namespace the root is the group */
        }
        if (controllers[0] == 0) {
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
            limits_walk(l, mount, group, true);
        } else if (strstr(controllers, "memory")) {
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/memory", root);
            limits_walk(l, mount, group, false);
        }
    }
    if (f) {
        fclose(f);
    }
    if (l->available == UINT64_MAX) {
        l->available = 0;
    }
}
