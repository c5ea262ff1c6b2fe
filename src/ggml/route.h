/* route.h - the routing of a batch, grouped by expert. */
#ifndef SLUICE_GGML_ROUTE_H
#define SLUICE_GGML_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "ggml.h"
#include "sluice.h"
#include "cache/engine.h"

/*
 * Which rows go to which expert. A row is (token, rank): number token * K + rank. The distinct
 * experts are numbered by place: of one token in its order, of several by expert. Grows as needed, never shrinks: no
 * allocation per token.
 */
struct route {
    int64_t K, T;                  /* experts per token, tokens */
    uint32_t n;                    /* distinct experts that are computed: places [0, n) */
    uint32_t n_all;                /* those that are not, as well: places [n, n_all), see route_set_aside */
    int32_t *expert;               /* n_all entries, by place: the expert's number */
    int32_t *first;                /* n_all + 1 entries, by place: where its rows begin in list */
    int32_t *list;                 /* T * K entries: row numbers, grouped by place, ascending within one */
    int32_t *index;                /* by expert number: its place, or -1 */
    int32_t *spare;                /* scratch, an entry per expert */
    int64_t cap_rows, cap_experts; /* entries allocated */
};

/*
 * Read the expert ids of a MUL_MAT_ID, whose ids must be computed by now, for n_expert experts.
 * SLUICE_ERR_FORMAT when an id is out of range, SLUICE_ERR_MEMORY.
 */
int route_read(struct route *r, const struct ggml_tensor *ids, uint32_t n_expert, struct sluice_error *err);

/* Do the ids, which must be computed by now, all name one of n_expert experts? SLUICE_ERR_FORMAT when one does not. */
int route_check(const struct ggml_tensor *ids, int64_t n_expert, struct sluice_error *err);

/*
 * Renumber the places so that those marked in aside[] (by place) come last and are not computed as the others are:
 * n becomes the number of the others. Order is kept among these and those. Once per routing; the ids are those that
 * were read.
 */
void route_set_aside(struct route *r, const struct ggml_tensor *ids, const uint8_t *aside);

/*
 * The part that was set aside, as a routing of its own: a view, as long as r stays as it is. Rows are positions in the
 * whole list; it has no index, and is not to be freed.
 */
struct route route_given_up(const struct route *r);

/* The engine's view of it, with those that are set aside. */
struct engine_routing route_routing(const struct route *r);

/* Free its memory; *r may be used again. */
void route_free(struct route *r);

/* The expert of a token's rank. */
static inline int32_t route_id(const struct ggml_tensor *ids, int64_t token, int64_t rank) {
    return *(const int32_t *)((const char *)ids->data + (size_t)token * ids->nb[1] + (size_t)rank * ids->nb[0]);
}

/* Rows whose experts are computed. They are list[0 .. this); the others follow up to T * K. */
static inline int32_t route_kept_rows(const struct route *r) {
    return r->first[r->n];
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
