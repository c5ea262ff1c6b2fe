/*
 * list.c - the list of commands, and what `sluice --help` says before it.
 */
#include "cli/list.h"

#include <stddef.h>

#include "cli/commands.h"

const struct cli_command *const cli_commands[] = {
    &cli_run_command,
    &cli_chat_command,
    &cli_serve_command,
    &cli_exec_command,
    &cli_bench_command,
    &cli_eval_command,
    &cli_replay_command,
    &cli_info_command,
    &cli_plan_command,
    &cli_top_command,
    NULL,
};

const char cli_about[] = "Runs Mixture-of-Experts models that are bigger than memory: each expert is read from\n"
                         "disk when the router picks it. The results are those of the fully resident model, to\n"
                         "the last bit.";
