/*
 * memory.c - see memory.h.
 */
#include "cli/memory.h"

#include <sys/resource.h>

#include "memory/cgroup.h"

uint64_t cli_memory_peak(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0; /* Linux counts KiB */
}

uint64_t cli_memory_cgroup_peak(void) {
    return plan_cgroup_peak("");
}
