/* idle.h - the union of waiting: time in which all threads of a team wait at once. */
#ifndef SLUICE_CACHE_IDLE_H
#define SLUICE_CACHE_IDLE_H

#include <pthread.h>
#include <stdbool.h>

/*
 * A team of n threads that compute and, now and then, wait. While one of them computes, the reads
 * that the others wait for are hidden behind its work and cost nothing. Only while all wait is time
 * lost, and that is what is measured here.
 */
struct idle {
    pthread_mutex_t lock; /* guards the rest; taken twice per sleep, never while computing */
    int waiting;          /* threads that wait now */
    double since;         /* when the last of the team began to wait, seconds of clock_seconds */
    double total;         /* seconds in which all waited */
};

/* Once, before use, and at the end. */
static inline void idle_init(struct idle *i) {
    *i = (struct idle){0};
    pthread_mutex_init(&i->lock, NULL);
}

static inline void idle_destroy(struct idle *i) {
    pthread_mutex_destroy(&i->lock);
}

/* One of a team of `threads` begins to wait at time t. The caller reads the clock before the call. */
static inline void idle_enter(struct idle *i, int threads, double t) {
    pthread_mutex_lock(&i->lock);
    if (++i->waiting == threads) {
        i->since = t;
    }
    pthread_mutex_unlock(&i->lock);
}

/* It waits no more since time t. */
static inline void idle_leave(struct idle *i, int threads, double t) {
    pthread_mutex_lock(&i->lock);
    if (i->waiting-- == threads && t > i->since) { /* two threads read the clock and come here in either order */
        i->total += t - i->since;
    }
    pthread_mutex_unlock(&i->lock);
}

#endif
