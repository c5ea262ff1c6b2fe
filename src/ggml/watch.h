/* watch.h - the window into this process: between sluice_device and src/window/. */
#ifndef SLUICE_GGML_WATCH_H
#define SLUICE_GGML_WATCH_H

#include <pthread.h>
#include <stdbool.h>

#include "sluice.h"

struct window;

/* In sluice_device. One window, however many models and contexts there are. */
struct watch {
    pthread_mutex_t lock;  /* guards the rest; no other lock is taken under it but by the window's start */
    struct window *window; /* NULL: not open */
    bool at_exit;          /* closing at the end of the process is arranged */
};

/*
 * A context is being made, and the settings want a window: open it, unless it is. The plug-in prints its address. Fails
 * with a message that says what to do.
 */
int watch_open(struct sluice_error *err);

#endif
