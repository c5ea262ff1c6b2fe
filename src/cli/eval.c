/*
 * eval.c - `sluice eval`: what a setting costs in quality.
 *
 * Two runs make an answer: one without lossy settings saves its predictions (--ref-save), others are compared with
 * them (--ref). The summary goes to standard error like that of `run`; with --json an object goes to standard output.
 *
 * A run with the reference's batches and threads that gives the same bytes is at a distance of exactly 0. Batches of
 * another width, and other numbers of threads, round differently in any llama.cpp. That is measurable
 * (docs/quality.md) and allowed, with a line that says so. Another model file is a mistake unless --ref-other-model
 * says that it is the point.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/session.h"
#include "cli/summary.h"
#include "cli/text.h"
#include "run/evaluate.h"
#include "run/identity.h"

/* One evaluation. */
struct eval {
    struct cli_config *config;            /* the command line */
    struct cli_session session;           /* the open model */
    struct sluice_evaluate_params params; /* what is evaluated; owns reference and save */
    struct sluice_evaluated result;       /* what came out */
    struct sluice_identity model;         /* of the model file */
    uint32_t batch;                       /* tokens per batch */
    bool other_model;                     /* the reference is of another model file */
    struct cli_phase phase;               /* all of it, measured */
    struct cli_end end;                   /* how things stand then */
};

/* Open the reference and take from it what the command line leaves open. Before the model: mistakes are cheap here. */
static int open_reference(struct eval *e) {
    struct cli_config *c = e->config;
    struct sluice_error err;
    if (c->eval.ref && c->eval.ref_save) {
        return cli_fail(CLI_EXIT_USAGE, c->command, "--ref and --ref-save contradict each other");
    }
    if (!c->prompt_file) {
        return cli_fail(CLI_EXIT_USAGE, c->command, "no text: give one with -f (see %s --help)", c->command);
    }
    if (c->eval.ref) {
        if (sluice_reference_open(&e->params.reference, c->eval.ref, &err)) {
            return cli_fail(CLI_EXIT_FAILED, c->command, "%s", err.message);
        }
        const struct sluice_reference_head *h = sluice_reference_get_head(e->params.reference);
        if (c->n_ctx != CLI_NOT_GIVEN && c->n_ctx != (int64_t)h->n_ctx) {
            return cli_fail(CLI_EXIT_USAGE, c->command, "-c %" PRId64 ": %s has chunks of %" PRIu32 " tokens", c->n_ctx,
                            c->eval.ref, h->n_ctx);
        }
        c->n_ctx = (int64_t)h->n_ctx;
        c->eval.chunks = c->eval.chunks ? c->eval.chunks : (int64_t)h->n_chunks;
    }
    c->n_ctx = c->n_ctx == CLI_NOT_GIVEN ? 512 : c->n_ctx;
    if (c->n_ctx && c->n_ctx < 8) {
        return cli_fail(CLI_EXIT_USAGE, c->command, "-c %" PRId64 ": a chunk has 8 tokens at least", c->n_ctx);
    }
    return 0;
}

/* The shape of the batches, known before the model is opened: the context is made for it. */
static int choose_shape(struct eval *e) {
    struct cli_config *c = e->config;
    struct cli_session *s = &e->session;
    struct sluice_error err;
    const bool lossy = !cli_session_lossless(s);
    if (lossy && c->eval.ref_save) {
        return cli_fail(CLI_EXIT_USAGE, c->command, "--ref-save: a reference is of a run without lossy settings");
    }
    if (c->n_ctx == 0) {
        c->n_ctx = s->gguf->context.n ? (int64_t)s->gguf->context.value[0] : 0;
        if (c->n_ctx < 8 || c->n_ctx > 16777216) {
            return cli_fail(CLI_EXIT_USAGE, c->command, "-c 0: the model does not say for what context it was trained");
        }
        s->params.n_ctx = (uint32_t)c->n_ctx;
    }
    e->params.n_ctx = (uint32_t)c->n_ctx;
    e->params.decode = c->eval.decode || lossy;
    s->params.n_ubatch = s->params.n_ubatch ? s->params.n_ubatch : 512; /* as llama-perplexity */
    s->params.n_outputs = sluice_evaluate_outputs(e->params.n_ctx, s->params.n_ubatch, e->params.decode);
    s->feeding = "eval";
    e->batch = e->params.decode ? 1 : s->params.n_ubatch < e->params.n_ctx ? s->params.n_ubatch : e->params.n_ctx;
    if ((e->params.reference || c->eval.ref_save) && sluice_model_identity(s->gguf, &e->model, &err)) {
        return cli_session_fail(s, &err);
    }
    if (e->params.reference && e->model.weights != sluice_reference_get_head(e->params.reference)->model) {
        e->other_model = true;
        if (!c->eval.other_model) {
            return cli_fail(CLI_EXIT_USAGE, c->command,
                            "%s: saved from another model file (--ref-other-model compares all the same)", c->eval.ref);
        }
    }
    return 0;
}

/* The text's tokens, and what of the reference can only be checked with them. */
static int tokenize(struct eval *e, const struct cli_text *text, int32_t **tokens, size_t *n) {
    struct cli_session *s = &e->session;
    struct sluice_error err;
    const struct cli_config *c = e->config;
    const size_t bytes = text->n && text->data[text->n - 1] == '\n' ? text->n - 1 : text->n;
    if (sluice_runner_tokenize(s->runner, text->data, bytes, true, false, tokens, n, &err)) {
        return cli_session_fail(s, &err);
    }
    const uint64_t whole = *n / e->params.n_ctx;
    if (c->eval.chunks && (uint64_t)c->eval.chunks > whole) {
        return cli_fail(CLI_EXIT_USAGE, c->command,
                        "%s: %" PRIu64 " chunks of %" PRIu32 " tokens in it, %" PRId64 " are wanted", c->prompt_file,
                        whole, e->params.n_ctx, c->eval.chunks);
    }
    e->params.n_chunks = (uint32_t)(c->eval.chunks ? (uint64_t)c->eval.chunks : whole);
    const uint64_t used = (uint64_t)e->params.n_chunks * e->params.n_ctx;
    if (e->params.reference &&
        sluice_reference_match(e->params.reference, sluice_runner_n_vocab(s->runner), *tokens, used, &err)) {
        return cli_session_fail(s, &err);
    }
    if (c->eval.ref_save && whole > 0) {
        const struct sluice_reference_head head = {.n_vocab = sluice_runner_n_vocab(s->runner),
                                                   .n_ctx = e->params.n_ctx,
                                                   .n_chunks = e->params.n_chunks,
                                                   .batch = e->batch,
                                                   .threads = (uint32_t)e->session.params.n_threads,
                                                   .model = e->model.weights};
        if (sluice_reference_create(&e->params.save, c->eval.ref_save, &head, *tokens, &err)) {
            return cli_session_fail(s, &err);
        }
    }
    return 0;
}

static int evaluate(struct eval *e, const int32_t *tokens, size_t n) {
    struct cli_session *s = &e->session;
    struct sluice_error err;
    if (sluice_evaluate(s->runner, &e->params, tokens, n, &e->result, &err)) {
        return cli_session_fail(s, &err);
    }
    cli_progress_clear(&s->progress);
    e->phase = (struct cli_phase){.tokens = e->result.computed,
                                  .seconds = e->result.seconds,
                                  .steps = s->steps[e->params.decode ? SLUICE_PHASE_GENERATION : SLUICE_PHASE_PROMPT]};
    cli_end_read(&e->end, s);
    return cli_session_end_csv(s);
}

/* A number and its standard error, which may not be known. */
static void print_with(FILE *out, const char *format, double value, double se, double factor) {
    char text[64];
    snprintf(text, sizeof text, format, factor * value);
    fputs(text, out);
    if (isfinite(se)) {
        snprintf(text, sizeof text, format, factor * se);
        fprintf(out, " +/- %s", text);
    }
}

static void print_reference(const struct eval *e, FILE *out) {
    const struct sluice_quality *q = &e->result.quality;
    const struct sluice_reference_head *h = sluice_reference_get_head(e->params.reference);
    fprintf(out, "  %-12sperplexity %.4f, ln of the ratio to it ", "reference", q->ppl_ref);
    print_with(out, "%.5f", q->nll_more.mean, q->nll_more.se, 1);
    fprintf(out, "%s\n  %-12smean ", e->other_model ? "; of another model file" : "", "divergence");
    print_with(out, "%.6f", q->kl.mean, q->kl.se, 1);
    if (isfinite(q->kl.se_chunk)) {
        fprintf(out, " (%.6f by chunks)", q->kl.se_chunk);
    }
    fputs(", median ", out);
    print_with(out, "%.6f", q->kl_50.value, q->kl_50.se, 1);
    fputs(", 99 % ", out);
    print_with(out, "%.5f", q->kl_99.value, q->kl_99.se, 1);
    fprintf(out, ", max %.4f nats (KL)\n  %-12sthe same in ", q->kl_max, "top token");
    print_with(out, "%.3f", q->same.mean, q->same.se, 100);
    fputs(" % of the tokens\n", out);
    if (h->batch != e->batch || h->threads != (uint32_t)e->session.params.n_threads) {
        fprintf(out,
                "  %-12sthe reference is of batches of %" PRIu32 " and %" PRIu32 " threads, this run of %" PRIu32
                " and %d: they round differently\n",
                "note", h->batch, h->threads, e->batch, e->session.params.n_threads);
    }
}

static void print_summary(const struct eval *e, FILE *out) {
    const struct sluice_quality *q = &e->result.quality;
    if (q->chunks == 0) {
        fprintf(out, "sluice: interrupted in the first chunk\n");
        return;
    }
    fputs("sluice: perplexity ", out);
    print_with(out, "%.4f", q->ppl, q->ppl_se, 1);
    if (isfinite(q->nll.se_chunk)) {
        fprintf(out, " (%.4f by chunks)", q->ppl * q->nll.se_chunk);
    }
    fprintf(out, ", %" PRIu64 " tokens scored in %" PRIu64 " chunks of %" PRIu32 ", %s%s, load %.2f s\n", q->tokens,
            q->chunks, e->params.n_ctx, e->params.decode ? "one token at a time" : "in batches",
            e->result.stop ? " (interrupted)" : "", e->session.load_s);
    if (e->params.reference) {
        print_reference(e, out);
    }
    cli_phase_print(out, "eval", &e->phase, e->end.streams);
    cli_end_print(out, &e->end);
    if (e->params.save && !e->result.stop) {
        fprintf(out, "  %-12swritten to %s\n", "reference", e->config->eval.ref_save);
    }
}

/* A number that may not be known. */
static json_t *number(double x) {
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *mean_json(const struct sluice_mean *m) {
    return json_pack("{s:o, s:o, s:o}", "mean", number(m->mean), "standard_error", number(m->se),
                     "standard_error_by_chunk", number(m->se_chunk));
}

static json_t *quantile_json(const struct sluice_quantile *q) {
    return json_pack("{s:o, s:o}", "value", number(q->value), "standard_error", number(q->se));
}

static json_t *reference_json(const struct eval *e) {
    const struct sluice_quality *q = &e->result.quality;
    const struct sluice_reference_head *h = sluice_reference_get_head(e->params.reference);
    return json_pack("{s:I, s:I, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "batch", (json_int_t)h->batch, "threads",
                     (json_int_t)h->threads, "same_model", !e->other_model, "perplexity", number(q->ppl_ref),
                     "log_perplexity_ratio", mean_json(&q->nll_more), "kl", mean_json(&q->kl), "kl_median",
                     quantile_json(&q->kl_50), "kl_99", quantile_json(&q->kl_99), "kl_max", number(q->kl_max),
                     "same_top", mean_json(&q->same));
}

static json_t *report_json(const struct eval *e) {
    const struct cli_session *s = &e->session;
    const struct sluice_quality *q = &e->result.quality;
    json_t *o = cli_head_json(s, &e->end);
    json_t *rest = json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:f, s:f, s:o}", "interrupted",
                             e->result.stop != SLUICE_STOP_NONE, "batch", (json_int_t)e->batch, "threads",
                             (json_int_t)s->params.n_threads, "ctx", (json_int_t)e->params.n_ctx, "chunks", q->chunks,
                             "tokens_scored", q->tokens, "perplexity", number(q->ppl), "perplexity_standard_error",
                             number(q->ppl_se), "log_perplexity", mean_json(&q->nll), "load_seconds", s->load_s,
                             "score_seconds", e->result.scored_s, "eval", cli_phase_json(&e->phase, e->end.streams));
    bool ok = json_object_update_new(o, rest) == 0 && cli_end_json(o, &e->end);
    if (e->params.reference) {
        ok = ok && cli_json_put(o, "reference", reference_json(e));
    }
    return cli_json_whole(o, ok);
}

/* Everything after the command line. */
static int run_all(struct eval *e) {
    struct cli_text text = {0};
    int32_t *tokens = NULL;
    size_t n = 0;
    int rc = open_reference(e);
    rc = rc ? rc : cli_text_read(&text, e->config->prompt_file, e->config->command);
    rc = rc ? rc : cli_session_prepare(&e->session, e->config);
    rc = rc ? rc : choose_shape(e);
    rc = rc ? rc : cli_session_load(&e->session);
    rc = rc ? rc : cli_session_start(&e->session, 0);
    rc = rc ? rc : tokenize(e, &text, &tokens, &n);
    rc = rc ? rc : evaluate(e, tokens, n);
    if (rc == 0 && !e->config->quiet) {
        print_summary(e, stderr);
    }
    if (rc == 0 && e->config->json) {
        rc = cli_json_print(e->config->command, report_json(e), JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    }
    free(tokens);
    cli_text_free(&text);
    return rc;
}

static int eval_main(struct cli_config *config) {
    struct eval e = {.config = config};
    int rc = run_all(&e);
    sluice_reference_close(e.params.reference);
    sluice_reference_close(e.params.save);
    cli_session_close(&e.session);
    if (e.result.stop == SLUICE_STOP_INTERRUPTED) {
        cli_interrupt_die();
    }
    return rc;
}

const struct cli_command cli_eval_command = {
    .name = "sluice eval",
    .summary = "what a setting costs: perplexity, and the distance to the lossless run",
    .usage = "sluice eval -m MODEL -f TEXT [--ref-save FILE | --ref FILE] [options]",
    .about = "Perplexity of a text, and how far the predictions are from those of another run: what a\n"
             "lossy setting costs. The text is cut into chunks of -c tokens, the second half of each is\n"
             "scored, as llama-perplexity does. +/- is the standard error if tokens were independent; by chunks:\n"
             "if only chunks are, which is nearer to the truth.",
    .groups = {{"Text", "--file --chunks --decode"},
               {"Reference", "--ref-save --ref --ref-other-model"},
               {"Model", cli_model_options},
               {"Expert cache", cli_cache_options},
               {"Lossy", cli_lossy_options},
               {"Measuring", cli_measure_options},
               {"Output", "--json --quiet"}},
    .notes = "The environment gives defaults for the options of the expert cache, as with run.\n\n"
             "Example: sluice eval -m model.gguf -f text.txt --decode --ref-save text.ref\n"
             "         sluice eval -m model.gguf -f text.txt --ref text.ref --n-expert-used 6",
    .n_ctx = CLI_NOT_GIVEN,
    .run = eval_main,
};
