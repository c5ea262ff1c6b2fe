/*
 * summary.c - see summary.h.
 *
 * Prompt and generation are told apart by when they happened (snapshots of the counters), not by
 * the size of a batch, so that a prompt's last batch of one token counts as prompt. Rates are given per
 * token that was computed: the first generated token comes from the prompt's last batch, so a
 * generation of n tokens computes n - 1 steps. "Waited" is time in which nothing could be computed,
 * as sluice measures it; it is not wall time minus something.
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

static double ratio(double a, double b) {
    return b > 0 ? a / b : 0;
}

/* a + sign * b */
static struct sluice_drop_stats drops(const struct sluice_drop_stats *a, const struct sluice_drop_stats *b, int sign) {
    const uint64_t s = (uint64_t)(int64_t)sign; /* wraps as it should */
    return (struct sluice_drop_stats){
        .examined = a->examined + s * b->examined,
        .dropped = a->dropped + s * b->dropped,
        .substituted = a->substituted + s * b->substituted,
        .experts = a->experts + s * b->experts,
        .experts_there = a->experts_there + s * b->experts_there,
        .avoided_bytes = a->avoided_bytes + s * b->avoided_bytes,
        .weight = a->weight + sign * b->weight,
        .dropped_weight = a->dropped_weight + sign * b->dropped_weight,
        .substituted_weight = a->substituted_weight + sign * b->substituted_weight,
    };
}

/* Both kinds of batches of a snapshot, together. */
static struct sluice_phase_stats both(const struct sluice_stats *s) {
    const struct sluice_phase_stats *p = &s->prompt, *g = &s->generation;
    return (struct sluice_phase_stats){
        .blocks = p->blocks + g->blocks,
        .tokens = p->tokens + g->tokens,
        .routed = p->routed + g->routed,
        .hits = p->hits + g->hits,
        .misses = p->misses + g->misses,
        .hit_bytes = p->hit_bytes + g->hit_bytes,
        .miss_bytes = p->miss_bytes + g->miss_bytes,
        .read_bytes = p->read_bytes + g->read_bytes,
        .reads = p->reads + g->reads,
        .stall_s = p->stall_s + g->stall_s,
        .compute_s = p->compute_s + g->compute_s,
        .drop = drops(&p->drop, &g->drop, 1),
    };
}

void cli_phase_set(struct cli_phase *p, const struct sluice_stats *before, const struct sluice_stats *after,
                   uint64_t tokens, double seconds) {
    struct sluice_phase_stats a = both(before), b = both(after);
    p->tokens = tokens;
    p->seconds = seconds;
    p->counted = (struct sluice_phase_stats){
        .blocks = b.blocks - a.blocks,
        .tokens = b.tokens - a.tokens,
        .routed = b.routed - a.routed,
        .hits = b.hits - a.hits,
        .misses = b.misses - a.misses,
        .hit_bytes = b.hit_bytes - a.hit_bytes,
        .miss_bytes = b.miss_bytes - a.miss_bytes,
        .read_bytes = b.read_bytes - a.read_bytes,
        .reads = b.reads - a.reads,
        .stall_s = b.stall_s - a.stall_s,
        .compute_s = b.compute_s - a.compute_s,
        .drop = drops(&b.drop, &a.drop, -1),
    };
}

static double hit_rate(const struct cli_phase *p) {
    return ratio((double)p->counted.hits, (double)(p->counted.hits + p->counted.misses));
}

static double mib_per_token(const struct cli_phase *p) {
    return ratio((double)p->counted.read_bytes / MIB, (double)p->tokens);
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
    fprintf(out, "  %-12s%" PRIu64 " tokens in %.2f s, %.2f tok/s", name, p->tokens, p->seconds,
            ratio((double)p->tokens, p->seconds));
    if (streaming && p->tokens) {
        fprintf(out, "; %.1f MiB read per token, hit rate %.1f %%, waited %.2f s for reads", mib_per_token(p),
                100 * hit_rate(p), p->counted.stall_s);
    }
    fputc('\n', out);
    const struct sluice_drop_stats *d = &p->counted.drop;
    if (streaming && d->substituted) {
        fprintf(out,
                "  %-12scopies for %" PRIu64 " of %" PRIu64
                " routings (%.1f %%), %.2f %% of the weight, %.1f MiB of experts not "
                "read, %.1f MiB of copies read\n",
                "", d->substituted, d->examined, 100 * ratio((double)d->substituted, (double)d->examined),
                100 * ratio(d->substituted_weight, d->weight), (double)d->avoided_bytes / MIB,
                (double)p->times.sum.cold_bytes / MIB);
    } else if (streaming && d->examined) {
        fprintf(out,
                "  %-12sdropped %" PRIu64 " of %" PRIu64
                " routings (%.1f %%), %.2f %% of the weight, %.1f MiB not read\n",
                "", d->dropped, d->examined, 100 * ratio((double)d->dropped, (double)d->examined),
                100 * ratio(d->dropped_weight, d->weight), (double)d->avoided_bytes / MIB);
    }
    if (streaming) {
        cli_times_print(&p->times, out);
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

/* What lossy settings left out. */
static json_t *drop_json(const struct sluice_drop_stats *d) {
    json_t *o = json_object();
    const bool ok = cli_json_count(o, "examined", d->examined) && cli_json_count(o, "dropped", d->dropped) &&
                    cli_json_count(o, "substituted", d->substituted) &&
                    cli_json_put(o, "substituted_weight", json_real(d->substituted_weight)) &&
                    cli_json_put(o, "dropped_share", json_real(ratio((double)d->dropped, (double)d->examined))) &&
                    cli_json_put(o, "weight", json_real(d->weight)) &&
                    cli_json_put(o, "dropped_weight", json_real(d->dropped_weight)) &&
                    cli_json_put(o, "dropped_weight_share", json_real(ratio(d->dropped_weight, d->weight))) &&
                    cli_json_count(o, "experts", d->experts) && cli_json_count(o, "experts_there", d->experts_there) &&
                    cli_json_count(o, "avoided_bytes", d->avoided_bytes);
    return cli_json_whole(o, ok);
}

json_t *cli_phase_json(const struct cli_phase *p, bool streaming) {
    json_t *o = json_object();
    const struct sluice_phase_stats *c = &p->counted;
    const struct sluice_step *t = &p->times.sum;
    bool ok = cli_json_count(o, "tokens", p->tokens) && cli_json_put(o, "seconds", json_real(p->seconds)) &&
              cli_json_put(o, "tokens_per_second", json_real(ratio((double)p->tokens, p->seconds))) &&
              cli_json_count(o, "steps", p->times.steps) && cli_json_put(o, "step_seconds", json_real(t->wall_s)) &&
              cli_json_put(o, "other_seconds", json_real(t->other_s)) &&
              cli_json_count(o, "minor_faults", t->minor_faults) &&
              cli_json_count(o, "major_faults", t->major_faults) && cli_json_put(o, "cpu_seconds", json_real(t->cpu_s));
    if (streaming) {
        ok = ok && cli_json_count(o, "read_bytes", c->read_bytes) && cli_json_count(o, "cold_bytes", t->cold_bytes) &&
             cli_json_count(o, "reads", c->reads) && cli_json_put(o, "mib_per_token", json_real(mib_per_token(p))) &&
             cli_json_count(o, "routed", c->routed) && cli_json_count(o, "hits", c->hits) &&
             cli_json_count(o, "misses", c->misses) && cli_json_count(o, "hit_bytes", c->hit_bytes) &&
             cli_json_count(o, "miss_bytes", c->miss_bytes) && cli_json_put(o, "hit_rate", json_real(hit_rate(p))) &&
             cli_json_put(o, "wait_seconds", json_real(c->stall_s)) &&
             cli_json_put(o, "expert_compute_seconds", json_real(c->compute_s)) &&
             cli_json_put(o, "bookkeeping_seconds", json_real(t->bookkeeping_s)) &&
             cli_json_count(o, "evictions", t->evictions) && cli_json_put(o, "queue_mean", json_real(t->queue_mean)) &&
             cli_json_count(o, "queue_max", t->queue_max) && cli_json_put(o, "drop", drop_json(&c->drop));
    }
    return cli_json_whole(o, ok);
}

/* Reading ahead of use. */
static json_t *foreseen_json(const struct sluice_foresee_stats *f) {
    json_t *o = json_object();
    if (!(cli_json_count(o, "asked", f->asked) && cli_json_count(o, "begun", f->begun) &&
          cli_json_count(o, "used", f->used) && cli_json_count(o, "read_bytes", f->read_bytes) &&
          cli_json_count(o, "pauses", f->pauses))) {
        json_decref(o);
        return NULL;
    }
    return o;
}

json_t *cli_cache_json(const struct sluice_stats *t) {
    json_t *o = json_object();
    if (!(cli_json_count(o, "bytes", t->cache_bytes) && cli_json_count(o, "slots", t->slots) &&
          cli_json_count(o, "resident", t->resident) && cli_json_count(o, "evictions", t->evictions) &&
          cli_json_put(o, "foreseen", foreseen_json(&t->foreseen)) && cli_json_count(o, "bank_bytes", t->bank_bytes) &&
          cli_json_count(o, "token_bytes", t->token_bytes) && cli_json_count(o, "layer_bytes", t->layer_bytes) &&
          cli_json_count(o, "lanes", t->lanes) && cli_json_put(o, "io", json_string("pread")) &&
          cli_json_put(o, "direct_io", json_boolean(t->direct_io)))) {
        json_decref(o);
        return NULL;
    }
    return o;
}

json_t *cli_plan_json(const struct sluice_plan *p) {
    json_t *o = json_object();
    if (!(cli_json_count(o, "limit_bytes", p->limit_bytes) &&
          cli_json_put(o, "limit_by_setting", json_boolean(p->limit_by_setting)) &&
          cli_json_count(o, "total_bytes", p->total_bytes) && cli_json_count(o, "process_bytes", p->process_bytes) &&
          cli_json_count(o, "files_bytes", p->files_bytes) &&
          cli_json_count(o, "untouched_bytes", p->untouched_bytes) &&
          cli_json_count(o, "dense_bytes", p->dense_bytes) && cli_json_count(o, "cache_bytes", p->cache_bytes) &&
          cli_json_count(o, "scratch_bytes", p->scratch_bytes) && cli_json_count(o, "floor_bytes", p->floor_bytes) &&
          cli_json_put(o, "dense_mapped", json_boolean(p->dense_mapped)))) {
        json_decref(o);
        return NULL;
    }
    return o;
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
