/* process.h - what memory this process has now. */
#ifndef SLUICE_MEMORY_PROCESS_H
#define SLUICE_MEMORY_PROCESS_H

#include <stdint.h>

struct plan_process {
    uint64_t anon;   /* bytes in memory that only killing or swapping gives back: anonymous and shared memory */
    uint64_t shared; /* of those, bytes of shared memory */
    uint64_t files;  /* bytes of mapped file pages in memory */
    uint64_t data;   /* bytes of private writable mappings, touched or not; 0: not known */
    uint64_t stacks; /* of those, stacks of threads, which hardly any thread uses up */
};

/*
 * Read /proc/self/status and /proc/self/maps. `root` is prepended to the paths ("" outside tests).
 * What cannot be read is 0.
 */
void plan_process_read(struct plan_process *p, const char *root);

/* The same without `stacks`, for which all mappings are read. */
void plan_process_resident(struct plan_process *p, const char *root);

/* Largest resident set of this process so far, bytes; mapped file pages count. 0: not known. */
uint64_t plan_process_peak(void);

#endif
