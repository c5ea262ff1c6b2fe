/*
 * main.c - which command?
 */
#include <stdio.h>
#include <string.h>

#include "cli/args.h"
#include "cli/commands.h"
#include "cli/list.h"
#include "sluice.h"

static int print_help(void) {
    char page[2048];
    int n = snprintf(page, sizeof page, "usage: sluice COMMAND ...\n\n%s\n\n", cli_about);
    for (const struct cli_command *const *e = cli_commands; *e; e++) {
        n += snprintf(page + n, sizeof page - (size_t)n, "  %-7s%s\n", cli_command_word(*e), (*e)->summary);
    }
    n += snprintf(page + n, sizeof page - (size_t)n,
                  "\nsluice COMMAND --help describes a command; sluice --version prints what this is built of, with\n"
                  "--json after it for programs.\n"
                  "Exit codes: 0, 1 for a failure while running, 2 for a wrong command line.\n");
    return cli_write("sluice", page, (size_t)n) ? CLI_EXIT_OK : CLI_EXIT_FAILED;
}

/* "run, chat, serve" */
static void list_names(char *out, size_t cap) {
    size_t n = 0;
    for (const struct cli_command *const *e = cli_commands; *e && n < cap; e++) {
        n += (size_t)snprintf(out + n, cap - n, "%s%s", n ? ", " : "", cli_command_word(*e));
    }
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : NULL;
    struct cli_config config;
    char names[256];
    list_names(names, sizeof names);
    if (!name) {
        return cli_fail(CLI_EXIT_USAGE, "sluice", "no command: one of %s (see sluice --help)", names);
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        return print_help();
    }
    if (strcmp(name, "--version") == 0) {
        return cli_version(argc - 1, argv + 1);
    }
    for (const struct cli_command *const *e = cli_commands; *e; e++) {
        if (strcmp(name, cli_command_word(*e)) == 0) {
            const int rc = cli_parse(*e, argc - 1, argv + 1, &config);
            return rc ? rc : config.help ? cli_help(*e) : (*e)->run(&config);
        }
    }
    return cli_fail(CLI_EXIT_USAGE, "sluice", "unknown command %s: one of %s (see sluice --help)", name, names);
}
