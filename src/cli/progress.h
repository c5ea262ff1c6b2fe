/*
 * progress.h - one moving line on a terminal, and Ctrl-C.
 */
#ifndef SLUICE_CLI_PROGRESS_H
#define SLUICE_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* The line that is on the terminal now. */
struct cli_progress {
    bool on;        /* standard error is a terminal and the user wants it */
    bool shown;     /* a line is on the screen */
    uint64_t total; /* tokens of the work that is shown; 0: none yet */
    uint64_t from;  /* of those, done when it was first shown */
    double from_s;  /* clock time of that */
    double next_s;  /* clock time of the next update, so that a fast loop does not spend its time here */
};

/* Decide whether there is a line at all. */
void cli_progress_start(struct cli_progress *p, bool quiet);

/*
 * Show "what 45 %" or "what 512/3000 tokens", the latter after some seconds with an estimate of how many more it will
 * take. At most ten times a second.
 */
void cli_progress_percent(struct cli_progress *p, const char *what, double fraction);
void cli_progress_tokens(struct cli_progress *p, const char *what, uint64_t done, uint64_t total);

/* Show "what, 12 s". */
void cli_progress_seconds(struct cli_progress *p, const char *what, double seconds);

/* Remove the line, before anything else is printed. */
void cli_progress_clear(struct cli_progress *p);

/*
 * Take over SIGINT: the first one sets a flag that cli_interrupted returns; a third one without
 * cli_interrupt_reset between them ends the process, in case nothing looks at the flag.
 */
void cli_interrupt_install(void);
bool cli_interrupted(void);

/* Treat SIGTERM and SIGHUP like SIGINT, for a command that must clean up after itself. */
void cli_interrupt_install_all(void);
void cli_interrupt_reset(void);

/* End as a process that SIGINT killed, which is what a shell wants to see after Ctrl-C. */
void cli_interrupt_die(void);

#endif
