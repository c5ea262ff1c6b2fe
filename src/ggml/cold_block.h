/* cold_block.h - computing the experts that a block gave up from their copies in the cold model. */
#ifndef SLUICE_GGML_COLD_BLOCK_H
#define SLUICE_GGML_COLD_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "ggml/collect.h"
#include "ggml/route.h"
#include "ggml/trial.h"
#include "cache/expert_index.h"
#include "cache/engine.h"
#include "cache/timing.h"

struct stream_weight;

/* One per executor. Zeroed is empty. */
struct cold_block {
    struct engine *engine;   /* holds the copies; NULL: there are none */
    struct collect *collect; /* the executor's: nodes to run */
    struct trial *trial;     /* likewise: whether the kernel computes ggml's bytes */
    struct timing *timing;   /* likewise: where the time goes */
    double *slept_s;         /* likewise: seconds slept for slots */
    kernel_traits_fn traits; /* of the CPU backend; NULL: not known */

    /* The current block. */
    const struct route *whole;                /* its routing, once cold_block_begin was told */
    struct route route;                       /* a view of it: the places computed now. Its arrays are whole's */
    uint32_t group;                           /* of the copies */
    enum engine_phase phase;                  /* whose counters */
    bool counted;                             /* hits and misses of the block were counted */
    bool held;                                /* slot[] holds all copies that the block needs */
    uint32_t *slot;                           /* by place of `route`: its slot while acquired */
    uint8_t *done;                            /* by place of `route`: computed */
    uint8_t *found;                           /* by place of `whole`, minus whole->n: enum engine_found */
    uint32_t cap;                             /* entries allocated of the three */
    struct ggml_tensor node[INDEX_PARTS_MAX]; /* by part: the block's matmul, with the copy for a weight */
};

void cold_block_free(struct cold_block *b);

/*
 * A block begins whose routing has given-up experts [n, n_all), all to be computed from copies. `w` is one of its
 * weights. Experts may be held; copies may not.
 */
enum ggml_status cold_block_begin(struct cold_block *b, const struct route *whole, const struct stream_weight *w,
                                  enum engine_phase phase, struct sluice_error *err);

/* Acquire all copies of the block with these parts (of the copies, a bit mask), if they fit, until cold_block_release.
 */
enum ggml_status cold_block_hold(struct cold_block *b, uint32_t parts, struct sluice_error *err);

/*
 * Append what computes the given-up rows of n expert matmuls of the block (1, or 2 with the same input). Copies that
 * are not held pass through in turns, and it is all run at once.
 */
enum ggml_status cold_block_add(struct cold_block *b, struct ggml_tensor *const *node, int n, struct sluice_error *err);

/* What was appended was run or forgotten: give the copies back that are held. */
void cold_block_release(struct cold_block *b);

#endif
