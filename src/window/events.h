/* events.h - /events: the newest numbers to everyone who watches, and to nobody more than he takes. */
#ifndef SLUICE_WINDOW_EVENTS_H
#define SLUICE_WINDOW_EVENTS_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct conn;
struct stream;
struct window;

enum { EVENTS_KINDS = 2 }; /* stats, map */

/* A piece of the stream, shared by the readers that are at it. */
struct frame {
    size_t n;      /* bytes */
    uint32_t refs; /* who holds it; the last one frees it */
    char data[];   /* "event: ...\n" and so on */
};

struct events {
    struct frame *last[EVENTS_KINDS]; /* the newest of each kind, held; NULL: none yet */
    uint64_t seq[EVENTS_KINDS];       /* its number, from 1 */
    struct stream *streams;           /* the readers */
    uint32_t readers;                 /* how many */
    uint64_t dropped;                 /* readers that were too slow, so far */
    bool ending;                      /* the window is being closed: streams end */
};

/* Answer GET /events: numbers at once, then as they come. */
enum MHD_Result events_reply(struct window *w, struct MHD_Connection *c);

/* It is time: make new events, for those who watch, if any do. The map's too when `map`. */
void events_tick(struct window *w, bool map);

/* All streams end: before the daemon is stopped. */
void events_end(struct window *w);

/* Free what is held. */
void events_free(struct events *e);

#endif
