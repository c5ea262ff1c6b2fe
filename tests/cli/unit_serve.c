/*
 * unit_serve.c - the parts of `sluice serve` that need no llama-server: addresses, one HTTP request against a
 * listening socket that this program plays itself, and a supervised child, which is a shell.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/address.h"
#include "cli/http.h"
#include "cli/supervise.h"
#include "run/runner.h"

/* The runner is not linked. */
double sluice_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct cli_address any_port(void) {
    struct cli_address a;
    assert_int_equal(cli_address_take(&a, "127.0.0.1", 0, "test", "--host", "--port"), 0);
    return a;
}

static void test_take(void **state) {
    char url[64];
    struct cli_address a = any_port();
    (void)state;
    assert_true(a.port > 0);
    assert_true(a.loopback);
    assert_false(a.any);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", a.port);
    assert_string_equal(a.url, url);
    const uint16_t port = a.port; /* it was let go: it can be had again */
    assert_int_equal(cli_address_take(&a, "127.0.0.1", port, "test", "--host", "--port"), 0);
    assert_int_equal(a.port, port);
    assert_int_equal(cli_address_take(&a, "0.0.0.0", 0, "test", "--host", "--port"), 0);
    assert_false(a.loopback);
    assert_true(a.any);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", a.port); /* where this machine reaches it */
    assert_string_equal(a.url, url);
    if (cli_address_take(&a, "::1", 0, "test", "--host", "--port") == 0) { /* not every machine has it */
        snprintf(url, sizeof url, "http://[::1]:%d", a.port);
        assert_string_equal(a.url, url);
        assert_true(a.loopback);
    }
    assert_int_equal(cli_address_take(&a, "not a name", 0, "test", "--host", "--port"), 2);
    assert_int_equal(cli_address_take(&a, "192.0.2.1", 0, "test", "--host", "--port"), 2);
}

/* A listening socket at the address. */
static int listening(const struct cli_address *a) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&a->at, a->n_at), 0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

/* Step until there is a result. */
static int result_of(struct cli_http *h) {
    int status = CLI_HTTP_PENDING;
    for (int i = 0; i < 1000 && status == CLI_HTTP_PENDING; i++) {
        struct pollfd p = {.fd = h->fd, .events = cli_http_events(h)};
        assert_true(poll(&p, 1, 60000) == 1);
        status = cli_http_step(h);
    }
    assert_int_equal(h->fd, -1);
    return status;
}

/* Ask, and answer with these bytes, in two pieces. What was asked goes to `request`. */
static int dialogue(const char *path, const char *json, const char *answer, char request[1024]) {
    struct cli_address a = any_port();
    struct cli_http h;
    const int fd = listening(&a);
    assert_int_equal(cli_http_begin(&h, &a, path, json), CLI_HTTP_PENDING);
    const int peer = accept(fd, NULL, NULL);
    assert_true(peer >= 0);
    assert_int_equal(cli_http_step(&h), CLI_HTTP_PENDING); /* all is sent, nothing has come */
    assert_int_equal(cli_http_events(&h), POLLIN);
    const ssize_t got = recv(peer, request, 1023, 0);
    assert_true(got > 0);
    request[got] = '\0';
    const size_t n = strlen(answer), half = n / 3;
    assert_int_equal(send(peer, answer, half, MSG_NOSIGNAL), half);
    if (half) {
        assert_int_equal(cli_http_step(&h), CLI_HTTP_PENDING);
    }
    assert_int_equal(send(peer, answer + half, n - half, MSG_NOSIGNAL), n - half);
    close(peer);
    close(fd);
    return result_of(&h);
}

static void test_http(void **state) {
    char request[1024], large[20000] = "HTTP/1.0 404 Not Found\r\n\r\n";
    (void)state;
    assert_int_equal(dialogue("/health", NULL, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", request), 200);
    static const char head[] = "GET /health HTTP/1.1\r\nHost: 127.0.0.1:";
    assert_int_equal(strncmp(request, head, sizeof head - 1), 0);
    assert_string_equal(request + strlen(request) - 4, "\r\n\r\n");
    assert_int_equal(dialogue("/completion", "{\"a\":1}", "HTTP/1.1 503 No\r\n\r\n", request), 503);
    assert_non_null(strstr(request, "Content-Length: 7\r\n\r\n{\"a\":1}"));
    memset(large + strlen(large), 'x', sizeof large - 1 - strlen(large));
    assert_int_equal(dialogue("/", NULL, large, request), 404);
    static const char *const wrong[] = {
        "",    "HTTP/1.1 20",    "HTTP/1.1 099 no",  "HTTP/1.1 999 no", "HTTP/1.1 2x0 no",
        "200", "SSH-2.0 200 OK", "HTTP/2 200 OK, no"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        if (dialogue("/", NULL, wrong[i], request) != CLI_HTTP_FAILED) {
            fail_msg("'%s' was taken for an answer", wrong[i]);
        }
    }
    struct cli_address a = any_port(); /* nobody listens */
    struct cli_http h;
    const int begun = cli_http_begin(&h, &a, "/", NULL);
    assert_int_equal(begun == CLI_HTTP_PENDING ? result_of(&h) : begun, CLI_HTTP_FAILED);
    char path[1024];
    memset(path, 'p', sizeof path);
    path[sizeof path - 1] = '\0';
    assert_int_equal(cli_http_begin(&h, &a, path, NULL), CLI_HTTP_FAILED); /* too long: refused, not cut */
    cli_http_end(&h);
}

/* What a child said. */
struct heard {
    char text[8192]; /* lines, each with a newline; only the first ones */
    size_t n;        /* bytes */
    size_t lines;    /* number */
};

static void hear(void *user, const char *line) {
    struct heard *h = user;
    h->lines++;
    if (h->n + strlen(line) + 2 < sizeof h->text) {
        h->n += (size_t)snprintf(h->text + h->n, sizeof h->text - h->n, "%s\n", line);
    }
}

static void start(struct supervised *s, struct heard *h, const char *script) {
    char shell[] = "sh", option[] = "-c", text[512];
    char *argv[] = {shell, option, text, NULL};
    snprintf(text, sizeof text, "%s", script);
    memset(s, 0, sizeof *s);
    memset(h, 0, sizeof *h);
    s->line = hear;
    s->user = h;
    assert_int_equal(supervise_start(s, "/bin/sh", argv), 0);
}

static void wait_for(struct supervised *s, enum supervise_event what) {
    for (int i = 0; i < 600; i++) {
        if (supervise_wait(s, -1, 0, 100) == what) {
            return;
        }
    }
    fail_msg("event %d never came", what);
}

static void test_child(void **state) {
    static struct supervised s;
    static struct heard h;
    (void)state;
    start(&s, &h, "echo one; echo two >&2; cat; printf three; exit 5"); /* cat: standard input is empty */
    wait_for(&s, SUPERVISE_ENDED);
    assert_true(WIFEXITED(s.status) && WEXITSTATUS(s.status) == 5);
    assert_string_equal(h.text, "one\ntwo\nthree\n");
    assert_string_equal(supervise_tail(&s, 0), "one");
    assert_string_equal(supervise_tail(&s, 2), "three");
    assert_null(supervise_tail(&s, 3));
    supervise_free(&s);

    start(&s, &h, "i=0; while [ $i -lt 30 ]; do echo line $i; i=$((i+1)); done");
    wait_for(&s, SUPERVISE_ENDED);
    assert_int_equal(h.lines, 30);
    assert_string_equal(supervise_tail(&s, 0), "line 18");
    assert_string_equal(supervise_tail(&s, SUPERVISE_TAIL - 1), "line 29");
    assert_null(supervise_tail(&s, SUPERVISE_TAIL));
    supervise_free(&s);

    start(&s, &h, "head -c 2500 /dev/zero | tr '\\0' x; echo; echo end"); /* longer than a line may be: in pieces */
    wait_for(&s, SUPERVISE_ENDED);
    assert_int_equal(h.lines, 4);
    assert_int_equal(strlen(supervise_tail(&s, 0)), SUPERVISE_LINE - 1);
    assert_int_equal(strlen(supervise_tail(&s, 2)), 2500 - 2 * (SUPERVISE_LINE - 1));
    assert_string_equal(supervise_tail(&s, 3), "end");
    supervise_free(&s);

    char name[] = "nothing";
    char *argv[] = {name, NULL};
    assert_int_equal(supervise_start(&s, "/no/such/program", argv), ENOENT);
    assert_int_equal(supervise_start(&s, "/etc/passwd", argv), EACCES);
}

static void test_stop(void **state) {
    static struct supervised s;
    static struct heard h;
    (void)state;
    /* The signal is passed on, the child's own answer to it counts. */
    start(&s, &h, "trap 'exit 4' TERM; echo up; while :; do sleep 0.05; done");
    while (h.lines == 0) {
        supervise_wait(&s, -1, 0, 100);
    }
    assert_true(supervise_stop(&s, SIGTERM, 60));
    assert_true(WIFEXITED(s.status) && WEXITSTATUS(s.status) == 4);
    assert_true(supervise_stop(&s, SIGTERM, 60)); /* there is none any more */
    supervise_free(&s);
    /* One that does not listen is killed. */
    start(&s, &h, "trap '' TERM; echo up; while :; do sleep 0.05; done");
    while (h.lines == 0) {
        supervise_wait(&s, -1, 0, 100);
    }
    assert_false(supervise_stop(&s, SIGTERM, 0.2));
    assert_true(WIFSIGNALED(s.status) && WTERMSIG(s.status) == SIGKILL);
    supervise_free(&s);
}

static void test_asked(void **state) {
    static struct supervised s;
    static struct heard h;
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    (void)state;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        start(&s, &h, "trap : INT TERM HUP; while :; do sleep 0.05; done");
        signal(signals[i], i == 0 ? SIG_IGN : SIG_DFL); /* as a background job of a shell has SIGINT */
        kill(getpid(), signals[i]);
        wait_for(&s, SUPERVISE_ASKED);
        assert_int_equal(s.asked, signals[i]);
        assert_int_equal(supervise_wait(&s, -1, 0, 0), SUPERVISE_NOTHING);
        assert_int_equal(s.asked, 0);
        kill(s.pid, SIGKILL);
        wait_for(&s, SUPERVISE_ENDED);
        supervise_free(&s);
        signal(signals[i], SIG_DFL);
    }
    /* The caller's descriptor. */
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    start(&s, &h, "while :; do sleep 0.05; done");
    assert_int_equal(supervise_wait(&s, ends[0], POLLIN, 0), SUPERVISE_NOTHING);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(supervise_wait(&s, ends[0], POLLIN, 60000), SUPERVISE_FD);
    supervise_stop(&s, SIGKILL, 60);
    supervise_free(&s);
    close(ends[0]);
    close(ends[1]);
    /* The mask is as it was. */
    sigset_t now;
    sigprocmask(SIG_BLOCK, NULL, &now);
    assert_false(sigismember(&now, SIGINT) || sigismember(&now, SIGTERM) || sigismember(&now, SIGCHLD));
}

/* What a parent left ignored. */
static void test_inherited(void **state) {
    static struct supervised s;
    static struct heard h;
    (void)state;
    signal(SIGCHLD, SIG_IGN); /* the kernel would reap the child, and no event come */
    start(&s, &h, "sleep 0.2; exit 5");
    wait_for(&s, SUPERVISE_ENDED);
    assert_true(WIFEXITED(s.status) && WEXITSTATUS(s.status) == 5);
    supervise_free(&s);
    signal(SIGHUP, SIG_IGN); /* nohup */
    start(&s, &h, "kill -HUP $$; echo alive; while :; do sleep 0.05; done");
    kill(getpid(), SIGHUP);
    while (h.lines == 0) {
        assert_int_equal(supervise_wait(&s, -1, 0, 100), SUPERVISE_NOTHING);
    }
    assert_string_equal(h.text, "alive\n");
    supervise_stop(&s, SIGKILL, 60);
    supervise_free(&s);
    signal(SIGHUP, SIG_DFL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_take), cmocka_unit_test(test_http),  cmocka_unit_test(test_child),
        cmocka_unit_test(test_stop), cmocka_unit_test(test_asked), cmocka_unit_test(test_inherited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
