/* stream_weight.h - an expert tensor whose experts are read from its file. */
#ifndef SLUICE_GGML_STREAM_WEIGHT_H
#define SLUICE_GGML_STREAM_WEIGHT_H

#include <stdint.h>

#include "ggml.h"

struct cold_weight;
struct stream_file;

/* What a streamed weight's tensor->extra points to. Owned by its buffer. */
struct stream_weight {
    uint32_t tensor;          /* id in the engine */
    uint32_t group;           /* its group */
    uint32_t part;            /* its part in the group's experts */
    uint32_t n_expert;        /* experts */
    char name[GGML_MAX_NAME]; /* as in the file */
    enum ggml_type type;      /* of its values */
    int64_t ne[2];            /* values of a row, rows of an expert */
    uint64_t offset;          /* where in its file it begins, bytes */
    struct cold_weight *cold; /* its copy in the cold model; NULL: none. Owned */
};

/* Where a weight comes from. */
struct stream_origin {
    const struct stream_file *file; /* the model's file */
    uint64_t owner;                 /* which load it came from */
    uint32_t top_k;                 /* experts per token that the load announced */
};

/* Called for one weight of many. Not SLUICE_OK: it is the last. */
typedef int (*stream_visit_fn)(void *ud, struct stream_weight *w, const struct stream_origin *from);

#endif
