/*
 * lossy.h - which routed experts of a block are given up, and what becomes of them.
 *
 * In a block (executor.c): lossy_propose, before anything is acquired, says which experts MAY be given up; the engine
 * decides in the step that pins the others, and gives up what would have to be read; lossy_settle notes it. After each
 * expert matmul rows that nothing computes are set to zero, and the weighting multiplies with `weight`. With a cold
 * model given-up experts are not left out but computed from their copies, and the weighting is the program's own.
 */
#ifndef SLUICE_GGML_LOSSY_H
#define SLUICE_GGML_LOSSY_H

#include <stdbool.h>
#include <stdint.h>

#include "ggml/route.h"
#include "ggml.h"
#include "sluice.h"
#include "cache/engine.h"
#include "observe/batch.h"

struct shadow;

/* What becomes of a routing: one expert of one token. */
enum lossy_fate {
    LOSSY_KEEP, /* computed as ever */
    LOSSY_DROP, /* left out: weight 0, rows of zeros, nothing read */
    LOSSY_COPY, /* computed from the cold model's copy of the expert, with the weight that it has */
};

struct hold;
struct sluice_device;

/* The lossy settings' state of one context. */
struct lossy {
    struct sluice_device *device; /* has the settings; NULL: nothing is lossy */
    /* The current block; valid from lossy_settle to the end of the block. */
    bool active;                   /* some routing of it has another fate than LOSSY_KEEP */
    enum lossy_fate fate_of_cold;  /* which one: LOSSY_DROP or LOSSY_COPY */
    struct ggml_tensor *weighting; /* the node that multiplies the experts' outputs with the router's weights, src[1] */
    uint8_t *fate;                 /* by row of the routing (token * K + rank): enum lossy_fate */
    float *weight;                 /* by row: what to multiply with instead. The router's are not written: others may
                                      read them */
    int64_t cap_rows;              /* entries allocated of the two */

    /* Scratch of lossy_propose and lossy_settle, by place. */
    uint8_t *leave;      /* enum engine_leave */
    uint8_t *aside;      /* given up */
    uint32_t cap_places; /* entries allocated of the two */
    bool examined;       /* lossy_propose looked at this block's weights: count it */
    bool shadowed;       /* the shadow is to hear of this block */

    const struct batch *batch;  /* the executor's: which batch the block belongs to */
    struct shadow *shadow;      /* the made-up cache of drop_reproducible; NULL: none yet */
    uint64_t shadow_generation; /* batch->generation that it was made for; 0: none */
    uint32_t shadow_cuts;       /* engine_cuts when it was made */
};

void lossy_free(struct lossy *l);

/* A block begins. Always called, whatever the settings. */
void lossy_block(struct lossy *l);

/*
 * Which experts of the block that node i of the split begins may be given up: for engine_want.leave. NULL: none, or
 * nothing is lossy. No memory for it is none as well.
 */
const uint8_t *lossy_propose(struct lossy *l, struct engine *e, struct ggml_cgraph *g, int i, uint32_t group,
                             const struct route *r);

/*
 * The engine decided, as h->found says. `copies`: the experts have copies, from which what is given up is computed.
 * True: something was given up, as l->aside says by place, and the route is renumbered; *h is still to be.
 */
bool lossy_settle(struct lossy *l, const struct hold *h, bool copies, struct route *r, const struct ggml_tensor *ids);

/* Is some routing of the block left out? */
static inline bool lossy_drops(const struct lossy *l) {
    return l->active && l->fate_of_cold == LOSSY_DROP;
}

/* Is some routing of the block computed from a copy? */
static inline bool lossy_copies(const struct lossy *l) {
    return l->active && l->fate_of_cold == LOSSY_COPY;
}

/* The rows of the routing that nothing computes: they are to be zeros. */
static inline bool lossy_blank(const struct lossy *l, int64_t row) {
    return l->fate[row] == LOSSY_DROP;
}

#endif
