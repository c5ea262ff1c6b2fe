/*
 * memory.h - how much memory this process has used at most.
 */
#ifndef SLUICE_CLI_MEMORY_H
#define SLUICE_CLI_MEMORY_H

#include <stdint.h>

/* Largest resident set of this process so far, bytes; mapped file pages count. 0: unknown. */
uint64_t cli_memory_peak(void);

/*
 * The kernel's own high-water mark of this process's memory cgroup (v2 memory.peak, v1
 * memory.max_usage_in_bytes), bytes: everything that runs in it, page cache included. 0: not readable.
 */
uint64_t cli_memory_cgroup_peak(void);

#endif
