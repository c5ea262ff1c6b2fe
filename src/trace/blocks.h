/* blocks.h - a trace cut into blocks: the rows of one layer of one batch. Inside src/trace. */
#ifndef SLUICE_TRACE_BLOCKS_H
#define SLUICE_TRACE_BLOCKS_H

#include <stddef.h>

#include "trace/trace.h"

/*
 * The row after the last one of the block that begins at row `first`. A block goes on as long as turn,
 * phase and layer stay; in generation also the step: every token is a batch of its own.
 */
static inline size_t blocks_end(const struct trace *t, size_t first) {
    const struct trace_row *a = &t->rows[first];
    size_t i = first + 1;
    for (; i < t->n_rows; i++) {
        const struct trace_row *b = &t->rows[i];
        if (b->turn != a->turn || b->phase != a->phase || b->layer != a->layer ||
            (a->phase == TRACE_GENERATION && b->step != a->step)) {
            break;
        }
    }
    return i;
}

/* Likewise the row after the last one of the token that row `first` belongs to, within [first, end). */
static inline size_t blocks_token_end(const struct trace *t, size_t first, size_t end) {
    size_t i = first + 1;
    while (i < end && t->rows[i].step == t->rows[first].step && t->rows[i].slot > t->rows[i - 1].slot) {
        i++;
    }
    return i;
}

#endif
