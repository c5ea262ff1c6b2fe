/*
 * top.c - `sluice top`: what the processes that stream are doing.
 *
 * Every process that streams, stock llama.cpp programs with the plug-in included, shows its counters
 * in a file (observe/stat_file.h). This command only reads those: nothing is asked of the processes, and
 * looking costs them nothing.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/args.h"
#include "cli/commands.h"
#include "cli/top.h"
#include "run/runner.h"

enum { ONCE_WIDTH = 160 }; /* columns of a snapshot: nothing of it is cut but very long paths */

/* All processes as text, a blank line between them. */
static int print_pages(const struct top_list *l) {
    char(*line)[TOP_WIDTH] = calloc(TOP_LINES, sizeof *line);
    bool ok = line != NULL;
    if (!ok) {
        return cli_fail(CLI_EXIT_FAILED, cli_top_command.name, "no memory");
    }
    for (size_t i = 0; ok && i < l->n; i++) {
        const int n = top_page(&l->p[i], sluice_clock(), ONCE_WIDTH, TOP_LINES, false, line);
        ok = i == 0 || cli_write(cli_top_command.name, "\n", 1);
        for (int k = 0; ok && k < n; k++) {
            ok = cli_write(cli_top_command.name, line[k], strlen(line[k])) && cli_write(cli_top_command.name, "\n", 1);
        }
    }
    free(line);
    return ok ? CLI_EXIT_OK : CLI_EXIT_FAILED;
}

static int snapshot(uint64_t pid, bool json) {
    struct top_list l;
    int rc;
    if (!top_find(&l, pid)) {
        rc = cli_fail(CLI_EXIT_FAILED, cli_top_command.name, "no memory");
    } else if (l.n == 0 && l.damaged) {
        rc = cli_fail(CLI_EXIT_FAILED, cli_top_command.name, "%s", l.complaint);
    } else if (l.n == 0 && pid) {
        rc = cli_fail(CLI_EXIT_FAILED, cli_top_command.name, "process %" PRIu64 " does not stream, or shows nothing",
                      pid);
    } else if (l.n == 0) {
        rc = cli_fail(CLI_EXIT_FAILED, cli_top_command.name, "no process streams");
    } else {
        if (l.damaged) {
            cli_fail(0, cli_top_command.name, "%s", l.complaint);
        }
        rc = json ? top_json(&l, sluice_clock(), cli_top_command.name) : print_pages(&l);
    }
    top_free(&l);
    return rc;
}

/* The argument: 0 when there is none; false when it is no pid. */
static bool read_pid(const struct cli_config *c, uint64_t *pid) {
    *pid = 0;
    if (c->n_args == 0) {
        return true;
    }
    const char *text = c->args[0];
    if (!text[0] || text[strspn(text, "0123456789")] || strlen(text) > 10) {
        return false;
    }
    *pid = strtoull(text, NULL, 10);
    return *pid > 0 && *pid <= INT32_MAX;
}

static int top_main(struct cli_config *config) {
    uint64_t pid;
    if (!read_pid(config, &pid)) {
        return cli_fail(CLI_EXIT_USAGE, cli_top_command.name, "%s: not a process id", config->args[0]);
    }
    int rc = config->once || config->json ? -1 : top_screen(pid, cli_top_command.name);
    return rc >= 0 ? rc : snapshot(pid, config->json);
}

const struct cli_command cli_top_command = {
    .name = "sluice top",
    .summary = "watch the processes that stream",
    .usage = "sluice top [PID] [options]",
    .about = "Shows what processes that stream are doing: tokens per second, reads, hits, where the\n"
             "time goes, how many experts of each layer are in memory. All of this user's, sluice's\n"
             "own and llama.cpp programs with the plug-in, or the one with that PID.",
    .groups = {{"Output", "--once --json"}},
    .notes = "  q            quits\n"
             "  arrows, 1-9  choose among several processes\n\n"
             "A process whose settings say publish 0 (SLUICE_PUBLISH=0, --no-publish) is not shown, nor one\n"
             "with another SLUICE_PUBLISH_DIR, the directory for counters, than this command.\n"
             "Where the terminal cannot be drawn on (TERM=dumb, a pipe) a snapshot is printed.\n"
             "Exit code 1 when nothing is there to be shown.",
    .max_args = 1,
    .run = top_main,
};
