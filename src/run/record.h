/*
 * record.h - the batches of a run and the logits that each of them gave, and their comparison with
 * a fully resident run.
 */
#ifndef SLUICE_RUN_RECORD_H
#define SLUICE_RUN_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "run/runner.h"

struct sluice_record;

/* What the comparison found. */
struct sluice_comparison {
    bool identical;       /* every byte of every step's logits is the same */
    bool interrupted;     /* the user stopped it: nothing is known about the steps that were left */
    uint64_t steps;       /* batches compared */
    uint64_t values;      /* logits compared */
    uint64_t first_step;  /* the first batch that differs, from 0; only when not identical */
    uint64_t first_token; /* its first logit that differs, a token number */
    float streamed;       /* that logit in the run that was recorded */
    float resident;       /* and in the resident run */
};

/*
 * Start a record. Logits go to an unlinked temporary file in $TMPDIR, else /var/tmp, else /tmp:
 * one step of a 150 000 token vocabulary is 600 KB, which is not to be kept in memory that the
 * measured run needs (/var/tmp comes first because /tmp often is memory).
 */
int sluice_record_new(struct sluice_record **out, struct sluice_error *err);

/* Add one batch and the n_vocab logits of its last token. */
int sluice_record_add(struct sluice_record *rec, const int32_t *tokens, uint32_t n, const float *logits,
                      uint32_t n_vocab, struct sluice_error *err);

/* Free it; the file goes with it. NULL is fine. */
void sluice_record_free(struct sluice_record *rec);

/*
 * Load the model resident (params->streaming is ignored), compute the recorded batches again and
 * compare. The runner that was recorded must be freed before: both do not fit in memory. Fails
 * when something could not be computed or read back; different logits are not a failure.
 */
int sluice_record_compare(struct sluice_record *rec, const struct sluice_runner_params *params,
                          struct sluice_comparison *out, struct sluice_error *err);

#endif
