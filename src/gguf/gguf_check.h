/*
 * gguf_check.h - a bounded look at a GGUF file set before llama.cpp sees it.
 *
 * The only thing it promises: after sluice_gguf_check succeeded, every count, string and tensor of
 * every shard lies inside its file; after sluice_gguf_check_header, every count and string; and no key or name of
 * a tensor has a zero byte in it. See gguf_check.c for why that is worth a second parser.
 */
#ifndef SLUICE_GGUF_CHECK_H
#define SLUICE_GGUF_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sluice.h"

enum {
    SLUICE_GGUF_NAME_MAX = 64,    /* bytes of a tensor name with its terminator, ggml's own limit */
    SLUICE_GGUF_LAYERS_MAX = 512, /* layers, llama.cpp's own limit */
    SLUICE_GGUF_SHARDS_MAX = 1024 /* shards that we are willing to open */
};

/* One tensor, wherever it lies. */
struct sluice_gguf_tensor {
    char name[SLUICE_GGUF_NAME_MAX]; /* NUL-terminated */
    uint64_t ne[4];                  /* elements per dimension; 1 beyond n_dims */
    uint64_t offset;                 /* bytes from the start of its file */
    uint64_t bytes;                  /* weight bytes */
    uint32_t shard;                  /* index into shards */
    uint32_t n_dims;                 /* 0..4 */
    int type;                        /* enum ggml_type, known to this ggml */
};

/* One file of the set. */
struct sluice_gguf_shard {
    char *path;       /* owned */
    uint64_t bytes;   /* file size */
    uint64_t header;  /* bytes before the data section: counts, metadata, descriptions of tensors */
    uint64_t whole;   /* bytes that the file has at least when it is complete: where its last tensor ends */
    uint32_t tensors; /* tensors in this file */
};

/* A number, or a number per layer, of the model's metadata. */
struct sluice_gguf_number {
    char prefix[64];                        /* what its key had before the dot; must be the architecture */
    uint32_t n;                             /* 0: absent, 1: one number, else one per layer */
    bool array;                             /* stored as an array, even if of length 1 */
    uint64_t value[SLUICE_GGUF_LAYERS_MAX]; /* n of them */
};

struct sluice_gguf {
    char architecture[64];                 /* general.architecture; "" when the file has none */
    char name[128];                        /* general.name, cut to fit, likewise. Control characters of both are ? */
    struct sluice_gguf_number layers;      /* <arch>.block_count */
    struct sluice_gguf_number context;     /* <arch>.context_length, tokens */
    struct sluice_gguf_number experts;     /* <arch>.expert_count, per layer */
    struct sluice_gguf_number expert_used; /* <arch>.expert_used_count, the router's top-k */
    struct sluice_gguf_shard *shards;      /* n_shards, owned */
    struct sluice_gguf_tensor *tensors;    /* n_tensors in file order, owned */
    uint32_t n_shards;                     /* 1 for a model in one file */
    size_t n_tensors;                      /* over all shards */
};

/*
 * Read the metadata of the model at `path` and of the other shards of its set, and check it.
 * On success *out is to be freed with sluice_gguf_free. On failure *out is NULL and err names the
 * file: SLUICE_ERR_IO (cannot be opened or read), SLUICE_ERR_FORMAT (not a GGUF, truncated, not the
 * first shard, a shard is missing, ...), SLUICE_ERR_MEMORY.
 */
int sluice_gguf_check(const char *path, struct sluice_gguf **out, struct sluice_error *err);

/*
 * The same for files whose download has not ended: headers must be complete, tensors may lie beyond the end of their
 * file (its bytes are less than whole then). Every shard must have begun.
 */
int sluice_gguf_check_header(const char *path, struct sluice_gguf **out, struct sluice_error *err);

/* Free what the two made. NULL is fine. */
void sluice_gguf_free(struct sluice_gguf *g);

/*
 * Can a matmul read weights of that type (enum ggml_type)? Not integers, nor formats that only inputs are converted to:
 * the CPU backend has no dot product for them and would call none.
 */
bool sluice_gguf_multiplies(int type);

#endif
