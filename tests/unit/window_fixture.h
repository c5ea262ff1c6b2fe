/*
 * window_fixture.h - a window with made-up numbers, and a client that says what it is told to: for the tests of the
 * window's HTTP service.
 */
#ifndef SLUICE_TESTS_WINDOW_FIXTURE_H
#define SLUICE_TESTS_WINDOW_FIXTURE_H

#include "unit.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

#include "window/window.h"

#define TOKEN "0123456789abcdef-TEST"

/* The page, in place of the one that cmake/embed.cmake makes. */
#define PAGE "<script nonce=\"@NONCE@\">1</script><style nonce=\"@NONCE@\"></style>@NONCE"

/* What is shown. */
struct fake {
    pthread_mutex_t lock;            /* guards the rest */
    struct sluice_settings settings; /* in force */
    uint64_t tokens;                 /* generated */
    char asked[256];                 /* names of the settings put into force, each with a blank */
    const char *refuses;             /* this setting cannot be put into force */
    uint32_t layers, experts;        /* of the map */
    _Atomic bool hold;               /* putting a setting into force waits */
};

/* A window that shows it. */
struct service {
    struct fake fake;      /* what is shown */
    struct window *window; /* the window */
    unsigned port;         /* where it listens, on 127.0.0.1 */
};

/* The functions of a window that shows *f. */
struct window_source fake_source(struct fake *f);

/* Open one: as said; on any free port, with TOKEN. Close it. */
void begin_with(struct service *s, const struct window_params *p);
void begin(struct service *s);
void end(struct service *s);

/* The window's thread looks at `fake` too: in between, what is shown may be changed. */
void hold_fake(struct service *s);
void let_fake(struct service *s);

/* The names of the settings that were put into force; valid until the next call. Forget them; this one fails (NULL:
 * none). */
const char *asked(struct service *s);
void forget(struct service *s, const char *refuses);

/* The settings in force. */
struct sluice_settings in_force(struct service *s);

enum { ANSWER = 4 << 20 };

/* What came back. */
struct answer {
    int status;        /* 0: none came */
    char head[4096];   /* the status line and headers */
    char *body;        /* in text */
    size_t n;          /* bytes of it */
    char text[ANSWER]; /* all */
};

/* For the tests, which run one after the other. */
extern struct answer answer, other;

/* A connection. Say something. Read until the other end closes. */
int dial(const struct service *s);
void say(int fd, const char *text);
void listen_to(int fd, struct answer *a);

/* Say a whole request, in which %u is the port and %% a %; the answer until the connection is closed. The status. */
int ask(const struct service *s, struct answer *a, const char *request);

/* A GET of a path as a browser sends it. The status. */
int get(const struct service *s, struct answer *a, const char *path);

/* A POST to /settings with the token. The status. */
int post(const struct service *s, struct answer *a, const char *type, const char *body);
extern const char as_json[], as_form[];

/* The body as a JSON object, owned. A member of one by a path with dots, not owned. The same, a number. */
json_t *object_of(const struct answer *a);
json_t *member(json_t *o, const char *path);
double number(json_t *o, const char *path);

/* Is that in the head of the answer? */
bool has_header(const struct answer *a, const char *line);

/* The type, and the headers that every answer has. */
void check_headers(const struct answer *a, const char *type);

#endif
