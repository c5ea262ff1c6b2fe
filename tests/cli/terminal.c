/*
 * terminal.c - run a program on a pseudo-terminal and talk to it by a small script.
 *
 *   cli-terminal PROGRAM [ARGS] < SCRIPT
 *
 * The script has one step per line:
 *
 *   wait TEXT    read output until TEXT appears in what came since the last wait
 *   send TEXT    type TEXT and Enter
 *   type TEXT    type TEXT without Enter
 *   size R C     the window now has R rows and C columns
 *   key C        press Ctrl-C or Ctrl-D (the letter c or d)
 *   pause        read output until something comes that is not the moving line (the program is talking)
 *   exit N       the program ends with exit code N; "exit signal N" for a signal
 *
 * Everything that the program printed goes to standard output. Exit 0 when all steps were met, 1 with a
 * line on standard error otherwise. A wait that is not met within two minutes fails: no test is decided
 * by time, it only ends a hang.
 */
#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SEEN_MAX = 1 << 20, PATIENCE_MS = 120000 };

struct terminal {
    int fd;              /* our end of the terminal */
    pid_t pid;           /* the program */
    char seen[SEEN_MAX]; /* what it printed since the last wait that was met */
    size_t n;            /* bytes of that */
};

static int fail(const char *what, const char *detail) {
    fprintf(stderr, "cli-terminal: %s: %s\n", what, detail);
    return 1;
}

/* Read once. False at the end of output, or when nothing comes. */
static bool read_some(struct terminal *t) {
    struct pollfd p = {.fd = t->fd, .events = POLLIN};
    char part[4096];
    if (poll(&p, 1, PATIENCE_MS) <= 0) {
        return false;
    }
    ssize_t n = read(t->fd, part, sizeof part);
    if (n <= 0) { /* EIO: the program closed its end */
        return false;
    }
    fwrite(part, 1, (size_t)n, stdout);
    fflush(stdout);
    if (t->n + (size_t)n >= SEEN_MAX) {
        t->n = 0; /* more talk than any test waits for */
    }
    memcpy(t->seen + t->n, part, (size_t)n);
    t->n += (size_t)n;
    return true;
}

static int step_wait(struct terminal *t, const char *text) {
    size_t len = strlen(text);
    for (;;) {
        char *at = memmem(t->seen, t->n, text, len);
        if (at) {
            size_t used = (size_t)(at - t->seen) + len;
            memmove(t->seen, t->seen + used, t->n - used);
            t->n -= used;
            return 0;
        }
        if (!read_some(t)) {
            return fail("never came", text);
        }
    }
}

/* On a busy machine the moving line appears even for a short prompt: that is not an answer yet. */
static int step_pause(struct terminal *t) {
    static const char moving[] = "\r\033[K";
    do {
        t->n = 0;
        if (!read_some(t)) {
            return fail("pause", "nothing came");
        }
    } while (t->n >= sizeof moving - 1 && memcmp(t->seen, moving, sizeof moving - 1) == 0);
    return 0;
}

static int step_exit(struct terminal *t, const char *expected) {
    char got[32];
    int status;
    while (read_some(t)) {
    }
    if (waitpid(t->pid, &status, 0) != t->pid) {
        return fail("waitpid", strerror(errno));
    }
    t->pid = 0;
    snprintf(got, sizeof got, WIFEXITED(status) ? "%d" : "signal %d",
             WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    return strcmp(got, expected) == 0 ? 0 : fail("exit code", got);
}

static int send_bytes(struct terminal *t, const char *bytes, size_t n) {
    return write(t->fd, bytes, n) == (ssize_t)n ? 0 : fail("cannot type", strerror(errno));
}

static int step(struct terminal *t, char *line) {
    char *arg = strchr(line, ' ');
    if (arg) {
        *arg++ = '\0';
    } else {
        arg = line + strlen(line);
    }
    if (strcmp(line, "wait") == 0) {
        return step_wait(t, arg);
    }
    if (strcmp(line, "pause") == 0) {
        return step_pause(t);
    }
    if (strcmp(line, "send") == 0) {
        return send_bytes(t, arg, strlen(arg)) || send_bytes(t, "\n", 1);
    }
    if (strcmp(line, "type") == 0) {
        return send_bytes(t, arg, strlen(arg));
    }
    if (strcmp(line, "size") == 0) {
        unsigned rows, columns;
        if (sscanf(arg, "%u %u", &rows, &columns) != 2) {
            return fail("size", arg);
        }
        const struct winsize w = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
        return ioctl(t->fd, TIOCSWINSZ, &w) == 0 ? 0 : fail("size", strerror(errno));
    }
    if (strcmp(line, "key") == 0) {
        char key = (char)(arg[0] & 0x1F);
        return send_bytes(t, &key, 1);
    }
    return strcmp(line, "exit") == 0 ? step_exit(t, arg) : fail("unknown step", line);
}

int main(int argc, char **argv) {
    static struct terminal t;
    char line[4096];
    int rc = 0;
    if (argc < 2) {
        return fail("usage", "cli-terminal PROGRAM [ARGS] < SCRIPT");
    }
    t.pid = forkpty(&t.fd, NULL, NULL, NULL);
    if (t.pid < 0) {
        return fail("forkpty", strerror(errno));
    }
    if (t.pid == 0) {
        execvp(argv[1], argv + 1);
        _exit(127);
    }
    while (rc == 0 && fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        rc = line[0] ? step(&t, line) : 0;
    }
    if (t.pid > 0) {
        kill(t.pid, SIGKILL);
        waitpid(t.pid, NULL, 0);
    }
    return rc;
}
