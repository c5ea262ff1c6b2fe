/*
 * unit_lines.c - lines of input and Ctrl-C: what is a line, and that a signal is never waited over, whenever it
 * comes and whichever thread gets it.
 *
 * Most of these hang instead of failing when lines.c loses a signal; ctest ends them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/lines.h"
#include "cli/progress.h"
#include "run/runner.h"

/* The clock of progress.c's moving line, which nothing here shows. */
double sluice_clock(void) {
    return 0;
}

static void put(int fd, const char *text) {
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void assert_line(struct cli_lines *l, const char *expected) {
    char *line = NULL;
    size_t n = 0;
    assert_int_equal(cli_lines_next(l, &line, &n), CLI_LINES_LINE);
    assert_int_equal(n, strlen(expected));
    assert_string_equal(line, expected);
}

static void assert_got(struct cli_lines *l, enum cli_lines_got expected) {
    char *line;
    size_t n;
    assert_int_equal(cli_lines_next(l, &line, &n), expected);
}

/* Lines from a pipe; its other end is to[1]. */
static void pipe_lines(struct cli_lines *l, int to[2]) {
    assert_int_equal(pipe(to), 0);
    cli_interrupt_install();
    cli_interrupt_reset();
    assert_true(cli_lines_open(l, to[0]));
}

static void test_lines(void **state) {
    struct cli_lines l;
    int to[2];
    char *line = NULL;
    size_t n = 0;
    (void)state;
    pipe_lines(&l, to);
    put(to[1], "one\ntwo\r\n\n\r\n");
    assert_line(&l, "one");
    assert_line(&l, "two");
    assert_line(&l, "");
    assert_line(&l, "");
    assert_int_equal(write(to[1], "a\0b\nla", 6), 6);
    assert_int_equal(cli_lines_next(&l, &line, &n), CLI_LINES_LINE);
    assert_int_equal(n, 3);
    assert_memory_equal(line, "a\0b", 4);
    put(to[1], "st\r");
    close(to[1]);
    assert_line(&l, "last"); /* in two parts, and without a line end */
    assert_got(&l, CLI_LINES_END);
    assert_got(&l, CLI_LINES_END);
    cli_lines_close(&l);
    assert_int_equal(fcntl(to[0], F_GETFD), 0); /* the caller's */
    close(to[0]);
}

static void test_long(void **state) {
    struct cli_lines l;
    char *text = malloc(50001);
    FILE *f = tmpfile();
    (void)state;
    assert_non_null(text);
    assert_non_null(f);
    memset(text, 'x', 50000);
    text[50000] = '\0';
    assert_true(fprintf(f, "%s\n%s", text, text) > 0);
    assert_int_equal(fflush(f), 0);
    assert_int_equal(lseek(fileno(f), 0, SEEK_SET), 0);
    assert_true(cli_lines_open(&l, fileno(f)));
    assert_line(&l, text);
    assert_line(&l, text);
    assert_got(&l, CLI_LINES_END);
    cli_lines_close(&l);
    fclose(f);
    free(text);
}

static void test_failed(void **state) {
    struct cli_lines l;
    const int directory = open("/", O_RDONLY | O_CLOEXEC);
    (void)state;
    assert_true(cli_lines_open(&l, directory));
    assert_got(&l, CLI_LINES_FAILED);
    cli_lines_close(&l);
    close(directory);
}

/* The signal comes before the wait: the moment that a look at a flag and a read that follows it miss. */
static void test_before(void **state) {
    struct cli_lines l;
    int to[2];
    (void)state;
    pipe_lines(&l, to);
    raise(SIGINT);
    assert_true(cli_interrupted());
    assert_got(&l, CLI_LINES_INTERRUPTED);
    assert_got(&l, CLI_LINES_INTERRUPTED); /* until the caller has seen it */
    cli_interrupt_reset();
    put(to[1], "half");
    raise(SIGINT);
    assert_got(&l, CLI_LINES_INTERRUPTED);
    cli_interrupt_reset();
    put(to[1], " and half\nnext\n");
    assert_line(&l, "half and half"); /* Ctrl-C takes nothing from a pipe */
    raise(SIGINT);
    assert_got(&l, CLI_LINES_INTERRUPTED); /* before a line that was read with the other one */
    cli_interrupt_reset();
    assert_line(&l, "next");
    cli_lines_close(&l);
    close(to[0]);
    close(to[1]);
}

/* A signal from before anybody asked for the descriptor is seen through it. The first test, therefore. */
static void test_fd(void **state) {
    (void)state;
    cli_interrupt_install();
    raise(SIGINT);
    struct pollfd p = {.fd = cli_interrupt_fd(), .events = POLLIN};
    assert_true(p.fd >= 0);
    assert_int_equal(poll(&p, 1, 0), 1);
    cli_interrupt_reset();
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_int_equal(cli_interrupt_fd(), p.fd);
}

static void *raise_here(void *arg) {
    (void)arg;
    raise(SIGINT); /* in this thread: the one that waits for a line is not interrupted by it */
    return NULL;
}

/* The kernel may give Ctrl-C to any thread that does not block it. */
static void test_other_thread(void **state) {
    struct cli_lines l;
    pthread_t thread;
    int to[2];
    (void)state;
    pipe_lines(&l, to);
    for (int i = 0; i < 100; i++) { /* before and during the wait */
        assert_int_equal(pthread_create(&thread, NULL, raise_here, NULL), 0);
        assert_got(&l, CLI_LINES_INTERRUPTED);
        pthread_join(thread, NULL);
        cli_interrupt_reset();
    }
    cli_lines_close(&l);
    close(to[0]);
    close(to[1]);
}

static void test_terminal(void **state) {
    struct cli_lines l;
    int ours, theirs;
    (void)state;
    assert_int_equal(openpty(&ours, &theirs, NULL, NULL, NULL), 0);
    cli_interrupt_reset();
    assert_true(cli_lines_open(&l, theirs));
    assert_int_equal(fcntl(theirs, F_GETFL) & O_NONBLOCK, 0); /* others have it open too */
    assert_true(fcntl(l.fd, F_GETFL) & O_NONBLOCK);
    put(ours, "one\ntwo\n");
    assert_line(&l, "one");
    assert_line(&l, "two");
    assert_true(cli_text_add(&l.text, "dropped", 7)); /* typed and handed out by Ctrl-D, without a line end */
    raise(SIGINT);
    assert_got(&l, CLI_LINES_INTERRUPTED);
    cli_interrupt_reset();
    put(ours, "kept\n");
    assert_line(&l, "kept");
    put(ours, "\x04");
    assert_got(&l, CLI_LINES_END);
    cli_lines_close(&l);
    close(theirs);
    close(ours);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fd),       cmocka_unit_test(test_lines),  cmocka_unit_test(test_long),
        cmocka_unit_test(test_failed),   cmocka_unit_test(test_before), cmocka_unit_test(test_other_thread),
        cmocka_unit_test(test_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
