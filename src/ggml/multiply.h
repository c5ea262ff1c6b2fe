/* multiply.h - one expert matmul, or two of one input, over the experts that are held. */
#ifndef SLUICE_GGML_MULTIPLY_H
#define SLUICE_GGML_MULTIPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ggml/collect.h"
#include "ggml/hold.h"
#include "ggml/kernel.h"
#include "ggml.h"
#include "sluice.h"

enum { TRIAL_SHAPES = 16 }; /* kinds of expert tensors remembered; further ones take the reference path */

/* Whether the kernel computes ggml's bytes for one kind of expert tensor. */
struct trial_shape {
    enum ggml_type type;  /* of the weights */
    int64_t ne0, ne1;     /* their shape */
    uint64_t same, other; /* bit per number of rows: tried, with the same bytes; with others */
};

/* How matmuls are computed, and what was found out about the kernel. One per executor; zeroed but for the first two. */
struct multiply {
    struct collect *collect;                /* the executor's: nodes to run */
    bool reference;                         /* never by the kernel */
    double slept_s;                         /* seconds slept for slots; the owner takes them */
    struct trial_shape shape[TRIAL_SHAPES]; /* as met */
    int n;                                  /* entries */
    float *row;                             /* scratch: values of a row */
    char *input;                            /* scratch: an input row, converted */
    size_t row_cap, input_cap;              /* bytes of the two */
};

/* Expert matmuls that have their input in common, with weights of one type and shape. */
struct matmuls {
    struct ggml_tensor *node[KERNEL_MATS]; /* n entries */
    uint32_t part[KERNEL_MATS];            /* of the experts, that each multiplies */
    int n;                                 /* 1 or 2 */
};

void multiply_free(struct multiply *m);

/*
 * Append the matmuls, or the first of them, to what is collected: *taken says how many. *h is of their block. If its
 * experts pass in turns, they are run at once. *err says why an acquire failed.
 */
enum ggml_status multiply_run(struct multiply *m, struct hold *h, const struct matmuls *mm, int *taken,
                              struct sluice_error *err);

/* The parts that the first n of them multiply, a bit mask. */
static inline uint32_t matmuls_parts(const struct matmuls *mm, int n) {
    return 1u << mm->part[0] | (n == 2 ? 1u << mm->part[1] : 0);
}

/* ggml's word for what the engine said. */
static inline enum ggml_status multiply_status(int rc) {
    return rc == SLUICE_OK           ? GGML_STATUS_SUCCESS
           : rc == SLUICE_ERR_MEMORY ? GGML_STATUS_ALLOC_FAILED
                                     : GGML_STATUS_FAILED;
}

#endif
