/*
 * internal.h - the runner's own struct, shared by the files of this folder only.
 */
#ifndef SLUICE_RUN_INTERNAL_H
#define SLUICE_RUN_INTERNAL_H

#include "llama.h"
#include "memory/ledger.h"
#include "run/runner.h"

struct sluice_runner {
    struct sluice_runner_params params; /* as given; the hooks are called from it */
    struct llama_model *model;          /* owned */
    const struct llama_vocab *vocab;    /* the model's */
    struct llama_context *ctx;          /* owned; NULL before sluice_runner_start */
    struct llama_sampler *sampler;      /* owned; keeps its random state between turns */
    struct llama_batch batch;           /* room for n_ubatch tokens, owned */
    int32_t *kv;                        /* the tokens that the context holds, n_ctx allocated */
    uint32_t n_kv;                      /* used entries of kv */
    uint32_t n_ctx;                     /* context size, tokens */
    uint32_t n_ubatch;                  /* tokens per batch */
    int32_t pending;                    /* a token that was shown but not computed yet; -1: none */
    float *logits;                 /* of the last token, when a prompt cache restored it; owned, NULL: the context's */
    uint32_t feeds;                /* prompts begun so far; the last one is turn feeds - 1 of a route trace */
    struct sluice_step step;       /* the last llama_decode, measured */
    struct sluice_record *record;  /* where batches are recorded; NULL: nowhere */
    struct sluice_log_sizes sizes; /* what llama.cpp logged about ctx */
    struct plan_facts facts;       /* machine and process after ctx was made */
};

/* Has the user asked to stop? */
bool sluice_runner_interrupted(const struct sluice_runner *r);

/* The reason for a failure that llama.cpp reported without one: enters it and returns its status. */
int sluice_runner_reason(struct sluice_runner *r, const char *what, struct sluice_error *err);

/*
 * Compute n <= n_ubatch tokens at the end of the context; logits of those from first_row on. Same contract as
 * feed. What it cost is in r->step afterwards, as a step of that phase, and the step hook was told.
 */
int sluice_runner_compute(struct sluice_runner *r, enum sluice_phase phase, const int32_t *tokens, uint32_t n,
                          uint32_t first_row, enum sluice_stop *stop, struct sluice_error *err);

/* The same with the logits of the last token only, which are recorded if a record was asked for. */
int sluice_runner_decode(struct sluice_runner *r, enum sluice_phase phase, const int32_t *tokens, uint32_t n,
                         enum sluice_stop *stop, struct sluice_error *err);

/* Between two batches: show that `done` of `total` tokens are computed. True: the user asks to stop before the rest. */
bool sluice_runner_progress(const struct sluice_runner *r, uint64_t done, uint64_t total);

/* Free the context, if there is one, and give back to the kernel what malloc keeps of it. */
void sluice_context_free(struct sluice_runner *r);

#endif
