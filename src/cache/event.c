/*
 * event.c - sleeping until something changed.
 *
 * A compute thread that has run out of ready experts must sleep (spinning would take the core from
 * the reader that it waits for) and must wake within microseconds of any completion. A condition
 * variable would do, but makes every completion take a mutex that the compute thread also takes;
 * with a counter and a futex a completion is one atomic add when nobody sleeps.
 */
#include "cache/event.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

uint32_t event_read(struct event *e) {
    return atomic_load(&e->count);
}

void event_bump(struct event *e) {
    atomic_fetch_add(&e->count, 1);
    /* Sequentially consistent with the waiter's increment: either we see it, or it sees the new count. */
    if (atomic_load(&e->waiters)) {
        syscall(SYS_futex, (uint32_t *)&e->count, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    }
}

void event_wait(struct event *e, uint32_t seen) {
    atomic_fetch_add(&e->waiters, 1);
    if (atomic_load(&e->count) == seen) {
        /* EAGAIN (changed meanwhile) and EINTR are both "look again", which callers do anyway. */
        syscall(SYS_futex, (uint32_t *)&e->count, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    }
    atomic_fetch_sub(&e->waiters, 1);
}
