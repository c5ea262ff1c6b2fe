/*
 * evaluate.h - how well a loaded model predicts a text, alone and against another run's predictions.
 */
#ifndef SLUICE_RUN_EVALUATE_H
#define SLUICE_RUN_EVALUATE_H

#include "run/quality.h"
#include "run/reference.h"
#include "run/runner.h"

struct sluice_evaluate_params {
    uint32_t n_ctx;                     /* tokens per chunk, at most the context */
    uint32_t n_chunks;                  /* at most this many; 0: all of the text. Not 0 when writing or comparing */
    bool decode;                        /* one token per batch, as generation computes; else the runner's batches */
    struct sluice_reference *reference; /* compare with it: opened and matched; NULL: not wanted */
    struct sluice_reference *save;      /* write to it: created; NULL: not wanted */
};

struct sluice_evaluated {
    enum sluice_stop stop;         /* SLUICE_STOP_INTERRUPTED: only whole chunks until then are in the result */
    uint64_t computed;             /* tokens computed, in whole chunks or not */
    double seconds;                /* computing them */
    double scored_s;               /* scoring and comparing them, which is not in seconds */
    struct sluice_quality quality; /* of the chunks */
};

/* Rows of logits that a batch gives at most: runner_params.n_outputs. */
uint32_t sluice_evaluate_outputs(uint32_t n_ctx, uint32_t n_ubatch, bool decode);

/*
 * Compute tokens (n_tokens of them, as sluice_runner_tokenize gives them without markup) in chunks that each begin with
 * an empty context and, where the model wants that, with its token for the beginning of a text in place of their first.
 * The second half of each chunk is scored. SLUICE_ERR_ARG when there is less than one chunk.
 */
int sluice_evaluate(struct sluice_runner *r, const struct sluice_evaluate_params *p, const int32_t *tokens,
                    size_t n_tokens, struct sluice_evaluated *out, struct sluice_error *err);

#endif
