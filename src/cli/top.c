/*
 * top.c - `sluice top`: what the processes that stream are doing.
 *
 * Every process that streams, stock llama.cpp programs with the plug-in included, shows its counters
 * in a file (observe/stat_file.h). This command only reads those: nothing is asked of the processes, and
 * looking costs them nothing.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/args.h"
#include "cli/commands.h"
#include "cli/top.h"
#include "memory/cgroup.h"
#include "run/runner.h"

enum { ONCE_WIDTH = 160 }; /* columns of a snapshot: nothing of it is cut but very long paths */

/* ---- which there are ------------------------------------------------------------------------- */

struct search {
    struct top_list *list;   /* what was found */
    uint64_t only;           /* pid of the process that is looked for alone; 0: all */
    char dir[STAT_PATH_MAX]; /* the directory that is looked through */
};

/* stat_seen. */
static void top_seen(void *ud, uint64_t pid, const char *name, const struct stat_data *d,
                     const struct sluice_error *why) {
    const struct search *s = ud;
    struct top_list *l = s->list;
    char path[64];
    if ((s->only && s->only != pid) || l->n == TOP_PROCESSES) {
        return;
    }
    if (!d) {
        l->damaged++;
        snprintf(l->complaint, sizeof l->complaint, "%.200s/%.40s: %.200s", s->dir, name, why->message);
        return;
    }
    struct top_process *p = &l->p[l->n++];
    *p = (struct top_process){.d = *d};
    snprintf(path, sizeof path, "/proc/%" PRIu64 "/status", pid);
    plan_field_in(path, "VmRSS:", 1024, &p->memory);
}

static int by_pid(const void *a, const void *b) {
    const struct top_process *p = a, *q = b;
    return p->d.pid < q->d.pid ? -1 : p->d.pid > q->d.pid;
}

struct top_list *top_find(uint64_t pid) {
    struct top_list *l = calloc(1, sizeof *l);
    struct search s = {.list = l, .only = pid};
    for (int i = 0; l && i < STAT_DIRS; i++) {
        const int dir = stat_dir(i, s.dir) ? stat_open_dir(s.dir, NULL) : -1;
        if (dir >= 0) { /* else nothing has streamed there, or it is not ours to look into */
            stat_sweep(dir, top_seen, &s);
            close(dir);
        }
    }
    if (l) {
        qsort(l->p, l->n, sizeof *l->p, by_pid);
    }
    return l;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* All processes as text, a blank line between them. */
static int print_pages(const struct top_list *l) {
    bool ok = true;
    for (size_t i = 0; ok && i < l->n; i++) {
        char *text = top_page(&l->p[i], sluice_clock(), ONCE_WIDTH, INT_MAX, false);
        if (!text) {
            return cli_fail(CLI_EXIT_FAILED, cli_top_command.name, "no memory");
        }
        ok =
            (i == 0 || cli_write(cli_top_command.name, "\n", 1)) && cli_write(cli_top_command.name, text, strlen(text));
        free(text);
    }
    return ok ? CLI_EXIT_OK : CLI_EXIT_FAILED;
}

static int snapshot(uint64_t pid, bool json) {
    struct top_list *l = top_find(pid);
    int rc;
    if (!l) {
        rc = cli_fail(CLI_EXIT_FAILED, cli_top_command.name, "no memory");
    } else if (l->n == 0 && l->damaged) {
        rc = cli_fail(CLI_EXIT_FAILED, cli_top_command.name, "%s", l->complaint);
    } else if (l->n == 0 && pid) {
        rc = cli_fail(CLI_EXIT_FAILED, cli_top_command.name, "process %" PRIu64 " does not stream, or shows nothing",
                      pid);
    } else if (l->n == 0) {
        rc = cli_fail(CLI_EXIT_FAILED, cli_top_command.name, "no process streams");
    } else {
        if (l->damaged) {
            cli_fail(0, cli_top_command.name, "%s", l->complaint);
        }
        rc = json ? top_json(l, sluice_clock(), cli_top_command.name) : print_pages(l);
    }
    free(l);
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
