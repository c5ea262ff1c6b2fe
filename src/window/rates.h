/* rates.h - how fast it goes at the moment: from counters of the last half minute. */
#ifndef SLUICE_WINDOW_RATES_H
#define SLUICE_WINDOW_RATES_H

#include <stdbool.h>
#include <stdint.h>

#include "window/window.h"

enum { RATES_SAMPLES = 64 }; /* kept; two a second */

/* The counters at one moment. */
struct rates_sample {
    double t;                                /* seconds of clock_seconds */
    uint64_t blocks[COUNTERS_PHASES];        /* MoE blocks so far: by enum sluice_phase */
    double done;                             /* prompt tokens through the layers so far */
    struct step_sums ended[COUNTERS_PHASES]; /* finished steps */
    struct sluice_phase_stats all;           /* both phases together */
};

struct rates {
    struct rates_sample sample[RATES_SAMPLES]; /* sample i is at i % RATES_SAMPLES */
    uint64_t n;                                /* samples so far */
    double moved[COUNTERS_PHASES];             /* when the phase's blocks last increased; 0: never */
    double since[COUNTERS_PHASES];             /* since when it has been at it without a long pause */
    double best;                               /* most bytes per second read in about a second so far */
};

/* What a page shows. */
struct rates_now {
    bool active[COUNTERS_PHASES];         /* it is being computed */
    int phase;                            /* enum sluice_phase of what is computed; -1: nothing */
    double tokens_per_s[COUNTERS_PHASES]; /* negative: not known, nothing ran */
    double bytes_per_s;                   /* read from disk in the last second; 0 before there were two samples */
    double hits, hit_bytes;               /* shares 0..1; negative: nothing was asked for */
    double part[4];                       /* shares of the steps' time: computing experts, waiting for reads, other,
                                             bookkeeping; negative: no step ended */
};

/* Take note of the counters at time t, about twice a second. */
void rates_add(struct rates *r, const struct window_numbers *now, double t);

/* What they say of time t, at or shortly after the last note. */
void rates_get(const struct rates *r, double t, struct rates_now *out);

#endif
