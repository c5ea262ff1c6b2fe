/*
 * progress.c - see progress.h.
 *
 * A prompt that is one micro-batch is one call of llama.cpp, minutes long with a large model, so whoever
 * shows its progress cannot be the thread that computes. llama.cpp's abort callback is called between the nodes
 * of a graph, but not inside of our part of it, and does not say how many there are; the blocks that the backend
 * has begun are counted anyway. So a thread looks at those counters five times a second, and only where somebody
 * sees it: a terminal. Everywhere else there is no thread.
 */
#include "cli/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "run/runner.h"

/*
 * The only globals of the command: a signal handler has no argument to find anything else. Compute
 * threads only read the first one. Both are lock-free, so a handler may use them.
 */
static atomic_int interrupts;   /* signals since the last reset */
static atomic_int wake_fd = -1; /* an eventfd that is readable after a signal; -1: nobody asked for one */

/* Safe in a signal handler. */
static void wake(void) {
    const uint64_t one = 1;
    const int fd = atomic_load(&wake_fd);
    if (fd >= 0) {
        const ssize_t told = write(fd, &one, sizeof one);
        (void)told; /* fails only when it is full, and readable then too */
    }
}

static void on_sigint(int sig) {
    const int interrupted_errno = errno;
    (void)sig;
    if (atomic_fetch_add(&interrupts, 1) >= 2) {
        _exit(128 + SIGINT);
    }
    wake();
    errno = interrupted_errno;
}

static void install(int sig) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_handler = on_sigint;
    action.sa_flags = SA_RESTART; /* an answer that is being written stays whole; whoever waits polls wake_fd */
    sigaction(sig, &action, NULL);
}

void cli_interrupt_install(void) {
    install(SIGINT);
}

void cli_interrupt_install_all(void) {
    install(SIGINT);
    install(SIGTERM);
    install(SIGHUP);
}

bool cli_interrupted(void) {
    return atomic_load_explicit(&interrupts, memory_order_relaxed) != 0;
}

bool cli_interrupted_by(void *user) {
    (void)user;
    return cli_interrupted();
}

int cli_interrupt_fd(void) {
    int fd = atomic_load(&wake_fd);
    if (fd >= 0) {
        return fd;
    }
    fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd >= 0) {
        atomic_store(&wake_fd, fd);
        if (cli_interrupted()) { /* before the handler could see it */
            wake();
        }
    }
    return fd;
}

void cli_interrupt_reset(void) {
    uint64_t count;
    const int fd = atomic_load(&wake_fd);
    /* In this order: a signal between the two leaves the descriptor readable, so nobody waits in vain for it. */
    if (fd >= 0) {
        const ssize_t had = read(fd, &count, sizeof count);
        (void)had; /* EAGAIN: there was none */
    }
    atomic_store(&interrupts, 0);
}

void cli_interrupt_die(void) {
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);
    _exit(128 + SIGINT); /* only when SIGINT is blocked */
}

void cli_progress_start(struct cli_progress *p, bool quiet) {
    memset(p, 0, sizeof *p);
    cli_progress_init(p, !quiet && isatty(STDERR_FILENO));
}

void cli_progress_init(struct cli_progress *p, bool on) {
    pthread_condattr_t attr;
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->wake, &attr);
    pthread_condattr_destroy(&attr);
    p->on = on;
}

/* Is it time for an update? The lock is held. */
static bool due(struct cli_progress *p) {
    double now = sluice_clock();
    if (now < p->next_s) {
        return false;
    }
    p->next_s = now + 0.1;
    p->shown = true;
    return true;
}

/* Show a line, if it is time for one. */
__attribute__((format(printf, 2, 3))) static void show(struct cli_progress *p, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (p->on) {
        pthread_mutex_lock(&p->lock);
        if (due(p)) {
            fputs("\r\033[K", stderr);
            vfprintf(stderr, format, args);
        }
        pthread_mutex_unlock(&p->lock);
    }
    va_end(args);
}

void cli_progress_percent(struct cli_progress *p, const char *what, double fraction) {
    show(p, "%s %.0f %%", what, 100 * fraction);
}

void cli_progress_seconds(struct cli_progress *p, const char *what, double seconds) {
    show(p, "%s, %.0f s", what, seconds);
}

/* The line about tokens; `done` may have a fraction of one, `from` were done at `since_s`. The lock is held. */
static void show_tokens(const char *what, double done, uint64_t total, double from, double since_s) {
    const double spent = since_s > 0 ? sluice_clock() - since_s : 0;
    fprintf(stderr, "\r\033[K%s %.0f/%" PRIu64 " tokens", what, done, total);
    if (done > from && spent > 0) {
        const double rate = (done - from) / spent;
        fprintf(stderr, ", %.1f tok/s, %.0f s left", rate, ((double)total - done) / rate);
    }
}

void cli_progress_tokens(struct cli_progress *p, const char *what, uint64_t done, uint64_t total) {
    if (!p->on) {
        return;
    }
    pthread_mutex_lock(&p->lock);
    if (!p->watching && (p->total != total || done < p->from)) { /* another piece of work */
        p->total = total;
        p->from = done;
        p->began_s = sluice_clock();
    }
    if (due(p)) {
        show_tokens(what, (double)done, total, (double)p->from, p->began_s);
    }
    pthread_mutex_unlock(&p->lock);
}

static void *watch(void *arg) {
    struct cli_progress *p = arg;
    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        struct timespec at;
        clock_gettime(CLOCK_MONOTONIC, &at);
        at.tv_nsec += 200000000;
        at.tv_sec += at.tv_nsec / 1000000000;
        at.tv_nsec %= 1000000000;
        if (pthread_cond_timedwait(&p->wake, &p->lock, &at) != ETIMEDOUT) {
            continue;
        }
        pthread_mutex_unlock(&p->lock); /* the counters have a lock of their own */
        const double fraction = p->fraction(p->user);
        pthread_mutex_lock(&p->lock);
        if (!p->stop && due(p)) {
            show_tokens(p->what, (double)p->total * (fraction < 1 ? fraction : 1), p->total, 0, p->began_s);
        }
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

void cli_progress_watch(struct cli_progress *p, const char *what, uint64_t total, cli_progress_fn fraction,
                        void *user) {
    sigset_t all, before;
    if (!p->on || p->watching) {
        return;
    }
    p->what = what;
    p->total = total;
    p->fraction = fraction;
    p->user = user;
    p->stop = false;
    p->began_s = sluice_clock();
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); /* Ctrl-C must interrupt whoever waits for a line of input */
    p->watching = pthread_create(&p->thread, NULL, watch, p) == 0; /* else there are fewer updates */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void cli_progress_print(struct cli_progress *p, const char *line) {
    if (!p->on) {
        fprintf(stderr, "%s\n", line);
        return;
    }
    pthread_mutex_lock(&p->lock);
    fprintf(stderr, "%s%s\n", p->shown ? "\r\033[K" : "", line);
    p->shown = false;
    pthread_mutex_unlock(&p->lock);
}

void cli_progress_clear(struct cli_progress *p) {
    if (!p->on) {
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
    if (p->watching) {
        pthread_join(p->thread, NULL);
        p->watching = false;
    }
    if (p->shown) {
        fputs("\r\033[K", stderr);
        p->shown = false;
    }
    p->began_s = 0;
}
