/*
 * list.h - the list of commands, for whoever needs all of them: main, and the writer of the manual pages.
 */
#ifndef SLUICE_CLI_LIST_H
#define SLUICE_CLI_LIST_H

#include "cli/args.h"

extern const struct cli_command *const cli_commands[]; /* as `sluice --help` lists them; ends with NULL */
extern const char cli_about[];                         /* what sluice is, lines without the last newline */

#endif
