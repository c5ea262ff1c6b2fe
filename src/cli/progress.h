/*
 * progress.h - one moving line on a terminal, and Ctrl-C.
 */
#ifndef SLUICE_CLI_PROGRESS_H
#define SLUICE_CLI_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* How much of the work is done, 0..1. Called by another thread. */
typedef double (*cli_progress_fn)(void *user);

/* The line that is on the terminal now. */
struct cli_progress {
    bool on;                  /* standard error is a terminal and the user wants it */
    pthread_mutex_t lock;     /* guards the rest and standard error, while `on` */
    bool shown;               /* a line is on the screen */
    double next_s;            /* clock time of the next update, so that a fast loop does not spend its time here */
    double began_s;           /* clock time at which the work that is watched began; 0: none is */
    bool watching;            /* there is a thread */
    bool stop;                /* it is to end */
    pthread_cond_t wake;      /* stop has changed */
    pthread_t thread;         /* shows what `fraction` says */
    cli_progress_fn fraction; /* see above */
    void *user;               /* its argument */
    const char *what;         /* "prompt" */
    uint64_t total;           /* tokens of the work; 0: none yet */
    uint64_t from;            /* of those, done when it was first shown */
};

/* Decide whether there is a line at all. */
void cli_progress_start(struct cli_progress *p, bool quiet);

/* The same, decided by the caller (tests). *p is all zero. */
void cli_progress_init(struct cli_progress *p, bool on);

/*
 * Show "what 45 %" or "what 512/3000 tokens", the latter with speed and an estimate of how many more seconds it will
 * take. At most ten times a second.
 */
void cli_progress_percent(struct cli_progress *p, const char *what, double fraction);
void cli_progress_tokens(struct cli_progress *p, const char *what, uint64_t done, uint64_t total);

/*
 * Until cli_progress_clear, show "what 512/3000 tokens, 41.0 tok/s, 61 s left" five times a second, from what
 * `fraction` says, while the caller is busy. Without a line nothing happens: no thread is made.
 */
void cli_progress_watch(struct cli_progress *p, const char *what, uint64_t total, cli_progress_fn fraction, void *user);

/* Print a line of text in the place of the moving one, which comes back after it. */
void cli_progress_print(struct cli_progress *p, const char *line);

/* Show "what, 12 s". */
void cli_progress_seconds(struct cli_progress *p, const char *what, double seconds);

/* Stop watching and remove the line, before anything else is printed. */
void cli_progress_clear(struct cli_progress *p);

/*
 * Take over SIGINT: the first one sets a flag that cli_interrupted returns; a third one without
 * cli_interrupt_reset between them ends the process, in case nothing looks at the flag.
 */
void cli_interrupt_install(void);
bool cli_interrupted(void);

/* The same for those who are given a function with an argument. */
bool cli_interrupted_by(void *user);

/* Treat SIGTERM and SIGHUP like SIGINT, for a command that must clean up after itself. */
void cli_interrupt_install_all(void);

/*
 * A descriptor that is readable from a signal until cli_interrupt_reset, for whoever waits with poll: a look at
 * cli_interrupted before the wait would miss a signal between the two. Made by the first call (call it from one
 * thread) and open until the process ends. -1, with errno set, when there is none left.
 */
int cli_interrupt_fd(void);

/* Forget the signals so far. One that comes meanwhile may still be seen through the descriptor, never lost there. */
void cli_interrupt_reset(void);

/* End as a process that SIGINT killed, which is what a shell wants to see after Ctrl-C. */
void cli_interrupt_die(void);

#endif
