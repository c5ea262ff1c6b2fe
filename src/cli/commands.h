/*
 * commands.h - the commands. Each takes its own argv (argv[0] is the command's name) and returns the
 * exit code of the program.
 */
#ifndef SLUICE_CLI_COMMANDS_H
#define SLUICE_CLI_COMMANDS_H

#include "cli/args.h"

int cli_run(int argc, char **argv);
int cli_chat(int argc, char **argv);
int cli_exec(int argc, char **argv);
int cli_serve(int argc, char **argv);
int cli_info(int argc, char **argv);
int cli_plan(int argc, char **argv);
int cli_top(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_replay(int argc, char **argv);
int cli_eval(int argc, char **argv);

/* A command as `sluice --help` lists it. */
struct cli_entry {
    const char *name;                  /* what the user types */
    const char *help;                  /* one line */
    int (*run)(int argc, char **argv); /* one of the above */
};

extern const struct cli_entry cli_commands[]; /* ends with name NULL */
extern const char cli_about[];                /* what sluice is, lines without the last newline */

/* `sluice --version [--json]`: argv[0] is --version. Returns the exit code of the program. */
int cli_version(int argc, char **argv);

/* What `run` takes: `bench` starts it, and checks the options that it is asked to pass on. */
extern const struct cli_command cli_run_command;

#endif
