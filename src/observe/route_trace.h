/* route_trace.h - writing the route trace of everything that streams: a row per routed expert. */
#ifndef SLUICE_OBSERVE_ROUTE_TRACE_H
#define SLUICE_OBSERVE_ROUTE_TRACE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cache/engine.h"
#include "observe/batch.h"
#include "observe/facts.h"
#include "sluice.h"
#include "trace/trace.h"

enum { ROUTE_TRACE_LAYERS = 512 }; /* layers of a model, at most, as in llama.cpp */

/* The model's facts that the head of a trace names. Read from its files. */
struct route_trace_model {
    uint32_t n_layer;                         /* layers, those without experts included; 0: not known */
    uint64_t layer_bytes[ROUTE_TRACE_LAYERS]; /* all weights of a layer, experts included */
};

/* The one trace of a process. Zeroed but for `lock` and `source`. */
struct route_trace {
    const struct facts_source *source; /* of the head; set before anything else is called */
    _Atomic bool on;                   /* somebody wants it: ask no further if not */
    pthread_mutex_t lock;              /* guards the rest */
    struct trace_writer *rows;         /* NULL: none, or it ended */
    struct trace_writer *probs;        /* likewise, of all experts' probabilities */
    struct route_trace_model model;    /* for the head */
    struct trace_head head;            /* as written; its layers are owned */
    uint32_t *layer_of_group;          /* by group id: index into head.layers, or UINT32_MAX; owned */
    uint32_t cuts;                     /* engine_cuts when the head was written */
    bool headed;                       /* it was */
    struct sluice_error probs_err;     /* why there are no probabilities; said when it is closed */
};

/* A block that was acquired. A place is an expert's index among the distinct ones of the block. */
struct route_trace_block {
    const struct batch *batch;     /* what it is part of */
    uint32_t group;                /* whose experts */
    uint32_t n_expert;             /* how many there are */
    struct engine_routing routing; /* which token goes where, those given up included */
    uint32_t n_kept;               /* places below this are computed with their experts; the others were given up */
    const int32_t *place;          /* by expert: its place */
    const int32_t *id;             /* by token, then rank: the expert */
    const float *weight;           /* likewise: what the router multiplies its output with; NULL: not known */
    const uint8_t *found;          /* by place: enum engine_found */
    const uint8_t *copied; /* by place from n_kept on: enum engine_found of the copy in the cold model; NULL: what
                              was given up is left out */
    uint64_t copy_bytes;   /* weights of a copy */
    const float *probs;    /* by token, then expert: the router's probabilities; NULL: not wanted, or not there */
    struct sluice_error no_probs; /* why they are not there; SLUICE_OK: not wanted */
};

/* Is a trace being written? One load. */
bool route_trace_wanted(const struct route_trace *t);

/* Are probabilities? */
bool route_trace_wants_probs(struct route_trace *t);

/* N of "blk.N." at the beginning of a tensor's name; UINT32_MAX: it has none. */
uint32_t route_trace_layer(const char *name);

/* A context is being made: take over the model's facts. */
void route_trace_model(struct route_trace *t, const struct route_trace_model *m);

/* No more rows, because of `why`, which is printed. The thread that computes goes on. */
void route_trace_give_up(struct route_trace *t, const char *why);

/* Write a block's rows. */
void route_trace_block(struct route_trace *t, const struct route_trace_block *b);

/* sluice_route_trace_open and sluice_route_trace_close. */
int route_trace_open(struct route_trace *t, const char *path, const char *probs, struct sluice_error *err);
int route_trace_close(struct route_trace *t, struct sluice_error *err);

#endif
