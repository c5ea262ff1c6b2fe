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

#include "run/utf8.h"

static const double MIB = 1024.0 * 1024.0;

static double hit_rate(const struct sluice_step *s) {
    return counters_ratio((double)s->hits, (double)(s->hits + s->misses));
}

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

static bool streams(const struct cli_report *r) {
    return !r->session->config->resident && r->total.tensors > 0;
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
                100 * hit_rate(s), s->stall_s);
    }
    fputc('\n', out);
    if (d->substituted) {
        fprintf(out,
                "  %-12scopies for %" PRIu64 " of %" PRIu64
                " routings (%.1f %%), %.2f %% of the weight, %.1f MiB of experts not "
                "read, %.1f MiB of copies read\n",
                "", d->substituted, d->examined, 100 * counters_ratio((double)d->substituted, (double)d->examined),
                100 * counters_ratio(d->substituted_weight, d->weight), (double)d->avoided_bytes / MIB,
                (double)s->cold_bytes / MIB);
    } else if (d->examined) {
        fprintf(out,
                "  %-12sdropped %" PRIu64 " of %" PRIu64
                " routings (%.1f %%), %.2f %% of the weight, %.1f MiB not read\n",
                "", d->dropped, d->examined, 100 * counters_ratio((double)d->dropped, (double)d->examined),
                100 * counters_ratio(d->dropped_weight, d->weight), (double)d->avoided_bytes / MIB);
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

void cli_memory_print(FILE *out, const struct sluice_stats *total, bool streaming, uint64_t peak_bytes,
                      uint64_t cgroup_peak_bytes) {
    if (streaming) {
        fprintf(out, "  %-12s%.0f MiB, %" PRIu64 " of %" PRIu64 " experts in memory, %" PRIu64 " evicted\n", "cache",
                (double)total->cache_bytes / MIB, total->resident, total->slots, total->evictions);
        const struct sluice_foresee_stats *f = &total->foreseen;
        if (f->begun) {
            fprintf(out, "  %-12s%" PRIu64 " experts read before they were asked for, %" PRIu64 " of them used\n",
                    "lookahead", f->begun, f->used);
        }
    }
    fprintf(out, "  %-12s%.0f MiB peak", "memory", (double)peak_bytes / MIB);
    if (cgroup_peak_bytes) {
        fprintf(out, " (its cgroup: %.0f MiB)", (double)cgroup_peak_bytes / MIB);
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
    cli_phase_print(out, "prompt", &r->prompt, streams(r));
    fprintf(out, "  %-12s%" PRIu32 " prompt tokens at most (%s)\n", "micro-batch", s->params.n_ubatch,
            s->config->n_ubatch ? "--ubatch" : "chosen");
    cli_phase_print(out, "generation", &r->generation, streams(r));
    cli_memory_print(out, &r->total, streams(r), r->peak_bytes, r->cgroup_peak_bytes);
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
             cli_json_put(o, "hit_rate", json_real(hit_rate(s))) &&
             cli_json_put(drop, "dropped_share", json_real(counters_ratio((double)d->dropped, (double)d->examined))) &&
             cli_json_put(drop, "dropped_weight_share", json_real(counters_ratio(d->dropped_weight, d->weight)));
    }
    return cli_json_whole(o, ok);
}

json_t *cli_cache_json(const struct sluice_stats *t) {
    return counters_object(COUNTERS_RUN, &(struct counters_at){.stats = t});
}

json_t *cli_plan_json(const struct sluice_plan *p) {
    return counters_object(COUNTERS_RUN, &(struct counters_at){.plan = p});
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

/* The whole object; NULL when memory is short. `text` is valid UTF-8. */
static json_t *report_json(const struct cli_report *r, const char *text, size_t n_text) {
    const struct cli_session *s = r->session;
    json_t *o = json_object();
    bool ok =
        cli_json_put(o, "sluice", json_string(sluice_version())) &&
        cli_json_put(o, "llama_cpp", json_string(SLUICE_LLAMA_VERSION)) &&
        cli_json_put(o, "architecture", cli_json_text(s->gguf->architecture)) &&
        cli_json_put(o, "mode", cli_json_text(r->mode)) && cli_json_put(o, "streaming", json_boolean(streams(r))) &&
        cli_json_put(o, "lossless", json_boolean(cli_session_lossless(s))) &&
        cli_json_put(o, "text", json_stringn(text, n_text)) &&
        cli_json_put(o, "stop", json_string(stop_name(r->made.stop))) &&
        cli_json_count(o, "tokens_generated", r->made.tokens) &&
        cli_json_put(o, "temperature", json_real(s->config->temp)) &&
        cli_json_count(o, "seed", s->params.sampling.seed) && cli_json_put(o, "load_seconds", json_real(s->load_s)) &&
        cli_json_put(o, "first_token_seconds", json_real(r->first_token_s)) &&
        cli_json_count(o, "restored_tokens", r->restored) && cli_json_count(o, "ubatch", s->params.n_ubatch) &&
        cli_json_put(o, "ubatch_chosen", json_boolean(s->config->n_ubatch == 0)) &&
        cli_json_put(o, "prompt", cli_phase_json(&r->prompt, streams(r))) &&
        cli_json_put(o, "generation", cli_phase_json(&r->generation, streams(r))) &&
        cli_json_count(o, "peak_memory_bytes", r->peak_bytes) &&
        cli_json_put(o, "cgroup_peak_bytes",
                     r->cgroup_peak_bytes ? json_integer((json_int_t)r->cgroup_peak_bytes) : json_null());
    if (streams(r)) {
        ok = ok && cli_json_put(o, "cache", cli_cache_json(&r->total)) &&
             cli_json_put(o, "plan", cli_plan_json(&r->plan));
    }
    if (r->compared) {
        ok = ok && cli_json_put(o, "compared", comparison_json(&r->comparison));
    }
    return cli_json_whole(o, ok);
}

int cli_summary_json(const struct cli_report *r, const char *text, size_t n_text) {
    const char *command = r->session->config->command;
    size_t n_clean = 0;
    char *clean = sluice_utf8_clean(text, n_text, &n_clean);
    json_t *o = clean ? report_json(r, clean, n_clean) : NULL;
    char *page = o ? json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    free(clean);
    json_decref(o);
    if (!page) {
        return cli_fail(CLI_EXIT_FAILED, command, "no memory for the JSON object");
    }
    bool ok = cli_write(command, page, strlen(page)) && cli_write(command, "\n", 1);
    free(page);
    return ok ? CLI_EXIT_OK : CLI_EXIT_FAILED;
}
