/* seam_model.h - the model of the self-test: a few hundred KiB that both sides compute with. */
#ifndef SLUICE_BACKEND_SEAM_MODEL_H
#define SLUICE_BACKEND_SEAM_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ggml.h"
#include "stream/engine.h"

enum {
    SEAM_EXPERTS = 5,    /* experts */
    SEAM_TOP_K = 3,      /* experts of a token */
    SEAM_MATS = 3,       /* expert tensors: gate, up, down */
    SEAM_EMBD_MAX = 256, /* the largest of the inputs of seam_shapes */
    SEAM_SHAPES = 3,     /* entries of seam_shapes */
};

/* A block of the model; each has another type of experts. */
struct seam_shape {
    enum ggml_type type; /* of the experts */
    const char *name;    /* for messages */
    int64_t embd, ff;    /* inputs of the block, and of its inner matmul */
};
extern const struct seam_shape seam_shapes[SEAM_SHAPES];

/* An expert tensor. */
struct seam_weight {
    uint64_t offset;      /* in the file, bytes */
    uint32_t tensor;      /* id in the engine */
    uint32_t group, part; /* what the engine says of it */
    bool there;           /* it is in the engine */
};

struct seam_model {
    int fd;                                            /* a memory file */
    char *map;                                         /* the same, mapped */
    size_t bytes;                                      /* of it */
    uint64_t budget;                                   /* of the engine's cache, bytes: all fits */
    struct engine *engine;                             /* reads it */
    uint32_t file;                                     /* its index there */
    bool has_file;                                     /* that reference is held */
    struct seam_weight weight[SEAM_SHAPES][SEAM_MATS]; /* expert tensors */
    uint64_t router[SEAM_SHAPES];                      /* where the routers' floats lie in the file, bytes */
    uint32_t rng;                                      /* of the made-up numbers */
};

/* Make it. Accepts a zeroed struct; on failure, what there is is freed by seam_model_free. */
int seam_model_make(struct seam_model *m, struct sluice_error *err);

/* Accepts one that was made, in part, or not at all but given fd -1. Nothing of the engine is in use. */
void seam_model_free(struct seam_model *m);

/* The next made-up number, from -1 to 1. */
float seam_model_number(struct seam_model *m);

/* Values of a row of an expert matrix (0 gate, 1 up, 2 down), and its rows. */
void seam_model_dims(const struct seam_shape *sh, int mat, int64_t *ne0, int64_t *ne1);

#endif
