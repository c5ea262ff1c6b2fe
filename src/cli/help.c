/*
 * help.c - the help page of a command, printed from its option table.
 *
 * A file of its own because there is a second one: tools/pages/pages.c has another cli_help, which does not print the
 * table that it is given but keeps it. That program is this one with that one function exchanged; it asks each command
 * for its help, and makes the manual pages and the shells' completions from the answers. So they cannot tell anything
 * else than
 * --help does, and a new command or option needs no further line anywhere.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/args.h"

/* One option of the help page: name in a column, help beside it, further lines indented. */
static void print_option(FILE *out, const struct cli_option *o) {
    enum { COLUMN = 26 };
    char left[80];
    char letter[8] = "    ";
    if (o->letter) {
        snprintf(letter, sizeof letter, "-%c, ", o->letter);
    }
    snprintf(left, sizeof left, "  %s%s%s%s%s%s", letter, o->also ? o->also : "", o->also ? ", " : "", o->name,
             o->metavar ? " " : "", o->metavar ? o->metavar : "");
    fprintf(out, "%-*s", COLUMN, left);
    if (strlen(left) > COLUMN - 2) {
        fprintf(out, "\n%*s", COLUMN, "");
    }
    for (const char *p = o->help; *p; p++) {
        fputc(*p, out);
        if (*p == '\n') {
            fprintf(out, "%*s", COLUMN, "");
        }
    }
    fputc('\n', out);
}

int cli_help(const struct cli_command *cmd) {
    char *page = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&page, &n);
    if (!out) {
        return cli_fail(CLI_EXIT_FAILED, cmd->name, "%s", strerror(errno));
    }
    fprintf(out, "usage: %s\n\n%s\n", cmd->usage, cmd->about);
    for (const struct cli_group *g = cmd->groups; g->heading; g++) {
        fprintf(out, "\n%s\n", g->heading);
        for (const struct cli_option *o = g->options; o->name; o++) {
            print_option(out, o);
        }
    }
    fprintf(out, "\n  -h, --help            this page\n");
    if (cmd->notes) {
        fprintf(out, "\n%s\n", cmd->notes);
    }
    bool ok = fclose(out) == 0 && cli_write(cmd->name, page, n);
    free(page);
    return ok ? CLI_EXIT_OK : CLI_EXIT_FAILED;
}
