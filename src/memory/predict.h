/* predict.h - how fast a model will run with some cache, from what was measured of disk and processor. */
#ifndef SLUICE_MEMORY_PREDICT_H
#define SLUICE_MEMORY_PREDICT_H

#include <stdbool.h>
#include <stdint.h>

/* Three values of a number that is not known exactly. Unknown: all are negative. */
struct predict_range {
    double low;  /* at worst, as far as is known */
    double mid;  /* expected */
    double high; /* at best */
};

/* What is known. Of a range of times, low is the longest: what makes the speed low. */
struct predict_input {
    struct predict_range
        compute_s; /* the matmuls and small operations of a token, all in memory, seconds; 0: not known */
    struct predict_range
        disk;       /* bytes per second at this file's slices, by as many I/O threads as will read; 0: not known */
    double graph_s; /* starting and ending one computation, seconds */
    uint64_t token_bytes; /* one token's experts */
    uint64_t bank_bytes;  /* all experts */
    double experts;       /* in a layer */
    double top_k;         /* of those, used by a token */
    uint32_t layers;      /* of the model */
    uint32_t moe_layers;  /* of those, with experts */
    int threads;          /* that compute */
    bool lookahead;       /* reads ahead while the disk is idle */
};

/* One cache. */
struct predict_row {
    struct predict_range read_bytes;   /* read from disk per token */
    struct predict_range token_s;      /* seconds of a token; low is the longest */
    struct predict_range tokens_per_s; /* of generation */
};

/*
 * The share of a token's bytes that is not in a cache which holds `share` of the expert index, on demand, after the
 * cache has filled: mid from recorded routings of models with about as many experts per expert used, low from routing
 * without any locality, high from the recorded routing with most.
 */
void predict_misses(double share, double experts, double top_k, struct predict_range *out);

/* Predict generation with that cache. Unknown where disk or processor are not known and matter. */
void predict_cache(const struct predict_input *in, uint64_t cache_bytes, struct predict_row *row);

/* The same resident, without sluice. */
void predict_resident(const struct predict_input *in, struct predict_row *row);

#endif
