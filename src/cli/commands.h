/*
 * commands.h - the commands, a file each. list.h has the list of them.
 */
#ifndef SLUICE_CLI_COMMANDS_H
#define SLUICE_CLI_COMMANDS_H

#include "cli/args.h"

extern const struct cli_command cli_run_command, cli_chat_command, cli_serve_command, cli_exec_command;
extern const struct cli_command cli_bench_command, cli_eval_command, cli_replay_command;
extern const struct cli_command cli_info_command, cli_plan_command, cli_top_command;

/* `sluice --version [--json]`: argv[0] is --version. Returns the exit code of the program. */
int cli_version(int argc, char **argv);

#endif
