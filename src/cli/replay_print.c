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

#include "cli/json.h"
#include "cli/replay.h"

static const double MIB = 1024.0 * 1024.0;

static double percent(double a, double b) {
    return b > 0 ? 100 * a / b : 0;
}

double replay_hit_rate(const struct replay_counts *n) {
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
            (double)f->token_bytes / MIB, replay_hit_rate(g));
    if (h->engine) {
        fprintf(out, " with %s, %.1f MiB%s", h->policy, (double)h->budget / MIB, h->lookahead ? ", reading ahead" : "");
    }
    fprintf(out, "\n  the cache is %s\n",
            r->n_lines && r->lines[0].result.classes ? "divided into size classes, as the engine does"
                                                     : "one pool of bytes");
}

static void print_report(FILE *out, const void *what) {
    const struct replay_report *r = what;
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
        fprintf(out, "%8.1f%10.1f%11.2f", replay_hit_rate(g),
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
}

int replay_print(const struct replay_report *r) {
    return cli_print(r->plan->config->command, print_report, r);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *counts_json(const struct replay_counts *n) {
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "tokens", n->steps, "blocks", n->blocks, "routed",
                     n->routed, "hits", n->hits, "misses", n->misses, "hit_bytes", n->hit_bytes, "miss_bytes",
                     n->miss_bytes, "hit_rate", replay_hit_rate(n) / 100, "mib_per_token",
                     n->steps ? (double)n->miss_bytes / MIB / (double)n->steps : 0);
}

/* What a lossy setting leaves out. */
static json_t *lost_json(const struct replay_counts *n) {
    return json_pack("{s:I, s:I, s:I, s:I, s:f, s:f}", "examined", n->examined, "left_out", n->lost, "reads_avoided",
                     n->lost_reads, "bytes_avoided", n->lost_bytes, "weight", n->weight, "weight_left_out",
                     n->lost_weight);
}

static json_t *line_json(const struct replay_report *r, const struct replay_line *l) {
    const struct replay_counts *g = &l->result.phase[TRACE_GENERATION], *w = &l->what_if.phase[TRACE_GENERATION];
    json_t *o =
        json_pack("{s:s, s:I, s:b, s:I, s:I, s:I, s:o, s:o}", "policy", replay_policy_name(l->policy), "budget_bytes",
                  l->budget, "below_token_demand", replay_below_demand(r, l), "cache_bytes", l->result.cache_bytes,
                  "slots", (json_int_t)l->result.slots, "evictions", (json_int_t)l->result.evictions, "prompt",
                  counts_json(&l->result.phase[TRACE_PROMPT]), "generation", counts_json(g));
    bool ok = o != NULL;
    if (is_lossy(l)) {
        ok =
            ok && json_object_update_new(
                      o, json_pack("{s:i, s:f, s:o, s:o, s:f, s:f}", "n_expert_used", (int)l->lossy.n_expert_used,
                                   "drop", l->lossy.drop, "left_out", lost_json(g), "of_the_lossless_run", lost_json(w),
                                   "reads_avoided_percent", percent((double)w->lost_reads, (double)w->misses),
                                   "weight_left_out_percent", percent(w->lost_weight, w->weight))) == 0;
    }
    if (r->plan->disk > 0) {
        double apart, together;
        replay_predict(r->plan, l, &apart, &together);
        ok = ok && cli_json_put(o, "tokens_per_second_least", json_real(apart)) &&
             cli_json_put(o, "tokens_per_second_most", json_real(together));
    }
    return cli_json_whole(o, ok);
}

static json_t *report_json(const struct replay_report *r) {
    const struct trace_head *h = &r->trace.head;
    const struct replay_facts *f = &r->facts;
    json_t *lines = json_array();
    json_t *o = json_pack("{s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "trace", cli_json_text(r->path),
                          "model", cli_json_text(h->model), "architecture", cli_json_text(h->arch), "layers",
                          (json_int_t)h->n_layers, "experts", (json_int_t)h->n_expert, "experts_per_token",
                          (json_int_t)h->n_expert_used, "turns", (json_int_t)f->turns, "bank_bytes", f->bank_bytes,
                          "token_bytes", f->token_bytes, "recorded_prompt", counts_json(&f->phase[TRACE_PROMPT]),
                          "recorded_generation", counts_json(&f->phase[TRACE_GENERATION]));
    bool ok =
        o && (!h->engine || json_object_update_new(o, json_pack("{s:o, s:I, s:b}", "recorded_policy",
                                                                cli_json_text(h->policy), "recorded_budget_bytes",
                                                                h->budget, "recorded_lookahead", h->lookahead)) == 0);
    for (size_t i = 0; i < r->n_lines && ok; i++) {
        ok = json_array_append_new(lines, line_json(r, &r->lines[i])) == 0;
    }
    return cli_json_whole(o, cli_json_put(o, "replays", lines) && ok);
}

int replay_print_json(const struct replay_report *r, size_t n) {
    json_t *traces = json_array();
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        ok = json_array_append_new(traces, report_json(&r[i])) == 0;
    }
    return cli_json_print(r->plan->config->command, json_pack("{s:o}", "traces", cli_json_whole(traces, ok)),
                          JSON_INDENT(2) | JSON_REAL_PRECISION(9));
}
