/*
 * check.h - what must hold in every build.
 *
 * assert() is for what tests find; release builds drop it. SLUICE_CHECK stays: for pins, idleness and byte ranges,
 * where going on would compute with another expert's bytes and nobody would notice.
 */
#ifndef SLUICE_CACHE_CHECK_H
#define SLUICE_CACHE_CHECK_H

#include <stdio.h>
#include <stdlib.h>

/* Say what does not hold, and where, and end the process. */
_Noreturn static inline void check_failed(const char *file, int line, const char *what) {
    fprintf(stderr, "sluice: %s:%d: this must hold and does not: %s\n", file, line, what);
    abort();
}

#define SLUICE_CHECK(cond) ((cond) ? (void)0 : check_failed(__FILE__, __LINE__, #cond))

#endif
