/* event.h - "something changed" for many sleepers: an atomic counter and a futex. */
#ifndef SLUICE_CACHE_EVENT_H
#define SLUICE_CACHE_EVENT_H

#include <stdatomic.h>
#include <stdint.h>

struct event {
    _Atomic uint32_t count;   /* bumped at every change; wraps around harmlessly */
    _Atomic uint32_t waiters; /* threads asleep or about to be, so that a bump without any is no system call */
};

/* The count before looking at the state: pass it to event_wait, and no change in between is missed. */
uint32_t event_read(struct event *e);

/* Note a change and wake every sleeper. The change itself is stored before this call. */
void event_bump(struct event *e);

/* Sleep until the count differs from `seen`. Returns at once when it already does. May wake early. */
void event_wait(struct event *e, uint32_t seen);

#endif
