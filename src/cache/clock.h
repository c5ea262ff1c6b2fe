/* clock.h - the clock of all measurements. */
#ifndef SLUICE_CACHE_CLOCK_H
#define SLUICE_CACHE_CLOCK_H

#include <time.h>

/* Seconds of a clock that only goes forward; their difference is what means something. Any thread. */
static inline double clock_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail for this clock */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
