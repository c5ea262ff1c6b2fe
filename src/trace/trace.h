/* trace.h - a route trace: which experts the router picked, token by token. Reading and writing it. */
#ifndef SLUICE_TRACE_TRACE_H
#define SLUICE_TRACE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sluice.h"

enum {
    TRACE_LAYERS_MAX = 1024,     /* layers with experts that a trace may name */
    TRACE_BUNDLES_MAX = 1 << 20, /* layers x experts: what a replay makes tables for */
    TRACE_SLOT_MAX = 4095,       /* the largest rank */
};

enum trace_phase { TRACE_PROMPT, TRACE_GENERATION, TRACE_PHASES };

/* Where a routed expert was when its block began. */
enum trace_residency {
    TRACE_MISS,       /* on disk */
    TRACE_HIT,        /* in memory, or on its way */
    TRACE_PREFETCHED, /* the same, read ahead of this, its first use */
};

/* What became of a routed expert. */
enum trace_dropped {
    TRACE_KEPT,     /* computed */
    TRACE_LEFT_OUT, /* left out by a lossy setting */
    TRACE_COPIED,   /* computed from its copy in the cold model */
};

/* A layer with experts. */
struct trace_layer {
    uint32_t number;       /* the model's */
    uint32_t top_k;        /* experts that a token uses here; 0: the file does not say */
    uint64_t expert_bytes; /* weights of one expert */
    uint64_t dense_bytes;  /* other weights of the layer; 0: not known */
    uint64_t slot_bytes;   /* memory that one expert takes in sluice's cache; 0: the file does not say */
};

/* What stands before the table. Of texts that were read, control characters are question marks. */
struct trace_head {
    char model[1024];           /* path of the model */
    char arch[64];              /* its architecture */
    uint32_t n_layer;           /* layers of the model, those without experts included */
    uint32_t n_expert;          /* experts in a layer, the most of any */
    uint32_t n_expert_used;     /* experts that a token uses, the most in any layer */
    struct trace_layer *layers; /* the layers with experts, ascending */
    uint32_t n_layers;          /* entries */
    bool engine;                /* the next five are known: sluice's engine wrote the trace */
    char policy[16];            /* its eviction policy */
    uint64_t budget;            /* its cache, bytes; 0: none */
    uint64_t align;             /* slots are multiples of this, bytes */
    uint32_t n_groups;          /* layers that its policy goes round */
    bool lookahead;             /* it read ahead of use */
};

/* One routed expert of one token. */
struct trace_row {
    uint64_t
        bytes; /* read for it: the expert's bytes (or its copy's) in the first row of a batch that misses it, else 0 */
    uint32_t turn;     /* of the conversation */
    uint32_t step;     /* position of the token in the context */
    uint32_t layer;    /* index into the head's layers */
    uint32_t expert;   /* its number */
    float weight;      /* what the router multiplies its output with; NaN: not known */
    uint16_t slot;     /* rank of the expert in the token's routing, 0: first */
    uint8_t phase;     /* enum trace_phase */
    uint8_t residency; /* enum trace_residency */
    uint8_t dropped;   /* enum trace_dropped: routed, but not computed from the expert itself */
};

/* A trace in memory. */
struct trace {
    struct trace_head head; /* layers are owned */
    struct trace_row *rows; /* owned */
    size_t n_rows;          /* entries */
};

/*
 * Read a file. Everything in it is checked: numbers and their ranges, that rows name layers of the head
 * and that no line was cut. Memory is at most a few times the file's size. SLUICE_ERR_IO;
 * SLUICE_ERR_FORMAT, with file and line; then *t is zeroed.
 */
int trace_read(struct trace *t, const char *path, struct sluice_error *err);

/* Free its memory and zero it. */
void trace_free(struct trace *t);

/* ---- writing ---- */

struct trace_writer;

/* Create or empty the file. On failure *out is NULL. */
int trace_writer_open(struct trace_writer **out, const char *path, struct sluice_error *err);

/* What stands before the table. Once, before the first row. */
void trace_writer_head(struct trace_writer *w, const struct trace_head *head);

/*
 * One row. `layer` is the layer's number here, not an index. Allocates nothing; writes when 64 KiB have come together.
 * Failures come out when it is closed.
 */
void trace_writer_row(struct trace_writer *w, const struct trace_row *row);

/* A line of the companion file: the probabilities of all n experts of one token in one layer. */
void trace_writer_probs(struct trace_writer *w, const struct trace_row *row, const float *prob, uint32_t n);

/* Write what is left and close. SLUICE_ERR_IO if anything could not be written. NULL is fine. */
int trace_writer_close(struct trace_writer *w, struct sluice_error *err);

#endif
