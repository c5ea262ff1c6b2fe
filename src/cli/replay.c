/*
 * replay.c - `sluice replay`: what a cache would have done with recorded routings.
 *
 * Nothing is loaded and nothing is read but the traces: hit rates and bytes for any budget and policy in
 * less than a second, by the code that the engine runs. docs/replay.md explains the figures.
 */
#include "cli/replay.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"

static const double MIB = 1024.0 * 1024.0;

bool replay_below_demand(const struct replay_report *r, const struct replay_line *l) {
    return l->result.cache_bytes < (l->result.classes ? r->facts.token_slot_bytes : r->facts.token_bytes);
}

double replay_mib_per_token(const struct replay_line *l) {
    const struct replay_counts *n = &l->result.phase[TRACE_GENERATION];
    return n->steps ? (double)n->miss_bytes / MIB / (double)n->steps : 0;
}

void replay_predict(const struct replay_plan *p, const struct replay_line *l, double *apart, double *together) {
    const double compute = 1 / p->resident, read = replay_mib_per_token(l) / p->disk;
    *apart = 1 / (compute + read);
    *together = 1 / (compute > read ? compute : read);
}

static int plan_policies(struct replay_plan *p) {
    const char *list = p->config->replay.policy;
    char item[16];
    while (cli_next_item(&list, item, sizeof item)) {
        int i = 0;
        while (i < REPLAY_POLICIES && strcmp(item, replay_policy_name((enum replay_policy)i)) != 0) {
            i++;
        }
        if (i == REPLAY_POLICIES) {
            return cli_fail(CLI_EXIT_USAGE, p->config->command,
                            "--policy %s: must be a list of lru, cycle, lfu and belady", p->config->replay.policy);
        }
        p->policies[i] = true;
    }
    return 0;
}

/* Keeps budgets[] ascending and without repeats. False: full. */
static bool add_budget(uint64_t *budgets, size_t *n, uint64_t bytes) {
    size_t at = 0;
    while (at < *n && budgets[at] < bytes) {
        at++;
    }
    if (at < *n && budgets[at] == bytes) {
        return true;
    }
    if (*n == REPLAY_BUDGETS_MAX) {
        return false;
    }
    memmove(budgets + at + 1, budgets + at, (*n - at) * sizeof *budgets);
    budgets[at] = bytes;
    (*n)++;
    return true;
}

static int plan_budgets(struct replay_plan *p) {
    const char *list = p->config->replay.budget;
    char item[64];
    bool ok = true;
    while (ok && cli_next_item(&list, item, sizeof item)) {
        char *dots = strstr(item, "..");
        uint64_t from = 0, to = 0;
        if (dots) {
            *dots = 0;
        }
        ok = sluice_parse_size(item, &from) &&
             (!dots || (sluice_parse_size(dots + 2, &to) && from > 0 && from <= to)) &&
             add_budget(p->budgets, &p->n_budgets, from);
        for (uint64_t b = from; ok && dots && b < to;) {
            b = b > to / 2 ? to : b * 2;
            ok = add_budget(p->budgets, &p->n_budgets, b);
        }
    }
    return ok ? 0
              : cli_fail(CLI_EXIT_USAGE, p->config->command,
                         "--budget %s: must be up to %d sizes such as 500,2GiB or 250..8000", p->config->replay.budget,
                         REPLAY_BUDGETS_MAX);
}

/* A number above 0 up to `max`. */
static bool parse_real(const char *text, double max, double *out) {
    struct cli_config scratch = {0};
    const struct cli_option o = {.offset = offsetof(struct cli_config, temp), .min = 0, .max = max};
    const bool ok = cli_set_real(&o, text, &scratch) && scratch.temp > 0;
    *out = scratch.temp;
    return ok;
}

static int plan_lossy(struct replay_plan *p) {
    const struct cli_config *c = p->config;
    const char *list = c->replay.drop;
    char item[32];
    if (c->n_expert_used) {
        p->lossy[p->n_lossy++] = (struct replay_lossy){.n_expert_used = (uint32_t)c->n_expert_used};
    }
    while (cli_next_item(&list, item, sizeof item)) {
        double drop;
        if (p->n_lossy == REPLAY_DROPS_MAX || !parse_real(item, 1, &drop)) {
            return cli_fail(CLI_EXIT_USAGE, c->command, "--drop %s: must be %d thresholds at most, above 0, up to 1",
                            c->replay.drop, REPLAY_DROPS_MAX - 1);
        }
        p->lossy[p->n_lossy++] = (struct replay_lossy){.n_expert_used = (uint32_t)c->n_expert_used, .drop = drop};
    }
    return 0;
}

static int plan_rest(struct replay_plan *p) {
    const struct cli_replay *c = &p->config->replay;
    const char *list = c->predict;
    char item[32];
    if (c->predict && !(cli_next_item(&list, item, sizeof item) && parse_real(item, 1e9, &p->disk) &&
                        cli_next_item(&list, item, sizeof item) && parse_real(item, 1e9, &p->resident) && !list)) {
        return cli_fail(CLI_EXIT_USAGE, p->config->command,
                        "--predict %s: must be two numbers above 0: the disk's MiB/s, tokens/s of the resident model",
                        c->predict);
    }
    p->division = !c->divide ? REPLAY_AS_RECORDED : c->divide[0] == 'c' ? REPLAY_CLASSES : REPLAY_POOL;
    return 0;
}

static int replay_line(struct replay_report *r, struct replay_line *l) {
    struct sluice_error err;
    struct replay_options o = {.policy = l->policy,
                               .division = r->plan->division,
                               .budget = l->budget,
                               .n_expert_used = l->lossy.n_expert_used,
                               .drop = l->lossy.drop};
    int rc = replay_run(&r->trace, &o, &l->result, &err);
    if (rc == 0 && (o.n_expert_used || o.drop > 0)) {
        o.what_if = true;
        rc = replay_run(&r->trace, &o, &l->what_if, &err);
    }
    return rc ? cli_fail(CLI_EXIT_FAILED, r->plan->config->command, "%s", err.message) : 0;
}

/* Read and replay one trace. */
static int replay_one(struct replay_report *r) {
    const struct replay_plan *p = r->plan;
    struct sluice_error err;
    if (trace_read(&r->trace, r->path, &err) || replay_facts(&r->trace, &r->facts, &err)) {
        return cli_fail(CLI_EXIT_FAILED, p->config->command, "%s", err.message);
    }
    for (size_t i = 0; i < p->n_lossy; i++) {
        if (p->lossy[i].drop > 0 && !r->facts.weights) {
            return cli_fail(CLI_EXIT_FAILED, p->config->command, "%s has no router weights, which --drop goes by",
                            r->path);
        }
    }
    uint64_t budgets[REPLAY_BUDGETS_MAX];
    size_t n_budgets = p->n_budgets;
    memcpy(budgets, p->budgets, sizeof budgets);
    if (n_budgets == 0) {
        for (uint64_t part = 32; part >= 2; part /= 2) {
            add_budget(budgets, &n_budgets, r->facts.bank_bytes / part);
        }
        if (r->trace.head.engine) {
            add_budget(budgets, &n_budgets, r->trace.head.budget);
        }
    }
    r->lines = calloc(REPLAY_POLICIES * n_budgets * (p->n_lossy + 1), sizeof *r->lines);
    if (!r->lines) {
        return cli_fail(CLI_EXIT_FAILED, p->config->command, "no memory");
    }
    for (int policy = 0; policy < REPLAY_POLICIES; policy++) {
        for (size_t b = 0; b < n_budgets && p->policies[policy]; b++) {
            for (size_t i = 0; i <= p->n_lossy; i++) {
                struct replay_line *l = &r->lines[r->n_lines++];
                *l = (struct replay_line){.policy = (enum replay_policy)policy, .budget = budgets[b]};
                if (i) {
                    l->lossy = p->lossy[i - 1];
                }
                const int rc = replay_line(r, l);
                if (rc) {
                    return rc;
                }
            }
        }
    }
    return 0;
}

static int replay_main(struct cli_config *config) {
    struct replay_plan plan = {.config = config};
    if (config->n_args == 0) {
        return cli_fail(CLI_EXIT_USAGE, config->command, "no trace: name one or several (see %s --help)",
                        config->command);
    }
    config->replay.policy = config->replay.policy ? config->replay.policy : "lru,cycle,belady";
    int rc = plan_policies(&plan);
    rc = rc ? rc : plan_budgets(&plan);
    rc = rc ? rc : plan_lossy(&plan);
    rc = rc ? rc : plan_rest(&plan);
    if (rc) {
        return rc;
    }
    const size_t n = (size_t)config->n_args;
    struct replay_report *reports = calloc(n, sizeof *reports);
    if (!reports) {
        return cli_fail(CLI_EXIT_FAILED, config->command, "no memory");
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        reports[i] = (struct replay_report){.plan = &plan, .path = config->args[i]};
        rc = replay_one(&reports[i]);
    }
    for (size_t i = 0; i < n && rc == 0 && !config->json; i++) {
        rc = replay_print(&reports[i]);
    }
    rc = rc == 0 && config->json ? replay_print_json(reports, n) : rc;
    rc = rc == 0 && config->replay.plot ? replay_plot(reports, n, config->replay.plot) : rc;
    for (size_t i = 0; i < n; i++) {
        trace_free(&reports[i].trace);
        free(reports[i].lines);
    }
    free(reports);
    return rc;
}

const struct cli_command cli_replay_command = {
    .name = "sluice replay",
    .summary = "what other cache sizes and policies would have read: route traces",
    .usage = "sluice replay TRACE... [options]",
    .about = "Replays route traces (sluice run --route-trace FILE) through caches of other sizes and\n"
             "policies, and tells what they would have read. Figures are those of generation; --json has\n"
             "the prompt's too. Each trace begins with an empty cache.",
    .groups = {{"Cache", "--policy --budget --divide"},
               {"Lossy settings", "--drop --n-expert-used"},
               {"Output", "--predict --json --plot"}},
    .notes = "Example: sluice replay trace.csv --budget 500..4000 --drop 0.5,1 --plot hits.svg",
    .max_args = 64,
    .run = replay_main,
};
