/* trial.h - does the kernel compute what ggml's own matmul does? Found out on the real thing. */
#ifndef SLUICE_BACKEND_TRIAL_H
#define SLUICE_BACKEND_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/collect.h"
#include "backend/route.h"
#include "stream/engine.h"

enum { TRIAL_SHAPES = 16 }; /* kinds of expert tensors remembered; further ones take the reference path */

/* What is known of one kind of expert tensor. */
struct trial_shape {
    enum ggml_type type;  /* of the weights */
    int64_t ne0, ne1;     /* their shape */
    uint64_t same, other; /* bit per number of rows (trial_bit): tried, with the same bytes; with others */
};

/* One per executor. */
struct trial {
    struct trial_shape shape[TRIAL_SHAPES]; /* as met */
    int n;                                  /* entries */
    float *row;                             /* scratch: values of a row */
    char *input;                            /* scratch: an input row, converted */
    size_t row_cap, input_cap;              /* bytes of the two */
};

/* Zeroed is empty. */
void trial_free(struct trial *t);

/*
 * May the kernel compute this node, whose experts have the row counts of c's routing? Numbers of rows
 * that were not tried yet are tried now, on an expert that has as many: slot_of tells its pinned
 * slot, or UINT32_MAX where none is held; then it is acquired. *may is the answer. Fails like a
 * computation; *err is set when an acquire failed.
 */
enum ggml_status trial_rows(struct trial *t, struct collect *c, struct engine *e, struct ggml_tensor *node,
                            const struct engine_want *want, const uint32_t *slot_of, bool *may,
                            struct sluice_error *err);

#endif
