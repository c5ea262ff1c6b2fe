/*
 * cgroup.c - the walk over this process's memory control groups.
 *
 * Two versions can be mounted side by side, each where the system likes, and a limit of any level counts.
 * Lines of /proc/self/cgroup are "0::/user.slice/x" (v2) and "5:memory:/x" (v1). One walk serves the limits,
 * the peak and the groups that `sluice bench` makes, so that all mean the same groups.
 */
#include "memory/cgroup.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { CGROUP_PATH = 4096 }; /* bytes of a path; longer ones are not followed */

bool plan_number_in(const char *dir, const char *file, uint64_t *value) {
    char path[CGROUP_PATH];
    const bool fits = (size_t)snprintf(path, sizeof path, "%s/%s", dir, file) < sizeof path;
    FILE *f = fits ? fopen(path, "re") : NULL;
    if (!f) {
        return false;
    }
    const bool ok = fscanf(f, "%" SCNu64, value) == 1;
    fclose(f);
    return ok;
}

bool plan_field_in(const char *path, const char *key, uint64_t scale, uint64_t *value) {
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

bool plan_mount_find(const char *root, const char *device, const char *type, const char *option,
                     struct plan_mount *out) {
    char line[CGROUP_PATH], own[32], options[CGROUP_PATH], list[CGROUP_PATH + 2], wanted[64];
    bool found = false;
    if ((size_t)snprintf(line, sizeof line, "%s/proc/self/mountinfo", root) >= sizeof line) {
        return false;
    }
    snprintf(wanted, sizeof wanted, ",%s,", option ? option : "");
    FILE *f = fopen(line, "re");
    while (f && !found && fgets(line, sizeof line, f)) { /* "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw" */
        const char *tail = strstr(line, " - ");
        if (!tail || sscanf(line, "%*u %*u %31s %*s %255s", own, out->point) != 2 ||
            sscanf(tail, " - %63s %*s %4095s", out->type, options) != 2) {
            continue;
        }
        snprintf(list, sizeof list, ",%s,", options);
        found = (!device || strcmp(device, own) == 0) && (!type || strcmp(type, out->type) == 0) &&
                (!option || strstr(list, wanted));
    }
    if (f) {
        fclose(f);
    }
    return found;
}

/* Where a version's hierarchy with the memory controller is mounted: where it usually is, if no mounts can be read. */
static bool cgroup_mount(const char *root, bool v2, struct plan_mount *m) {
    static const char *const types[] = {"cgroup", "cgroup2"}, *const controllers[] = {"memory", NULL};
    if (plan_mount_find(root, NULL, types[v2], controllers[v2], m)) {
        return true;
    }
    if (plan_mount_find(root, NULL, types[!v2], controllers[!v2], m)) {
        return false; /* only the other version is */
    }
    snprintf(m->point, sizeof m->point, "/sys/fs/cgroup%s", v2 ? "" : "/memory");
    return true;
}

/* One hierarchy, from the process's group up to the mount. False: fn ended it. */
static bool cgroup_climb(const char *mount, const char *group, bool v2, plan_cgroup_fn fn, void *ud) {
    char dir[CGROUP_PATH];
    if ((size_t)snprintf(dir, sizeof dir, "%s%s", mount, group) >= sizeof dir) {
        return true;
    }
    const size_t base = strlen(mount);
    for (;;) {
        if (!fn(ud, dir, v2)) {
            return false;
        }
        char *slash = strrchr(dir, '/');
        if (strlen(dir) <= base || !slash || (size_t)(slash - dir) < base) {
            return true;
        }
        *slash = 0;
    }
}

void plan_cgroup_walk(const char *root, plan_cgroup_fn fn, void *ud) {
    char path[CGROUP_PATH], line[CGROUP_PATH];
    if ((size_t)snprintf(path, sizeof path, "%s/proc/self/cgroup", root) >= sizeof path) {
        return;
    }
    FILE *f = fopen(path, "re");
    bool more = true;
    while (f && more && fgets(line, sizeof line, f)) {
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
        const bool v2 = controllers[0] == 0;
        struct plan_mount m;
        if ((v2 || strstr(controllers, "memory")) && cgroup_mount(root, v2, &m) &&
            (size_t)snprintf(path, sizeof path, "%s%s", root, m.point) < sizeof path) {
            more = cgroup_climb(path, group, v2, fn, ud);
        }
    }
    if (f) {
        fclose(f);
    }
}

static bool cgroup_peak_of(void *ud, const char *dir, bool v2) {
    uint64_t *peak = ud;
    if (!plan_number_in(dir, v2 ? "memory.peak" : "memory.max_usage_in_bytes", peak)) {
        *peak = 0;
    }
    return *peak == 0;
}

uint64_t plan_cgroup_peak(const char *root) {
    uint64_t peak = 0;
    plan_cgroup_walk(root, cgroup_peak_of, &peak);
    return peak;
}
