/*
 * bench_plan.c - from the command line to the rows of the table.
 *
 * Everything that can be refused is refused here, before hours of runs: a misspelt option of a variant
 * as much as a budget that is none. Options of a variant are parsed by the very table of `sluice run`.
 * What cannot work on this machine (a resident baseline that does not fit, a cache that is larger
 * than the limit) becomes a row that says why it was left out.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench_impl.h"
#include "cli/commands.h"
#include "memory/limits.h"

static const uint64_t MIB = 1024 * 1024;
static const double GIB = 1024.0 * 1024.0 * 1024.0;

/* Options that bench sets itself: in a variant they would make the rows incomparable, or the run unreadable. */
static const char ours[] = " -m --model -p --prompt -f --file -n --n-predict --temp --cache --memory --json --csv -q "
                           "--quiet --seed --resident --compare-resident -h --help --ignore-eos -- - --prompt-tokens "
                           "--prompt-cache ";

static bool is_ours(const char *word) {
    char spaced[512 + 3];
    snprintf(spaced, sizeof spaced, " %.*s ", (int)strcspn(word, "="), word);
    return strstr(ours, spaced) != NULL;
}

/* Split "NAME: options" and let the parser of `sluice run` look at the options. */
static int plan_variant(struct bench *b, const char *text, struct bench_variant *v) {
    const char *command = b->config->command, *colon = strchr(text, ':');
    const size_t name = colon ? (size_t)(colon - text) : 0;
    struct cli_config ignored;
    char *argv[BENCH_WORDS_MAX + 2] = {v->name};
    if (name == 0 || name >= sizeof v->name || strcspn(text, " \t,") < name) {
        return cli_fail(
            CLI_EXIT_USAGE, command,
            "--variant '%s': must be \"NAME: options\", the name one word, e.g. \"lru: --cache-policy lru\"", text);
    }
    snprintf(v->name, sizeof v->name, "%.*s", (int)name, text);
    if (strlen(colon + 1) >= sizeof v->text) {
        return cli_fail(CLI_EXIT_USAGE, command, "--variant %s: too long", v->name);
    }
    snprintf(v->text, sizeof v->text, "%s", colon + 1);
    char *rest = v->text, *word;
    while ((word = strsep(&rest, " \t")) != NULL) {
        if (!word[0]) {
            continue;
        }
        if (v->n_words == BENCH_WORDS_MAX) {
            return cli_fail(CLI_EXIT_USAGE, command, "--variant %s: more than %d words", v->name, BENCH_WORDS_MAX);
        }
        if (is_ours(word)) {
            return cli_fail(CLI_EXIT_USAGE, command, "--variant %s: %s is set by the bench itself", v->name, word);
        }
        v->words[v->n_words++] = word;
        argv[v->n_words] = word;
    }
    if (v->n_words == 0) {
        return cli_fail(CLI_EXIT_USAGE, command, "--variant %s: has no options", v->name);
    }
    const int rc = cli_parse(&cli_run_command, v->n_words + 1, argv, &ignored);
    return rc || !ignored.n_args
               ? rc
               : cli_fail(CLI_EXIT_USAGE, command, "--variant %s: %s is no option", v->name, ignored.args[0]);
}

/* A new row. NULL after printing a line. */
static struct bench_entry *add_entry(struct bench *b, enum bench_kind kind, const char *name) {
    const char *command = b->config->command;
    for (size_t i = 0; i < b->n_entries; i++) {
        if (strcmp(b->entries[i].name, name) == 0) {
            cli_fail(0, command, "'%s' would be measured twice", name);
            return NULL;
        }
    }
    if (b->n_entries == BENCH_ENTRIES_MAX) {
        cli_fail(0, command, "more than %d rows", BENCH_ENTRIES_MAX);
        return NULL;
    }
    struct bench_entry *e = &b->entries[b->n_entries++];
    *e = (struct bench_entry){.kind = kind, .plain = -1};
    snprintf(e->name, sizeof e->name, "%s", name);
    e->runs = calloc((size_t)b->config->bench.runs, sizeof *e->runs);
    if (!e->runs) {
        cli_fail(0, command, "no memory");
        return NULL;
    }
    return e;
}

/* The baselines come first: the first of them is what the others are compared with. */
static int plan_baselines(struct bench *b, const struct plan_limits *limits) {
    char item[32];
    const uint64_t needs = b->info.total_bytes + 512 * MIB; /* with context and buffers */
    for (const char *list = b->config->bench.baselines; cli_next_item(&list, item, sizeof item);) {
        const bool resident = strcmp(item, "resident") == 0;
        if (!resident && strcmp(item, "mmap") != 0) {
            return cli_fail(CLI_EXIT_USAGE, b->config->command,
                            "--baseline %s: must be resident, mmap or both with a comma", b->config->bench.baselines);
        }
        struct bench_entry *e = add_entry(b, resident ? BENCH_RESIDENT : BENCH_MMAP, item);
        if (!e) {
            return CLI_EXIT_USAGE;
        }
        if (resident && needs > limits->available) {
            snprintf(e->skipped, sizeof e->skipped,
                     "the model needs about %.1f GiB and %.1f GiB of memory are available: it would not be resident",
                     (double)needs / GIB, (double)limits->available / GIB);
        } else if (!resident && !b->memory) {
            snprintf(e->skipped, sizeof e->skipped, "needs a limit to page against: give --memory");
        }
    }
    return 0;
}

/* One row of this budget. `plain`: the row without the variant, -1 for that itself. */
static int plan_budget(struct bench *b, const char *item, const struct bench_variant *v, int plain,
                       const struct plan_limits *limits) {
    char name[96];
    uint64_t bytes = 0;
    const bool all = strcmp(item, "all") == 0, automatic = strcmp(item, "auto") == 0;
    if (strlen(item) >= BENCH_BUDGET_MAX ||
        (!all && !automatic && strcmp(item, "off") != 0 && !sluice_parse_size(item, &bytes))) {
        return cli_fail(CLI_EXIT_USAGE, b->config->command,
                        "--budgets %s: '%s' is neither a size such as 2000 (MiB) or 4GiB, nor 0, auto or all",
                        b->config->bench.budgets, item);
    }
    snprintf(name, sizeof name, "%s%s%s", item, v ? " " : "", v ? v->name : "");
    struct bench_entry *e = add_entry(b, BENCH_STREAM, name);
    if (!e) {
        return CLI_EXIT_USAGE;
    }
    e->variant = v;
    e->plain = plain;
    snprintf(e->budget, sizeof e->budget, "%s", item);
    snprintf(e->cache, sizeof e->cache, "%s", item);
    if (all) { /* every slice may need a block more at each end; the engine takes no more than the expert index */
        bytes = b->info.expert_bytes;
        snprintf(e->cache, sizeof e->cache, "%" PRIu64 "B", bytes + bytes / 4 + 64 * MIB);
    }
    bytes = bytes < b->info.expert_bytes ? bytes : b->info.expert_bytes;
    const uint64_t most = b->memory && b->memory < limits->total ? b->memory : limits->total;
    if (!automatic && most && bytes >= most) {
        snprintf(e->skipped, sizeof e->skipped, "a cache of %.1f GiB does not fit into %.1f GiB of memory",
                 (double)bytes / GIB, (double)most / GIB);
    }
    return 0;
}

int bench_plan(struct bench *b) {
    const struct cli_config *c = b->config;
    struct plan_limits limits;
    char item[BENCH_BUDGET_MAX + 1]; /* one more, to see that it is too long */
    if (c->bench.memory && (!sluice_parse_size(c->bench.memory, &b->memory) || b->memory < MIB)) {
        return cli_fail(CLI_EXIT_USAGE, c->command, "--memory %s: must be a size of at least 1 MiB, such as 6G",
                        c->bench.memory);
    }
    b->entries = calloc(BENCH_ENTRIES_MAX, sizeof *b->entries);
    if (!b->entries) {
        return cli_fail(CLI_EXIT_FAILED, c->command, "no memory");
    }
    plan_limits_read(&limits, "");
    int rc = 0;
    for (size_t v = 0; rc == 0 && v < c->bench.n_variants; v++) {
        rc = plan_variant(b, c->bench.variants[v], &b->variants[v]);
    }
    rc = rc ? rc : plan_baselines(b, &limits);
    for (const char *list = c->bench.budgets; rc == 0 && cli_next_item(&list, item, sizeof item);) {
        const int plain = (int)b->n_entries;
        rc = plan_budget(b, item, NULL, -1, &limits);
        for (size_t v = 0; rc == 0 && v < c->bench.n_variants; v++) {
            rc = plan_budget(b, item, &b->variants[v], plain, &limits);
        }
    }
    return rc;
}
