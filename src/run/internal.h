/*
 * internal.h - the runner's own struct, shared by the files of this folder only.
 */
#ifndef SLUICE_RUN_INTERNAL_H
#define SLUICE_RUN_INTERNAL_H

#include "llama.h"
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
    float *logits;                /* of the last token, when a prompt cache restored it; owned, NULL: the context's */
    uint32_t feeds;               /* prompts begun so far; the last one is turn feeds - 1 of a route trace */
    struct sluice_step step;      /* the last llama_decode, measured */
    struct sluice_record *record; /* where batches are recorded; NULL: nowhere */
};

/* Has the user asked to stop? */
bool sluice_runner_interrupted(const struct sluice_runner *r);

/* The reason for a failure that llama.cpp reported without one: enters it and returns its status. */
int sluice_runner_reason(struct sluice_runner *r, const char *what, struct sluice_error *err);

/*
 * Compute n <= n_ubatch tokens at the end of the context; logits of those from first_row on. Same contract as
 * feed. What it cost is in r->step afterwards, as a step of that phase.
 */
int sluice_runner_compute(struct sluice_runner *r, enum sluice_phase phase, const int32_t *tokens, uint32_t n,
                          uint32_t first_row, enum sluice_stop *stop, struct sluice_error *err);

/* The same with the logits of the last token, which are recorded if a record was asked for. */
int sluice_runner_decode(struct sluice_runner *r, enum sluice_phase phase, const int32_t *tokens, uint32_t n,
                         enum sluice_stop *stop, struct sluice_error *err);

/* After a decode that succeeded, where it disturbs no measurement: tell the program what the step cost. */
void sluice_runner_tell_step(const struct sluice_runner *r);

/* A context with that micro-batch, or NULL. */
struct llama_context *sluice_context_new(struct sluice_runner *r, uint32_t n_ubatch);

/* The sampler chain for these settings; NULL when there is no memory. */
struct llama_sampler *sluice_sampler_new(const struct sluice_sampling *s, const struct llama_vocab *vocab);

/* Give back to the kernel what malloc keeps for later, where the C library can (bionic and musl cannot). */
void sluice_runner_trim(void);

#endif
