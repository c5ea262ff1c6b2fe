/* route.h - the routing of a batch, grouped by expert. */
#ifndef SLUICE_BACKEND_ROUTE_H
#define SLUICE_BACKEND_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "ggml.h"
#include "sluice.h"

/*
 * Which rows go to which expert. A row is (token, rank): number token * K + rank. The distinct
 * experts are numbered by place: of one token in its order, of several by expert. Grows as needed, never shrinks: no
 * allocation per token.
 */
struct route {
    int64_t K, T;                  /* experts per token, tokens */
    uint32_t n;                    /* distinct experts */
    int32_t *expert;               /* n entries, by place: the expert's number */
    int32_t *first;                /* n + 1 entries, by place: where its rows begin in list */
    int32_t *list;                 /* T * K entries: row numbers, grouped by place, ascending within one */
    int32_t *index;                /* by expert number: its place, or -1 */
    int64_t cap_rows, cap_experts; /* entries allocated */
};

/*
 * Read the expert ids of a MUL_MAT_ID, whose ids must be computed by now, for n_expert experts.
 * SLUICE_ERR_FORMAT when an id is out of range, SLUICE_ERR_MEMORY.
 */
int route_read(struct route *r, const struct ggml_tensor *ids, uint32_t n_expert, struct sluice_error *err);

/* Free its memory; *r may be used again. */
void route_free(struct route *r);

/* The expert of a token's rank. */
static inline int32_t route_id(const struct ggml_tensor *ids, int64_t token, int64_t rank) {
    return *(const int32_t *)((const char *)ids->data + (size_t)token * ids->nb[1] + (size_t)rank * ids->nb[0]);
}

/* Rows of the expert at a place. */
static inline int32_t route_rows(const struct route *r, uint32_t place) {
    return r->first[place + 1] - r->first[place];
}

/* Where row number `row` of a tensor lies: tokens are nb[2] apart, ranks nb[1], broadcast over ne[1]. */
static inline char *route_row(const struct route *r, const struct ggml_tensor *t, int32_t row) {
    const int64_t token = row / r->K, rank = row % r->K;
    return (char *)t->data + (size_t)token * t->nb[2] + (size_t)(rank % t->ne[1]) * t->nb[1];
}

#endif
