/* trial.h - does the kernel compute what ggml's own matmul does? Found out on the real thing. */
#ifndef SLUICE_GGML_TRIAL_H
#define SLUICE_GGML_TRIAL_H

#include <stddef.h>
#include <stdint.h>

#include "ggml/kernel.h"
#include "ggml/route.h"
#include "ggml-backend.h"

enum { TRIAL_SHAPES = 16 }; /* kinds of expert tensors remembered; further ones take the reference path */

enum trial_answer {
    TRIAL_SAME,    /* the kernel's bytes are ggml's */
    TRIAL_OTHER,   /* they are not */
    TRIAL_UNKNOWN, /* some number of rows was not tried yet */
};

/* What is known of one kind of expert tensor. */
struct trial_shape {
    enum ggml_type type;  /* of the weights */
    int64_t ne0, ne1;     /* their shape */
    uint64_t same, other; /* bit per number of rows: tried, with the same bytes; with others */
};

/* One per executor. Zeroed is empty. */
struct trial {
    struct trial_shape shape[TRIAL_SHAPES]; /* as met */
    int n;                                  /* entries */
    float *row;                             /* scratch: values of a row */
    char *input;                            /* scratch: an input row, converted */
    size_t row_cap, input_cap;              /* bytes of the two */
};

void trial_free(struct trial *t);

/* What is known of this node, whose experts have the row counts of the routing. */
enum trial_answer trial_ask(struct trial *t, const struct route *route, const struct ggml_tensor *node);

/*
 * The rows of the expert at `place` were computed by ggml, from these weights: remember whether the
 * kernel's bytes are the same. Does nothing when that number of rows is known. Fails only for want of
 * memory.
 */
enum ggml_status trial_compare(struct trial *t, const struct route *route, kernel_traits_fn traits,
                               const struct ggml_tensor *node, uint32_t place, const char *weights);

#endif
