/*
 * commands.h - the commands. Each takes its own argv (argv[0] is the command's name) and returns the
 * exit code of the program.
 */
#ifndef SLUICE_CLI_COMMANDS_H
#define SLUICE_CLI_COMMANDS_H

int cli_run(int argc, char **argv);
int cli_chat(int argc, char **argv);
int cli_exec(int argc, char **argv);
int cli_info(int argc, char **argv);
int cli_top(int argc, char **argv);

#endif
