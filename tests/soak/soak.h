/* soak.h - shared by the parts of the soak test. */
#ifndef SLUICE_TESTS_SOAK_H
#define SLUICE_TESTS_SOAK_H

#include <stdbool.h>
#include <stdint.h>

/* The next number of a sequence. *seed may start at anything. */
uint32_t soak_random(uint64_t *seed);

/* From now on (or no more) reads of the lanes fail now and then. */
void soak_faults(uint64_t seed, bool on);

/* Reads that failed with EIO, and reads that were cut short, so far. */
uint32_t soak_faults_failed(void);
uint32_t soak_faults_short(void);

#endif
