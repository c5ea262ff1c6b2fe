/*
 * info.h - the facts about a model that matter for streaming it, from its metadata alone.
 */
#ifndef SLUICE_RUN_INFO_H
#define SLUICE_RUN_INFO_H

#include <stdint.h>

#include "gguf/gguf_check.h"

struct expert_index; /* cache/expert_index.h */

enum { SLUICE_INFO_TYPES_MAX = 64 }; /* quantisation types told apart, more than ggml has */

/* How much of the model one quantisation type holds. */
struct sluice_info_type {
    const char *name; /* ggml's name, static */
    uint64_t bytes;   /* weight bytes of this type, dense and expert */
    uint32_t tensors; /* number of tensors */
};

struct sluice_info {
    uint64_t layers;         /* <arch>.block_count; 0 when absent */
    uint64_t moe_layers;     /* layers with expert tensors */
    uint64_t context;        /* tokens it was trained for; 0 when absent */
    uint64_t experts;        /* per layer; 0: not a MoE */
    uint64_t top_k_min;      /* experts per token, smallest over the MoE layers */
    uint64_t top_k_max;      /* the same, largest */
    uint64_t expert_tensors; /* tensors that would stream */
    uint64_t expert_bytes;   /* their weight bytes: the expert index */
    uint64_t dense_bytes;    /* weight bytes of everything else, kept in memory */
    uint64_t total_bytes;    /* both */
    uint64_t file_bytes;     /* sizes of all shards */
    uint64_t expert_min;     /* one expert of one layer, all its slices, bytes, smallest */
    uint64_t expert_max;     /* the same, largest */
    uint64_t layer_bytes;    /* the demand of one token in the hungriest layer */
    uint64_t token_bytes;    /* the demand of one token: sum over layers of top-k experts */
    uint32_t n_types;        /* entries of types */
    struct sluice_info_type types[SLUICE_INFO_TYPES_MAX]; /* most bytes first */
};

/*
 * Derive the facts. SLUICE_ERR_FORMAT when a sum does not fit 63 bits or a number is impossible;
 * a model without experts is no error (expert_tensors is 0 then).
 */
int sluice_info_collect(const struct sluice_gguf *g, struct sluice_info *out, struct sluice_error *err);

/* Would this tensor stream in a model with that many experts per layer? By name and shape, see info.c. */
bool sluice_info_streams(const struct sluice_gguf_tensor *t, uint64_t experts);

/*
 * Enter every expert tensor into *index, which is empty, with the alignment of the file systems that the files are on:
 * the index that the engine makes when llama.cpp loads the model. `info` is of `g`, by sluice_info_collect. On failure
 * (SLUICE_ERR_IO, SLUICE_ERR_FORMAT, SLUICE_ERR_MEMORY) too *index is to be freed by index_free.
 */
int sluice_info_index(struct expert_index *index, const struct sluice_gguf *g, const struct sluice_info *info,
                      struct sluice_error *err);

/*
 * Check a wish to use `k` experts per token. SLUICE_ERR_ARG with the reason when the model has no
 * experts, has fewer, or stores a number per layer (which one override cannot replace).
 */
int sluice_info_check_top_k(const struct sluice_gguf *g, uint64_t k, struct sluice_error *err);

#endif
