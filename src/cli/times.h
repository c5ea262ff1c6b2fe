/* times.h - sums over steps: where the time of a phase went. */
#ifndef SLUICE_CLI_TIMES_H
#define SLUICE_CLI_TIMES_H

#include <stdio.h>

#include "sluice.h"

struct cli_times {
    uint64_t steps;         /* how many */
    struct sluice_step sum; /* of their numbers; queue_mean and queue_max as if they were one step */
};

/* One more step. */
void cli_times_add(struct cli_times *t, const struct sluice_step *step);

/* "  name   waiting for reads 31.0 %, ..." and a newline; nothing when there was no step. */
void cli_times_print(const struct cli_times *t, FILE *out);

#endif
