/* selftest_model.h - the model of the self-test: a few hundred KiB that both sides compute with. */
#ifndef SLUICE_GGML_SELFTEST_MODEL_H
#define SLUICE_GGML_SELFTEST_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ggml.h"
#include "cache/engine.h"

enum {
    SELFTEST_EXPERTS = 5,    /* experts */
    SELFTEST_TOP_K = 3,      /* experts of a token */
    SELFTEST_MATS = 3,       /* expert tensors: gate, up, down */
    SELFTEST_EMBD_MAX = 256, /* the largest of the inputs of selftest_shapes */
    SELFTEST_SHAPES = 3,     /* entries of selftest_shapes */
};

/* A block of the model; each has another type of experts. */
struct selftest_shape {
    enum ggml_type type; /* of the experts */
    const char *name;    /* for messages */
    int64_t embd, ff;    /* inputs of the block, and of its inner matmul */
};
extern const struct selftest_shape selftest_shapes[SELFTEST_SHAPES];

/* An expert tensor. */
struct selftest_weight {
    uint64_t offset;      /* in the file, bytes */
    uint32_t tensor;      /* id in the engine */
    uint32_t group, part; /* what the engine says of it */
    bool there;           /* it is in the engine */
};

struct selftest_model {
    int fd;                                                        /* a memory file */
    char *map;                                                     /* the same, mapped */
    size_t bytes;                                                  /* of it */
    uint64_t budget;                                               /* of the engine's cache, bytes: all fits */
    struct engine *engine;                                         /* reads it */
    uint32_t file;                                                 /* its index there */
    bool has_file;                                                 /* that reference is held */
    struct selftest_weight weight[SELFTEST_SHAPES][SELFTEST_MATS]; /* expert tensors */
    uint64_t router[SELFTEST_SHAPES]; /* where the routers' floats lie in the file, bytes */
    uint32_t rng;                     /* of the made-up numbers */
};

/* Make it. Accepts a zeroed struct; on failure, what there is is freed by selftest_model_free. */
int selftest_model_make(struct selftest_model *m, struct sluice_error *err);

/* Accepts one that was made, in part, or not at all but given fd -1. Nothing of the engine is in use. */
void selftest_model_free(struct selftest_model *m);

/* The next made-up number, from -1 to 1. */
float selftest_model_number(struct selftest_model *m);

/* Values of a row of an expert matrix (0 gate, 1 up, 2 down), and its rows. */
void selftest_model_dims(const struct selftest_shape *sh, int mat, int64_t *ne0, int64_t *ne1);

#endif
