/*
 * memory.c - see memory.h.
 */
#include "cli/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

uint64_t cli_memory_peak(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0; /* Linux counts KiB */
}

/* The number in a file of one line; 0 when it cannot be read. */
static uint64_t number_in(const char *path) {
    uint64_t n = 0;
    FILE *f = fopen(path, "re");
    if (f) {
        if (fscanf(f, "%" SCNu64, &n) != 1) {
            n = 0;
        }
        fclose(f);
    }
    return n;
}

/*
 * Lines of /proc/self/cgroup: "0::/user.slice/x" (v2) and "5:memory:/x" (v1). Inside a container the
 * path is often one that only the host can see: then the mount's own root is this process's group.
 */
uint64_t cli_memory_cgroup_peak(void) {
    char line[4096], file[4200];
    uint64_t peak = 0;
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && peak == 0 && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) {
            continue;
        }
        *path++ = '\0';
        controllers++;
        if (controllers[0] == '\0') {
            snprintf(file, sizeof file, "/sys/fs/cgroup%s/memory.peak", path);
            peak = number_in(file);
            peak = peak ? peak : number_in("/sys/fs/cgroup/memory.peak");
        } else if (strcmp(controllers, "memory") == 0) {
            snprintf(file, sizeof file, "/sys/fs/cgroup/memory%s/memory.max_usage_in_bytes", path);
            peak = number_in(file);
            peak = peak ? peak : number_in("/sys/fs/cgroup/memory/memory.max_usage_in_bytes");
        }
    }
    if (f) {
        fclose(f);
    }
    return peak;
}
