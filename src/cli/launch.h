/*
 * launch.h - what a stock llama.cpp program needs around it so that it streams, and where files lie.
 */
#ifndef SLUICE_CLI_LAUNCH_H
#define SLUICE_CLI_LAUNCH_H

#include <limits.h>
#include <stdbool.h>

#include "cli/args.h"

/* setenv. Returns 0, or CLI_EXIT_FAILED after printing one line that starts with `command`. */
int cli_launch_set(const char *command, const char *name, const char *value);

/*
 * Prepare this process's environment so that the program that it executes next, or a child does, streams: the
 * settings of *c as variables, checked together with those that are there already; SLUICE_PLUGIN; LD_PRELOAD. Not for
 * use beside other threads (setenv). Returns 0 or an exit code after printing one line.
 */
int cli_launch_streaming(const struct cli_config *c);

/* "DIRECTORY OF THE RUNNING PROGRAM" + relative ("/../lib"). False when it is not known or too long. */
bool cli_launch_beside(const char *relative, char out[PATH_MAX]);

#endif
