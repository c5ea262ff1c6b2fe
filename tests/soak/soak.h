/* soak.h - shared by the parts of the soak test. */
#ifndef SLUICE_TESTS_SOAK_H
#define SLUICE_TESTS_SOAK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sluice.h"

/* The next number of a sequence. *seed may start at anything. */
uint32_t soak_random(uint64_t *seed);

/* From now on (or no more) reads of the lanes fail now and then. */
void soak_faults(uint64_t seed, bool on);

/* Reads that failed with EIO, and reads that were cut short, so far. */
uint32_t soak_faults_failed(void);
uint32_t soak_faults_short(void);

/* Bytes that reads brought so far, and how many brought any, whoever asked for them. */
uint64_t soak_read_bytes(void);
uint64_t soak_reads(void);

/* What the process holds. */
struct soak_quiet {
    uint32_t fds;      /* open descriptors */
    uint32_t threads;  /* of the process */
    uint64_t anon_kib; /* anonymous memory that is resident, KiB */
    uint64_t heap_kib; /* what malloc has given out and not got back, KiB; 0 where it does not tell (sanitizers) */
};

/* Once, before anything is allocated: have the allocator give back what is free, so that there is something to measure.
 */
void soak_quiet_begin(void);

/* Measure it now. */
struct soak_quiet soak_quiet_measure(void);

enum { SOAK_COUNTS = 26 }; /* counters that only go up */

/* The last snapshot of the counters that was looked at; zero to begin with. */
struct soak_counters {
    uint64_t count[SOAK_COUNTS]; /* in the order of quiet.c */
};

/*
 * Do the counters fit together, and has none gone back since *last? budget: bytes that the cache may have; 0: not
 * known. False with what is wrong in why. One thread at a time.
 */
bool soak_counters_ok(struct soak_counters *last, const struct sluice_stats *st, uint64_t budget, char *why,
                      size_t cap);

#endif
