/*
 * info.c - see info.h.
 *
 * Which tensors are expert tensors is decided here by name and shape, because nothing is loaded
 * and there is no graph to look at: a tensor of three or more dimensions whose name carries one of
 * the two endings for which llama.cpp's tensor table (llama-arch.cpp) says GGML_OP_MUL_MAT_ID:
 *
 *   _exps    (gate, up, gate_up, down): as many slices as the model has experts
 *   _chexps  (the chunk experts of GroveMoE): fewer slices, several experts share one
 *
 * Shared experts (_shexp), biases and scales of experts have fewer dimensions or other names and
 * count as dense: they are small and stay in memory. The running backend decides by the graph; the
 * two agree on every model of llama.cpp's own test set, and the tests compare them.
 *
 * All sums are checked for overflow: the numbers come from a file. Nothing here needs llama.cpp, so that tests/fuzz can
 * feed it files without it.
 */
#include "run/info.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ggml.h"

#include "cache/error.h"
#include "cache/expert_index.h"

/* The weights of one layer that stream. */
struct layer_sum {
    uint64_t expert; /* bytes of one expert, all slices */
    uint64_t demand; /* bytes that one token asks for */
};

static bool add(uint64_t *sum, uint64_t n) {
    return !__builtin_add_overflow(*sum, n, sum) && *sum <= INT64_MAX;
}

/* "blk.12.ffn_up_exps.weight" -> 12; -1 for a tensor that belongs to no layer. */
static int layer_of(const char *name) {
    char *end;
    if (strncmp(name, "blk.", 4) != 0) {
        return -1;
    }
    unsigned long n = strtoul(name + 4, &end, 10);
    return end != name + 4 && *end == '.' && n < SLUICE_GGUF_LAYERS_MAX ? (int)n : -1;
}

static bool has_part(const char *name, const char *part) {
    const char *at = strstr(name, part);
    return at && (at[strlen(part)] == '.' || at[strlen(part)] == '\0');
}

bool sluice_info_streams(const struct sluice_gguf_tensor *t, uint64_t experts) {
    if (experts < 2 || t->n_dims < 3 || layer_of(t->name) < 0) {
        return false; /* llama.cpp builds a model with one "expert" as a dense one */
    }
    return (has_part(t->name, "_exps") && t->ne[2] == experts) ||
           (has_part(t->name, "_chexps") && t->ne[2] > 0 && t->ne[2] <= experts);
}

/* The router's top-k of a layer. */
static uint64_t top_k(const struct sluice_gguf *g, int layer) {
    const struct sluice_gguf_number *n = &g->expert_used;
    return n->n == 0 ? 0 : n->array && (uint32_t)layer < n->n ? n->value[layer] : n->value[0];
}

static int by_bytes(const void *a, const void *b) {
    const struct sluice_info_type *x = a, *y = b;
    return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : strcmp(x->name, y->name);
}

static bool count_type(struct sluice_info *out, const struct sluice_gguf_tensor *t) {
    const char *name = ggml_type_name((enum ggml_type)t->type);
    uint32_t i = 0;
    while (i < out->n_types && strcmp(out->types[i].name, name) != 0) {
        i++;
    }
    if (i == out->n_types) {
        if (i == SLUICE_INFO_TYPES_MAX) {
            return false;
        }
        out->types[out->n_types++] = (struct sluice_info_type){.name = name};
    }
    out->types[i].tensors++;
    return add(&out->types[i].bytes, t->bytes);
}

/* Add one expert tensor to its layer. Slices are equal: bytes is a multiple of ne[2] by construction. */
static bool count_expert(const struct sluice_gguf *g, const struct sluice_gguf_tensor *t, struct layer_sum *layers) {
    int il = layer_of(t->name);
    uint64_t slice = t->bytes / t->ne[2], k = top_k(g, il), demand;
    k = k < t->ne[2] ? k : t->ne[2]; /* shared chunk experts: at most all of them */
    return !__builtin_mul_overflow(slice, k, &demand) && add(&layers[il].expert, slice) &&
           add(&layers[il].demand, demand);
}

static bool sum_layers(const struct sluice_gguf *g, const struct layer_sum *layers, struct sluice_info *out) {
    for (int il = 0; il < SLUICE_GGUF_LAYERS_MAX; il++) {
        uint64_t expert = layers[il].expert, k = top_k(g, il);
        if (expert == 0) {
            continue;
        }
        out->expert_min = out->moe_layers == 0 || expert < out->expert_min ? expert : out->expert_min;
        out->expert_max = expert > out->expert_max ? expert : out->expert_max;
        out->top_k_min = out->moe_layers == 0 || k < out->top_k_min ? k : out->top_k_min;
        out->top_k_max = k > out->top_k_max ? k : out->top_k_max;
        out->layer_bytes = layers[il].demand > out->layer_bytes ? layers[il].demand : out->layer_bytes;
        out->moe_layers++;
        if (!add(&out->token_bytes, layers[il].demand)) {
            return false;
        }
    }
    return true;
}

int sluice_info_collect(const struct sluice_gguf *g, struct sluice_info *out, struct sluice_error *err) {
    struct layer_sum layers[SLUICE_GGUF_LAYERS_MAX] = {{0, 0}};
    bool ok = true;
    memset(out, 0, sizeof *out);
    out->layers = g->layers.n ? g->layers.value[0] : 0;
    out->context = g->context.n ? g->context.value[0] : 0;
    out->experts = g->experts.n ? g->experts.value[0] : 0;
    for (uint32_t i = 0; i < g->n_shards; i++) {
        ok = ok && add(&out->file_bytes, g->shards[i].bytes);
    }
    for (size_t i = 0; ok && i < g->n_tensors; i++) {
        const struct sluice_gguf_tensor *t = &g->tensors[i];
        ok = count_type(out, t) && add(&out->total_bytes, t->bytes);
        if (ok && sluice_info_streams(t, out->experts)) {
            ok = add(&out->expert_bytes, t->bytes) && count_expert(g, t, layers);
            out->expert_tensors++;
        }
    }
    ok = ok && sum_layers(g, layers, out);
    if (!ok) {
        return sluice_fail(err, SLUICE_ERR_FORMAT, "%s: damaged: its tensor sizes add up to more than 2^63 bytes",
                           g->shards[0].path);
    }
    out->dense_bytes = out->total_bytes - out->expert_bytes;
    qsort(out->types, out->n_types, sizeof out->types[0], by_bytes);
    return 0;
}

int sluice_info_index(struct expert_index *index, const struct sluice_gguf *g, const struct sluice_info *info,
                      struct sluice_error *err) {
    int rc = 0;
    uint32_t *file = calloc(g->n_shards, sizeof *file);
    if (!file) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory");
    }
    for (uint32_t i = 0; rc == 0 && i < g->n_shards; i++) {
        const struct sluice_gguf_shard *s = &g->shards[i];
        const int fd = open(s->path, O_RDONLY | O_CLOEXEC);
        rc = fd < 0 ? sluice_fail(err, SLUICE_ERR_IO, "%s: %s", s->path, strerror(errno))
                    : index_add_file(index, fd, s->path, true, &file[i], err);
        if (fd >= 0) {
            close(fd);
        }
        if (rc == 0) { /* what is not there yet will be */
            struct stream_file *io = &index->files[file[i]]->io;
            io->size = io->size < s->whole ? s->whole : io->size;
        }
    }
    for (size_t i = 0; rc == 0 && i < g->n_tensors; i++) {
        const struct sluice_gguf_tensor *t = &g->tensors[i];
        uint32_t id;
        if (sluice_info_streams(t, info->experts)) {
            rc = index_add_tensor(index, file[t->shard], 1, t->name, t->offset, t->bytes / t->ne[2], (uint32_t)t->ne[2],
                                  (uint32_t)info->top_k_max, &id, err);
        }
    }
    free(file);
    return rc; /* index_free closes the files */
}

int sluice_info_check_top_k(const struct sluice_gguf *g, uint64_t k, struct sluice_error *err) {
    uint64_t experts = g->experts.n ? g->experts.value[0] : 0;
    if (experts < 2) {
        return sluice_fail(err, SLUICE_ERR_ARG, "this model has no experts");
    }
    if (k < 1 || k > experts) {
        return sluice_fail(err, SLUICE_ERR_ARG, "must be 1..%" PRIu64 ", the model's number of experts", experts);
    }
    if (g->expert_used.array) {
        return sluice_fail(err, SLUICE_ERR_ARG, "this model uses a number of its own in every layer");
    }
    return 0;
}
