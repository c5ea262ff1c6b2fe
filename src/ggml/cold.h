/* cold.h - the cold model: a second, smaller file with copies of the experts, for misses that weigh little. */
#ifndef SLUICE_GGML_COLD_H
#define SLUICE_GGML_COLD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "ggml.h"
#include "sluice.h"
#include "cache/engine.h"

struct sluice_gguf;
struct stream_weight;

/* The copy of one expert tensor. Owned by its weight; does not change while contexts compute. */
struct cold_weight {
    uint32_t tensor;         /* id in the cold engine */
    uint32_t group;          /* its group there */
    uint32_t part;           /* its part in the group's bundles */
    uint64_t bundle;         /* weight bytes of a copy, all its parts */
    struct ggml_tensor like; /* stands for the weight in nodes: its type, shape and strides; no data */
};

/* The second file, and the engine that reads it. One per process; in sluice_device. */
struct cold {
    struct engine *engine;    /* the copies' index, slots and lanes; NULL: no cold model is set */
    pthread_mutex_t lock;     /* guards the file while it is matched; taken before dense_lock */
    struct sluice_gguf *gguf; /* its checked headers, while it is matched; owned */
    uint32_t *file;           /* likewise, by shard: index in the engine, UINT32_MAX: not opened; owned */
    /* the rest is guarded by the device's lock */
    char type[32];   /* what most of its bytes are, e.g. "Q2_K"; "" before a model was matched */
    uint64_t least;  /* slot memory without which no block can run, bytes */
    uint64_t budget; /* slot memory decided for it, bytes */
};

/* Where a weight comes from, for buffer_each_weight. */
struct cold_origin {
    const struct stream_file *file; /* the model's file */
    uint64_t owner;                 /* which load it came from */
    uint32_t top_k;                 /* experts per token that the load announced */
};

/* Make the engine, if the settings name a cold model. */
int cold_setup(struct cold *c, const struct sluice_settings *s, struct sluice_error *err);

/*
 * Find the copies of all expert tensors that have none yet. Reads the file's headers if there are any. Fails,
 * naming file and tensor, when it is damaged, not a copy of these models, or one of their own files.
 */
int cold_match(struct cold *c, struct sluice_error *err);

/* These weights are freed: forget their copies. */
void cold_forget(struct cold *c, struct stream_weight *const *w, size_t n);

/* Slot memory without which no block can use copies. 0: no cold model in use. */
uint64_t cold_least(struct cold *c);

/* Slot memory that the copies have now. Asks their engine, also under the other engine's lock: never the other way. */
uint64_t cold_held(struct cold *c);

/* How much of `budget`, for a index of `index` bytes, the copies get, noted for their engine. 0: no cold model in use.
 */
uint64_t cold_take_share(struct cold *c, uint64_t budget, uint64_t index);

/* "FILE (TYPE)", the file without its folders, for the mode line. False: no cold model. */
bool cold_describe(struct cold *c, char *buf, size_t cap);

/* What the counters are, in the main engine's terms: adds reads and bytes of the second file to *s. */
void cold_add_stats(struct cold *c, struct sluice_stats *s);

#endif
