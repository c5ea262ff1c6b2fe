/*
 * batch.h - the batches that one context computes: where each begins, what it is part of, where its tokens stand.
 *
 * A batch is what runs through all layers at once: a micro-batch of llama.cpp. One object per context, used by the
 * thread that computes the context. Everybody who counts by phase or needs a position asks it.
 */
#ifndef SLUICE_OBSERVE_BATCH_H
#define SLUICE_OBSERVE_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "sluice.h"

/* A layer with experts, in a graph of the context. */
struct batch_layer {
    uint32_t group; /* its experts' group in the engine; ascending from layer to layer */
    uint32_t rows;  /* tokens that reach its experts */
};

/* Zeroed: nothing was computed yet. */
struct batch {
    /* The batch that is being computed. */
    uint64_t number;         /* counts the context's batches; 0: none began yet */
    uint32_t rows;           /* tokens of it: rows of its first block */
    enum sluice_phase phase; /* what it is part of */
    uint32_t turn;           /* of the conversation, from 0: told, or counted */
    uint32_t position;       /* of its first token in the context: told, or counted */
    uint64_t generation;     /* which generation it belongs to, counted per context from 1 */

    /* How that is known. */
    uint32_t last_group;       /* of the last block */
    uint64_t mark;             /* number of the program's last mark that was used; 0: none */
    uint64_t told_generation;  /* number of the generation that the program told last; 0: none */
    struct batch_layer *layer; /* of the graph that was shown last, n_layers entries; owned */
    uint32_t n_layers;         /* entries used */
    uint32_t cap_layers;       /* entries allocated */
    bool narrows;              /* graphs of this context drop rows that want no logits before the last layer */
};

void batch_free(struct batch *b);

/*
 * A graph that will be computed, maybe later, has a layer with experts of `group` that `rows` tokens reach. Called for
 * all layers in their order, more than once for one if that is easier.
 */
void batch_show(struct batch *b, uint32_t group, uint32_t rows);

/* A block of `group` with `rows` tokens begins. True: a batch begins with it, and *b describes it now. */
bool batch_block(struct batch *b, uint32_t group, uint32_t rows);

/* The group whose block follows that of `group`, in this batch or the next; UINT32_MAX: not known. */
uint32_t batch_next(const struct batch *b, uint32_t group);

/* The position of the first of `rows` tokens that reach a block: they are the batch's last. */
uint32_t batch_position(const struct batch *b, uint32_t rows);

#endif
