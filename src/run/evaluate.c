/*
 * evaluate.c - see evaluate.h.
 *
 * Chunking and scoring are those of llama-perplexity, so that the numbers can be compared: chunks of n_ctx tokens
 * one after the other, the first token of each replaced by BOS where the vocabulary adds one, every token of the
 * second half scored by the logits of the one before it. With the same batch size the logits are the same bytes (the
 * same rows are asked for, also the last, which nothing follows), and the perplexity differs by rounding only: there
 * the exponentials are floats.
 *
 * `decode` computes one token per batch instead. A wide batch routes to nearly all experts and reads each once, so
 * it hides what a lossy setting does to a generation, where dropping depends on what one token misses. The first half
 * of a chunk is computed the same way. Computed as a wide prompt, it would be a lossless context and flatter the
 * setting, while most of the context of a long answer was generated. The logits of every token are computed, as in a
 * generation, so that bytes and seconds are those of generated tokens.
 *
 * Scoring runs between the batches and is timed apart: tokens per second are those of the model.
 */
#include "run/evaluate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cache/clock.h"
#include "cache/error.h"
#include "run/internal.h"

/* One evaluation under way. */
struct evaluation {
    struct sluice_runner *r;                /* not owned */
    const struct sluice_evaluate_params *p; /* as given */
    struct sluice_evaluated *out;           /* being filled */
    struct sluice_tally tally;              /* the scores so far */
    uint32_t n_vocab;                       /* tokens in the vocabulary */
    uint16_t *codes;                        /* this run's row and the reference's: 2 * n_vocab; NULL: not needed */
    double *table;                          /* sluice_code_table; NULL: not needed */
    uint64_t total;                         /* tokens to compute in all */
};

uint32_t sluice_evaluate_outputs(uint32_t n_ctx, uint32_t n_ubatch, bool decode) {
    const uint32_t half = n_ctx - n_ctx / 2;
    return decode ? 1 : half < n_ubatch ? half : n_ubatch;
}

static int no_memory(struct sluice_error *err) {
    return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory for an evaluation");
}

/* Score one row of logits, compare it, write it down. */
static int score(struct evaluation *e, const float *logits, int32_t next, struct sluice_error *err) {
    struct sluice_score s;
    struct sluice_reference_row theirs;
    double nll_ref = NAN, kl = NAN, same = NAN;
    if (!logits || !sluice_score_row(logits, e->n_vocab, (uint32_t)next, &s)) {
        return sluice_fail(err, SLUICE_ERR_LLAMA, "the model's output is not a number");
    }
    if (e->codes) {
        sluice_encode_row(logits, e->n_vocab, s.max, e->codes);
    }
    if (e->p->reference) {
        uint16_t *codes = e->codes + e->n_vocab;
        int rc = sluice_reference_read(e->p->reference, &theirs, codes, err);
        if (rc) {
            return rc;
        }
        nll_ref = theirs.nll;
        kl = sluice_divergence(e->table, codes, e->codes, e->n_vocab);
        same = theirs.top == s.top;
    }
    if (e->p->save) {
        const struct sluice_reference_row row = {.nll = s.nll, .top = s.top};
        int rc = sluice_reference_write(e->p->save, &row, e->codes, err);
        if (rc) {
            return rc;
        }
    }
    sluice_tally_add(&e->tally, s.nll, nll_ref, kl, same);
    return 0;
}

/* One batch of a chunk: tokens[from .. from + n). */
static int batch(struct evaluation *e, const int32_t *tokens, uint32_t from, uint32_t n, struct sluice_error *err) {
    struct sluice_runner *r = e->r;
    const uint32_t n_ctx = e->p->n_ctx, half = n_ctx / 2;
    const uint32_t scored = from >= half ? 0 : half - from; /* may be n or more: none */
    const uint32_t first_row = e->p->decode ? 0 : scored;   /* without a row, the last layer would not be computed */
    int rc = sluice_runner_compute(r, e->p->decode ? SLUICE_PHASE_GENERATION : SLUICE_PHASE_PROMPT, tokens + from, n,
                                   first_row, &e->out->stop, err);
    if (rc || e->out->stop) {
        return rc;
    }
    const double computed = clock_seconds();
    e->out->seconds += r->step.wall_s;
    e->out->computed += n;
    for (uint32_t i = scored; i < n && from + i + 1 < n_ctx; i++) {
        rc = score(e, llama_get_logits_ith(r->ctx, (int32_t)i), tokens[from + i + 1], err);
        if (rc) {
            return rc;
        }
    }
    e->out->scored_s += clock_seconds() - computed;
    if (sluice_runner_progress(r, e->out->computed, e->total)) {
        e->out->stop = SLUICE_STOP_INTERRUPTED;
    }
    return 0;
}

/* One chunk, in the copy of its tokens. */
static int chunk(struct evaluation *e, int32_t *tokens, struct sluice_error *err) {
    struct sluice_runner *r = e->r;
    const uint32_t width = e->p->decode ? 1 : r->n_ubatch;
    const uint32_t n = e->p->decode ? e->p->n_ctx - 1 : e->p->n_ctx; /* nothing needs the last token alone */
    int rc = 0;
    if (llama_vocab_get_add_bos(r->vocab)) {
        tokens[0] = llama_vocab_bos(r->vocab);
    }
    sluice_runner_keep(r, 0);
    r->feeds++;                /* a chunk is a turn of a route trace, */
    sluice_generation_begin(); /* and a generation */
    for (uint32_t from = 0; rc == 0 && from < n && !e->out->stop; from += width) {
        rc = batch(e, tokens, from, n - from < width ? n - from : width, err);
    }
    return rc;
}

int sluice_evaluate(struct sluice_runner *r, const struct sluice_evaluate_params *p, const int32_t *tokens,
                    size_t n_tokens, struct sluice_evaluated *out, struct sluice_error *err) {
    const uint64_t whole = n_tokens / p->n_ctx, n_chunks = p->n_chunks && p->n_chunks < whole ? p->n_chunks : whole;
    struct evaluation e = {.r = r, .p = p, .out = out, .n_vocab = sluice_runner_n_vocab(r)};
    memset(out, 0, sizeof *out);
    e.tally.per_chunk = sluice_scored_per_chunk(p->n_ctx);
    e.total = n_chunks * (p->decode ? p->n_ctx - 1 : p->n_ctx);
    if (n_chunks == 0) {
        return sluice_fail(err, SLUICE_ERR_ARG,
                           "the text has %zu tokens, which is less than one chunk of %" PRIu32 " (-c)", n_tokens,
                           p->n_ctx);
    }
    int32_t *copy = malloc(p->n_ctx * sizeof *copy);
    int rc = copy && sluice_tally_make(&e.tally, n_chunks * e.tally.per_chunk) ? 0 : no_memory(err);
    if (rc == 0 && (p->reference || p->save)) {
        e.codes = calloc(2, e.n_vocab * sizeof *e.codes);
        e.table = malloc(SLUICE_CODES * sizeof *e.table);
        rc = e.codes && e.table ? 0 : no_memory(err);
    }
    if (rc == 0 && e.table) {
        sluice_code_table(e.table);
    }
    for (uint64_t c = 0; rc == 0 && c < n_chunks && !out->stop; c++) {
        memcpy(copy, tokens + c * p->n_ctx, p->n_ctx * sizeof *copy);
        rc = chunk(&e, copy, err);
    }
    if (rc == 0) {
        e.tally.n_tokens -= e.tally.n_tokens % e.tally.per_chunk; /* an interrupted chunk does not count */
        sluice_tally_finish(&e.tally, p->reference != NULL, &out->quality);
    }
    if (rc == 0 && p->save && !out->stop) {
        rc = sluice_reference_finish(p->save, err);
    }
    sluice_tally_free(&e.tally);
    free(copy);
    free(e.codes);
    free(e.table);
    return rc;
}
