/*
 * selftest-check [--times N] [--no-kernel] - run the self-test of the backend as it runs before a load, and say what it
 * found.
 *
 * Prints `NAME MS CPU` per run: the name of the broken assumption, or `none`, milliseconds, and those of processor
 * time. With libsluice-broken.so preloaded, which breaks one of them, a test sees that each is found, and found under
 * its own name. Exit code 0 when all hold, 1 when one is broken, 2 when it could not be checked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "selftest/selftest.h"

static double now_ms(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

int main(int argc, char **argv) {
    int times = 1;
    bool kernel = true;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--times") == 0 && i + 1 < argc) {
            times = atoi(argv[++i]);
        } else if (strcmp(argv[i], "--no-kernel") == 0) {
            kernel = false;
        } else {
            fprintf(stderr, "usage: selftest-check [--times N] [--no-kernel]\n");
            return 2;
        }
    }
    int rc = 0;
    for (int i = 0; i < times; i++) {
        char detail[SELFTEST_DETAIL_MAX];
        struct sluice_error err;
        const double start = now_ms(CLOCK_MONOTONIC), used = now_ms(CLOCK_PROCESS_CPUTIME_ID);
        const enum selftest_assumption a = selftest_check(kernel, detail, &err);
        printf("%s %.2f %.2f%s%s\n", selftest_name(a), now_ms(CLOCK_MONOTONIC) - start,
               now_ms(CLOCK_PROCESS_CPUTIME_ID) - used, detail[0] ? " " : "", detail);
        if (err.status) {
            fprintf(stderr, "selftest-check: %s\n", err.message);
            rc = 2;
        } else if (a != SELFTEST_HOLDS) {
            fprintf(stderr, "selftest-check: %s\n", selftest_sentence(a));
            rc = rc ? rc : 1;
        }
    }
    return rc;
}
