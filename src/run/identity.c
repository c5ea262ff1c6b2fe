/*
 * identity.c - see identity.h.
 *
 * Hashing the whole file would read what this project exists not to read. 64 bytes of each tensor are enough to tell
 * two trainings of a model or two quantisations of it apart, and cost one small read each: that is the identity of the
 * weights, which leaves out names of files, the splitting into shards and the metadata. A state that is restored must
 * have been computed with the same metadata as well, so the identity of the files takes the whole header of every
 * shard, where names, types and offsets are, and blocks of the weights at even distances: fine-tunes of one model may
 * have equal headers.
 */
#include "run/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "cache/error.h"

enum {
    TENSOR_SAMPLE = 64, /* bytes of each tensor */
    FILE_SAMPLES = 64,  /* blocks of weights per shard */
    FILE_BLOCK = 4096   /* bytes of each */
};

/* FNV-1a: no enemy is to be kept out, only mistakes. */
static uint64_t add(uint64_t hash, const void *data, size_t n) {
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ p[i]) * 0x100000001b3;
    }
    return hash;
}

/* Not the end of the file before `n` bytes: sluice_gguf_check saw to that; a file that was cut since is EPROTO. */
static bool read_at(int fd, void *out, size_t n, uint64_t at) {
    size_t done = 0;
    while (done < n) {
        const ssize_t got = pread(fd, (char *)out + done, n - done, (off_t)(at + done));
        if (got > 0) {
            done += (size_t)got;
        } else if (got == 0 || errno != EINTR) {
            errno = got == 0 ? EPROTO : errno;
            return false;
        }
    }
    return true;
}

/* Bytes [at, at + n) of a file. */
static bool add_bytes(XXH3_state_t *x, int fd, uint64_t at, uint64_t n) {
    unsigned char block[FILE_BLOCK];
    while (n > 0) {
        const size_t part = n < sizeof block ? (size_t)n : sizeof block;
        if (!read_at(fd, block, part, at)) {
            return false;
        }
        XXH3_128bits_update(x, block, part);
        at += part;
        n -= part;
    }
    return true;
}

/* One shard, whose file is open, to both. False with errno. */
static bool add_shard(const struct sluice_gguf *g, uint32_t shard, int fd, XXH3_state_t *files, uint64_t *weights) {
    const uint64_t bytes = g->shards[shard].bytes;
    uint64_t header = bytes; /* up to the first tensor, or all of it */
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct sluice_gguf_tensor *t = &g->tensors[i];
        if (t->shard != shard) {
            continue;
        }
        unsigned char sample[TENSOR_SAMPLE] = {0};
        const uint64_t facts[6] = {t->ne[0], t->ne[1], t->ne[2], t->ne[3], t->bytes, (uint64_t)t->type};
        if (!read_at(fd, sample, t->bytes < sizeof sample ? (size_t)t->bytes : sizeof sample, t->offset)) {
            return false;
        }
        *weights = add(*weights, t->name, strlen(t->name));
        *weights = add(*weights, facts, sizeof facts);
        *weights = add(*weights, sample, sizeof sample);
        header = t->offset < header ? t->offset : header;
    }
    XXH3_128bits_update(files, &bytes, sizeof bytes);
    const uint64_t rest = bytes - header, step = rest / FILE_SAMPLES;
    bool ok = add_bytes(files, fd, 0, header);
    for (uint64_t i = 0; ok && i < FILE_SAMPLES && rest; i++) {
        const uint64_t at = header + i * step, left = bytes - at;
        ok = add_bytes(files, fd, at, left < FILE_BLOCK ? left : FILE_BLOCK);
    }
    return ok;
}

int sluice_model_identity(const struct sluice_gguf *g, struct sluice_identity *out, struct sluice_error *err) {
    XXH3_state_t *files = XXH3_createState();
    int rc = files ? 0 : sluice_fail(err, SLUICE_ERR_MEMORY, "no memory");
    if (files) {
        XXH3_128bits_reset(files);
    }
    out->weights = add(0xcbf29ce484222325, g->architecture, strlen(g->architecture));
    for (uint32_t i = 0; rc == 0 && i < g->n_shards; i++) { /* tensors are in the order of their shards */
        const int fd = open(g->shards[i].path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || !add_shard(g, i, fd, files, &out->weights)) {
            rc = sluice_fail(err, SLUICE_ERR_IO, "%s: %s", g->shards[i].path, strerror(errno));
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    if (rc == 0) {
        const XXH128_hash_t id = XXH3_128bits_digest(files);
        snprintf(out->files, sizeof out->files, "%016" PRIx64 "%016" PRIx64, (uint64_t)id.high64, (uint64_t)id.low64);
    }
    XXH3_freeState(files);
    return rc;
}
