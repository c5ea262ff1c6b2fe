/*
 * child.c - see child.h.
 *
 * A child per run, because nothing else makes runs independent: slots, page tables, the allocator and
 * the settings of ggml live as long as their process. The child has a process group of its own: Ctrl-C
 * on the terminal reaches the bench alone, which then asks the child to stop and still has its report.
 * It dies with its parent, however that ends.
 *
 * Output goes to files, not pipes: nobody has to read while the child runs, so this process sleeps and
 * takes nothing from the processors that it measures.
 */
#include "bench/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cache/clock.h"
#include "cache/error.h"

static const double GRACE_S = 60; /* for the end after SIGINT: a thrashing run needs long to reach its next look */
enum { TICK_MS = 250 };           /* between two looks */

/* Descriptors of the child, opened by the parent so that a failure has a message. -1: none. */
struct child_files {
    int null;  /* standard input */
    int out;   /* standard output */
    int err;   /* standard error */
    int entry; /* of the cgroup */
    int told;  /* a pipe that execve closes; the child writes errno when it fails before */
};

/* In the child, between fork and exec: only functions that a signal handler may call too. */
static void child_start(const struct bench_child *c, const struct child_files *f, pid_t parent) {
    int error = 0;
    const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        signal(signals[i], SIG_DFL);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1); /* it ended before the line above */
    }
    setpgid(0, 0);
    if (dup2(f->null, 0) < 0 || dup2(f->out, 1) < 0 || dup2(f->err, 2) < 0 ||
        (f->entry >= 0 && write(f->entry, "0", 1) != 1)) {
        error = errno;
    } else {
        execv(c->program, c->argv);
        error = errno;
    }
    const ssize_t n = write(f->told, &error, sizeof error);
    _exit(n == (ssize_t)sizeof error ? 126 : 127);
}

static void close_all(struct child_files *f) {
    int *const fds[] = {&f->null, &f->out, &f->err, &f->entry, &f->told};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (*fds[i] >= 0) {
            close(*fds[i]);
        }
        *fds[i] = -1;
    }
}

/* Open everything, fork. *heard: the reading end of the pipe. */
static int start(const struct bench_child *c, pid_t *pid, int *heard, struct sluice_error *err) {
    int pipe_fds[2] = {-1, -1};
    const int make = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    struct child_files f = {
        .null = open("/dev/null", O_RDONLY | O_CLOEXEC),
        .out = open(c->out, make, 0600),
        .err = open(c->err, make, 0600),
        .entry = c->group ? bench_cgroup_entry(c->group) : -1,
        .told = -1,
    };
    if (f.null < 0 || f.out < 0 || f.err < 0 || (c->group && f.entry < 0) || pipe2(pipe_fds, O_CLOEXEC) != 0) {
        const int error = errno;
        close_all(&f);
        return sluice_fail(err, SLUICE_ERR_IO, "a run cannot be started: %s", strerror(error));
    }
    f.told = pipe_fds[1];
    *heard = pipe_fds[0];
    const pid_t parent = getpid();
    *pid = fork();
    if (*pid == 0) {
        child_start(c, &f, parent);
    }
    const int error = errno;
    close_all(&f);
    if (*pid < 0) {
        close(*heard);
        return sluice_fail(err, SLUICE_ERR_IO, "a run cannot be started: %s", strerror(error));
    }
    return 0;
}

/* Sleep until the child ends, at most one tick. */
static void nap(int pidfd) {
    if (pidfd >= 0) {
        struct pollfd p = {.fd = pidfd, .events = POLLIN};
        poll(&p, 1, TICK_MS);
    } else { /* kernels before 5.3, and Android */
        const struct timespec t = {.tv_nsec = 20 * 1000 * 1000};
        nanosleep(&t, NULL);
    }
}

/* Wait for the end; ask and kill as needed. Returns the status of waitpid. */
static int watch(const struct bench_child *c, pid_t pid, struct bench_ended *out) {
    const double begin = clock_seconds();
    double asked = 0;
    int status = 0;
#ifdef __ANDROID__ /* older releases kill a program that makes a system call they do not list */
    const int pidfd = -1;
#else
    const int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
#endif
    for (;;) {
        const pid_t got = waitpid(pid, &status, WNOHANG);
        const double now = clock_seconds();
        out->seconds = now - begin;
        if (got == pid || (got < 0 && errno != EINTR)) {
            break;
        }
        const bool interrupted = c->interrupted && c->interrupted(c->user);
        if (asked == 0 && (interrupted || out->seconds > c->max_s)) {
            out->interrupted = interrupted;
            out->timed_out = !interrupted;
            asked = now;
            kill(pid, SIGINT);
        } else if (asked > 0 && !out->killed && now - asked > GRACE_S) {
            out->killed = true;
            kill(pid, SIGKILL);
        }
        if (c->tick) {
            c->tick(c->user, out->seconds);
        }
        nap(pidfd);
    }
    if (pidfd >= 0) {
        close(pidfd);
    }
    return status;
}

int bench_child_run(const struct bench_child *c, struct bench_ended *out, struct sluice_error *err) {
    pid_t pid = -1;
    int heard = -1, error = 0;
    memset(out, 0, sizeof *out);
    const int rc = start(c, &pid, &heard, err);
    if (rc) {
        return rc;
    }
    ssize_t n;
    do { /* ends when execve closed the other end */
        n = read(heard, &error, sizeof error);
    } while (n < 0 && errno == EINTR);
    close(heard);
    const int status = watch(c, pid, out);
    if (n == (ssize_t)sizeof error) {
        return sluice_fail(err, SLUICE_ERR_IO, "%s cannot be started%s: %s", c->program,
                           c->group ? " in its cgroup" : "", strerror(error));
    }
    out->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    out->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return sluice_ok(err);
}
