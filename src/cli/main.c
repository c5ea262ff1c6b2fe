/*
 * main.c - which command?
 */
#include <stdio.h>
#include <string.h>

#include "cli/args.h"
#include "cli/commands.h"
#include "sluice.h"

/* A command as `sluice --help` lists it. */
struct command {
    const char *name;                  /* what the user types */
    const char *help;                  /* one line */
    int (*run)(int argc, char **argv); /* see commands.h */
};

static const struct command commands[] = {
    {"run", "generate text from a prompt", cli_run},
    {"chat", "talk to a model", cli_chat},
    {"serve", "serve a model: llama-server with streaming, and a page to watch it", cli_serve},
    {"exec", "start a llama.cpp program with streaming", cli_exec},
    {"bench", "measure speed, bytes and memory at several cache sizes", cli_bench},
    {"eval", "what a setting costs: perplexity, and the distance to the lossless run", cli_eval},
    {"replay", "what other cache sizes and policies would have read: route traces", cli_replay},
    {"info", "what a model needs: experts, bytes per token, dense bytes", cli_info},
    {"plan", "will it fit, and how fast will it be: before anything is loaded", cli_plan},
    {"top", "watch the processes that stream", cli_top},
};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

static int print_help(void) {
    char page[2048];
    int n = snprintf(page, sizeof page,
                     "usage: sluice COMMAND ...\n\n"
                     "Runs Mixture-of-Experts models that are bigger than memory: each expert is read from\n"
                     "disk when the router picks it. The results are those of the fully resident model, to\n"
                     "the last bit.\n\n");
    for (int i = 0; i < COMMANDS; i++) {
        n += snprintf(page + n, sizeof page - (size_t)n, "  %-7s%s\n", commands[i].name, commands[i].help);
    }
    n += snprintf(page + n, sizeof page - (size_t)n,
                  "\nsluice COMMAND --help describes a command; sluice --version prints the version.\n"
                  "Exit codes: 0, 1 for a failure while running, 2 for a wrong command line.\n");
    return cli_write("sluice", page, (size_t)n) ? CLI_EXIT_OK : CLI_EXIT_FAILED;
}

static int print_version(void) {
    char line[128];
    int n = snprintf(line, sizeof line, "sluice %s (llama.cpp %s)\n", sluice_version(), SLUICE_LLAMA_VERSION);
    return cli_write("sluice", line, (size_t)n) ? CLI_EXIT_OK : CLI_EXIT_FAILED;
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name) {
        return cli_fail(
            CLI_EXIT_USAGE, "sluice",
            "no command: one of run, chat, serve, exec, bench, eval, replay, info, plan, top (see sluice --help)");
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        return print_help();
    }
    if (strcmp(name, "--version") == 0) {
        return print_version();
    }
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    return cli_fail(
        CLI_EXIT_USAGE, "sluice",
        "unknown command %s: one of run, chat, serve, exec, bench, eval, replay, info, plan, top (see sluice --help)",
        name);
}
