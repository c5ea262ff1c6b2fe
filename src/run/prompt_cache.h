/*
 * prompt_cache.h - keeps a prompt that was computed, so that the next run need not compute it again.
 */
#ifndef SLUICE_RUN_PROMPT_CACHE_H
#define SLUICE_RUN_PROMPT_CACHE_H

#include "run/runner.h"

struct sluice_prompt_cache;

/*
 * Look at the file for a runner that is open and not started; `path` must outlive the cache. A file that is absent or
 * cannot be used is no error: sluice_prompt_cache_refused tells. Errors: SLUICE_ERR_IO when the model cannot be read
 * to identify it, SLUICE_ERR_MEMORY.
 */
int sluice_prompt_cache_open(struct sluice_prompt_cache **out, struct sluice_runner *r, const char *path,
                             struct sluice_error *err);

/* Why the file that is there is not used, in one line; NULL: it is, or there is none. */
const char *sluice_prompt_cache_refused(const struct sluice_prompt_cache *c);

/* How many of the n tokens need not be computed, because the file holds them. */
uint64_t sluice_prompt_cache_match(const struct sluice_prompt_cache *c, const int32_t *tokens, size_t n);

/*
 * Put the first n_tokens of the file into the context of the runner, which must be started and empty. Returns how many
 * it holds then: that, or 0 when llama.cpp could not; sluice_prompt_cache_refused tells why.
 */
uint64_t sluice_prompt_cache_restore(struct sluice_prompt_cache *c, uint64_t n_tokens);

/* After a prompt was computed: keep what the context holds. Does nothing if the file holds all of it already. */
int sluice_prompt_cache_save(struct sluice_prompt_cache *c, struct sluice_error *err);

/* Free it. NULL is fine. */
void sluice_prompt_cache_free(struct sluice_prompt_cache *c);

#endif
