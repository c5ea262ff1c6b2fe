/* guess.h - which experts several tokens will probably want, likeliest first. */
#ifndef SLUICE_CACHE_GUESS_H
#define SLUICE_CACHE_GUESS_H

#include <stdint.h>

/*
 * Add a token's guess to score[0..n): the probabilities that its router gives the top_k likeliest of n
 * experts. Logits that are NaN are no guess. Overwrites the logits.
 */
void guess_add(float *score, float *logit, int64_t n, int64_t top_k);

/*
 * The experts of a score above 0, best first; of equal ones the lower number. At most cap; returns how
 * many. Overwrites their scores.
 */
uint32_t guess_rank(float *score, int64_t n, int32_t *expert, uint32_t cap);

#endif
