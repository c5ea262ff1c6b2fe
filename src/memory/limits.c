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
#include "memory/limits.h"

#include <stdbool.h>
#include <stdio.h>

#include "memory/cgroup.h"

enum { LIMITS_PATH = 4096 }; /* bytes of a path; longer ones are not followed */

/* plan_cgroup_fn: tighten the limits by one group: its limit, its use, and the file pages in that use. */
static bool limits_group(void *ud, const char *dir, bool v2) {
    struct plan_limits *l = ud;
    char path[LIMITS_PATH];
    uint64_t limit, used, file, total = 0;
    const char *names[2][3] = {
        {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_"},
        {"memory.max", "memory.current", ""},
    };
    if (!plan_number_in(dir, names[v2][0], &limit) || !plan_number_in(dir, names[v2][1], &used)) {
        return true;
    }
    if ((size_t)snprintf(path, sizeof path, "%s/memory.stat", dir) < sizeof path) {
        const char *kinds[] = {"inactive_file ", "active_file "};
        for (int i = 0; i < 2; i++) {
            char key[64];
            snprintf(key, sizeof key, "%s%s", names[v2][2], kinds[i]);
            total += plan_field_in(path, key, 1, &file) ? file : 0;
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
    return true;
}

void plan_limits_read(struct plan_limits *l, const char *root) {
    char path[LIMITS_PATH];
    l->total = l->available = 0;
    if ((size_t)snprintf(path, sizeof path, "%s/proc/meminfo", root) >= sizeof path) {
        return;
    }
    plan_field_in(path, "MemTotal:", 1024, &l->total);
    if (!plan_field_in(path, "MemAvailable:", 1024, &l->available)) {
        l->available = UINT64_MAX; /* not known: it does not limit */
    }
    plan_cgroup_walk(root, limits_group, l);
    if (l->available == UINT64_MAX) {
        l->available = 0;
    }
}
