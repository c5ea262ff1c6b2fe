/*
 * test_window_http.c - the window's HTTP service over real connections, with made-up numbers: every path, every
 * refusal, readers that are slow, connections that are too many, the end.
 */
#include "unit.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "stream/error.h"
#include "window/window.h"

/* The page: in place of the one that cmake/embed.cmake makes. */
extern const unsigned char window_page[];
extern const size_t window_page_n;
#define PAGE "<script nonce=\"@NONCE@\">1</script><style nonce=\"@NONCE@\"></style>@NONCE"
const unsigned char window_page[] = PAGE;
const size_t window_page_n = sizeof PAGE - 1;

#define TOKEN "0123456789abcdef-TEST"

/* ---- what is shown --------------------------------------------------------------------------- */

struct fake {
    pthread_mutex_t lock;            /* guards the rest */
    struct sluice_settings settings; /* in force */
    uint64_t tokens;                 /* generated */
    char asked[256];                 /* names of the settings put into force, each with a blank */
    const char *refuses;             /* this setting cannot be put into force */
    uint32_t layers, experts;        /* of the map */
    _Atomic bool hold;               /* putting a setting into force waits */
};

static void fake_numbers(void *ud, struct window_numbers *out, bool all) {
    struct fake *f = ud;
    pthread_mutex_lock(&f->lock);
    memset(&out->stats, 0, sizeof out->stats);
    memset(out->phase, 0, sizeof out->phase);
    out->stats.tensors = 6;
    out->stats.layers = 2;
    out->stats.generation.blocks = 2 * f->tokens;
    out->stats.generation.tokens = 2 * f->tokens;
    out->stats.generation.hits = 3 * f->tokens;
    out->stats.generation.misses = f->tokens;
    out->stats.generation.read_bytes = 4096 * f->tokens;
    out->stats.generation.drop.weight = 1.5;
    out->stats.generation.drop.dropped_weight = 0.25;
    out->stats.prompt.stall_s = 7;
    out->stats.cache_bytes = 1 << 20;
    out->stats.io = SLUICE_IO_URING;
    out->phase[SLUICE_PHASE_GENERATION] = (struct window_phase){.steps = f->tokens,
                                                                .tokens = f->tokens,
                                                                .wall_s = 0.1 * (double)f->tokens,
                                                                .compute_s = 0.04 * (double)f->tokens,
                                                                .stall_s = 0.03 * (double)f->tokens,
                                                                .other_s = 0.02 * (double)f->tokens,
                                                                .bookkeeping_s = 0.01 * (double)f->tokens};
    if (all) {
        memset(&out->plan, 0, sizeof out->plan);
        out->settings = f->settings;
        out->planned = true;
        out->plan.total_bytes = 5 << 20;
        out->plan.limit_bytes = 1 << 30;
        out->lossy = f->settings.drop_cold_experts > 0;
        out->experts = 8;
        out->experts_used = 2;
        out->experts_own = 2;
        out->anonymous_bytes = 3 << 20;
        out->file_bytes = 2 << 20;
        out->shared_bytes = 1 << 20;
        snprintf(out->program, sizeof out->program, "fake");
        snprintf(out->model, sizeof out->model, "a \"b\\c\n\xff.gguf"); /* whatever a file may be called */
        snprintf(out->architecture, sizeof out->architecture, "none");
        snprintf(out->mode, sizeof out->mode, "streaming");
        out->warning[0] = out->error[0] = '\0';
    }
    pthread_mutex_unlock(&f->lock);
}

static bool fake_layer(void *ud, uint32_t i, struct window_layer *out) {
    struct fake *f = ud;
    pthread_mutex_lock(&f->lock);
    const bool there = i < f->layers;
    out->experts = f->experts;
    out->top_k = 2;
    for (uint32_t e = 0; there && e < f->experts; e++) {
        out->state[e] = (uint8_t)(e % 4);
        out->uses[e] = e;
    }
    pthread_mutex_unlock(&f->lock);
    return there;
}

static int fake_set(void *ud, const char *name, const struct sluice_settings *to, struct sluice_error *err) {
    struct fake *f = ud;
    while (atomic_load(&f->hold)) {
        usleep(1000);
    }
    pthread_mutex_lock(&f->lock);
    int rc = SLUICE_OK;
    if (f->refuses && strcmp(f->refuses, name) == 0) {
        rc = sluice_fail(err, SLUICE_ERR_BUDGET, "needs 7 MiB, has 3");
    } else {
        strcat(strcat(f->asked, name), " ");
        if (strcmp(name, "cache") == 0) {
            f->settings.cache = to->cache;
            f->settings.cache_bytes = to->cache_bytes;
        } else if (strcmp(name, "drop_cold_experts") == 0) {
            f->settings.drop_cold_experts = to->drop_cold_experts;
        } else if (strcmp(name, "drop_renorm") == 0) {
            f->settings.drop_renorm = to->drop_renorm;
        } else {
            f->settings.lookahead = to->lookahead;
        }
    }
    pthread_mutex_unlock(&f->lock);
    return rc;
}

struct service {
    struct fake fake;
    struct window *window;
    unsigned port;
};

static struct window_source fake_source(struct fake *f) {
    return (struct window_source){.ud = f, .numbers = fake_numbers, .layer = fake_layer, .set = fake_set};
}

static void begin_with(struct service *s, const struct window_params *p) {
    struct sluice_error err;
    memset(s, 0, sizeof *s);
    pthread_mutex_init(&s->fake.lock, NULL);
    sluice_settings_default(&s->fake.settings);
    s->fake.layers = 2;
    s->fake.experts = 8;
    const struct window_source source = fake_source(&s->fake);
    if (window_start(&s->window, p, &source, &err)) {
        fail_msg("%s", err.message);
    }
    const char *colon = strrchr(window_url(s->window), ':');
    assert_int_equal(sscanf(colon, ":%u/", &s->port), 1);
    assert_true(s->port > 0);
}

static void begin(struct service *s) {
    const struct window_params p = {.address = "127.0.0.1:0", .token = TOKEN};
    begin_with(s, &p);
}

static void end(struct service *s) {
    assert_true(window_stop(s->window, 60));
    pthread_mutex_destroy(&s->fake.lock);
}

/* ---- asking ---------------------------------------------------------------------------------- */

enum { ANSWER = 4 << 20 };

struct answer {
    int status;        /* 0: none came */
    char head[4096];   /* the status line and headers */
    char *body;        /* in text */
    size_t n;          /* bytes of it */
    char text[ANSWER]; /* all */
};

static int dial(const struct service *s) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s->port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static void say(int fd, const char *text) {
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* Read until the other end closes. */
static void listen_to(int fd, struct answer *a) {
    size_t n = 0;
    ssize_t got;
    while ((got = recv(fd, a->text + n, sizeof a->text - 1 - n, 0)) > 0) {
        n += (size_t)got;
    }
    a->text[n] = '\0';
    a->status = 0;
    a->head[0] = '\0';
    a->body = a->text + n;
    a->n = 0;
    char *body = strstr(a->text, "\r\n\r\n");
    if (body) {
        assert_int_equal(sscanf(a->text, "HTTP/1.1 %d", &a->status), 1);
        assert_true((size_t)(body - a->text) < sizeof a->head);
        memcpy(a->head, a->text, (size_t)(body - a->text));
        a->head[body - a->text] = '\0';
        a->body = body + 4;
        a->n = n - (size_t)(a->body - a->text);
    }
}

/* Copy a request with the port for each %u and a % for each %%. */
static void fill(char *to, size_t cap, const char *from, unsigned port) {
    size_t n = 0;
    for (const char *p = from; *p; p++) {
        char piece[16] = {*p, '\0'};
        if (*p == '%') {
            p++;
            assert_true(*p == 'u' || *p == '%');
            if (*p == 'u') {
                snprintf(piece, sizeof piece, "%u", port);
            }
        }
        assert_true(n + strlen(piece) < cap);
        strcpy(to + n, piece);
        n += strlen(piece);
    }
}

/* Send raw text, of which %u is the port; the answer until the connection is closed. Returns the status. */
static int ask(const struct service *s, struct answer *a, const char *request) {
    char text[16384];
    fill(text, sizeof text, request, s->port);
    const int fd = dial(s);
    say(fd, text);
    listen_to(fd, a);
    close(fd);
    return a->status;
}

/* A GET of a path as a browser sends it. */
static int get(const struct service *s, struct answer *a, const char *path) {
    char request[256];
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%%u\r\nConnection: close\r\n\r\n", path);
    return ask(s, a, request);
}

/* A POST to /settings with the token. */
static int post(const struct service *s, struct answer *a, const char *type, const char *body) {
    static char request[16384];
    snprintf(request, sizeof request,
             "POST /settings HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\nX-Sluice-Token: " TOKEN
             "\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n%s",
             s->port, type, strlen(body), body);
    const int fd = dial(s);
    say(fd, request);
    listen_to(fd, a);
    close(fd);
    return a->status;
}

static const char json_type[] = "application/json", form_type[] = "application/x-www-form-urlencoded";

/* The body as a JSON object. */
static json_t *object_of(const struct answer *a) {
    json_error_t why;
    json_t *o = json_loadb(a->body, a->n, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(o)) {
        fail_msg("not an object: %s: %.200s", why.text, a->body);
    }
    return o;
}

/* A member by a path with dots. Not owned. */
static json_t *member(json_t *o, const char *path) {
    char name[256];
    snprintf(name, sizeof name, "%s", path);
    for (char *save = NULL, *p = strtok_r(name, ".", &save); p; p = strtok_r(NULL, ".", &save)) {
        o = json_object_get(o, p);
        if (!o) {
            fail_msg("no %s", path);
        }
    }
    return o;
}

static double number(json_t *o, const char *path) {
    json_t *v = member(o, path);
    if (!json_is_number(v)) {
        fail_msg("%s is no number", path);
    }
    return json_number_value(v);
}

static bool has_header(const struct answer *a, const char *line) {
    return strstr(a->head, line) != NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

static struct answer answer; /* large; the tests run one after the other */
static struct answer other;

static void check_headers(const struct answer *a, const char *type) {
    char line[256];
    snprintf(line, sizeof line, "\r\nContent-Type: %s\r\n", type);
    char head[sizeof a->head + 4];
    snprintf(head, sizeof head, "%s\r\n", a->head);
    if (!strstr(head, line)) {
        fail_msg("not %s: %s", type, a->head);
    }
    assert_true(has_header(a, "X-Content-Type-Options: nosniff"));
    assert_true(has_header(a, "X-Frame-Options: DENY"));
    assert_true(has_header(a, "Referrer-Policy: no-referrer"));
    assert_true(has_header(a, "Cross-Origin-Resource-Policy: same-origin"));
    assert_true(has_header(a, "Cache-Control: no-store"));
    assert_true(has_header(a, "frame-ancestors 'none'"));
    assert_null(strstr(a->head, "Access-Control-"));
}

static void test_page(void **state) {
    (void)state;
    struct service s;
    begin(&s);
    char nonce[2][64] = {"", ""};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(get(&s, &answer, "/"), 200);
        check_headers(&answer, "text/html; charset=utf-8");
        assert_int_equal(sscanf(answer.body, "<script nonce=\"%32[0-9a-f]\">", nonce[i]), 1);
        assert_int_equal(strlen(nonce[i]), 32);
        char want[256];
        snprintf(want, sizeof want, "<script nonce=\"%s\">1</script><style nonce=\"%s\"></style>@NONCE", nonce[i],
                 nonce[i]);
        assert_int_equal(answer.n, strlen(want));
        assert_memory_equal(answer.body, want, answer.n);
        snprintf(want, sizeof want,
                 "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; img-src data:; connect-src 'self'; ",
                 nonce[i], nonce[i]);
        assert_true(has_header(&answer, want));
    }
    assert_string_not_equal(nonce[0], nonce[1]);
    assert_int_equal(ask(&s, &answer, "HEAD / HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\n\r\n"), 200);
    assert_int_equal(answer.n, 0);
    end(&s);
}

static void test_stats(void **state) {
    (void)state;
    struct service s;
    begin(&s);
    s.fake.tokens = 10;
    assert_int_equal(get(&s, &answer, "/stats"), 200);
    check_headers(&answer, "application/json");
    assert_null(memchr(answer.body, '\n', answer.n));
    json_t *o = object_of(&answer);
    assert_true(number(o, "api") == 1 && number(o, "pid") == getpid());
    assert_string_equal(json_string_value(member(o, "version")), sluice_version());
    assert_string_equal(json_string_value(member(o, "model.name")), "a \"b\\c\n?.gguf");
    assert_true(number(o, "model.experts") == 8 && number(o, "model.experts_used") == 2);
    assert_true(number(o, "generation.tokens") == 10 && number(o, "generation.tokens_done") == 10);
    assert_true(number(o, "generation.hits") == 30 && number(o, "generation.misses") == 10);
    assert_true(number(o, "generation.wall_seconds") == 1 && number(o, "generation.compute_seconds") == 0.4);
    assert_true(number(o, "generation.dropped.dropped_weight") == 0.25);
    assert_true(number(o, "prompt.tokens") == 0);
    assert_true(number(o, "memory.used.total_bytes") == 6 << 20);
    assert_true(number(o, "memory.plan.total_bytes") == 5 << 20);
    assert_true(number(o, "memory.limit_bytes") == 1 << 30);
    assert_string_equal(json_string_value(member(o, "memory.limit_by")), "machine");
    assert_string_equal(json_string_value(member(o, "disk.io")), "uring");
    assert_true(json_is_null(member(o, "disk.probed_bytes_per_second")));
    assert_true(json_is_null(member(o, "cold")));
    assert_true(json_is_null(member(o, "chat")));
    assert_string_equal(json_string_value(member(o, "settings.cache.value")), "auto");
    assert_true(json_is_null(member(o, "settings.cache.bytes")));
    assert_true(json_is_true(member(o, "settings.cache.changeable")));
    assert_true(json_is_false(member(o, "settings.n_expert_used.changeable")));
    assert_true(json_string_length(member(o, "settings.n_expert_used.reason")) > 0);
    assert_string_equal(json_string_value(member(o, "phase")), "idle");
    assert_true(json_is_null(member(o, "now.generation_tokens_per_second")));
    json_decref(o);
    /* A query is of no account. */
    assert_int_equal(get(&s, &answer, "/stats?x=1"), 200);
    end(&s);
}

/* Under sluice serve. */
static void test_chat(void **state) {
    (void)state;
    struct service s;
    const struct window_params p = {
        .address = "127.0.0.1:0", .token = TOKEN, .chat = "http://127.0.0.1:8080", .disk = "2000"};
    begin_with(&s, &p);
    assert_int_equal(get(&s, &answer, "/"), 200);
    assert_true(has_header(&answer, "connect-src 'self' http://127.0.0.1:8080;"));
    assert_int_equal(get(&s, &answer, "/stats"), 200);
    json_t *o = object_of(&answer);
    assert_string_equal(json_string_value(member(o, "chat.url")), "http://127.0.0.1:8080");
    assert_true(number(o, "chat.port") == 8080);
    assert_true(number(o, "disk.probed_bytes_per_second") == 2000.0 * 1048576);
    json_decref(o);
    end(&s);
    const struct window_params remote = {
        .address = "0.0.0.0:0", .allow_remote = true, .token = TOKEN, .chat = "http://0.0.0.0:8081"};
    begin_with(&s, &remote);
    assert_int_equal(ask(&s, &answer, "GET / HTTP/1.1\r\nHost: 127.0.0.7:%u\r\nConnection: close\r\n\r\n"), 200);
    assert_true(has_header(&answer, "connect-src 'self' http://127.0.0.7:8081;"));
    assert_int_equal(ask(&s, &answer, "GET / HTTP/1.1\r\nHost: [::7]:%u\r\nConnection: close\r\n\r\n"), 200);
    assert_true(has_header(&answer, "connect-src 'self' http://[::7]:8081;"));
    assert_int_equal(get(&s, &answer, "/stats"), 200);
    o = object_of(&answer);
    assert_true(json_is_null(member(o, "chat.url")));
    json_decref(o);
    end(&s);
}

/* ---- Prometheus ------------------------------------------------------------------------------ */

static bool name_byte(char c, bool first) {
    return isalpha((unsigned char)c) || c == '_' || c == ':' || (!first && isdigit((unsigned char)c));
}

/* Step over a name. */
static const char *skip_name(const char *p) {
    assert_true(name_byte(*p, true));
    while (name_byte(*p, false)) {
        p++;
    }
    return p;
}

/* Step over {label="value",...}. */
static const char *skip_labels(const char *p) {
    assert_int_equal(*p++, '{');
    for (;;) {
        p = skip_name(p);
        assert_memory_equal(p, "=\"", 2);
        for (p += 2; *p != '"'; p++) {
            assert_true(*p && *p != '\n');
            if (*p == '\\') {
                p++;
                assert_true(*p == '\\' || *p == '"' || *p == 'n');
            }
        }
        if (*++p == '}') {
            return p + 1;
        }
        assert_int_equal(*p++, ',');
    }
}

/* Strictly: each family has HELP, TYPE, then its samples, all in one place; no series twice; names by the conventions.
 */
static void check_metrics(const char *text, size_t n) {
    char family[128] = "", type[32] = "", seen[128][128];
    size_t n_seen = 0, samples = 0;
    char *series[1024];
    size_t n_series = 0;
    assert_true(n > 0 && text[n - 1] == '\n');
    for (const char *line = text; *line;) {
        const char *eol = strchr(line, '\n');
        assert_non_null(eol);
        char next[128], rest[512];
        if (sscanf(line, "# HELP %127s %511[^\n]", next, rest) == 2) {
            assert_true(family[0] == '\0' || samples > 0);
            for (size_t i = 0; i < n_seen; i++) {
                assert_string_not_equal(seen[i], next);
            }
            assert_true(n_seen < 128);
            strcpy(seen[n_seen++], next);
            strcpy(family, next);
            assert_int_equal(*skip_name(next), '\0');
            samples = 0;
            type[0] = '\0';
        } else if (sscanf(line, "# TYPE %127s %31s", next, type) == 2) {
            assert_string_equal(next, family);
            assert_true(strcmp(type, "counter") == 0 || strcmp(type, "gauge") == 0);
            const size_t len = strlen(family);
            const bool total = len > 6 && strcmp(family + len - 6, "_total") == 0;
            assert_int_equal(total, strcmp(type, "counter") == 0);
        } else {
            const char *p = skip_name(line);
            assert_true(type[0] && strlen(family) == (size_t)(p - line) &&
                        memcmp(line, family, (size_t)(p - line)) == 0);
            p = *p == '{' ? skip_labels(p) : p;
            for (size_t i = 0; i < n_series; i++) {
                assert_false(strlen(series[i]) == (size_t)(p - line) &&
                             memcmp(series[i], line, (size_t)(p - line)) == 0);
            }
            assert_true(n_series < 1024);
            series[n_series++] = strndup(line, (size_t)(p - line));
            assert_int_equal(*p++, ' ');
            char *number_end;
            assert_true(isdigit((unsigned char)*p));
            strtod(p, &number_end);
            assert_ptr_equal(number_end, eol);
            samples++;
        }
        line = eol + 1;
    }
    assert_true(samples > 0 && n_seen > 20);
    while (n_series > 0) {
        free(series[--n_series]);
    }
}

static void test_metrics(void **state) {
    (void)state;
    struct service s;
    begin(&s);
    s.fake.tokens = 10;
    assert_int_equal(get(&s, &answer, "/metrics"), 200);
    check_headers(&answer, "text/plain; version=0.0.4; charset=utf-8");
    check_metrics(answer.body, answer.n);
    static const char *const lines[] = {
        "\nsluice_tokens_total{phase=\"generation\"} 10\n",
        "\nsluice_tokens_total{phase=\"prompt\"} 0\n",
        "\nsluice_step_seconds_total{phase=\"generation\",part=\"stall\"} 0.300000\n",
        "\nsluice_read_bytes_total{phase=\"generation\"} 40960\n",
        "\nsluice_router_weight_total{phase=\"generation\",fate=\"kept\"} 1.250000\n",
        "\nsluice_cache_bytes 1048576\n",
        "\nprocess_resident_memory_bytes 6291456\n",
        ",model=\"a \\\"b\\\\c\\n?.gguf\",",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (!strstr(answer.body, lines[i])) {
            fail_msg("no %s in %s", lines[i], answer.body);
        }
    }
    end(&s);
}

/* ---- who may ask ----------------------------------------------------------------------------- */

static void test_refused(void **state) {
    (void)state;
    static const struct {
        int status;
        const char *request; /* %u: the port */
    } cases[] = {
#define GET(path, host, more) "GET " path " HTTP/1.1\r\nHost: " host "\r\nConnection: close\r\n" more "\r\n"
        {200, GET("/stats", "localhost:%u", "")},
        {200, GET("/stats", "127.0.0.1:%u", "Origin: http://127.0.0.1:%u\r\n")},
        {421, GET("/stats", "evil.org:%u", "")},
        {421, GET("/", "evil.org:%u", "")},
        {421, GET("/events", "evil.org:%u", "")},
        {421, GET("/metrics", "evil.org:%u", "")},
        {421, GET("/stats", "127.0.0.1", "")},
        {421, GET("/stats", "127.0.0.1:%u1", "")},
        {421, "GET /stats HTTP/1.0\r\n\r\n"},
        {403, GET("/stats", "127.0.0.1:%u", "Origin: http://evil.org\r\n")},
        {403, GET("/", "127.0.0.1:%u", "Origin: null\r\n")},
        {403, GET("/events", "127.0.0.1:%u", "Origin: http://localhost:%u\r\n")},
        {404, GET("/nothing", "127.0.0.1:%u", "")},
        {404, GET("/stats/", "127.0.0.1:%u", "")},
        {404, GET("//stats", "127.0.0.1:%u", "")},
        {404, GET("/../../etc/passwd", "127.0.0.1:%u", "")},
        {404, GET("/%%2e%%2e/etc/passwd", "127.0.0.1:%u", "")},
        {405, GET("/settings", "127.0.0.1:%u", "")},
        {405, "POST /stats HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"},
        {405, "POST / HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"},
        {405, "PUT /settings HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"},
        {405, "DELETE /stats HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\n\r\n"},
        {405, "OPTIONS /settings HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\n\r\n"},
        {405, "BREW /stats HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\n\r\n"},
        {0, GET("/stats", "127.0.0.1:%u", "Content-Length: 5\r\n")},
#define POST(headers, body) "POST /settings HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\n" headers "\r\n" body
#define JSON                "Content-Type: application/json\r\n"
#define KEY                 "X-Sluice-Token: " TOKEN "\r\n"
#define LENGTH              "Content-Length: 18\r\n"
#define BODY                "{\"lookahead\":true}"
        {200, POST(JSON KEY LENGTH, BODY)},
        {200, POST(JSON "Authorization: Bearer " TOKEN "\r\n" LENGTH, BODY)},
        {200, POST("Content-Type: application/json; charset=utf-8\r\n" KEY LENGTH, BODY)},
        {200, POST(JSON KEY "Origin: http://127.0.0.1:%u\r\n" LENGTH, BODY)},
        {401, POST(JSON LENGTH, BODY)},
        {401, POST(JSON "X-Sluice-Token:\r\n" LENGTH, BODY)},
        {401, POST(JSON "Authorization: Basic " TOKEN "\r\n" LENGTH, BODY)},
        {403, POST(JSON "X-Sluice-Token: " TOKEN "x\r\n" LENGTH, BODY)},
        {403, POST(JSON "Authorization: Bearer 0123456789abcdef-TESS\r\n" LENGTH, BODY)},
        {403, POST(JSON KEY "Origin: http://evil.org\r\n" LENGTH, BODY)},
        {421, "POST /settings HTTP/1.1\r\nHost: evil.org:%u\r\nConnection: close\r\n" JSON KEY LENGTH "\r\n" BODY},
        {411, POST(JSON KEY, "")},
        {411, POST(JSON KEY "Transfer-Encoding: chunked\r\n", "12\r\n" BODY "\r\n0\r\n\r\n")},
        {413, POST(JSON KEY "Content-Length: 4097\r\n", "")},
        {413, POST(JSON KEY "Content-Length: 99999999999\r\n", "")},
        {415, POST("Content-Type: text/plain\r\n" KEY LENGTH, BODY)},
        {415, POST("Content-Type: application/jsonx\r\n" KEY LENGTH, BODY)},
        {415, POST("Content-Type: multipart/form-data; boundary=x\r\n" KEY LENGTH, BODY)},
        {415, POST(KEY LENGTH, BODY)},
    };
    struct service s;
    begin(&s);
    int changed = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int status = ask(&s, &answer, cases[i].request);
        if (status != cases[i].status) {
            fail_msg("%d, not %d: %s", status, cases[i].status, cases[i].request);
        }
        changed += status == 200 && strncmp(cases[i].request, "POST", 4) == 0;
        if (status >= 400) {
            json_t *o = object_of(&answer);
            assert_true(json_is_false(member(o, "ok")) && json_string_length(member(o, "error")) > 0);
            assert_true(json_is_null(member(o, "setting")) && json_array_size(member(o, "changed")) == 0);
            json_decref(o);
            check_headers(&answer, "application/json");
        }
        assert_true(status != 405 || has_header(&answer, "Allow: "));
        assert_true(status != 401 || has_header(&answer, "WWW-Authenticate: Bearer"));
    }
    /* Nothing refused has changed anything. */
    assert_int_equal(changed, 4);
    assert_string_equal(s.fake.asked, "lookahead lookahead lookahead lookahead ");
    /* A head that is too large, and what is no HTTP. */
    static char large[40000];
    memset(large, 'a', sizeof large - 1);
    int fd = dial(&s);
    say(fd, "GET /stats HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ");
    send(fd, large, sizeof large - 1, MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    listen_to(fd, &answer);
    assert_true(answer.status == 0 || (answer.status >= 400 && answer.status < 500));
    close(fd);
    fd = dial(&s);
    say(fd, "\x16\x03\x01 nonsense\r\n\r\n");
    shutdown(fd, SHUT_WR);
    listen_to(fd, &answer);
    assert_true(answer.status == 0 || answer.status >= 400);
    close(fd);
    assert_int_equal(get(&s, &answer, "/stats"), 200);
    end(&s);
}

/* ---- settings -------------------------------------------------------------------------------- */

static void test_settings(void **state) {
    (void)state;
    struct service s;
    begin(&s);
    assert_int_equal(
        post(&s, &answer, json_type,
             "{\"lookahead\": false, \"drop_renorm\": true, \"drop_cold_experts\": 0.125, \"cache\": 3000}"),
        200);
    json_t *o = object_of(&answer);
    assert_true(json_is_true(member(o, "ok")));
    assert_int_equal(json_array_size(member(o, "changed")), 4);
    assert_string_equal(json_string_value(member(o, "settings.cache.value")), "3000MiB");
    assert_true(number(o, "settings.cache.bytes") == 3000.0 * 1048576);
    assert_true(number(o, "settings.drop_cold_experts.value") == 0.125);
    assert_true(json_is_true(member(o, "settings.drop_cold_experts.lossy")));
    assert_true(json_is_true(member(o, "settings.drop_renorm.value")));
    assert_true(json_is_false(member(o, "settings.lookahead.value")));
    json_decref(o);
    assert_string_equal(s.fake.asked, "cache drop_cold_experts drop_renorm lookahead "); /* the cache first */
    assert_true(s.fake.settings.drop_cold_experts == 0.125);
    assert_int_equal(s.fake.settings.cache_bytes, (uint64_t)3000 << 20);

    static const struct {
        int status;
        const char *type, *body, *setting; /* setting: which is named; NULL: none */
    } cases[] = {
        {200, json_type, "{\"cache\":\"auto\"}", NULL},
        {200, json_type, "{\"cache\":\"off\",\"drop_cold_experts\":0}", NULL},
        {200, json_type, "{\"cache\":\"1.5GiB\"}", NULL},
        {200, json_type, "{\"drop_cold_experts\":\"0.5\"}", NULL},
        {200, json_type, "{\"drop_cold_experts\":1}", NULL},
        {200, json_type, "{\"drop_cold_experts\":1.0}", NULL},
        {200, json_type, "{\"drop_cold_experts\":0.00001}", NULL},
        {200, json_type, "{\"lookahead\":\"1\",\"drop_renorm\":\"off\"}", NULL},
        {200, json_type, " {\"lookahead\" : \"false\" } ", NULL},
        {200, form_type, "cache=2000MiB&drop_cold_experts=0.25&drop_renorm=on&lookahead=0", NULL},
        {200, form_type, "cache=%32000&lookahead=true", NULL},
        {200, form_type, "lookahead=1&", NULL},
        {400, json_type, "", NULL},
        {400, json_type, "{", NULL},
        {400, json_type, "[]", NULL},
        {400, json_type, "null", NULL},
        {400, json_type, "{}", NULL},
        {400, json_type, "{\"lookahead\":true}x", NULL},
        {400, json_type, "{\"lookahead\":true,\"lookahead\":true}", NULL},
        {400, json_type, "{\"lookahead\":null}", NULL},
        {400, json_type, "{\"lookahead\":[1]}", NULL},
        {400, json_type, "{\"lookahead\":2}", "lookahead"},
        {400, json_type, "{\"drop_cold_experts\":1.5}", "drop_cold_experts"},
        {400, json_type, "{\"drop_cold_experts\":-0.5}", NULL},
        {400, json_type, "{\"drop_cold_experts\":true}", "drop_cold_experts"},
        {400, json_type, "{\"drop_cold_experts\":\"nan\"}", "drop_cold_experts"},
        {400, json_type, "{\"drop_cold_experts\":1e300}", NULL},
        {400, json_type, "{\"cache\":\"12x\"}", "cache"},
        {400, json_type, "{\"cache\":-1}", "cache"},
        {400, json_type, "{\"cache\":\"\"}", "cache"},
        {400, json_type, "{\"cache\":\"1\\u0000\"}", NULL},
        {400, json_type, "{\"cache\":\"1111111111111111111111111111111111111111111111111111111111111111111111\"}",
         "cache"},
        {400, json_type, "{\"cashe\":\"auto\"}", NULL},
        {400, json_type, "{\"quiet\":true}", NULL},
        {400, json_type, "{\"window\":\"off\"}", NULL},
        {400, form_type, "lookahead", NULL},
        {400, form_type, "lookahead=1&lookahead=1", "lookahead"},
        {400, form_type, "lookahead=%3", NULL},
        {400, form_type, "lookahead=%zz", NULL},
        {400, form_type, "lookahead=1%00", NULL},
        {400, form_type, "lookahead=2", "lookahead"},
        {400, form_type, "=1", NULL},
        {400, form_type, "", NULL},
        {400, form_type, "cache=+1", "cache"},
        {409, json_type, "{\"n_expert_used\":4}", "n_expert_used"},
        {409, json_type, "{\"io\":\"uring\"}", "io"},
        {409, form_type, "cold_model=/etc/passwd", "cold_model"},
        {409, json_type, "{\"cache\":\"off\",\"drop_cold_experts\":0.5}", "drop_cold_experts"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s.fake.asked[0] = '\0';
        const int status = post(&s, &answer, cases[i].type, cases[i].body);
        if (status != cases[i].status) {
            fail_msg("%d, not %d: %s: %s", status, cases[i].status, cases[i].body, answer.body);
        }
        o = object_of(&answer);
        if (status == 200) {
            assert_true(json_is_true(member(o, "ok")));
            assert_true(s.fake.asked[0] != '\0');
        } else {
            const char *setting = json_string_value(member(o, "setting"));
            if ((setting == NULL) != (cases[i].setting == NULL) ||
                (setting && strcmp(setting, cases[i].setting) != 0)) {
                fail_msg("%s: about %s", cases[i].body, setting ? setting : "nothing");
            }
            assert_string_equal(s.fake.asked, ""); /* nothing was put into force */
        }
        json_decref(o);
    }
    assert_int_equal(post(&s, &answer, json_type, "{\"drop_cold_experts\":0.00001}"), 200);
    assert_true(s.fake.settings.drop_cold_experts == 0.00001);
    assert_int_equal(post(&s, &answer, json_type, "{\"drop_cold_experts\":0.3}"), 200);
    assert_true(s.fake.settings.drop_cold_experts == 0.3);

    /* What fails in the middle: what came before stays, and is told. */
    s.fake.asked[0] = '\0';
    s.fake.refuses = "drop_cold_experts";
    assert_int_equal(post(&s, &answer, json_type, "{\"lookahead\":true,\"drop_cold_experts\":0.5,\"cache\":\"1GiB\"}"),
                     409);
    o = object_of(&answer);
    assert_string_equal(json_string_value(member(o, "setting")), "drop_cold_experts");
    assert_string_equal(json_string_value(member(o, "error")), "needs 7 MiB, has 3");
    assert_int_equal(json_array_size(member(o, "changed")), 1);
    assert_string_equal(json_string_value(json_array_get(member(o, "changed"), 0)), "cache");
    json_decref(o);
    assert_string_equal(s.fake.asked, "cache ");
    s.fake.refuses = NULL;

    /* The largest body, and one that arrives in pieces. */
    static char body[4097];
    memset(body, ' ', 4096);
    memcpy(body, "{\"lookahead\":true}", 18);
    assert_int_equal(post(&s, &answer, json_type, body), 200);
    const int fd = dial(&s);
    char head[512];
    snprintf(head, sizeof head,
             "POST /settings HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\nContent-Type: application/json\r\n"
             "Content-Length: 18\r\nX-Sluice-Token: " TOKEN "\r\n\r\n",
             s.port);
    for (const char *p = head; *p; p += strlen(p) < 50 ? strlen(p) : 50) {
        char piece[51];
        snprintf(piece, sizeof piece, "%s", p);
        say(fd, piece);
        usleep(2000);
    }
    for (const char *p = "{\"lookahead\":true}"; *p; p++) {
        const char piece[] = {*p, '\0'};
        say(fd, piece);
        usleep(500);
    }
    listen_to(fd, &answer);
    close(fd);
    assert_int_equal(answer.status, 200);
    end(&s);
}

/* ---- events ---------------------------------------------------------------------------------- */

static int open_events(const struct service *s) {
    char request[128];
    const int fd = dial(s);
    snprintf(request, sizeof request, "GET /events HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n\r\n", s->port);
    say(fd, request);
    return fd;
}

/* Read from a stream until `text` has come n times. False: it ended before. */
static bool read_until(int fd, struct answer *a, const char *text, int n) {
    size_t have = 0;
    for (;;) {
        const ssize_t got = recv(fd, a->text + have, sizeof a->text - 1 - have, 0);
        if (got <= 0) {
            return false;
        }
        have += (size_t)got;
        a->text[have] = '\0';
        int found = 0;
        for (const char *p = a->text; (p = strstr(p, text)); p++) {
            found++;
        }
        if (found >= n) {
            return true;
        }
    }
}

static void test_events(void **state) {
    (void)state;
    struct service s;
    begin(&s);
    const int fd = open_events(&s);
    assert_true(read_until(fd, &answer, "event: map\ndata: {", 1));
    assert_non_null(strstr(answer.text, "Content-Type: text/event-stream\r\n"));
    assert_non_null(strstr(answer.text, "retry: 2000\n\n"));
    assert_non_null(strstr(answer.text, "event: stats\ndata: {\"api\":1,"));
    assert_non_null(strstr(answer.text, "{\"first\":8,\"experts\":8}"));
    /* It goes on, and what is shown moves. */
    pthread_mutex_lock(&s.fake.lock);
    s.fake.tokens = 77;
    pthread_mutex_unlock(&s.fake.lock);
    assert_true(read_until(fd, &answer, "event: stats\n", 3));
    assert_non_null(strstr(answer.text, "\"generation\":{\"steps\":77,\"tokens\":77,"));
    assert_non_null(strstr(answer.text, "event: map\n"));
    assert_int_equal(get(&s, &other, "/stats"), 200);
    json_t *o = object_of(&other);
    assert_true(number(o, "page.readers") == 1 && number(o, "page.readers_dropped") == 0);
    json_decref(o);
    close(fd);
    /* Its place is free again, as soon as the service finds out. */
    for (double readers = 1; readers > 0;) {
        usleep(20000);
        assert_int_equal(get(&s, &other, "/stats"), 200);
        o = object_of(&other);
        readers = number(o, "page.readers");
        json_decref(o);
    }
    assert_int_equal(ask(&s, &answer, "HEAD /events HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\n\r\n"), 200);
    end(&s);
}

static void test_too_many_readers(void **state) {
    (void)state;
    struct service s;
    begin(&s);
    int fd[8];
    for (int i = 0; i < 8; i++) {
        fd[i] = open_events(&s);
        assert_true(read_until(fd[i], &answer, "event: stats\n", 1));
    }
    assert_int_equal(get(&s, &answer, "/events"), 503);
    assert_true(has_header(&answer, "Retry-After: "));
    assert_int_equal(get(&s, &answer, "/stats"), 200);
    for (int i = 0; i < 8; i++) {
        assert_true(read_until(fd[i], &answer, "event: stats\n", 1)); /* they all still get theirs */
    }
    /* The end while they read: all streams end. */
    end(&s);
    for (int i = 0; i < 8; i++) {
        while (recv(fd[i], answer.text, sizeof answer.text, 0) > 0) {
        }
        close(fd[i]);
    }
}

/* Can something be read within so many milliseconds? */
static bool readable(int fd, int ms) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, ms) == 1;
}

/* 32 connections; the 33rd waits until one is closed. */
static void test_too_many_connections(void **state) {
    (void)state;
    struct service s;
    begin(&s);
    int fd[33];
    char request[128];
    snprintf(request, sizeof request, "GET /stats HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n\r\n", s.port);
    for (int i = 0; i < 32; i++) {
        fd[i] = dial(&s);
        say(fd[i], request);
        assert_true(readable(fd[i], -1));
    }
    fd[32] = dial(&s); /* the kernel's backlog takes it */
    send(fd[32], request, strlen(request), MSG_NOSIGNAL);
    struct answer *a = &answer;
    ssize_t n = 0;
    if (readable(fd[32], 700)) { /* closed at once, or not answered yet: both are limits */
        n = recv(fd[32], a->text, 64, 0);
    }
    assert_true(n <= 0);
    close(fd[0]);
    int last = fd[32];
    if (readable(last, 700) && recv(last, a->text, 64, MSG_PEEK) <= 0) { /* it was closed: come again */
        close(last);
        last = dial(&s);
        say(last, request);
    }
    assert_true(readable(last, -1));
    assert_true(recv(last, a->text, 64, 0) > 12);
    assert_memory_equal(a->text, "HTTP/1.1 200", 12);
    close(last);
    for (int i = 1; i < 32; i++) {
        close(fd[i]);
    }
    end(&s);
}

/* A reader that takes nothing is disconnected; so is a connection that says nothing. Others go on meanwhile. */
static void test_slow(void **state) {
    (void)state;
    struct service s;
    begin(&s);
    pthread_mutex_lock(&s.fake.lock);
    s.fake.layers = 128;
    s.fake.experts = 2048; /* a map of 340 KiB: more than the kernel keeps for a socket */
    pthread_mutex_unlock(&s.fake.lock);
    const int slow = dial(&s), silent = dial(&s), half = dial(&s);
    const int small = 4096;
    setsockopt(slow, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    char request[128];
    snprintf(request, sizeof request, "GET /events HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n\r\n", s.port);
    say(slow, request);
    say(half, "POST /settings HTTP/1.1\r\nHost: 127.0.0.1");
    double dropped = 0;
    while (dropped == 0) {
        assert_int_equal(get(&s, &answer, "/stats"), 200);
        json_t *o = object_of(&answer);
        dropped = number(o, "page.readers_dropped");
        json_decref(o);
        usleep(100000);
    }
    while (recv(slow, answer.text, sizeof answer.text, 0) > 0) { /* what was on its way; then the end */
    }
    assert_int_equal(recv(silent, answer.text, 1, 0), 0);
    ssize_t n;
    while ((n = recv(half, answer.text, sizeof answer.text, 0)) > 0) { /* closed, with or without a word */
    }
    close(slow);
    close(silent);
    close(half);
    assert_int_equal(get(&s, &answer, "/stats"), 200);
    json_t *o = object_of(&answer);
    assert_true(number(o, "page.readers") == 0);
    json_decref(o);
    end(&s);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void test_start(void **state) {
    (void)state;
    struct service s;
    begin(&s);
    struct fake f = {.layers = 0};
    pthread_mutex_init(&f.lock, NULL);
    const struct window_source source = fake_source(&f);
    struct window *w = (struct window *)&f; /* must become NULL */
    struct sluice_error err;
    char taken[64];
    snprintf(taken, sizeof taken, "127.0.0.1:%u", s.port);
    const struct {
        struct window_params p;
        int rc;
        const char *text; /* in the message */
    } cases[] = {
        {{.address = taken}, SLUICE_ERR_IO, "choose another port"},
        {{.address = "192.0.2.1:0", .allow_remote = true}, SLUICE_ERR_IO, "192.0.2.1"}, /* of no machine */
        {{.address = "nonsense"}, SLUICE_ERR_ARG, "nonsense"},
        {{.address = "0.0.0.0:0"}, SLUICE_ERR_ARG, "other machines"},
        {{.address = "[::]:0"}, SLUICE_ERR_ARG, "other machines"},
        {{.address = "192.168.1.1:0"}, SLUICE_ERR_ARG, "other machines"},
        {{.address = "0", .token = "short"}, SLUICE_ERR_ARG, "SLUICE_WINDOW_TOKEN"},
        {{.address = "0", .chat = "https://127.0.0.1:1"}, SLUICE_ERR_ARG, "SLUICE_WINDOW_CHAT"},
        {{.address = "0", .chat = "http://127.0.0.1"}, SLUICE_ERR_ARG, "SLUICE_WINDOW_CHAT"},
        {{.address = "0", .chat = "http://127.0.0.1:0"}, SLUICE_ERR_ARG, "SLUICE_WINDOW_CHAT"},
        {{.address = "0", .chat = "http://a:1; script-src *:1"}, SLUICE_ERR_ARG, "SLUICE_WINDOW_CHAT"},
        {{.address = "0", .chat = "http://a/b:1"}, SLUICE_ERR_ARG, "SLUICE_WINDOW_CHAT"},
        {{.address = "0", .disk = "fast"}, SLUICE_ERR_ARG, "SLUICE_WINDOW_DISK"},
        {{.address = "0", .disk = "0"}, SLUICE_ERR_ARG, "SLUICE_WINDOW_DISK"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int rc = window_start(&w, &cases[i].p, &source, &err);
        if (rc != cases[i].rc || err.status != (enum sluice_status)rc || !strstr(err.message, cases[i].text)) {
            fail_msg("case %zu: %d: %s", i, rc, err.message);
        }
        assert_null(w);
    }
    const unsigned port = s.port;
    end(&s);
    /* Its port is free again at once. */
    const struct window_params again = {.address = taken};
    begin_with(&s, &again);
    assert_int_equal(s.port, port);
    /* A token of its own. */
    const char *token = strstr(window_url(s.window), "#token=");
    assert_non_null(token);
    assert_int_equal(strlen(token + 7), 32);
    char request[512];
    snprintf(request, sizeof request,
             "POST /settings HTTP/1.1\r\nHost: 127.0.0.1:%%u\r\nConnection: close\r\nX-Sluice-Token: %s\r\n"
             "Content-Type: application/json\r\nContent-Length: 18\r\n\r\n{\"lookahead\":true}",
             token + 7);
    assert_int_equal(ask(&s, &answer, request), 200);
    end(&s);
    assert_true(window_stop(NULL, 1));
    pthread_mutex_destroy(&f.lock);
}

static void *post_slowly(void *arg) {
    struct service *s = arg;
    post(s, &other, json_type, "{\"lookahead\":true}");
    return NULL;
}

/* The process ends while a setting waits for a block: it does not wait for good. */
static void test_stop_while_busy(void **state) {
    (void)state;
    struct service s;
    pthread_t thread;
    begin(&s);
    atomic_store(&s.fake.hold, true);
    assert_int_equal(pthread_create(&thread, NULL, post_slowly, &s), 0);
    struct pollfd none = {.fd = -1};
    poll(&none, 1, 300); /* by now it has arrived; if not, the next line still has to hold */
    const bool stopped = window_stop(s.window, 0.2);
    atomic_store(&s.fake.hold, false);
    if (!stopped) {
        end(&s);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(stopped);
    assert_int_equal(other.status, 200); /* and what was asked was done and answered */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page),
        cmocka_unit_test(test_stats),
        cmocka_unit_test(test_chat),
        cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_too_many_readers),
        cmocka_unit_test(test_too_many_connections),
        cmocka_unit_test(test_slow),
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_stop_while_busy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
