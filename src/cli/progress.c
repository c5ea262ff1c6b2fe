/*
 * progress.c - see progress.h.
 */
#include "cli/progress.h"

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runner/runner.h"

/*
 * The only global of the command: a signal handler has no argument to find anything else. Compute
 * threads only read it.
 */
static atomic_int interrupts; /* lock-free, so a handler may write it and other threads may read it */

static void on_sigint(int sig) {
    (void)sig;
    if (atomic_fetch_add(&interrupts, 1) >= 2) {
        _exit(128 + SIGINT);
    }
}

static void install(int sig) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_handler = on_sigint;
    action.sa_flags = 0; /* no SA_RESTART: reading a line must return */
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

void cli_interrupt_reset(void) {
    atomic_store(&interrupts, 0);
}

void cli_interrupt_die(void) {
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);
    _exit(128 + SIGINT); /* only when SIGINT is blocked */
}

void cli_progress_start(struct cli_progress *p, bool quiet) {
    memset(p, 0, sizeof *p);
    p->on = !quiet && isatty(STDERR_FILENO);
}

/* Is it time for an update? The last one (done) is not worth showing: the line goes away then. */
static bool due(struct cli_progress *p) {
    double now = p->on ? sluice_clock() : 0;
    if (!p->on || now < p->next_s) {
        return false;
    }
    p->next_s = now + 0.1;
    p->shown = true;
    return true;
}

void cli_progress_percent(struct cli_progress *p, const char *what, double fraction) {
    if (due(p)) {
        fprintf(stderr, "\r\033[K%s %.0f %%", what, 100 * fraction);
    }
}

void cli_progress_tokens(struct cli_progress *p, const char *what, uint64_t done, uint64_t total) {
    const double now = p->on ? sluice_clock() : 0;
    if (p->total != total || done < p->from) { /* another piece of work */
        p->total = total;
        p->from = done;
        p->from_s = now;
    }
    if (due(p)) {
        fprintf(stderr, "\r\033[K%s %" PRIu64 "/%" PRIu64 " tokens", what, done, total);
        if (done > p->from && now - p->from_s > 3) { /* before that it would be a guess */
            fprintf(stderr, ", %.0f s left", (now - p->from_s) / (double)(done - p->from) * (double)(total - done));
        }
    }
}

void cli_progress_seconds(struct cli_progress *p, const char *what, double seconds) {
    if (due(p)) {
        fprintf(stderr, "\r\033[K%s, %.0f s", what, seconds);
    }
}

void cli_progress_clear(struct cli_progress *p) {
    if (p->shown) {
        fputs("\r\033[K", stderr);
        p->shown = false;
    }
}
