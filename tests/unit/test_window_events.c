/*
 * test_window_events.c - the window's readers, connections and life: events, those who are slow or too many, start and
 * end.
 */
#include "window_fixture.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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
    hold_fake(&s);
    s.fake.tokens = 77;
    let_fake(&s);
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
    hold_fake(&s);
    s.fake.layers = 128;
    s.fake.experts = 2048; /* a map of 340 KiB: more than the kernel keeps for a socket */
    let_fake(&s);
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
    post(s, &other, as_json, "{\"lookahead\":true}");
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
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_too_many_readers),
        cmocka_unit_test(test_too_many_connections),
        cmocka_unit_test(test_slow),
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_stop_while_busy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
