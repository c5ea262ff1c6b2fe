/*
 * http.c - the window: a small HTTP service on a thread of its own.
 *
 * Bytes and connections are libmicrohttpd's job; here is what may be asked, by whom, and for how long. One thread does
 * everything, timer included, so nothing but the flag that ends it is shared and no request waits for another's lock.
 * It waits on libmicrohttpd's epoll descriptor, so that however many descriptors the host program has, ours work
 * (select would fail above 1024), and on an eventfd, so that the process does not wait for it at its end.
 *
 * What it costs the model: a copy of the counters twice a second, and with a page open one of the states of a layer's
 * experts at a time, under locks that are held no longer; the rest (JSON, base64) needs none.
 *
 * Bounds: WINDOW_CONNS connections, WINDOW_READERS of which read /events; 32 KiB of memory for each and 64 KiB in the
 * kernel for what it does not take; bodies of WINDOW_BODY_MAX; half a minute for a request from its first byte to its
 * answer's last, however slowly the bytes come. Only GET, HEAD and POST.
 *
 * A changed setting is put into force by this thread too: it may wait for the block that is being computed, and one of
 * a long prompt takes its time. The page stands still meanwhile; the model does not.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cache/check.h"
#include "cache/clock.h"
#include "cache/error.h"
#include "window/impl.h"

#define HTTP_TICK    0.5  /* seconds between events */
#define HTTP_REQUEST 30.0 /* seconds for a request, answer included */

enum {
    HTTP_IDLE = 15,         /* seconds until libmicrohttpd closes a silent connection */
    HTTP_MEMORY = 32 << 10, /* bytes of memory for a connection's headers and buffers */
    HTTP_KERNEL = 64 << 10, /* bytes that the kernel keeps of an answer */
    HTTP_BACKLOG = 16,      /* connections that wait to be accepted */
    HTTP_TOO_LARGE = 413,   /* libmicrohttpd calls it this way and that */
};

/* What there is to ask for. */
enum http_path { HTTP_PAGE, HTTP_STATS, HTTP_EVENTS, HTTP_METRICS, HTTP_SETTINGS, HTTP_NOTHING };

/* A request that is not refused by its head. */
struct http_request {
    enum http_path path; /* what is asked for; HTTP_SETTINGS: changed */
    bool head;           /* without the body */
    bool form;           /* of HTTP_SETTINGS: the body is a form, else JSON */
    size_t n;            /* of HTTP_SETTINGS: bytes of the body so far */
    char body[];         /* of HTTP_SETTINGS: WINDOW_BODY_MAX bytes of room */
};

/* ---- connections ----------------------------------------------------------------------------- */

struct conn *http_conn(struct MHD_Connection *c) {
    const union MHD_ConnectionInfo *i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return i->socket_context;
}

static void http_connection(void *cls, struct MHD_Connection *c, void **context,
                            enum MHD_ConnectionNotificationCode code) {
    struct window *w = cls;
    struct conn *x = *context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        x = w->conn; /* one is free: libmicrohttpd takes no more than WINDOW_CONNS */
        while (x->c) {
            x++;
            SLUICE_CHECK(x < w->conn + WINDOW_CONNS);
        }
        *x = (struct conn){.c = c,
                           .fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd,
                           .deadline = clock_seconds() + HTTP_REQUEST};
        *context = x;
    } else {
        x->c = NULL;
    }
}

/* An answer is sent, or will never be. */
static void http_completed(void *cls, struct MHD_Connection *c, void **state, enum MHD_RequestTerminationCode code) {
    (void)cls, (void)code;
    http_conn(c)->deadline = clock_seconds() + HTTP_REQUEST; /* the next one's */
    free(*state);
    *state = NULL;
}

/* Close who is late. Through the socket: libmicrohttpd then finds it closed. */
static void http_expire(struct window *w, double t) {
    for (struct conn *x = w->conn; x < w->conn + WINDOW_CONNS; x++) {
        if (x->c && x->deadline > 0 && t > x->deadline) {
            w->events.dropped += x->reader;
            x->deadline = 0;
            shutdown(x->fd, SHUT_RDWR);
        }
    }
}

/* ---- requests -------------------------------------------------------------------------------- */

static enum http_path http_path(const char *path) {
    static const char *const paths[] = {"/", "/stats", "/events", "/metrics", "/settings"};
    int i = 0;
    while (i < HTTP_NOTHING && strcmp(paths[i], path) != 0) {
        i++;
    }
    return (enum http_path)i;
}

static const char *http_header(struct MHD_Connection *c, const char *name) {
    return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

static enum MHD_Result http_refuse(struct MHD_Connection *c, unsigned status, const char *why) {
    return reply_json(c, status, reply_failure(why, NULL, NULL), NULL);
}

static enum MHD_Result http_method(struct MHD_Connection *c, const char *allow) {
    return reply_json(c, MHD_HTTP_METHOD_NOT_ALLOWED, reply_failure("not with this method", NULL, NULL), allow);
}

static enum MHD_Result http_get(struct window *w, struct MHD_Connection *c, const struct http_request *r) {
    size_t n = 0;
    char *text;
    switch (r->path) {
    case HTTP_PAGE:
        return reply_page(w, c, http_header(c, MHD_HTTP_HEADER_HOST));
    case HTTP_EVENTS:
        if (r->head) { /* a stream would wait for somebody to take it */
            return reply_queue(c, MHD_HTTP_OK, reply_text(strdup(""), 0), "text/event-stream", NULL);
        }
        return events_reply(w, c);
    case HTTP_METRICS:
        text = metrics_text(w, &n);
        return reply_queue(c, MHD_HTTP_OK, reply_text(text, n), "text/plain; version=0.0.4; charset=utf-8", NULL);
    default:
        return reply_json(c, MHD_HTTP_OK, stats_json(w), NULL);
    }
}

/* Is the header's value this type, whatever parameters follow? */
static bool http_type(const char *value, const char *type) {
    const size_t n = strlen(type);
    return value && strncasecmp(value, type, n) == 0 && (value[n] == '\0' || value[n] == ';' || value[n] == ' ');
}

/* The head is in order: what is left of the request is wanted, and then http_handle answers it. */
static enum MHD_Result http_go_on(void **state, enum http_path path, bool head, bool form) {
    struct http_request *r = malloc(sizeof *r + (path == HTTP_SETTINGS ? WINDOW_BODY_MAX : 0));
    if (r) {
        *r = (struct http_request){.path = path, .head = head, .form = form};
    }
    *state = r;
    return r ? MHD_YES : MHD_NO; /* no memory: the connection is closed */
}

/* The head of a POST to /settings. Refuse it, or go on. */
static enum MHD_Result http_post(struct window *w, struct MHD_Connection *c, void **state) {
    const char *type = http_header(c, MHD_HTTP_HEADER_CONTENT_TYPE);
    const char *length = http_header(c, MHD_HTTP_HEADER_CONTENT_LENGTH);
    const bool form = http_type(type, "application/x-www-form-urlencoded");
    const enum guard_verdict verdict =
        guard_judge(&w->guard, http_header(c, "X-Sluice-Token"), http_header(c, MHD_HTTP_HEADER_AUTHORIZATION));
    if (verdict == GUARD_MISSING) {
        return http_refuse(c, MHD_HTTP_UNAUTHORIZED,
                           "changing settings needs the token that was printed at the start (X-Sluice-Token)");
    }
    if (verdict == GUARD_WRONG) {
        return http_refuse(c, MHD_HTTP_FORBIDDEN, "this is not the token that was printed at the start");
    }
    if (!form && !http_type(type, "application/json")) {
        return http_refuse(c, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE,
                           "application/json or application/x-www-form-urlencoded is wanted");
    }
    if (!length) {
        return http_refuse(c, MHD_HTTP_LENGTH_REQUIRED, "a Content-Length is wanted");
    }
    /* libmicrohttpd has made sure that it is a number. */
    if (strlen(length) > 15 || strtoull(length, NULL, 10) > WINDOW_BODY_MAX) {
        return http_refuse(c, HTTP_TOO_LARGE, "at most 4096 bytes");
    }
    return http_go_on(state, HTTP_SETTINGS, false, form);
}

/*
 * A request's head: refuse it, or go on. A refusal closes the connection: libmicrohttpd does so with answers that come
 * before the end of a request.
 */
static enum MHD_Result http_head(struct window *w, struct MHD_Connection *c, const char *url, const char *method,
                                 void **state) {
    const char *host = http_header(c, MHD_HTTP_HEADER_HOST);
    const char *length = http_header(c, MHD_HTTP_HEADER_CONTENT_LENGTH);
    const bool get = strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
    const bool post = strcmp(method, MHD_HTTP_METHOD_POST) == 0;
    const enum http_path path = http_path(url);
    if (!guard_host(&w->guard, host)) {
        return http_refuse(c, MHD_HTTP_MISDIRECTED_REQUEST, "this window is not called by that name (Host)");
    }
    if (!guard_origin(http_header(c, MHD_HTTP_HEADER_ORIGIN), host)) {
        return http_refuse(c, MHD_HTTP_FORBIDDEN, "only this window's own page may ask (Origin)");
    }
    if (path == HTTP_NOTHING) {
        return http_refuse(c, MHD_HTTP_NOT_FOUND, "there is no such thing here");
    }
    if (path == HTTP_SETTINGS) {
        return post ? http_post(w, c, state) : http_method(c, "POST");
    }
    if (!get) {
        return http_method(c, "GET, HEAD");
    }
    if ((length && strcmp(length, "0") != 0) || http_header(c, MHD_HTTP_HEADER_TRANSFER_ENCODING)) {
        return MHD_NO; /* a body that nobody reads: nothing sends one, and it must not wait here */
    }
    return http_go_on(state, path, strcmp(method, MHD_HTTP_METHOD_HEAD) == 0, false);
}

/* libmicrohttpd's handler: once with the head, then with pieces of the body, then at its end. */
static enum MHD_Result http_handle(void *cls, struct MHD_Connection *c, const char *url, const char *method,
                                   const char *version, const char *data, size_t *n, void **state) {
    (void)version;
    struct window *w = cls;
    struct http_request *r = *state;
    if (!r) {
        return http_head(w, c, url, method, state);
    }
    if (*n) {
        if (r->path != HTTP_SETTINGS || *n > WINDOW_BODY_MAX - r->n) {
            return MHD_NO; /* more than it said */
        }
        memcpy(r->body + r->n, data, *n);
        r->n += *n;
        *n = 0;
        return MHD_YES;
    }
    return r->path == HTTP_SETTINGS ? settings_post(w, c, r->body, r->n, r->form) : http_get(w, c, r);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void *http_thread(void *arg) {
    struct window *w = arg;
    double next = 0;
    struct pollfd fds[2] = {
        {.fd = MHD_get_daemon_info(w->daemon, MHD_DAEMON_INFO_EPOLL_FD)->listen_fd, .events = POLLIN},
        {.fd = w->wake_fd, .events = POLLIN},
    };
    for (uint64_t ticks = 0; !atomic_load(&w->stop);) {
        double t = clock_seconds();
        if (t >= next) {
            w->source.numbers(w->source.ud, &w->now, false);
            rates_add(&w->rates, &w->now, t);
            http_expire(w, t);
            events_tick(w, ticks++ % 2 == 0);
            next = t + HTTP_TICK;
            t = clock_seconds();
        }
        MHD_UNSIGNED_LONG_LONG limit = 0;
        const double rest = next > t ? (next - t) * 1000 : 0;
        const int wait = (int)rest + 1; /* milliseconds, rounded up */
        const bool limited = MHD_get_timeout(w->daemon, &limit) == MHD_YES;
        if (poll(fds, 2, limited && limit < (MHD_UNSIGNED_LONG_LONG)wait ? (int)limit : wait) < 0 && errno != EINTR) {
            break; /* cannot be: both descriptors are ours */
        }
        MHD_run(w->daemon);
    }
    events_end(w);
    MHD_run(w->daemon);
    MHD_stop_daemon(w->daemon);
    events_free(&w->events);
    map_free(&w->map);
    sem_post(&w->ended);
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

/* A listening socket; the port that it got comes back in w->guard.address. -1 with *err set. */
static int http_listen(struct window *w, struct sluice_error *err) {
    struct plan_address *a = &w->guard.address;
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(a->port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(a->port)};
    memcpy(&v4.sin_addr, a->ip, sizeof v4.sin_addr);
    memcpy(&v6.sin6_addr, a->ip, sizeof v6.sin6_addr);
    struct sockaddr *to = a->v6 ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4;
    socklen_t n = a->v6 ? sizeof v6 : sizeof v4;
    const int on = 1, kernel = HTTP_KERNEL;
    const int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* A port is free again at once after its program ended; connections inherit the buffer's size. */
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kernel, sizeof kernel) || bind(fd, to, n) || listen(fd, HTTP_BACKLOG) ||
        getsockname(fd, to, &n)) {
        const int why = errno;
        const bool taken = why == EADDRINUSE || why == EACCES;
        sluice_fail(err, SLUICE_ERR_IO, "window: %s%s%s:%u: %s%s", a->v6 ? "[" : "", a->host, a->v6 ? "]" : "",
                    (unsigned)a->port, strerror(why),
                    taken ? "; choose another port with --window (SLUICE_WINDOW), 0 takes any free one" : "");
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    a->port = ntohs(a->v6 ? v6.sin6_port : v4.sin_port);
    sluice_ok(err);
    return fd;
}

/* The address to print: where it listens on all, one that other machines reach, if there is one. */
static void http_print(struct window *w) {
    const struct plan_address *a = &w->guard.address;
    char host[sizeof a->host];
    struct ifaddrs *all = NULL;
    bool v6 = a->v6;
    snprintf(host, sizeof host, "%s", a->host);
    if (a->any && getifaddrs(&all) == 0) {
        const struct ifaddrs *i = all;
        while (i && !(i->ifa_addr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP) &&
                      !(i->ifa_flags & IFF_LOOPBACK))) {
            i = i->ifa_next;
        }
        struct sockaddr_in v4;
        if (i) {
            memcpy(&v4, i->ifa_addr, sizeof v4);
            v6 = !inet_ntop(AF_INET, &v4.sin_addr, host, sizeof host) && v6;
        }
        freeifaddrs(all);
    }
    snprintf(w->url, sizeof w->url, "http://%s%s%s:%u/#token=%s", v6 ? "[" : "", host, v6 ? "]" : "", (unsigned)a->port,
             w->guard.token);
}

/* "http://HOST:PORT" with nothing else in it. */
static bool http_chat(const char *url, struct window_chat *chat) {
    static const char scheme[] = "http://";
    const bool known = strncmp(url, scheme, sizeof scheme - 1) == 0;
    const char *host = known ? url + sizeof scheme - 1 : url, *colon = strrchr(host, ':');
    char port[SLUICE_ADDRESS_MAX];
    struct plan_address a;
    if (!known || !colon || colon == host || strlen(url) >= sizeof chat->origin ||
        host[strspn(host, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_[]:")]) {
        return false;
    }
    snprintf(port, sizeof port, "%s", colon + 1);
    if (!plan_address_parse(port, &a) || a.port == 0) { /* a port alone */
        return false;
    }
    *chat = (struct window_chat){.there = true, .port = a.port};
    chat->same_host = strncmp(host, "0.0.0.0:", 8) == 0 || strncmp(host, "[::]:", 5) == 0;
    snprintf(chat->origin, sizeof chat->origin, "%s", chat->same_host ? "" : url);
    return true;
}

/* MiB/s in digits. */
static bool http_disk(const char *text, double *bytes) {
    uint64_t n;
    if (text[strspn(text, "0123456789.")] || !sluice_parse_size(text, &n) || n == 0) {
        return false;
    }
    *bytes = (double)n;
    return true;
}

/* What of *p has no meaning. */
static int http_check(struct window *w, const struct window_params *p, struct sluice_error *err) {
    struct guard *g = &w->guard;
    if (!plan_address_parse(p->address, &g->address)) {
        return sluice_fail(err, SLUICE_ERR_ARG, "window: '%.64s' is no address with a port", p->address);
    }
    if (!g->address.loopback && !p->allow_remote) {
        return sluice_fail(err, SLUICE_ERR_ARG, "window: other machines could reach %s, which was not allowed",
                           g->address.host);
    }
    g->allow_remote = p->allow_remote && !g->address.loopback;
    if (p->chat && !http_chat(p->chat, &w->chat)) {
        return sluice_fail(err, SLUICE_ERR_ARG, "SLUICE_WINDOW_CHAT: '%.64s' is not like http://127.0.0.1:8080",
                           p->chat);
    }
    if (p->disk && !http_disk(p->disk, &w->disk)) {
        return sluice_fail(err, SLUICE_ERR_ARG, "SLUICE_WINDOW_DISK: '%.64s' is not a number of MiB/s", p->disk);
    }
    return guard_token(g, p->token, err);
}

/* The daemon, on this socket, which becomes its own; without one the socket is closed. */
static struct MHD_Daemon *http_daemon(struct window *w, int fd) {
    struct MHD_Daemon *d =
        MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | (w->guard.address.v6 ? MHD_USE_IPv6 : 0), 0, NULL,
                         NULL, http_handle, w, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
                         (unsigned)WINDOW_CONNS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)HTTP_IDLE,
                         MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_MEMORY, MHD_OPTION_NOTIFY_CONNECTION,
                         http_connection, w, MHD_OPTION_NOTIFY_COMPLETED, http_completed, w, MHD_OPTION_END);
    if (!d) {
        close(fd);
    }
    return d;
}

int window_start(struct window **out, const struct window_params *p, const struct window_source *source,
                 struct sluice_error *err) {
    struct window *w = calloc(1, sizeof *w);
    *out = NULL;
    if (!w) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "window: out of memory");
    }
    w->source = *source;
    w->pid = getpid();
    w->started = clock_seconds();
    w->wake_fd = -1;
    sem_init(&w->ended, 0, 0);
    int rc = http_check(w, p, err);
    const int fd = rc ? -1 : http_listen(w, err);
    rc = rc ? rc : fd < 0 ? SLUICE_ERR_IO : SLUICE_OK;
    if (rc == SLUICE_OK) {
        w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        w->daemon = http_daemon(w, fd);
        if (w->wake_fd < 0 || !w->daemon) {
            rc = sluice_fail(err, SLUICE_ERR_MEMORY, "window: the HTTP service cannot be started");
        }
    }
    if (rc == SLUICE_OK) {
        http_print(w);
        /* Signals are the host program's affair. */
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        if (pthread_create(&w->thread, NULL, http_thread, w)) {
            rc = sluice_fail(err, SLUICE_ERR_MEMORY, "window: no thread");
        }
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (rc) {
        if (w->daemon) {
            MHD_stop_daemon(w->daemon);
        }
        if (w->wake_fd >= 0) {
            close(w->wake_fd);
        }
        sem_destroy(&w->ended);
        free(w);
        return rc;
    }
    pthread_setname_np(w->thread, "sluice-window");
    *out = w;
    return sluice_ok(err);
}

const char *window_url(const struct window *w) {
    return w->url;
}

bool window_stop(struct window *w, double wait_s) {
    if (!w) {
        return true;
    }
    if (w->pid != getpid()) {
        return false;
    }
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)wait_s;
    until.tv_nsec += (long)((wait_s - (double)(time_t)wait_s) * 1e9);
    until.tv_sec += until.tv_nsec >= 1000000000;
    until.tv_nsec -= until.tv_nsec >= 1000000000 ? 1000000000 : 0;
    atomic_store(&w->stop, true);
    const uint64_t one = 1;
    const ssize_t n = write(w->wake_fd, &one, sizeof one);
    (void)n; /* were it not written, the thread would look within half a second */
    /* Not pthread_timedjoin_np, which is glibc's alone. */
    int rc;
    while ((rc = sem_timedwait(&w->ended, &until)) && errno == EINTR) {
    }
    if (rc) {
        return false;
    }
    pthread_join(w->thread, NULL);
    sem_destroy(&w->ended);
    close(w->wake_fd);
    free(w);
    return true;
}
