/* cold.h - the cold model: a second, smaller file with copies of the experts, for misses that weigh little. */
#ifndef SLUICE_GGML_COLD_H
#define SLUICE_GGML_COLD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "ggml.h"
#include "ggml/stream_weight.h"
#include "sluice.h"
#include "cache/engine.h"

struct sluice_gguf;

/* The copy of one expert tensor. Owned by its weight; does not change while contexts compute. */
struct cold_weight {
    uint32_t tensor;         /* id in the cold engine */
    uint32_t group;          /* its group there */
    uint32_t part;           /* its part in the group's bundles */
    uint64_t bundle;         /* weight bytes of a copy, all its parts */
    struct ggml_tensor like; /* stands for the weight in nodes: its type, shape and strides; no data */
};

/* The second file, and the engine that reads it. One in each device. Its functions take the locks. */
struct cold {
    struct engine *engine;       /* the copies' index, slots and I/O threads; NULL: no cold model is set */
    const char *path;            /* of the file; the settings' */
    _Atomic double *below;       /* weight below which experts are given up; 0: none is. The device's */
    pthread_mutex_t lock;        /* guards the file while it is matched; taken before dense_lock */
    struct sluice_gguf *gguf;    /* its checked headers, while it is matched; owned */
    uint32_t *file;              /* likewise, by shard: index in the engine, UINT32_MAX: not opened; owned */
    pthread_mutex_t memory_lock; /* guards the rest */
    char type[32];               /* what most of its bytes are, e.g. "Q2_K"; "" before a model was matched */
    uint64_t least;              /* slot memory without which no block can run, bytes */
    uint64_t budget;             /* slot memory decided for it, bytes */
};

/* Make the engine, if the settings name a cold model. *s and *below live as long as *c. */
int cold_setup(struct cold *c, const struct sluice_settings *s, _Atomic double *below, struct sluice_error *err);

/* Visits all weights of the device `ud` (buffer_each_weight). */
typedef int (*cold_each_fn)(void *device, stream_visit_fn visit, void *ud);

/*
 * Find the copies of all expert tensors that have none yet. Reads the file's headers if there are any. Fails,
 * naming file and tensor, when it is damaged, not a copy of these models, or one of their own files.
 */
int cold_match(struct cold *c, cold_each_fn each, void *device, struct sluice_error *err);

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
