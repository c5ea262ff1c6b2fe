/*
 * replay_print.c - the figures of `sluice replay`, for people and for programs.
 *
 * Two kinds of "reads avoided" exist for a lossy setting. The columns `avoided` and `weight` compare
 * with the lossless run, all else equal: of its reads, how many the setting leaves out, and how much of
 * the router's weight. The column `MiB/token` is the replay in which the setting was in force, with a
 * cache whose contents follow from it; that is what a run would read.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json.h"
#include "cli/replay.h"

static const double MIB = 1024.0 * 1024.0;

static double percent(double a, double b) {
    return b > 0 ? 100 * a / b : 0;
}

static double hit_rate(const struct replay_counts *n) {
    return percent((double)n->hits, (double)(n->hits + n->misses));
}

static bool is_lossy(const struct replay_line *l) {
    return l->lossy.n_expert_used || l->lossy.drop > 0;
}

/* "lossless", "drop 0.5", "6 experts", "6 experts, drop 0.5" */
static void lossy_name(const struct replay_lossy *l, char *buf, size_t cap) {
    int n = 0;
    snprintf(buf, cap, "lossless");
    if (l->n_expert_used) {
        n = snprintf(buf, cap, "%" PRIu32 " experts", l->n_expert_used);
    }
    if (l->drop > 0) {
        snprintf(buf + n, cap - (size_t)n, "%sdrop %g", n ? ", " : "", l->drop);
    }
}

static void print_head(FILE *out, const struct replay_report *r) {
    const struct trace_head *h = &r->trace.head;
    const struct replay_facts *f = &r->facts;
    const struct replay_counts *p = &f->phase[TRACE_PROMPT], *g = &f->phase[TRACE_GENERATION];
    fprintf(out, "%s\n", r->path);
    fprintf(out,
            "  %s, %" PRIu32 " layers with %" PRIu32 " experts, %" PRIu32 " per token; %" PRIu32 " turn%s, %" PRIu64
            " prompt tokens, %" PRIu64 " generated\n",
            h->arch, h->n_layers, h->n_expert, h->n_expert_used, f->turns, f->turns == 1 ? "" : "s", p->steps,
            g->steps);
    fprintf(out, "  experts %.1f MiB, one token's demand %.1f MiB; recorded: %.1f %% hits", (double)f->bank_bytes / MIB,
            (double)f->token_bytes / MIB, hit_rate(g));
    if (h->engine) {
        fprintf(out, " with %s, %.1f MiB%s", h->policy, (double)h->budget / MIB, h->lookahead ? ", reading ahead" : "");
    }
    fprintf(out, "\n  the cache is %s\n",
            r->n_lines && r->lines[0].result.classes ? "divided into size classes, as the engine does"
                                                     : "one pool of bytes");
}

int replay_print(const struct replay_report *r) {
    char *page = NULL;
    size_t n_page = 0;
    FILE *out = open_memstream(&page, &n_page);
    if (!out) {
        return cli_fail(CLI_EXIT_FAILED, r->plan->config->command, "no memory");
    }
    const struct replay_plan *p = r->plan;
    print_head(out, r);
    fprintf(out, "\n  %-8s%10s", "policy", "MiB");
    if (p->n_lossy) {
        fprintf(out, "  %-22s", "setting");
    }
    fprintf(out, "%8s%10s%11s", "hit %", "of bytes", "MiB/token");
    if (p->n_lossy) {
        fprintf(out, "%11s%10s", "avoided %", "weight %");
    }
    fprintf(out, "%s\n", p->disk > 0 ? "   tok/s expected" : "");
    for (size_t i = 0; i < r->n_lines; i++) {
        const struct replay_line *l = &r->lines[i];
        const struct replay_counts *g = &l->result.phase[TRACE_GENERATION], *w = &l->what_if.phase[TRACE_GENERATION];
        fprintf(out, "  %-8s%10.1f", replay_policy_name(l->policy), (double)l->budget / MIB);
        if (p->n_lossy) {
            char name[64];
            lossy_name(&l->lossy, name, sizeof name);
            fprintf(out, "  %-22s", name);
        }
        fprintf(out, "%8.1f%10.1f%11.2f", hit_rate(g),
                percent((double)g->hit_bytes, (double)(g->hit_bytes + g->miss_bytes)), replay_mib_per_token(l));
        if (p->n_lossy && is_lossy(l)) {
            fprintf(out, "%11.1f%10.1f", percent((double)w->lost_reads, (double)w->misses),
                    percent(w->lost_weight, w->weight));
        } else if (p->n_lossy) {
            fprintf(out, "%21s", "");
        }
        if (p->disk > 0) {
            double apart, together;
            replay_predict(p, l, &apart, &together);
            fprintf(out, "   %6.2f to %.2f", apart, together);
        }
        fprintf(out, "%s\n", replay_below_demand(r, l) ? "  below a token's demand" : "");
    }
    fputc('\n', out);
    const bool ok = fclose(out) == 0 && cli_write(p->config->command, page, n_page);
    free(page);
    return ok ? CLI_EXIT_OK : CLI_EXIT_FAILED;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *counts_json(const struct replay_counts *n) {
    json_t *o = json_object();
    return cli_json_whole(
        o,
        cli_json_count(o, "tokens", n->steps) && cli_json_count(o, "blocks", n->blocks) &&
            cli_json_count(o, "routed", n->routed) && cli_json_count(o, "hits", n->hits) &&
            cli_json_count(o, "misses", n->misses) && cli_json_count(o, "hit_bytes", n->hit_bytes) &&
            cli_json_count(o, "miss_bytes", n->miss_bytes) &&
            cli_json_put(o, "hit_rate", json_real(hit_rate(n) / 100)) &&
            cli_json_put(o, "mib_per_token", json_real(n->steps ? (double)n->miss_bytes / MIB / (double)n->steps : 0)));
}

/* What a lossy setting leaves out. */
static json_t *lost_json(const struct replay_counts *n) {
    json_t *o = json_object();
    return cli_json_whole(o, cli_json_count(o, "examined", n->examined) && cli_json_count(o, "left_out", n->lost) &&
                                 cli_json_count(o, "reads_avoided", n->lost_reads) &&
                                 cli_json_count(o, "bytes_avoided", n->lost_bytes) &&
                                 cli_json_put(o, "weight", json_real(n->weight)) &&
                                 cli_json_put(o, "weight_left_out", json_real(n->lost_weight)));
}

static json_t *line_json(const struct replay_report *r, const struct replay_line *l) {
    const struct replay_counts *g = &l->result.phase[TRACE_GENERATION], *w = &l->what_if.phase[TRACE_GENERATION];
    json_t *o = json_object();
    bool ok = cli_json_put(o, "policy", json_string(replay_policy_name(l->policy))) &&
              cli_json_count(o, "budget_bytes", l->budget) &&
              cli_json_put(o, "below_token_demand", json_boolean(replay_below_demand(r, l))) &&
              cli_json_count(o, "cache_bytes", l->result.cache_bytes) && cli_json_count(o, "slots", l->result.slots) &&
              cli_json_count(o, "evictions", l->result.evictions) &&
              cli_json_put(o, "prompt", counts_json(&l->result.phase[TRACE_PROMPT])) &&
              cli_json_put(o, "generation", counts_json(g));
    if (is_lossy(l)) {
        ok = ok && cli_json_count(o, "n_expert_used", l->lossy.n_expert_used) &&
             cli_json_put(o, "drop", json_real(l->lossy.drop)) && cli_json_put(o, "left_out", lost_json(g)) &&
             cli_json_put(o, "of_the_lossless_run", lost_json(w)) &&
             cli_json_put(o, "reads_avoided_percent", json_real(percent((double)w->lost_reads, (double)w->misses))) &&
             cli_json_put(o, "weight_left_out_percent", json_real(percent(w->lost_weight, w->weight)));
    }
    if (r->plan->disk > 0) {
        double apart, together;
        replay_predict(r->plan, l, &apart, &together);
        ok = ok && cli_json_put(o, "tokens_per_second_least", json_real(apart)) &&
             cli_json_put(o, "tokens_per_second_most", json_real(together));
    }
    return cli_json_whole(o, ok);
}

/* Text of a file, which need not be UTF-8: a byte that JSON cannot hold becomes a question mark. */
static json_t *text_json(const char *text) {
    json_t *s = json_string(text);
    char *copy = s ? NULL : strdup(text);
    for (char *c = copy; c && *c; c++) {
        *c = (unsigned char)*c < 0x80 ? *c : '?';
    }
    s = s ? s : json_string(copy ? copy : "?");
    free(copy);
    return s;
}

static json_t *report_json(const struct replay_report *r) {
    const struct trace_head *h = &r->trace.head;
    json_t *o = json_object(), *lines = json_array();
    bool ok = cli_json_put(o, "trace", text_json(r->path)) && cli_json_put(o, "model", text_json(h->model)) &&
              cli_json_put(o, "architecture", text_json(h->arch)) && cli_json_count(o, "layers", h->n_layers) &&
              cli_json_count(o, "experts", h->n_expert) && cli_json_count(o, "experts_per_token", h->n_expert_used) &&
              cli_json_count(o, "turns", r->facts.turns) && cli_json_count(o, "bank_bytes", r->facts.bank_bytes) &&
              cli_json_count(o, "token_bytes", r->facts.token_bytes) &&
              cli_json_put(o, "recorded_prompt", counts_json(&r->facts.phase[TRACE_PROMPT])) &&
              cli_json_put(o, "recorded_generation", counts_json(&r->facts.phase[TRACE_GENERATION]));
    if (h->engine) {
        ok = ok && cli_json_put(o, "recorded_policy", text_json(h->policy)) &&
             cli_json_count(o, "recorded_budget_bytes", h->budget) &&
             cli_json_put(o, "recorded_lookahead", json_boolean(h->lookahead));
    }
    for (size_t i = 0; i < r->n_lines && ok; i++) {
        ok = json_array_append_new(lines, line_json(r, &r->lines[i])) == 0;
    }
    return cli_json_whole(o, cli_json_put(o, "replays", lines) && ok);
}

int replay_print_json(const struct replay_report *r, size_t n) {
    const char *command = r->plan->config->command;
    json_t *o = json_object(), *traces = json_array();
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        ok = json_array_append_new(traces, report_json(&r[i])) == 0;
    }
    o = cli_json_whole(o, cli_json_put(o, "traces", traces) && ok);
    char *page = o ? json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(o);
    if (!page) {
        return cli_fail(CLI_EXIT_FAILED, command, "no memory for the JSON object");
    }
    ok = cli_write(command, page, strlen(page)) && cli_write(command, "\n", 1);
    free(page);
    return ok ? CLI_EXIT_OK : CLI_EXIT_FAILED;
}
