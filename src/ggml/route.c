/*
 * route.c - from the router's ids to rows by expert.
 *
 * The ids are a view of all experts sorted by probability: K of a longer row, so rows of ids are
 * nb[1] apart, not K. The last layer of a prompt often has fewer tokens than the others, since
 * llama.cpp drops rows whose logits nobody asked for.
 *
 * Ids come from a computation on untrusted weights. ggml only asserts their range in debug builds;
 * here one out of range is an error, since it would name memory that is not a slot.
 *
 * Rows of one expert stay in token order, as ggml's own grouping has them. One token's experts stay in the router's
 * order, likeliest first; those of several are sorted, which is the order of their weights in the file.
 *
 * Experts that a lossy setting gives up keep their place in the routing, behind the others (route_set_aside): what
 * computes and acquires goes over [0, n) and never sees them; who deals with them otherwise finds their rows.
 */
#include "ggml/route.h"

#include <stdlib.h>
#include <string.h>

#include "cache/error.h"

/* Room for so many experts and rows; what was there is of an earlier routing. */
static bool route_reserve(struct route *r, int64_t n_expert, int64_t rows) {
    if (n_expert > r->cap_experts || rows > r->cap_rows) {
        n_expert = n_expert > r->cap_experts ? n_expert : r->cap_experts;
        rows = rows > r->cap_rows ? rows : r->cap_rows;
        route_free(r);
        r->expert = calloc((size_t)n_expert, sizeof *r->expert);
        r->first = calloc((size_t)n_expert + 1, sizeof *r->first);
        r->index = calloc((size_t)n_expert, sizeof *r->index);
        r->spare = calloc((size_t)n_expert, sizeof *r->spare);
        r->list = calloc((size_t)rows, sizeof *r->list);
        if (!r->expert || !r->first || !r->index || !r->spare || !r->list) {
            route_free(r);
            return false;
        }
        r->cap_experts = n_expert;
        r->cap_rows = rows;
    }
    return true;
}

/* Rows to places: expert[], index[] and n_all are set, first[] and list[] follow from the ids. */
static void route_fill(struct route *r, const struct ggml_tensor *ids) {
    memset(r->first, 0, ((size_t)r->n_all + 1) * sizeof *r->first);
    for (int64_t t = 0; t < r->T; t++) {
        for (int64_t k = 0; k < r->K; k++) {
            r->first[r->index[route_id(ids, t, k)]]++;
        }
    }
    /* Counts to starts, then fill in token order. */
    int32_t at = 0;
    for (uint32_t i = 0; i < r->n_all; i++) {
        const int32_t count = r->first[i];
        r->first[i] = at;
        at += count;
    }
    for (int64_t t = 0; t < r->T; t++) {
        for (int64_t k = 0; k < r->K; k++) {
            r->list[r->first[r->index[route_id(ids, t, k)]]++] = (int32_t)(t * r->K + k);
        }
    }
    /* Filling moved every start to its end, which is the next one's start: move them back. */
    memmove(r->first + 1, r->first, r->n_all * sizeof *r->first);
    r->first[0] = 0;
}

/* Number the places by expert. */
static void route_sort(struct route *r, uint32_t n_expert) {
    uint32_t n = 0;
    for (uint32_t e = 0; e < n_expert; e++) {
        if (r->index[e] >= 0) {
            r->expert[n] = (int32_t)e;
            r->index[e] = (int32_t)n++;
        }
    }
}

int route_check(const struct ggml_tensor *ids, int64_t n_expert, struct sluice_error *err) {
    for (int64_t t = 0; t < ids->ne[1]; t++) {
        for (int64_t k = 0; k < ids->ne[0]; k++) {
            const int32_t e = route_id(ids, t, k);
            if (e < 0 || e >= n_expert) {
                return sluice_fail(err, SLUICE_ERR_FORMAT, "the router picked expert %d of %lld (%s)", e,
                                   (long long)n_expert, ids->name);
            }
        }
    }
    return sluice_ok(err);
}

int route_read(struct route *r, const struct ggml_tensor *ids, uint32_t n_expert, struct sluice_error *err) {
    const int64_t rows = ids->ne[0] * ids->ne[1];
    if (rows > INT32_MAX || !route_reserve(r, n_expert, rows)) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "out of memory for the routing of %lld tokens",
                           (long long)ids->ne[1]);
    }
    r->K = ids->ne[0];
    r->T = ids->ne[1];
    r->n = r->n_all = 0;
    if (route_check(ids, n_expert, err)) {
        return err->status;
    }
    memset(r->index, 0xff, (size_t)n_expert * sizeof *r->index); /* all -1 */
    for (int64_t t = 0; t < r->T; t++) {
        for (int64_t k = 0; k < r->K; k++) {
            const int32_t e = route_id(ids, t, k);
            if (r->index[e] < 0) {
                r->index[e] = (int32_t)r->n_all;
                r->expert[r->n_all++] = e;
            }
        }
    }
    r->n = r->n_all;
    if (r->T > 1) {
        route_sort(r, n_expert);
    }
    route_fill(r, ids);
    return sluice_ok(err);
}

void route_set_aside(struct route *r, const struct ggml_tensor *ids, const uint8_t *aside) {
    memcpy(r->spare, r->expert, r->n_all * sizeof *r->spare);
    r->n = 0;
    for (uint32_t i = 0; i < r->n_all; i++) {
        if (!aside[i]) {
            r->expert[r->n++] = r->spare[i];
        }
    }
    uint32_t at = r->n;
    for (uint32_t i = 0; i < r->n_all; i++) {
        if (aside[i]) {
            r->expert[at++] = r->spare[i];
        }
    }
    for (uint32_t i = 0; i < r->n_all; i++) {
        r->index[r->expert[i]] = (int32_t)i;
    }
    route_fill(r, ids);
}

struct route route_given_up(const struct route *r) {
    struct route part = *r;
    part.n = part.n_all = r->n_all - r->n;
    part.expert += r->n;
    part.first += r->n;
    part.index = part.spare = NULL;
    return part;
}

struct engine_routing route_routing(const struct route *r) {
    return (struct engine_routing){.tokens = (uint32_t)r->T,
                                   .top_k = (uint32_t)r->K,
                                   .n = r->n_all,
                                   .expert = r->expert,
                                   .first = r->first,
                                   .list = r->list};
}

void route_free(struct route *r) {
    free(r->expert);
    free(r->first);
    free(r->list);
    free(r->index);
    free(r->spare);
    memset(r, 0, sizeof *r);
}
