/*
 * check.h - what must hold in every build, and locks that know in debug builds who holds them.
 *
 * assert() is for what tests find; release builds drop it. SLUICE_CHECK stays: for pins, idleness and byte ranges,
 * where going on would compute with another expert's bytes and nobody would notice.
 *
 * A mutex of check_mutex_init or CHECK_MUTEX is one that finds errors in builds with assert(): check_lock asserts that
 * this thread does not hold it, check_held tells whether it does. Without assert() it is a plain mutex, and nothing
 * asks.
 */
#ifndef SLUICE_CACHE_CHECK_H
#define SLUICE_CACHE_CHECK_H

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Say what does not hold, and where, and end the process. */
_Noreturn static inline void check_failed(const char *file, int line, const char *what) {
    fprintf(stderr, "sluice: %s:%d: this must hold and does not: %s\n", file, line, what);
    abort();
}

/* The value of a mutex that no call makes. */
#ifdef NDEBUG
#define CHECK_MUTEX PTHREAD_MUTEX_INITIALIZER
#else
#define CHECK_MUTEX PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP
#endif

static inline void check_mutex_init(pthread_mutex_t *m) {
#ifdef NDEBUG
    pthread_mutex_init(m, NULL);
#else
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(m, &a);
    pthread_mutexattr_destroy(&a);
#endif
}

/* Lock it; this thread does not hold it. */
static inline void check_lock(pthread_mutex_t *m) {
    const int rc = pthread_mutex_lock(m);
    assert(rc == 0);
    (void)rc;
}

/* Unlock it; this thread holds it. */
static inline void check_unlock(pthread_mutex_t *m) {
    const int rc = pthread_mutex_unlock(m);
    assert(rc == 0);
    (void)rc;
}

/* Does this thread hold it? Only for assert(): others' mutexes do not know. */
static inline bool check_held(pthread_mutex_t *m) {
    if (pthread_mutex_lock(m) == EDEADLK) {
        return true;
    }
    pthread_mutex_unlock(m);
    return false;
}

#define SLUICE_CHECK(cond) ((cond) ? (void)0 : check_failed(__FILE__, __LINE__, #cond))

#endif
