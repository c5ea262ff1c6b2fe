/*
 * mkmoe.h - between the two halves of sluice-mkmoe: mkmoe.c decides which tensors go where in which
 * file, mkmoe_fill.c makes their bytes and writes them.
 */
#ifndef SLUICE_MKMOE_H
#define SLUICE_MKMOE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ggml.h"

/* One line on standard error, after the program's name. */
__attribute__((format(printf, 1, 2))) void complain(const char *fmt, ...);

/* What the values of a tensor are for. */
enum role {
    ROLE_NORM,      /* all ones */
    ROLE_ROUTER,    /* normal, wide enough that the top expert stands out */
    ROLE_EMBEDDING, /* common vector plus noise */
    ROLE_MATRIX,    /* normal, 1/sqrt(inputs) */
};

struct tensor {
    char name[GGML_MAX_NAME];
    enum ggml_type type;
    enum role role;
    bool expert;   /* a routed expert matrix: ne[2] is the number of experts */
    int n_dims;    /* 1..3 */
    int64_t ne[3]; /* inputs, outputs, experts */
};

/* A file being written (mkmoe_fill.c says why it is not a FILE). */
struct writer {
    int fd;
    bool direct;      /* opened with O_DIRECT */
    const char *path; /* for messages, not owned */
    char *buf;        /* one chunk, page aligned */
    size_t used;      /* bytes in it */
    uint64_t total;   /* bytes taken so far */
};

/* Each returns false after a message. After a failed open the writer needs no close. */
bool writer_open(struct writer *w, const char *path);
bool writer_put(struct writer *w, const void *data, size_t n);

/* Write out what is buffered when `ok` (nothing failed before), and close. Returns whether the file is complete. */
bool writer_close(struct writer *w, bool ok);

/* What the contents depend on, and the memory to make them in. */
struct fill {
    int64_t seed;
    double noise;    /* of embeddings, in deviations of their common vector */
    bool fast;       /* ROLE_MATRIX tensors get random quants */
    size_t n_values; /* floats in `values`: at least one row of any tensor */
    float *values;   /* rows before quantisation */
    void *quants;    /* the same rows after it, never more bytes than the floats need */
    float *common;   /* what all embeddings share */
    float *imatrix;  /* ones: every input counts the same */
};

/* Allocate for tensors with rows of at most `longest_row` values. fill_free also after a failure. */
bool fill_init(struct fill *f, int64_t seed, double noise, bool fast, size_t longest_row);
void fill_free(struct fill *f);

/* Whether random quants can be made of this type. */
bool fill_fast_type(enum ggml_type type);

/* Write the contents of one tensor, without padding. */
bool fill_tensor(struct writer *w, const struct tensor *t, struct fill *f);

#endif
