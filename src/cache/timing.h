/*
 * timing.h - where the time of one thread goes: a stopwatch that is always in exactly one part.
 *
 * Every change of activity reads the clock once and books the time since the last change on the part
 * that ends. So each part is a sum of measured intervals; none is "the rest", which would hide
 * whatever was forgotten. The times are the caller's, so that tests need no clock.
 */
#ifndef SLUICE_CACHE_TIMING_H
#define SLUICE_CACHE_TIMING_H

enum timing_part {
    TIMING_OTHER,       /* outside of our backend: attention, router, output head */
    TIMING_BOOKKEEPING, /* in our backend: routing, the engine's lock, making graphs, gathering rows */
    TIMING_EXPERT,      /* computing experts */
    TIMING_STALL,       /* waiting for reads with nothing to compute */
    TIMING_PARTS
};

struct timing {
    enum timing_part now;   /* what is going on */
    double since;           /* since when, seconds of clock_seconds */
    double s[TIMING_PARTS]; /* seconds booked, by part */
};

/* Nothing booked yet; `part` begins at time t. */
static inline void timing_start(struct timing *l, enum timing_part part, double t) {
    *l = (struct timing){.now = part, .since = t};
}

/* What went on ends at time t, and `part` begins. */
static inline void timing_switch(struct timing *l, enum timing_part part, double t) {
    l->s[l->now] += t - l->since;
    l->now = part;
    l->since = t;
}

/* Seconds that were booked on one part and are known, by a measurement of their own, to belong to another. */
static inline void timing_move(struct timing *l, enum timing_part from, enum timing_part to, double seconds) {
    l->s[from] -= seconds;
    l->s[to] += seconds;
}

#endif
