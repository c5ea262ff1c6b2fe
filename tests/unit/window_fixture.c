/*
 * window_fixture.c - see window_fixture.h. The client is sockets and text: a library would not send what a test wants
 * sent.
 */
#include "window_fixture.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cache/error.h"

extern const unsigned char window_page[];
extern const size_t window_page_n;
const unsigned char window_page[] = PAGE;
const size_t window_page_n = sizeof PAGE - 1;

/* ---- what is shown --------------------------------------------------------------------------- */

static void fake_numbers(void *ud, struct window_numbers *out, bool all) {
    struct fake *f = ud;
    pthread_mutex_lock(&f->lock);
    memset(&out->stats, 0, sizeof out->stats);
    memset(out->ended, 0, sizeof out->ended);
    out->stats.tensors = 6;
    out->stats.layers = 2;
    out->stats.generation.blocks = 2 * f->tokens;
    out->stats.generation.tokens = f->tokens;
    out->stats.generation.rows = 2 * f->tokens;
    out->stats.generation.hits = 3 * f->tokens;
    out->stats.generation.misses = f->tokens;
    out->stats.generation.read_bytes = 4096 * f->tokens;
    out->stats.generation.drop.weight = 1.5;
    out->stats.generation.drop.dropped_weight = 0.25;
    out->stats.prompt.stall_s = 7;
    out->stats.cache_bytes = 1 << 20;
    out->stats.io = SLUICE_IO_PREAD;
    out->ended[SLUICE_PHASE_GENERATION] = (struct step_sums){.steps = f->tokens,
                                                             .sum = {.tokens = f->tokens,
                                                                     .wall_s = 0.1 * (double)f->tokens,
                                                                     .expert_s = 0.04 * (double)f->tokens,
                                                                     .stall_s = 0.03 * (double)f->tokens,
                                                                     .other_s = 0.02 * (double)f->tokens,
                                                                     .bookkeeping_s = 0.01 * (double)f->tokens}};
    if (all) {
        memset(&out->facts.plan, 0, sizeof out->facts.plan);
        out->facts.settings = f->settings;
        out->facts.planned = true;
        out->facts.plan.total_bytes = 5 << 20;
        out->facts.plan.limit_bytes = 1 << 30;
        out->lossy = f->settings.drop_cold_experts > 0;
        out->experts = 8;
        out->experts_used = 2;
        out->facts.experts_own = 2;
        out->anonymous_bytes = 3 << 20;
        out->file_bytes = 2 << 20;
        out->shared_bytes = 1 << 20;
        snprintf(out->program, sizeof out->program, "fake");
        snprintf(out->model, sizeof out->model, "a \"b\\c\n\xff.gguf"); /* whatever a file may be called */
        snprintf(out->facts.architecture, sizeof out->facts.architecture, "none");
        snprintf(out->facts.mode, sizeof out->facts.mode, "streaming");
        out->facts.warning[0] = out->error[0] = '\0';
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

struct window_source fake_source(struct fake *f) {
    return (struct window_source){.ud = f, .numbers = fake_numbers, .layer = fake_layer, .set = fake_set};
}

void begin_with(struct service *s, const struct window_params *p) {
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

void begin(struct service *s) {
    const struct window_params p = {.address = "127.0.0.1:0", .token = TOKEN};
    begin_with(s, &p);
}

void end(struct service *s) {
    assert_true(window_stop(s->window, 60));
    pthread_mutex_destroy(&s->fake.lock);
}

void hold_fake(struct service *s) {
    pthread_mutex_lock(&s->fake.lock);
}

void let_fake(struct service *s) {
    pthread_mutex_unlock(&s->fake.lock);
}

const char *asked(struct service *s) {
    static char copy[sizeof s->fake.asked];
    hold_fake(s);
    memcpy(copy, s->fake.asked, sizeof copy);
    let_fake(s);
    return copy;
}

void forget(struct service *s, const char *refuses) {
    hold_fake(s);
    s->fake.asked[0] = '\0';
    s->fake.refuses = refuses;
    let_fake(s);
}

struct sluice_settings in_force(struct service *s) {
    hold_fake(s);
    const struct sluice_settings copy = s->fake.settings;
    let_fake(s);
    return copy;
}

/* ---- asking ---------------------------------------------------------------------------------- */

int dial(const struct service *s) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s->port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

void say(int fd, const char *text) {
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* Read until the other end closes. */
void listen_to(int fd, struct answer *a) {
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
int ask(const struct service *s, struct answer *a, const char *request) {
    char text[16384];
    fill(text, sizeof text, request, s->port);
    const int fd = dial(s);
    say(fd, text);
    listen_to(fd, a);
    close(fd);
    return a->status;
}

/* A GET of a path as a browser sends it. */
int get(const struct service *s, struct answer *a, const char *path) {
    char request[256];
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%%u\r\nConnection: close\r\n\r\n", path);
    return ask(s, a, request);
}

/* A POST to /settings with the token. */
int post(const struct service *s, struct answer *a, const char *type, const char *body) {
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

const char as_json[] = "application/json", as_form[] = "application/x-www-form-urlencoded";

/* The body as a JSON object. */
json_t *object_of(const struct answer *a) {
    json_error_t why;
    json_t *o = json_loadb(a->body, a->n, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(o)) {
        fail_msg("not an object: %s: %.200s", why.text, a->body);
    }
    return o;
}

/* A member by a path with dots. Not owned. */
json_t *member(json_t *o, const char *path) {
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

double number(json_t *o, const char *path) {
    json_t *v = member(o, path);
    if (!json_is_number(v)) {
        fail_msg("%s is no number", path);
    }
    return json_number_value(v);
}

bool has_header(const struct answer *a, const char *line) {
    return strstr(a->head, line) != NULL;
}

struct answer answer, other;

void check_headers(const struct answer *a, const char *type) {
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
