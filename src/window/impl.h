/* impl.h - shared by the parts of the window. Only src/window/ includes it. */
#ifndef SLUICE_WINDOW_IMPL_H
#define SLUICE_WINDOW_IMPL_H

#include <jansson.h>
#include <microhttpd.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "memory/address.h"
#include "window/guard.h"
#include "window/map.h"
#include "window/rates.h"
#include "window/window.h"

enum {
    WINDOW_BODY_MAX = 4096, /* bytes of a request's body */
    WINDOW_CONNS = 32,      /* connections at once */
    WINDOW_READERS = 8      /* of those, readers of /events */
};

enum { EVENTS_STATS, EVENTS_MAP, EVENTS_KINDS };

/* A piece of the stream of events, shared by the readers that are at it. */
struct frame {
    size_t n;      /* bytes */
    uint32_t refs; /* who holds it; the last one frees it */
    char data[];   /* "event: ...\n" and so on */
};

/* One connection. The HTTP thread's alone. */
struct conn {
    struct MHD_Connection *c;    /* libmicrohttpd's; NULL: the place is free */
    int fd;                      /* its socket */
    double deadline;             /* when it is closed, seconds of clock_seconds; 0: not yet known to be late */
    bool reader;                 /* it reads /events: the rest is of the stream */
    bool greeted;                /* it got the first lines */
    bool suspended;              /* it waits for more */
    struct events *events;       /* what it reads */
    struct frame *frame;         /* what it is at; NULL: nothing */
    size_t at;                   /* bytes taken of it */
    uint64_t seen[EVENTS_KINDS]; /* numbers of the last events that it began with */
};

struct events {
    struct frame *last[EVENTS_KINDS]; /* the newest of each kind, held; NULL: none yet */
    uint64_t seq[EVENTS_KINDS];       /* its number, from 1 */
    uint32_t readers;                 /* how many there are */
    uint64_t dropped;                 /* readers that were too slow, so far */
    bool ending;                      /* the window is being closed: streams end */
};

/* Where a chat API is, if there is one. */
struct window_chat {
    bool there;       /* there is one */
    bool same_host;   /* its host is that of the page */
    uint16_t port;    /* its port */
    char origin[128]; /* "http://127.0.0.1:8080"; "" with same_host */
};

struct window {
    /* Written before the thread starts. */
    struct window_source source; /* of the numbers */
    struct guard guard;          /* who may ask */
    struct window_chat chat;     /* the API beside it */
    double disk;                 /* bytes per second that somebody measured; 0: nobody did */
    char url[256];               /* for the user */
    pid_t pid;                   /* whose thread it is */
    pthread_t thread;            /* that serves */
    int wake_fd;                 /* eventfd: look at `stop` */
    _Atomic bool stop;           /* end */
    sem_t ended;                 /* posted by the thread when it has nothing left to do */

    /* The thread's alone. */
    struct MHD_Daemon *daemon;      /* libmicrohttpd's */
    double started;                 /* seconds of clock_seconds */
    struct conn conn[WINDOW_CONNS]; /* all connections */
    struct events events;           /* what readers of /events are told */
    struct rates rates;             /* numbers of the last seconds */
    struct window_map map;          /* heat of the experts */
    struct window_numbers now;      /* scratch: the last numbers */
    struct window_layer layer;      /* scratch of the map */
};

/* ---- reply.c ---- */

/*
 * Answer with a response, which it takes, and the headers that every answer has. `policy`: its Content-Security-Policy;
 * NULL: that of everything but the page. Without memory (NULL too) the connection is closed, here and below.
 */
enum MHD_Result reply_queue(struct MHD_Connection *c, unsigned status, struct MHD_Response *r, const char *type,
                            const char *policy);

/* A response of n bytes that malloc gave, which it takes over. NULL: no memory. */
struct MHD_Response *reply_text(char *body, size_t n);

/* Answer with an object, which it takes. `allow`: the methods that are allowed, with status 405; else NULL. */
enum MHD_Result reply_json(struct MHD_Connection *c, unsigned status, json_t *object, const char *allow);

/* The object of a failure. `setting` and `changed` as in docs/window.md; NULL: none. Takes `changed`. */
json_t *reply_failure(const char *message, const char *setting, json_t *changed);

/* Answer GET /: the page. `host` is what the request calls us. */
enum MHD_Result reply_page(struct window *w, struct MHD_Connection *c, const char *host);

/* ---- events.c ---- */

/* Answer GET /events: numbers at once, then as they come. */
enum MHD_Result events_reply(struct window *w, struct MHD_Connection *c);

/* It is time: make new events, for those who watch, if any do. The map's too when `map`. */
void events_tick(struct window *w, bool map);

/* All streams end: before the daemon is stopped. */
void events_end(struct window *w);

/* Free what is held. */
void events_free(struct events *e);

/* ---- numbers.c ---- */

/* Read the numbers into w->now and make the object of /stats. NULL: no memory. */
json_t *stats_json(struct window *w);

/* Text of others (file names): what is no UTF-8 becomes '?'. NULL: no memory. */
json_t *stats_string(const char *text);

/* As text, in one line, by malloc; takes the object, which may be NULL. *n: its length. NULL: no memory. */
char *stats_text(json_t *object, size_t *n);

/* Read the numbers into w->now and write them as Prometheus reads them, by malloc. NULL: no memory. */
char *metrics_text(struct window *w, size_t *n);

/* ---- settings.c ---- */

/* The object "settings" of /stats, from w->now. NULL: no memory. */
json_t *settings_json(const struct window *w);

/* A request to change settings has arrived in whole. `form`: as a form; else JSON. */
enum MHD_Result settings_post(struct window *w, struct MHD_Connection *c, const char *body, size_t n, bool form);

/* ---- http.c ---- */

/* The connection behind a request. */
struct conn *http_conn(struct MHD_Connection *c);

#endif
