/*
 * lines.h - lines of input that Ctrl-C can break off.
 */
#ifndef SLUICE_CLI_LINES_H
#define SLUICE_CLI_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/text.h"

/* Where lines come from. Used by one thread. */
struct cli_lines {
    struct cli_text text; /* what was read: the line that was given out, then what came after it */
    size_t used;          /* bytes of it that belong to the line that was given out */
    int fd;               /* read from here */
    bool own;             /* fd was opened here, and does not block */
    bool terminal;        /* Ctrl-C throws away what was typed, here as in the terminal itself */
    bool ended;           /* the end of input was read */
    int wake;             /* readable after Ctrl-C: cli_interrupt_fd, not owned */
};

enum cli_lines_got {
    CLI_LINES_LINE,        /* a line */
    CLI_LINES_END,         /* the end of input */
    CLI_LINES_INTERRUPTED, /* there was a Ctrl-C since the last cli_interrupt_reset: the caller resets it */
    CLI_LINES_FAILED,      /* errno says why */
};

/*
 * Read from fd, which stays the caller's and stays open. Call cli_interrupt_install before. False, with errno
 * set, when the system has no descriptor left; *l may be closed then too.
 */
bool cli_lines_open(struct cli_lines *l, int fd);

/*
 * Wait for a line or Ctrl-C, whichever is there first; a Ctrl-C from before the call counts. *line is ended by a
 * zero and has *n bytes without its line end (it may hold zeros itself); it is valid until the next call. A last
 * line needs no line end.
 */
enum cli_lines_got cli_lines_next(struct cli_lines *l, char **line, size_t *n);

/* Free everything. */
void cli_lines_close(struct cli_lines *l);

#endif
