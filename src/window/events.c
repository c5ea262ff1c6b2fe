/*
 * events.c - server-sent events for everyone who watches.
 *
 * Each event is made once, whoever watches, and shared by reference. A reader that took all that there is gets
 * suspended, which costs nothing until there is more. One that is slow gets the rest of the event that it is at, then
 * the newest: so for a reader there is never more in memory than the event that it is at (and what the kernel holds for
 * its socket, which http.c keeps small). One that has not taken an event ten seconds after it was begun is
 * disconnected, even if it takes a byte now and then; a browser comes back by itself.
 *
 * With nobody watching nothing is made at all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/clock.h"
#include "window/impl.h"

#define EVENTS_LATE 10.0 /* seconds in which an event must have been taken */

static void frame_drop(struct frame *f) {
    if (f && --f->refs == 0) {
        free(f);
    }
}

/* "event: NAME\ndata: TEXT\n\n". Takes the text, which may be NULL. NULL: no memory. */
static struct frame *frame_make(const char *name, char *text, size_t n) {
    static const char before[] = "event: ", between[] = "\ndata: ", after[] = "\n\n";
    const size_t all = sizeof before + sizeof between + sizeof after + strlen(name) + n;
    struct frame *f = text ? malloc(sizeof *f + all) : NULL;
    if (f) {
        f->refs = 1;
        const int head = snprintf(f->data, all, "%s%s%s", before, name, between);
        memcpy(f->data + head, text, n);
        memcpy(f->data + head + n, after, sizeof after - 1);
        f->n = (size_t)head + n + sizeof after - 1;
    }
    free(text);
    return f;
}

/* Make the newest event of a kind. Without memory the last one stays the newest. */
static void events_make(struct window *w, int kind) {
    static const char *const name[EVENTS_KINDS] = {"stats", "map"};
    struct events *e = &w->events;
    size_t n = 0;
    json_t *o = kind == EVENTS_MAP ? map_json(&w->map, &w->source, &w->layer) : stats_json(w);
    char *text = stats_text(o, &n);
    struct frame *f = frame_make(name[kind], text, n);
    if (f) {
        frame_drop(e->last[kind]);
        e->last[kind] = f;
        e->seq[kind]++;
    }
}

/* The next piece for a reader, held by it; NULL: there is none. */
static struct frame *stream_next(struct conn *x) {
    struct events *e = x->events;
    if (!x->greeted) {
        static const char hello[] = "retry: 2000\n\n"; /* milliseconds until a browser comes back */
        struct frame *f = malloc(sizeof *f + sizeof hello);
        if (f) {
            f->refs = 1;
            f->n = sizeof hello - 1;
            memcpy(f->data, hello, sizeof hello);
            x->greeted = true;
        }
        return f;
    }
    for (int k = 0; k < EVENTS_KINDS; k++) {
        if (e->last[k] && x->seen[k] != e->seq[k]) {
            x->seen[k] = e->seq[k];
            e->last[k]->refs++;
            return e->last[k];
        }
    }
    return NULL;
}

/* libmicrohttpd has room for more. */
static ssize_t stream_read(void *cls, uint64_t pos, char *buf, size_t max) {
    (void)pos;
    struct conn *x = cls;
    if (x->events->ending) {
        return MHD_CONTENT_READER_END_OF_STREAM;
    }
    if (!x->frame) {
        x->frame = stream_next(x);
        x->at = 0;
        x->deadline = x->frame ? clock_seconds() + EVENTS_LATE : 0;
    }
    if (!x->frame) {
        x->suspended = true;
        MHD_suspend_connection(x->c);
        return 0;
    }
    const size_t left = x->frame->n - x->at, n = left < max ? left : max;
    memcpy(buf, x->frame->data + x->at, n);
    x->at += n;
    if (x->at == x->frame->n) {
        frame_drop(x->frame);
        x->frame = NULL;
    }
    return (ssize_t)n;
}

/* The connection is closed, or the response was never sent. */
static void stream_free(void *cls) {
    struct conn *x = cls;
    x->reader = false;
    x->events->readers--;
    frame_drop(x->frame);
    x->frame = NULL;
}

enum MHD_Result events_reply(struct window *w, struct MHD_Connection *c) {
    enum { BLOCK = 8192 }; /* bytes asked for at a time */
    struct events *e = &w->events;
    if (e->readers >= WINDOW_READERS) {
        return reply_json(c, MHD_HTTP_SERVICE_UNAVAILABLE, reply_failure("too many pages are open", NULL, NULL), NULL);
    }
    struct conn *x = http_conn(c);
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, stream_read, x, stream_free);
    if (!r) {
        return MHD_NO; /* no memory: the connection is closed */
    }
    *x = (struct conn){.c = c, .fd = x->fd, .deadline = x->deadline, .reader = true, .events = e};
    e->readers++;
    events_make(w, EVENTS_STATS);
    events_make(w, EVENTS_MAP);
    return reply_queue(c, MHD_HTTP_OK, r, "text/event-stream", NULL);
}

static void events_wake(struct window *w) {
    for (struct conn *x = w->conn; x < w->conn + WINDOW_CONNS; x++) {
        if (x->reader && x->suspended) {
            x->suspended = false;
            MHD_resume_connection(x->c);
        }
    }
}

void events_tick(struct window *w, bool map) {
    if (w->events.readers == 0) {
        return;
    }
    events_make(w, EVENTS_STATS);
    if (map) {
        events_make(w, EVENTS_MAP);
    }
    events_wake(w);
}

void events_end(struct window *w) {
    w->events.ending = true;
    events_wake(w);
}

void events_free(struct events *e) {
    for (int k = 0; k < EVENTS_KINDS; k++) {
        frame_drop(e->last[k]);
        e->last[k] = NULL;
    }
}
