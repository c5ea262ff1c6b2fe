/*
 * summary.c - see summary.h.
 *
 * All numbers are sums over steps, and the command says of each step what it was part of. So a prompt's last batch of
 * one token counts as prompt. Rates are given per token that was computed: the first generated token comes from the
 * prompt's last batch, so a generation of n tokens computes n - 1 steps. "Waited" is time in which nothing could be
 * computed, as sluice measures it; it is not wall time minus something.
 *
 * The JSON object has the same numbers in base units: bytes, seconds, tokens. Fields are added, never
 * renamed.
 */
#include "cli/summary.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "memory/cgroup.h"
#include "memory/process.h"
#include "run/utf8.h"

static const double MIB = 1024.0 * 1024.0;

static double mib_per_token(const struct cli_phase *p) {
    return counters_ratio((double)p->steps.sum.read_bytes / MIB, (double)p->tokens);
}

static const char *stop_name(enum sluice_stop stop) {
    switch (stop) {
    case SLUICE_STOP_END:
        return "end of text";
    case SLUICE_STOP_LENGTH:
        return "length";
    case SLUICE_STOP_CONTEXT:
        return "context full";
    case SLUICE_STOP_INTERRUPTED:
        return "interrupted";
    case SLUICE_STOP_NONE:
    case SLUICE_STOP_CALLER:
        break;
    }
    return "stopped";
}

void cli_phase_print(FILE *out, const char *name, const struct cli_phase *p, bool streaming) {
    const struct sluice_step *s = &p->steps.sum;
    const struct sluice_drop_stats *d = &s->drop;
    fprintf(out, "  %-12s%" PRIu64 " tokens in %.2f s, %.2f tok/s", name, p->tokens, p->seconds,
            counters_ratio((double)p->tokens, p->seconds));
    if (!streaming) {
        fputc('\n', out);
        return;
    }
    if (p->tokens) {
        fprintf(out, "; %.1f MiB read per token, hit rate %.1f %%, waited %.2f s for reads", mib_per_token(p),
                100 * counters_share(s->hits, s->misses), s->stall_s);
    }
    fputc('\n', out);
    if (d->examined) {
        const bool copies = d->substituted > 0;
        const uint64_t n = copies ? d->substituted : d->dropped;
        const double weight = copies ? d->substituted_weight : d->dropped_weight;
        fprintf(
            out, "  %-12s%s %" PRIu64 " of %" PRIu64 " routings (%.1f %%), %.2f %% of the weight, %.1f MiB %snot read",
            "", copies ? "copies for" : "dropped", n, d->examined, 100 * counters_ratio((double)n, (double)d->examined),
            100 * counters_ratio(weight, d->weight), (double)d->avoided_bytes / MIB, copies ? "of experts " : "");
        if (copies) {
            fprintf(out, ", %.1f MiB of copies read", (double)s->cold_bytes / MIB);
        }
        fputc('\n', out);
    }
    if (s->wall_s > 0) {
        /* These add up to 100 % because every part is measured, not because one of them is what the others leave. */
        fprintf(out,
                "  %-12swaiting for reads %.1f %%, experts %.1f %%, other layers %.1f %%, bookkeeping %.1f %%; %" PRIu64
                " major faults\n",
                "", 100 * s->stall_s / s->wall_s, 100 * s->expert_s / s->wall_s, 100 * s->other_s / s->wall_s,
                100 * s->bookkeeping_s / s->wall_s, s->major_faults);
    }
}

void cli_end_read(struct cli_end *e, const struct cli_session *s) {
    sluice_get_stats(&e->total);
    sluice_get_plan(&e->plan);
    e->streams = !s->config->resident && e->total.tensors > 0;
    e->peak_bytes = plan_process_peak();
    e->cgroup_peak_bytes = plan_cgroup_peak("");
    cli_session_mode(s, e->mode, sizeof e->mode);
}

void cli_end_print(FILE *out, const struct cli_end *e) {
    if (e->streams) {
        const struct sluice_stats *t = &e->total;
        fprintf(out, "  %-12s%.0f MiB, %" PRIu64 " of %" PRIu64 " experts in memory, %" PRIu64 " evicted\n", "cache",
                (double)t->cache_bytes / MIB, t->resident, t->slots, t->evictions);
        if (t->foreseen.begun) {
            fprintf(out, "  %-12s%" PRIu64 " experts read before they were asked for, %" PRIu64 " of them used\n",
                    "lookahead", t->foreseen.begun, t->foreseen.used);
        }
    }
    fprintf(out, "  %-12s%.0f MiB peak", "memory", (double)e->peak_bytes / MIB);
    if (e->cgroup_peak_bytes) {
        fprintf(out, " (its cgroup: %.0f MiB)", (double)e->cgroup_peak_bytes / MIB);
    }
    fputc('\n', out);
}

void cli_summary_print(const struct cli_report *r, FILE *out) {
    const struct cli_session *s = r->session;
    fprintf(out, "sluice: %" PRIu64 " tokens generated (%s), load %.2f s, first token after %.2f s", r->made.tokens,
            stop_name(r->made.stop), s->load_s, r->first_token_s);
    if (s->config->temp > 0) {
        fprintf(out, ", seed %" PRIu32, s->params.sampling.seed);
    }
    fputc('\n', out);
    if (s->config->prompt_cache) {
        fprintf(out, "  %-12s%" PRIu64 " tokens of the prompt, from %s\n", "restored", r->restored,
                s->config->prompt_cache);
    }
    cli_phase_print(out, "prompt", &r->prompt, r->end.streams);
    fprintf(out, "  %-12s%" PRIu32 " prompt tokens at most (%s)\n", "micro-batch", s->params.n_ubatch,
            s->config->n_ubatch ? "--ubatch" : "chosen");
    cli_phase_print(out, "generation", &r->generation, r->end.streams);
    cli_end_print(out, &r->end);
}

json_t *cli_phase_json(const struct cli_phase *p, bool streaming) {
    const struct sluice_step *s = &p->steps.sum;
    const struct sluice_drop_stats *d = &s->drop;
    json_t *o = json_pack("{s:I,s:f,s:f}", "tokens", (json_int_t)p->tokens, "seconds", p->seconds, "tokens_per_second",
                          counters_ratio((double)p->tokens, p->seconds));
    bool ok = counters_json(o, COUNTERS_RUN, &(struct counters_at){.ended = &p->steps, .resident = !streaming});
    if (streaming) {
        json_t *drop = json_object_get(o, "drop");
        ok = ok && cli_json_put(o, "mib_per_token", json_real(mib_per_token(p))) &&
             cli_json_put(o, "hit_rate", json_real(counters_share(s->hits, s->misses))) &&
             cli_json_put(drop, "dropped_share", json_real(counters_ratio((double)d->dropped, (double)d->examined))) &&
             cli_json_put(drop, "dropped_weight_share", json_real(counters_ratio(d->dropped_weight, d->weight)));
    }
    return cli_json_whole(o, ok);
}

static json_t *comparison_json(const struct sluice_comparison *c) {
    json_t *o = json_object();
    bool ok = cli_json_put(o, "identical", json_boolean(c->identical && !c->interrupted)) &&
              cli_json_count(o, "steps", c->steps) && cli_json_count(o, "values", c->values);
    if (!c->identical) {
        ok = ok && cli_json_count(o, "first_step", c->first_step) && cli_json_count(o, "first_token", c->first_token);
    }
    return cli_json_whole(o, ok);
}

json_t *cli_head_json(const struct cli_session *s, const struct cli_end *e) {
    return json_pack("{s:s, s:s, s:o, s:o, s:b, s:b}", "sluice", sluice_version(), "llama_cpp", SLUICE_LLAMA_VERSION,
                     "architecture", cli_json_text(s->gguf->architecture), "mode", cli_json_text(e->mode), "streaming",
                     e->streams, "lossless", cli_session_lossless(s));
}

bool cli_end_json(json_t *o, const struct cli_end *e) {
    return cli_json_count(o, "peak_memory_bytes", e->peak_bytes) &&
           cli_json_put(o, "cgroup_peak_bytes", cli_json_known(e->cgroup_peak_bytes)) &&
           (!e->streams ||
            (cli_json_put(o, "cache", counters_object(COUNTERS_RUN, &(struct counters_at){.stats = &e->total})) &&
             cli_json_put(o, "plan", counters_object(COUNTERS_RUN, &(struct counters_at){.plan = &e->plan}))));
}

/* The whole object; NULL when memory is short. `text` is valid UTF-8. */
static json_t *report_json(const struct cli_report *r, const char *text, size_t n_text) {
    const struct cli_session *s = r->session;
    json_t *o = cli_head_json(s, &r->end);
    json_t *rest =
        json_pack("{s:o, s:s, s:I, s:f, s:I, s:f, s:f, s:I, s:I, s:b, s:o, s:o}", "text", json_stringn(text, n_text),
                  "stop", stop_name(r->made.stop), "tokens_generated", r->made.tokens, "temperature", s->config->temp,
                  "seed", (json_int_t)s->params.sampling.seed, "load_seconds", s->load_s, "first_token_seconds",
                  r->first_token_s, "restored_tokens", r->restored, "ubatch", (json_int_t)s->params.n_ubatch,
                  "ubatch_chosen", s->config->n_ubatch == 0, "prompt", cli_phase_json(&r->prompt, r->end.streams),
                  "generation", cli_phase_json(&r->generation, r->end.streams));
    bool ok = json_object_update_new(o, rest) == 0 && cli_end_json(o, &r->end);
    if (r->compared) {
        ok = ok && cli_json_put(o, "compared", comparison_json(&r->comparison));
    }
    return cli_json_whole(o, ok);
}

int cli_summary_json(const struct cli_report *r, const char *text, size_t n_text) {
    size_t n_clean = 0;
    char *clean = sluice_utf8_clean(text, n_text, &n_clean);
    json_t *o = clean ? report_json(r, clean, n_clean) : NULL;
    free(clean);
    return cli_json_print(r->session->config->command, o, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
}
