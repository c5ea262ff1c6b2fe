/*
 * runner.h - a loaded model and one conversation with it.
 *
 * Only this folder includes llama.h: the command line works with these functions and with token numbers.
 * A runner is used by one thread. The process registers sluice (sluice_register) before it opens a
 * runner that streams; the runner itself does not.
 */
#ifndef SLUICE_RUN_RUNNER_H
#define SLUICE_RUN_RUNNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gguf/gguf_check.h"
#include "run/log.h"
#include "sluice.h"

struct sluice_runner;
struct sluice_record;

/* How tokens are chosen. */
struct sluice_sampling {
    float temp;    /* 0: always the likeliest token (greedy); the rest is ignored then */
    float top_p;   /* keep the likeliest tokens up to this probability mass; 1: all */
    float min_p;   /* drop tokens less likely than this times the likeliest; 0: none */
    int32_t top_k; /* keep this many of the likeliest tokens; 0: all */
    bool no_end;   /* never choose a token that ends the text, as llama.cpp's --ignore-eos */
    uint32_t seed; /* of the random choice; never UINT32_MAX, which llama.cpp replaces by a random one */
};

/* Calls back into the program. Each may be NULL. */
struct sluice_hooks {
    bool (*interrupted)(void *user);              /* polled from compute threads: true stops as soon as possible */
    void (*loading)(void *user, double fraction); /* 0..1 while the model loads */
    void (*prompt)(void *user, uint64_t done, uint64_t total); /* tokens: 0 before a prompt, then after each batch */
    void (*step)(void *user, const struct sluice_step *s);     /* after each llama_decode that succeeded */
    void *user;                                                /* passed to all of them */
};

struct sluice_runner_params {
    const struct sluice_gguf *gguf; /* the checked model; must outlive the runner */
    const struct sluice_settings
        *settings;                   /* as registered, for the memory plan; must outlive the runner. NULL: none */
    struct sluice_log *log;          /* installed, gives the reasons of failures; must outlive the runner */
    struct sluice_sampling sampling; /* see above */
    struct sluice_hooks hooks;       /* see above */
    uint32_t n_ctx;                  /* context, tokens; 0: what the model was trained for */
    uint32_t n_ubatch;               /* prompt tokens per batch; 0: chosen, see sluice_runner_start */
    uint32_t n_outputs;              /* rows of logits that a batch may give; 0: one, the last token's */
    int n_threads;                   /* compute threads, >= 1 */
    uint32_t n_expert_used;          /* experts per token; 0: as the model says. Checked by sluice_info_check_top_k */
    bool streaming;                  /* false: load fully resident, as plain llama.cpp */
    bool dry;                        /* load nothing and allocate nothing: only for sluice_dry_run (dry.h) */
};

/* Why something ended. */
enum sluice_stop {
    SLUICE_STOP_NONE,        /* it did what was asked */
    SLUICE_STOP_END,         /* the model ended its text */
    SLUICE_STOP_LENGTH,      /* as many tokens as asked for */
    SLUICE_STOP_CONTEXT,     /* the context is full */
    SLUICE_STOP_INTERRUPTED, /* the interrupted hook said so */
    SLUICE_STOP_CALLER       /* the text callback returned false */
};

/* What one generation did. */
struct sluice_generated {
    enum sluice_stop stop; /* why it ended */
    uint64_t tokens;       /* tokens chosen, the end mark not counted */
    uint64_t steps;        /* batches of one token computed: tokens, less the one that no batch needed */
    double steps_s;        /* seconds in those */
    double first_at;       /* sluice_clock when the first token was chosen; 0: none was */
};

/* Receives text as it is generated, whole UTF-8 sequences where the model makes them. False stops. */
typedef bool (*sluice_text_fn)(void *user, const char *text, size_t n);

/*
 * Once per process, before sluice_register: silence the log (log.h) and make sure that ggml has a
 * CPU backend, which builds with loadable backends do not have until they are told.
 */
void sluice_runner_setup(struct sluice_log *log, const char *program);

/* Seconds on the monotonic clock. */
double sluice_clock(void);

/* Processors this process may run on: the default for n_threads. At least 1. */
int sluice_cpu_count(void);

/*
 * Load the model. On failure *out is NULL. An interrupted load returns SLUICE_ERR_STATE with the message
 * "interrupted". Until sluice_runner_start, only tokens can be made and the size of the vocabulary asked for.
 */
int sluice_runner_open(struct sluice_runner **out, const struct sluice_runner_params *p, struct sluice_error *err);

/*
 * Make the context, once. `tokens` is how many will be fed first, 0 when that is not known: where params.n_ubatch
 * is 0, the micro-batch is chosen so that they are computed in as few parts as memory allows (ubatch.c).
 */
int sluice_runner_start(struct sluice_runner *r, uint64_t tokens, struct sluice_error *err);

/* Free everything. NULL is fine. */
void sluice_runner_free(struct sluice_runner *r);

/* Context size, prompt tokens per batch, tokens in the context now, vocabulary size. */
uint32_t sluice_runner_n_ctx(const struct sluice_runner *r);
uint32_t sluice_runner_n_ubatch(const struct sluice_runner *r);
uint32_t sluice_runner_n_used(const struct sluice_runner *r);
uint32_t sluice_runner_n_vocab(const struct sluice_runner *r);

/*
 * Text to tokens. `first` adds what the model wants at the start of a text (BOS). With `markup`, the names of special
 * tokens in the text become those tokens, as in llama.cpp's own programs; without, they stay text. *out is to be freed.
 */
int sluice_runner_tokenize(struct sluice_runner *r, const char *text, size_t n, bool first, bool markup, int32_t **out,
                           size_t *n_out, struct sluice_error *err);

/*
 * Compute the tokens, in batches, after what the context already holds. SLUICE_ERR_STATE, with
 * nothing computed, when they do not fit. *stop is SLUICE_STOP_INTERRUPTED when it ended early, else
 * SLUICE_STOP_NONE.
 */
int sluice_runner_feed(struct sluice_runner *r, const int32_t *tokens, size_t n, enum sluice_stop *stop,
                       struct sluice_error *err);

/*
 * Generate after a feed that was not interrupted: at most n_max tokens (negative: no limit).
 * On an error nothing after the failed token was passed to `text`.
 */
int sluice_runner_generate(struct sluice_runner *r, int64_t n_max, sluice_text_fn text, void *user,
                           struct sluice_generated *out, struct sluice_error *err);

/*
 * Forget all but the first n tokens of the context. Returns how many are left: n, or 0 when this
 * kind of model cannot forget a part (recurrent state).
 */
uint32_t sluice_runner_keep(struct sluice_runner *r, uint32_t n);

/* How many of the given tokens are what the context starts with. */
uint32_t sluice_runner_match(const struct sluice_runner *r, const int32_t *tokens, size_t n);

/*
 * Experts left out or computed from copies so far, by all of this process. The window can set a threshold while it
 * runs, and take it back: settings do not tell.
 */
uint64_t sluice_runner_given_up(void);

/* From now on add every batch and its logits to `record` (record.h). NULL stops. */
void sluice_runner_record(struct sluice_runner *r, struct sluice_record *record);

#endif
