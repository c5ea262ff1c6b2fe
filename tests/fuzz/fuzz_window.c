/*
 * fuzz_window.c - the window's HTTP service: what any program of the machine, and any page in its browser, may send.
 *
 * It is the real service, with the real libmicrohttpd, but for its thread and its socket: connections are socket pairs
 * that are handed to the daemon, and this file turns the wheel that http_thread turns. So an input always does the
 * same, and a thousand of them pass in a second.
 *
 * An input is what is sent, as it is, on one connection. A byte 0xff makes the next one a command: N another connection
 * (up to CONNS), S the next of them, P what was said so far is delivered, R answers are read, H no more will be sent, C
 * it is closed, T half a second passes (events), L half a minute passes. An input that begins with 0xfe is a text of
 * the environment instead: where the chat is, how fast the disk is.
 *
 * What must hold: settings change only when the token was sent; only who called the window by its name gets an answer
 * of 200; every answer is HTTP, every JSON text in one is JSON; afterwards no connection is left over.
 */
#include "fuzz.h"

#include <fcntl.h>

#include "window/http.c" /* the service without its thread */

enum { CONNS = 6, PIECE = 16384, ANSWER = 1 << 17 };

#define TOKEN "fuzzfuzzfuzzfuzz"
#define NAME  "127.0.0.1:8090"

extern const unsigned char window_page[];
extern const size_t window_page_n;
const unsigned char window_page[] = "<script nonce=\"@NONCE@\">1</script><style nonce=\"@NONCE@\"></style>@NONCE";
const size_t window_page_n = sizeof window_page - 1;

/* One client. */
struct client {
    int fd;        /* its end; -1: closed */
    char *answer;  /* what came, ANSWER bytes */
    size_t n;      /* of it */
    char *said;    /* what it said, PIECE bytes; more is not noted */
    size_t n_said; /* of it */
    bool streams;  /* an answer without an end was begun: the rest is not taken apart */
};

/* An input being acted out. */
struct act {
    struct window *w;                /* the window */
    size_t size;                     /* of the input */
    struct client client[CONNS];     /* clients */
    size_t n_clients, at;            /* of them; the one that speaks */
    char piece[PIECE];               /* said and not yet delivered */
    size_t n_piece;                  /* of it */
    struct sluice_settings settings; /* in force */
};

static int listening = -1; /* the socket that each daemon gets a copy of; nobody connects to it */

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    struct window w = {0};
    struct sluice_error err;
    FUZZ_CHECK(plan_address_parse("127.0.0.1:0", &w.guard.address));
    listening = http_listen(&w, &err);
    FUZZ_CHECK(listening >= 0);
    fuzz_quiet();
    return 0;
}

/* ---- what is shown --------------------------------------------------------------------------- */

static void numbers(void *ud, struct window_numbers *out, bool all) {
    const struct act *a = ud;
    memset(&out->stats, 0, sizeof out->stats);
    memset(out->ended, 0, sizeof out->ended);
    out->stats.tensors = 6;
    out->stats.layers = 2;
    out->stats.generation.tokens = a->size;
    out->stats.generation.hits = 3;
    out->stats.generation.read_bytes = 4096 * a->size;
    out->stats.cache_bytes = 1 << 20;
    out->ended[SLUICE_PHASE_GENERATION] = (struct step_sums){
        .steps = a->size, .sum = {.tokens = a->size, .wall_s = 0.1 * (double)a->size, .expert_s = 0.05}};
    if (all) {
        memset(&out->facts.plan, 0, sizeof out->facts.plan);
        out->facts.settings = a->settings;
        out->facts.planned = a->size % 2;
        out->facts.plan.total_bytes = 5 << 20;
        out->lossy = a->settings.drop_cold_experts > 0;
        out->experts = a->size % 3 ? 8 : 0;
        out->experts_used = out->facts.experts_own = 2;
        out->anonymous_bytes = out->file_bytes = out->shared_bytes = 1 << 20;
        snprintf(out->program, sizeof out->program, "fuzz\x1b");
        snprintf(out->model, sizeof out->model, "a \"b\\c\n\xff</script>.gguf"); /* whatever a file may be called */
        snprintf(out->facts.architecture, sizeof out->facts.architecture, "none");
        snprintf(out->facts.mode, sizeof out->facts.mode, "streaming");
        out->facts.warning[0] = out->error[0] = '\0';
    }
}

static bool layer(void *ud, uint32_t i, struct window_layer *out) {
    const struct act *a = ud;
    out->experts = a->size % 3 ? 8 : 0;
    out->top_k = 2;
    for (uint32_t e = 0; e < out->experts; e++) {
        out->state[e] = (uint8_t)(e % 4);
        out->uses[e] = e;
    }
    return i < 2;
}

static int set(void *ud, const char *name, const struct sluice_settings *to, struct sluice_error *err) {
    struct act *a = ud;
    bool allowed = false;
    for (size_t i = 0; i < a->n_clients; i++) {
        const struct client *c = &a->client[i];
        allowed = allowed || c->n_said == PIECE || memmem(c->said, c->n_said, TOKEN, strlen(TOKEN));
    }
    FUZZ_CHECK(allowed);
    FUZZ_CHECK(strcmp(name, "cache") == 0 || strcmp(name, "drop_cold_experts") == 0 ||
               strcmp(name, "drop_renorm") == 0 || strcmp(name, "lookahead") == 0);
    FUZZ_CHECK(to->drop_cold_experts >= 0 && to->drop_cold_experts <= 1 && to->cache_bytes <= INT64_MAX);
    if (strcmp(name, "drop_renorm") == 0 && to->drop_cold_experts > 0.5) {
        return sluice_fail(err, SLUICE_ERR_BUDGET, "refused");
    }
    a->settings = *to;
    return SLUICE_OK;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Has it said this text, in any case? */
static bool said(const struct client *c, const char *text) {
    const size_t n = strlen(text);
    for (size_t i = 0; i + n <= c->n_said; i++) {
        if (strncasecmp(c->said + i, text, n) == 0) {
            return true;
        }
    }
    return c->n_said == PIECE;
}

/* The value of a header, in a head that ends with a terminator. NULL: it is not there. */
static const char *header(const char *head, const char *name) {
    const char *p = strstr(head, name);
    return p ? p + strlen(name) : NULL;
}

/* Take the answers of a client apart. */
static void check_answers(struct client *c) {
    char *p = c->answer, *const stop = c->answer + c->n;
    while (p < stop && !c->streams) {
        FUZZ_CHECK(stop - p < 9 || strncmp(p, "HTTP/1.1 ", 9) == 0 || strncmp(p, "HTTP/1.0 ", 9) == 0);
        char *end = memmem(p, (size_t)(stop - p), "\r\n\r\n", 4);
        if (!end) {
            return; /* cut: the input closed it */
        }
        *end = '\0';
        const int status = atoi(p + 9);
        const char *length = header(p, "\r\nContent-Length: "), *type = header(p, "\r\nContent-Type: ");
        FUZZ_CHECK(status >= 100 && status < 600);
        if (status == 200) {
            FUZZ_CHECK(said(c, NAME) || said(c, "localhost:8090"));
            FUZZ_CHECK(header(p, "\r\nX-Content-Type-Options: nosniff") && header(p, "\r\nContent-Security-Policy: "));
        }
        FUZZ_CHECK(!header(p, "\r\nAccess-Control-"));
        char *body = end + 4;
        if (!length) {
            c->streams = true; /* events, or an answer that a closed connection ends */
            return;
        }
        const size_t n = (size_t)atoll(length);
        const bool none = body == stop || strncmp(body, "HTTP/1.", 7) == 0; /* of HEAD */
        if (!none && (size_t)(stop - body) < n) {
            return;
        }
        if (!none && type && strncmp(type, "application/json", 16) == 0) {
            json_t *o = json_loadb(body, n, JSON_REJECT_DUPLICATES, NULL);
            FUZZ_CHECK(json_is_object(o));
            json_decref(o);
        }
        p = none ? body : body + n;
    }
}

static void take(struct client *c) {
    while (c->fd >= 0 && c->n < ANSWER - 1) {
        const ssize_t n = recv(c->fd, c->answer + c->n, ANSWER - 1 - c->n, MSG_DONTWAIT);
        if (n <= 0) {
            return;
        }
        c->n += (size_t)n;
        c->answer[c->n] = '\0';
    }
}

/* ---- acting ---------------------------------------------------------------------------------- */

static void turn(struct act *a) {
    for (int i = 0; i < 4; i++) {
        MHD_run(a->w->daemon);
    }
}

static void deliver(struct act *a) {
    struct client *c = &a->client[a->at];
    if (a->n_piece && c->fd >= 0) {
        const ssize_t n = send(c->fd, a->piece, a->n_piece, MSG_DONTWAIT | MSG_NOSIGNAL);
        const size_t room = PIECE - c->n_said, some = a->n_piece < room ? a->n_piece : room;
        (void)n; /* what does not fit is lost, as on a connection that breaks */
        memcpy(c->said + c->n_said, a->piece, some);
        c->n_said += some;
    }
    a->n_piece = 0;
    turn(a);
}

static void join(struct act *a) {
    int pair[2];
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons(4711)};
    if (a->n_clients == CONNS) {
        return;
    }
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    FUZZ_CHECK(fcntl(pair[0], F_SETFL, O_NONBLOCK) == 0);
    struct client *c = &a->client[a->n_clients];
    if (MHD_add_connection(a->w->daemon, pair[0], (struct sockaddr *)&from, sizeof from) != MHD_YES) {
        close(pair[1]); /* the limit: libmicrohttpd has closed its end */
        return;
    }
    static char answer[CONNS][ANSWER], words[CONNS][PIECE];
    *c = (struct client){.fd = pair[1], .answer = answer[a->n_clients], .said = words[a->n_clients]};
    c->answer[0] = '\0';
    a->at = a->n_clients++;
}

static void pass_time(struct act *a, double t) {
    struct window *w = a->w;
    w->source.numbers(w->source.ud, &w->now, false);
    rates_add(&w->rates, &w->now, t);
    http_expire(w, t);
    events_tick(w, true);
    turn(a);
}

static void obey(struct act *a, uint8_t command, double *t) {
    struct client *c = &a->client[a->at];
    deliver(a);
    switch (command) {
    case 'N':
        join(a);
        break;
    case 'S':
        a->at = (a->at + 1) % a->n_clients;
        break;
    case 'R':
        take(c);
        turn(a);
        break;
    case 'H':
        shutdown(c->fd, SHUT_WR);
        turn(a);
        break;
    case 'C':
        if (c->fd >= 0) {
            close(c->fd);
            c->fd = -1;
        }
        turn(a);
        break;
    case 'T':
        pass_time(a, *t += HTTP_TICK);
        break;
    case 'L':
        pass_time(a, *t += HTTP_REQUEST + 1);
        break;
    default:
        break; /* P, and what means nothing */
    }
}

/* A text of the environment. */
static void fuzz_text(const uint8_t *data, size_t size) {
    struct window_chat chat = {0};
    double disk = 0;
    char *text = malloc(size + 1);
    FUZZ_CHECK(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    if (http_chat(text, &chat)) {
        FUZZ_CHECK(chat.there && chat.port > 0 && memchr(chat.origin, 0, sizeof chat.origin));
        FUZZ_CHECK(!strpbrk(chat.origin, " ;,'\"\r\n<>")); /* it becomes part of a header */
    }
    if (http_disk(text, &disk)) {
        FUZZ_CHECK(disk > 0 && disk < 1e19);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size && data[0] == 0xfe) {
        fuzz_text(data + 1, size - 1);
        return 0;
    }
    static struct act a; /* large */
    memset(&a, 0, offsetof(struct act, piece));
    memset((char *)&a + offsetof(struct act, n_piece), 0, sizeof a - offsetof(struct act, n_piece));
    a.size = size;
    struct window *w = calloc(1, sizeof *w);
    double t = clock_seconds();
    FUZZ_CHECK(w != NULL);
    sluice_settings_default(&a.settings);
    a.w = w;
    w->source = (struct window_source){.ud = &a, .numbers = numbers, .layer = layer, .set = set};
    w->started = t;
    FUZZ_CHECK(plan_address_parse(NAME, &w->guard.address));
    FUZZ_CHECK(guard_token(&w->guard, TOKEN, NULL) == 0);
    w->daemon = http_daemon(w, fcntl(listening, F_DUPFD_CLOEXEC, 3));
    FUZZ_CHECK(w->daemon != NULL);
    join(&a);
    for (size_t i = 0; i < size; i++) {
        if (data[i] == 0xff && i + 1 < size) {
            obey(&a, data[++i], &t);
        } else {
            if (a.n_piece == PIECE) {
                deliver(&a);
            }
            a.piece[a.n_piece++] = (char)data[i];
        }
    }
    deliver(&a);
    for (size_t i = 0; i < a.n_clients; i++) {
        take(&a.client[i]);
        turn(&a);
        take(&a.client[i]);
        check_answers(&a.client[i]);
    }
    events_end(w);
    MHD_run(w->daemon);
    MHD_stop_daemon(w->daemon);
    FUZZ_CHECK(w->events.readers == 0);
    for (const struct conn *x = w->conn; x < w->conn + WINDOW_CONNS; x++) {
        FUZZ_CHECK(!x->c && !x->reader && !x->frame);
    }
    events_free(&w->events);
    map_free(&w->map);
    for (size_t i = 0; i < a.n_clients; i++) {
        if (a.client[i].fd >= 0) {
            close(a.client[i].fd);
        }
    }
    free(w);
    return 0;
}
