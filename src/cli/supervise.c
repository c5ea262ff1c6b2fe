/*
 * supervise.c - see supervise.h.
 *
 * The child's output goes through a pipe, not into a file: a server runs for months, and its last lines are what
 * explains its end. Signals come through a descriptor (signalfd), so that there is one loop that sleeps in one poll, no
 * handler and no flag that is looked at too late. They are blocked from before the child exists, or one that comes
 * between would be lost, and the child gets the old mask and default actions back: a shell starts background jobs with
 * SIGINT ignored, which a program would inherit, and this one is ended by it. An ignored SIGHUP is another matter: that
 * is nohup, whose user wants us to outlive the terminal, and a signal that is blocked is queued although it is ignored;
 * so it is then left alone.
 *
 * The child is killed when this process dies in a way that leaves it no time (PR_SET_PDEATHSIG): a server
 * that nobody knows of would keep memory and port.
 */
#include "cli/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run/runner.h"

/* Descriptors that only the child needs. -1: none. */
struct child_ends {
    int null; /* standard input */
    int out;  /* standard output and error: the pipe to us */
    int told; /* closed by execve; gets errno when that fails */
};

/* Were we started by nohup? */
static bool hangup_ignored(void) {
    struct sigaction now;
    return sigaction(SIGHUP, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

/* In the child, between fork and exec: only functions that a signal handler may call too. */
static void child_run(const struct supervised *s, const struct child_ends *e, pid_t parent, const char *program,
                      char **argv) {
    const int defaults[] = {SIGINT, SIGTERM, SIGPIPE, SIGCHLD, SIGHUP};
    const size_t n = sizeof defaults / sizeof defaults[0] - hangup_ignored();
    for (size_t i = 0; i < n; i++) {
        signal(defaults[i], SIG_DFL);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1); /* it ended before the line above */
    }
    setpgid(0, 0);
    sigprocmask(SIG_SETMASK, &s->before, NULL);
    if (dup2(e->null, 0) >= 0 && dup2(s->out ? s->out : e->out, 1) >= 0 && dup2(e->out, 2) >= 0 &&
        (s->entry == 0 || write(s->entry, "0", 1) == 1)) {
        execv(program, argv);
    }
    const int error = errno;
    const ssize_t told = write(e->told, &error, sizeof error);
    _exit(told == (ssize_t)sizeof error ? 126 : 127);
}

static void close_one(int *fd) {
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

static void block(struct supervised *s) {
    sigset_t set;
    signal(SIGCHLD, SIG_DFL); /* inherited as ignored, the kernel would reap the child and tell nobody */
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    if (!hangup_ignored()) {
        sigaddset(&set, SIGHUP);
    }
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, &s->before);
    s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* fork; errno of what failed in the child, if it did. */
static int launch(struct supervised *s, struct child_ends *e, const char *program, char **argv, int heard) {
    const pid_t parent = getpid();
    int error = 0;
    s->pid = fork();
    if (s->pid == 0) {
        child_run(s, e, parent, program, argv);
    }
    if (s->pid < 0) {
        error = errno;
        s->pid = 0;
        return error;
    }
    close_one(&e->told); /* or the reading would not end */
    ssize_t n;
    do {
        n = read(heard, &error, sizeof error);
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof error) {
        return 0;
    }
    waitpid(s->pid, NULL, 0);
    s->pid = 0;
    return error;
}

int supervise_start(struct supervised *s, const char *program, char **argv) {
    int log[2] = {-1, -1}, told[2] = {-1, -1};
    int error = 0;
    s->pid = 0;
    s->n_part = s->n_lines = 0;
    s->asked = s->status = 0;
    block(s);
    struct child_ends e = {.null = open("/dev/null", O_RDONLY | O_CLOEXEC)};
    if (s->signals < 0 || e.null < 0 || pipe2(log, O_CLOEXEC) != 0 || pipe2(told, O_CLOEXEC) != 0 ||
        fcntl(log[0], F_SETFL, O_NONBLOCK) != 0) {
        error = errno;
    }
    s->log = log[0];
    e.out = log[1];
    e.told = told[1];
    if (!error) {
        error = launch(s, &e, program, argv, told[0]);
    }
    close_one(&told[0]);
    close_one(&e.null);
    close_one(&e.out);
    close_one(&e.told);
    if (error) {
        supervise_free(s);
    }
    return error;
}

/* A line is complete. */
static void end_line(struct supervised *s) {
    s->part[s->n_part] = '\0';
    memcpy(s->tail[s->n_lines % SUPERVISE_TAIL], s->part, s->n_part + 1);
    s->n_lines++;
    s->n_part = 0;
    if (s->line) {
        s->line(s->user, s->tail[(s->n_lines - 1) % SUPERVISE_TAIL]);
    }
}

/* What there is to read, at most 1 MiB: a child that writes without end must not keep us from everything else. */
static void read_log(struct supervised *s) {
    char buf[16384];
    for (int round = 0; round < 64 && s->log >= 0; round++) {
        const ssize_t n = read(s->log, buf, sizeof buf);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (n <= 0) {
            close_one(&s->log);
            return;
        }
        for (ssize_t i = 0; i < n; i++) {
            if (buf[i] == '\n') {
                end_line(s);
                continue;
            }
            s->part[s->n_part++] = buf[i] ? buf[i] : ' ';
            if (s->n_part + 1 == sizeof s->part) {
                end_line(s);
            }
        }
    }
}

/* Has it ended? Then its last words are read, too. */
static bool reap(struct supervised *s) {
    if (s->pid == 0) {
        return true;
    }
    const pid_t got = waitpid(s->pid, &s->status, WNOHANG);
    if (got == 0 || (got < 0 && errno == EINTR)) {
        return false;
    }
    s->pid = 0;
    if (s->log >= 0) {
        read_log(s);
    }
    if (s->n_part) {
        end_line(s);
    }
    return true;
}

static void read_signals(struct supervised *s) {
    struct signalfd_siginfo info;
    while (read(s->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo != SIGCHLD) {
            s->asked = (int)info.ssi_signo;
        }
    }
}

enum supervise_event supervise_wait(struct supervised *s, int fd, short events, int timeout_ms) {
    struct pollfd p[3] = {{.fd = s->signals, .events = POLLIN},
                          {.fd = s->log, .events = POLLIN}, /* poll skips negative ones */
                          {.fd = fd, .events = events}};
    s->asked = 0;
    const int n = poll(p, 3, timeout_ms);
    if (n > 0 && p[1].revents) {
        read_log(s);
    }
    read_signals(s);
    if (reap(s)) {
        return SUPERVISE_ENDED;
    }
    if (s->asked) {
        return SUPERVISE_ASKED;
    }
    return n > 0 && p[2].revents ? SUPERVISE_FD : SUPERVISE_NOTHING;
}

bool supervise_stop(struct supervised *s, int sig, double grace_s) {
    const double deadline = sluice_clock() + grace_s;
    bool killed = false;
    if (s->pid == 0) {
        return true;
    }
    kill(s->pid, sig);
    for (;;) {
        const enum supervise_event e = supervise_wait(s, -1, 0, 100);
        if (e == SUPERVISE_ENDED) {
            return !killed;
        }
        if (!killed && (e == SUPERVISE_ASKED || sluice_clock() >= deadline)) {
            killed = true;
            kill(s->pid, SIGKILL);
        }
    }
}

const char *supervise_tail(const struct supervised *s, size_t i) {
    const size_t n = s->n_lines < SUPERVISE_TAIL ? s->n_lines : SUPERVISE_TAIL;
    return i < n ? s->tail[(s->n_lines - n + i) % SUPERVISE_TAIL] : NULL;
}

void supervise_free(struct supervised *s) {
    close_one(&s->signals);
    close_one(&s->log);
    sigprocmask(SIG_SETMASK, &s->before, NULL);
}
