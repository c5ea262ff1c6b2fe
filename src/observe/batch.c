/*
 * batch.c - the batches that one context computes.
 *
 * A backend sees blocks: a layer's experts, with so many rows. The groups of experts are numbered in the order of the
 * layers, so a block whose group does not come after the last one's begins a batch.
 *
 * What a batch is part of decides which counters it goes to, whether it may lose experts, and what traces call it. A
 * program that says so is believed (sluice_route_trace_mark). Of others:
 *
 *   one row        generation
 *   several rows   a prompt, or the next tokens of several sequences (the slots of a server). Of those every token
 * wants logits, and llama.cpp drops rows that want none before the last layer's experts. So a batch whose rows all
 * reach the last layer is generation, in a context where rows are seen to be dropped: the graphs of some models never
 * do it. A batch with a piece of a prompt in it is a prompt.
 *
 * That must be known when the batch begins, since its first block is counted and may lose experts. It is: the scheduler
 * shows a backend all parts of a graph before it computes the first (graph_optimize), and a graph that is used again
 * has the same shape. Without such a graph several rows are a prompt.
 *
 * Known wrong: a prompt of one token, or whose last batch is one token, is taken for generation, and so are prompts all
 * of whose tokens want logits (llama-perplexity) in batches of at most BATCH_SLOTS. A model whose only layer with
 * experts is its last shows no dropped rows.
 *
 * Position and turn are told as well, or counted: positions count the tokens of the context, and what the program took
 * back out of it counts twice; a prompt after generated tokens begins a turn.
 *
 * A generation, in the sense of drop_reproducible, begins where the program says so (sluice_generation_begin). Without
 * a word from it every batch of a prompt begins one.
 */
#include "observe/batch.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_SLOTS = 64 }; /* more rows than this are a prompt */

/* What the program said on this thread, of the batches to come. The numbers are 0 while it said nothing. */
static _Thread_local struct {
    uint64_t mark;           /* number of the mark */
    uint32_t turn, position; /* of the mark */
    enum sluice_phase phase; /* likewise */
    uint64_t generation;     /* number of the generation */
} batch_told;

/* Numbers for marks and generations, of all threads: a context may be computed by one thread after another. */
static _Atomic uint64_t batch_numbers;

void sluice_route_trace_mark(uint32_t turn, enum sluice_phase phase, uint32_t position) {
    batch_told.mark = atomic_fetch_add(&batch_numbers, 1) + 1;
    batch_told.turn = turn;
    batch_told.phase = phase;
    batch_told.position = position;
}

void sluice_generation_begin(void) {
    batch_told.generation = atomic_fetch_add(&batch_numbers, 1) + 1;
}

void batch_free(struct batch *b) {
    free(b->layer);
    memset(b, 0, sizeof *b);
}

void batch_show(struct batch *b, uint32_t group, uint32_t rows) {
    if (b->n_layers && group < b->layer[b->n_layers - 1].group) {
        b->n_layers = 0; /* another graph */
    }
    if (b->n_layers == 0 || group > b->layer[b->n_layers - 1].group) {
        if (b->n_layers == b->cap_layers) {
            const uint32_t cap = b->cap_layers ? 2 * b->cap_layers : 64;
            struct batch_layer *layer = reallocarray(b->layer, cap, sizeof *layer);
            if (!layer) {
                b->n_layers = 0; /* then nothing is known of the graph */
                return;
            }
            b->layer = layer;
            b->cap_layers = cap;
        }
        b->n_layers++;
    }
    b->layer[b->n_layers - 1] = (struct batch_layer){.group = group, .rows = rows};
    /* In the middle of a graph this compares layers before the last, which all have the same rows. */
    b->narrows = b->narrows || rows < b->layer[0].rows;
}

static const struct batch_layer *batch_layer_of(const struct batch *b, uint32_t group) {
    for (uint32_t i = 0; i < b->n_layers; i++) {
        if (b->layer[i].group == group) {
            return &b->layer[i];
        }
    }
    return NULL;
}

static enum sluice_phase batch_judge(const struct batch *b, uint32_t rows) {
    const bool shown = b->n_layers && b->layer[0].rows == rows;
    const bool all = shown && b->layer[b->n_layers - 1].rows == rows;
    return rows == 1 || (rows <= BATCH_SLOTS && b->narrows && all) ? SLUICE_PHASE_GENERATION : SLUICE_PHASE_PROMPT;
}

static void batch_begin(struct batch *b, uint32_t rows) {
    const enum sluice_phase before = b->phase;
    const bool first = b->number++ == 0;
    b->phase = batch_told.mark ? batch_told.phase : batch_judge(b, rows);
    b->position += b->rows; /* of the batch before */
    b->rows = rows;
    if (batch_told.mark) {
        b->position = batch_told.mark != b->mark ? batch_told.position : b->position;
        b->turn = batch_told.turn;
        b->mark = batch_told.mark;
    } else {
        b->turn += !first && before == SLUICE_PHASE_GENERATION && b->phase == SLUICE_PHASE_PROMPT;
    }
    const bool told = batch_told.generation != 0;
    const bool begins = told ? batch_told.generation != b->told_generation : b->phase == SLUICE_PHASE_PROMPT;
    b->generation += first || begins;
    b->told_generation = told ? batch_told.generation : b->told_generation;
}

bool batch_block(struct batch *b, uint32_t group, uint32_t rows) {
    const bool begins = b->number == 0 || group <= b->last_group;
    if (begins) {
        batch_begin(b, rows);
    }
    if (!batch_layer_of(b, group)) {
        batch_show(b, group, rows); /* nobody showed the graph: now it is seen as it runs */
    }
    b->last_group = group;
    return begins;
}

uint32_t batch_next(const struct batch *b, uint32_t group) {
    const struct batch_layer *at = batch_layer_of(b, group);
    if (!at) {
        return UINT32_MAX;
    }
    const uint32_t i = (uint32_t)(at - b->layer);
    return b->layer[i + 1 < b->n_layers ? i + 1 : 0].group;
}

uint32_t batch_position(const struct batch *b, uint32_t rows) {
    return b->position + (b->rows > rows ? b->rows - rows : 0);
}
