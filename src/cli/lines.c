/*
 * lines.c - see lines.h.
 *
 * A flag that a signal handler sets and a read that the signal breaks off are not enough: a Ctrl-C that arrives
 * after the prompt was printed and before the read began sets the flag and nothing looks at it, since the read
 * only returns with the next line. On a busy machine that window is wide: whoever sees the prompt may well be
 * scheduled before the program that printed it. So the handler also makes a descriptor readable, which stays so
 * until it is reset, and the wait is a poll for both. It does not matter when the signal came, or which thread
 * the kernel gave it to. A signal mask and ppoll would not do the latter: llama.cpp's threads do not block SIGINT.
 *
 * What remains is between that poll and the read. With its signal Ctrl-C throws away the line that the poll saw,
 * and the read would wait for another one. So a terminal is opened once more for reading without blocking; setting
 * that on the descriptor that we were given would set it for the shell too. Where it cannot be opened (no /proc, a
 * terminal of another user after su) the read blocks, and that window of a few instructions stays: a line and a
 * Ctrl-C within it show the message after the next line or Ctrl-C only. Pipes and files lose nothing to Ctrl-C.
 */
#include "cli/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/progress.h"

bool cli_lines_open(struct cli_lines *l, int fd) {
    memset(l, 0, sizeof *l);
    l->fd = fd;
    l->terminal = isatty(fd);
    l->wake = cli_interrupt_fd();
    if (l->wake < 0) {
        return false;
    }
    if (l->terminal) {
        char path[32];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        const int again = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        l->own = again >= 0;
        l->fd = l->own ? again : fd;
    }
    return true;
}

/* Give out the first `size` bytes, the last of which is a line end or our zero. */
static enum cli_lines_got give(struct cli_lines *l, size_t size, char **line, size_t *n) {
    l->used = size;
    *line = l->text.data;
    *n = size - 1;
    while (*n > 0 && l->text.data[*n - 1] == '\r') {
        --*n;
    }
    l->text.data[*n] = '\0';
    return CLI_LINES_LINE;
}

/* After Ctrl-C: a terminal has thrown away what was typed, so we do too. */
static enum cli_lines_got interrupted(struct cli_lines *l) {
    l->text.n = l->terminal ? 0 : l->text.n;
    return CLI_LINES_INTERRUPTED;
}

/* Wait until there is something to read, and read it. CLI_LINES_LINE: something came, or the end. */
static enum cli_lines_got read_more(struct cli_lines *l) {
    struct pollfd fds[] = {{.fd = l->fd, .events = POLLIN}, {.fd = l->wake, .events = POLLIN}};
    char part[16384];
    if (poll(fds, 2, -1) < 0) {
        return errno == EINTR ? CLI_LINES_LINE : CLI_LINES_FAILED; /* the next poll sees what the handler wrote */
    }
    if (fds[1].revents) { /* first: what can be read was typed after it, as Ctrl-C empties the terminal's queue */
        return interrupted(l);
    }
    const ssize_t n = read(l->fd, part, sizeof part);
    if (n < 0) {
        return errno == EINTR || errno == EAGAIN ? CLI_LINES_LINE : CLI_LINES_FAILED;
    }
    l->ended = n == 0;
    if (!cli_text_add(&l->text, part, (size_t)n)) {
        errno = ENOMEM;
        return CLI_LINES_FAILED;
    }
    return CLI_LINES_LINE;
}

enum cli_lines_got cli_lines_next(struct cli_lines *l, char **line, size_t *n) {
    size_t searched = 0;
    if (l->used) {
        l->text.n -= l->used;
        memmove(l->text.data, l->text.data + l->used, l->text.n);
        l->used = 0;
    }
    if (cli_interrupted()) { /* before a line that was read earlier, too */
        return interrupted(l);
    }
    for (;;) {
        const char *end = l->text.n > searched ? memchr(l->text.data + searched, '\n', l->text.n - searched) : NULL;
        if (end) {
            return give(l, (size_t)(end - l->text.data) + 1, line, n);
        }
        searched = l->text.n;
        if (l->ended && searched == 0) {
            return CLI_LINES_END;
        }
        if (l->ended) {
            if (!cli_text_add(&l->text, "", 1)) {
                errno = ENOMEM;
                return CLI_LINES_FAILED;
            }
            return give(l, l->text.n, line, n);
        }
        const enum cli_lines_got got = read_more(l);
        if (got != CLI_LINES_LINE) {
            return got;
        }
    }
}

void cli_lines_close(struct cli_lines *l) {
    if (l->own) {
        close(l->fd);
    }
    cli_text_free(&l->text);
    memset(l, 0, sizeof *l);
}
