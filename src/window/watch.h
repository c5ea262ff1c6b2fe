/* watch.h - the window of this process: made with the first context that wants it, fed from facts and steps. */
#ifndef SLUICE_WINDOW_WATCH_H
#define SLUICE_WINDOW_WATCH_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "observe/facts.h"
#include "observe/step.h"
#include "sluice.h"

struct window;

/* One window, however many models and contexts there are. Zeroed but for what is written before it opens. */
struct watch {
    const struct facts_source *source; /* what runs */
    struct step_log *steps;            /* its steps */
    int (*set)(void *ud, const char *name, const struct sluice_settings *to, struct sluice_error *err);
    /* window_source.set */

    pthread_mutex_t lock;  /* guards the next; no other lock is taken under it but by the window's start */
    struct window *window; /* NULL: not open */
};

/*
 * A context is being made, and the settings want a window: open it, unless it is. `print`: its address goes to standard
 * error. Fails with a message that says what to do.
 */
int watch_open(struct watch *w, bool print, struct sluice_error *err);

/* The process ends. A window that is waiting for a block is left to that end. */
void watch_close(struct watch *w);

/* sluice_window_line. */
int watch_line(struct watch *w, char *buf, size_t cap);

#endif
