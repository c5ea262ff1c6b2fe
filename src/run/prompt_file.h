/*
 * prompt_file.h - the file of a prompt that was computed: facts about the run, tokens, logits, llama.cpp's state.
 *
 * A container that knows nothing of llama.cpp. Nothing in a file is used before its checksum was verified.
 */
#ifndef SLUICE_RUN_PROMPT_FILE_H
#define SLUICE_RUN_PROMPT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sluice.h"

struct sluice_prompt_file;

/* What is in it. Pointers are valid until the file is closed. */
struct sluice_prompt_parts {
    const char *facts;     /* "key=value" lines: what must be the same for the state to be usable; n_facts bytes */
    const int32_t *tokens; /* n_tokens of them */
    const float *logits;   /* of the last token, n_logits of them */
    uint8_t *state;        /* llama.cpp's, n_state bytes; of a file that is being made: to be filled by the caller */
    uint64_t n_facts;      /* bytes */
    uint64_t n_tokens;     /* tokens */
    uint64_t n_logits;     /* floats */
    uint64_t n_state;      /* bytes */
};

/*
 * Open and verify. *absent is true when there is no such file: that is SLUICE_ERR_IO too, but nothing to complain
 * about. SLUICE_ERR_FORMAT for a file that is damaged, cut short, of another kind or version, or that somebody else
 * could have written.
 */
int sluice_prompt_file_open(struct sluice_prompt_file **out, const char *path, struct sluice_prompt_parts *parts,
                            bool *absent, struct sluice_error *err);

/*
 * Begin a file that will replace the one at `path`. All of *parts but `state` is copied; on success parts->state points
 * to n_state bytes to fill. SLUICE_ERR_IO, also when the disk has no room for all of it.
 */
int sluice_prompt_file_create(struct sluice_prompt_file **out, const char *path, struct sluice_prompt_parts *parts,
                              struct sluice_error *err);

/* The state is filled: put the file in its place, whole or not at all. */
int sluice_prompt_file_commit(struct sluice_prompt_file *f, struct sluice_error *err);

/* Close it; what was not committed leaves no trace. NULL is fine. */
void sluice_prompt_file_close(struct sluice_prompt_file *f);

/*
 * Can a run with these facts (text of n_facts bytes with a terminator) and that many logits use what a verified file
 * holds? False: why[cap] says why not, in one line that names `path`.
 */
bool sluice_prompt_parts_fit(const struct sluice_prompt_parts *parts, const char *facts, size_t n_facts,
                             uint64_t n_logits, const char *path, char *why, size_t cap);

/* How many of the n tokens it begins with. */
uint64_t sluice_prompt_parts_same(const struct sluice_prompt_parts *parts, const int32_t *tokens, size_t n);

/* Could a file be put there? SLUICE_ERR_IO with the reason when not. */
int sluice_prompt_file_possible(const char *path, struct sluice_error *err);

#endif
