/* tracing.h - writing the route trace of everything that streams. */
#ifndef SLUICE_GGML_TRACING_H
#define SLUICE_GGML_TRACING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ggml/kernel.h"
#include "ggml/route.h"
#include "observe/batch.h"
#include "sluice.h"
#include "cache/engine.h"
#include "trace/trace.h"

enum { TRACING_LAYERS = 512 }; /* layers of a model, at most, as in llama.cpp */

/* The model's facts that the head of a trace and of a CSV file names. Read from its files. */
struct tracing_model {
    uint32_t n_layer;                     /* layers, those without experts included; 0: not known */
    uint64_t layer_bytes[TRACING_LAYERS]; /* all weights of a layer, experts included */
};

/* The one trace of a process. In sluice_device. */
struct tracing {
    _Atomic bool on;               /* somebody wants it: ask no further if not */
    pthread_mutex_t lock;          /* guards the rest */
    struct trace_writer *rows;     /* NULL: none, or it ended */
    struct trace_writer *probs;    /* likewise, of all experts' probabilities */
    struct tracing_model model;    /* for the head */
    struct trace_head head;        /* as written; its layers are owned */
    uint32_t *layer_of_group;      /* by group id: index into head.layers, or UINT32_MAX; owned */
    uint32_t n_groups;             /* entries */
    uint32_t cuts;                 /* engine_cuts when the head was written */
    bool headed;                   /* it was */
    void *row;                     /* scratch for the router's input; owned */
    size_t row_bytes;              /* of it */
    float *prob;                   /* scratch, an entry per expert; owned */
    struct sluice_error probs_err; /* why there are no probabilities; said when it is closed */
};

/* A block that was acquired. */
struct tracing_block {
    const struct batch *batch;         /* what it is part of */
    uint32_t group;                    /* whose experts */
    uint32_t n_expert;                 /* how many there are */
    const struct route *route;         /* its rows by expert */
    const struct ggml_tensor *node;    /* its first expert matmul */
    const struct ggml_tensor *weights; /* weights_find */
    const uint8_t *found;              /* by place, those set aside included: enum engine_found */
    const uint8_t *copied;   /* by place, those computed with experts not counted: enum engine_found of the copy
                                in the cold model; NULL: what was given up is left out */
    uint64_t copy_bytes;     /* weights of a copy */
    kernel_traits_fn traits; /* of the CPU backend; NULL: none */
};

/* Is a trace being written? One load. */
bool tracing_wanted(void);

/* Write a block's rows. */
void tracing_block(const struct tracing_block *b);

/* A context is being made: read what the head needs of the model's files, if a trace wants it. */
void tracing_read_model(void);

#endif
