/* window.h - the window into a running process: a page, numbers and settings by HTTP. docs/window.md is its text. */
#ifndef SLUICE_WINDOW_WINDOW_H
#define SLUICE_WINDOW_WINDOW_H

#include <stdbool.h>

#include "sluice.h"
#include "window/source.h"

struct window;

/* How it is wanted. The texts are not kept. */
struct window_params {
    const char *address; /* as in sluice_settings.window */
    bool allow_remote;   /* as in sluice_settings */
    const char *token;   /* what changing settings needs: 16..64 of A-Z a-z 0-9 - _; NULL: made here, of chance */
    const char *chat; /* "http://HOST:PORT" of a chat API beside it; HOST 0.0.0.0 or [::]: the page's own; NULL: none */
    const char *disk; /* MiB/s that the disk gave before the run, in digits; NULL: nobody measured */
};

/*
 * Listen, and serve from a thread of its own until window_stop. SLUICE_ERR_ARG: a value of *p has no meaning, or the
 * address is not of this machine alone and allow_remote is not set; SLUICE_ERR_IO: the address cannot be had;
 * SLUICE_ERR_MEMORY. *source is copied.
 */
int window_start(struct window **out, const struct window_params *p, const struct window_source *source,
                 struct sluice_error *err);

/* "http://127.0.0.1:8090/#token=...": for the user. Valid until window_stop. */
const char *window_url(const struct window *w);

/*
 * End it and free everything. Waits, at most wait_s seconds, for the thread, which may be waiting for a block to end
 * because of a changed setting; false: it still does, and everything is left as it is (the process is ending). In a
 * forked child, which has no such thread, it only says so. NULL is fine.
 */
bool window_stop(struct window *w, double wait_s);

#endif
