/*
 * reference.h - the file of `sluice eval --ref-save`: what a run predicted for every scored token of a text.
 *
 * Little-endian, no padding but what is listed:
 *
 *   64 bytes   header, struct sluice_reference_head
 *   4 each     the tokens of all chunks, n_chunks * n_ctx of them
 *   a row per scored token, n_chunks * (n_ctx - 1 - n_ctx / 2) of them:
 *       8      nll of the token that follows, double
 *       4      the likeliest token
 *       4      0
 *       2 each the codes of quality.h, n_vocab of them
 *
 * so 16 + 2 x vocabulary bytes per scored token: 5 KiB for the demo model, 297 KiB for a vocabulary of 152 000 (74 MiB
 * per chunk of 512).
 */
#ifndef SLUICE_RUN_REFERENCE_H
#define SLUICE_RUN_REFERENCE_H

#include <stdint.h>

#include "sluice.h"

struct sluice_reference;

struct sluice_reference_head {
    char magic[8];     /* "sluiceKL"; zeros while the file is being written */
    uint32_t version;  /* 1 */
    uint32_t n_vocab;  /* codes per row */
    uint32_t n_ctx;    /* tokens per chunk */
    uint32_t n_chunks; /* chunks */
    uint32_t batch;    /* tokens per batch in that run; 1: one at a time */
    uint32_t threads;  /* compute threads of that run: attention over a long context rounds by them */
    uint64_t model;    /* weights of sluice_identity */
    uint64_t spare[3]; /* 0 */
};

/* One row without its codes. */
struct sluice_reference_row {
    double nll;    /* nats */
    uint32_t top;  /* the likeliest token */
    uint32_t zero; /* 0 */
};

/* Scored tokens of a chunk: its second half, less the last token, which nothing follows. */
uint32_t sluice_scored_per_chunk(uint32_t n_ctx);

/* Begin to write `path` with the tokens of all chunks. Magic, version and zeros of *head are filled in. */
int sluice_reference_create(struct sluice_reference **out, const char *path, const struct sluice_reference_head *head,
                            const int32_t *tokens, struct sluice_error *err);

/* The next row. */
int sluice_reference_write(struct sluice_reference *r, const struct sluice_reference_row *row, const uint16_t *codes,
                           struct sluice_error *err);

/*
 * Open a file for reading. Afterwards its header has a meaning and its size is what the header says. Fails with
 * SLUICE_ERR_IO, or SLUICE_ERR_FORMAT for what is not a whole file of this kind.
 */
int sluice_reference_open(struct sluice_reference **out, const char *path, struct sluice_error *err);

const struct sluice_reference_head *sluice_reference_get_head(const struct sluice_reference *r);

/*
 * Check that it is of this text and vocabulary: the first `n` tokens. SLUICE_ERR_ARG with the reason. Then rows are
 * read from the first chunk on.
 */
int sluice_reference_match(struct sluice_reference *r, uint32_t n_vocab, const int32_t *tokens, uint64_t n,
                           struct sluice_error *err);

/* The next row, checked: SLUICE_ERR_FORMAT when it cannot have been written by sluice_reference_write. */
int sluice_reference_read(struct sluice_reference *r, struct sluice_reference_row *row, uint16_t *codes,
                          struct sluice_error *err);

/* After the last row was written: write the header, which makes the file whole. */
int sluice_reference_finish(struct sluice_reference *r, struct sluice_error *err);

/* Close and free. A file that was created and not finished stays, and is refused when it is read. NULL is fine. */
void sluice_reference_close(struct sluice_reference *r);

#endif
