/*
 * identity.c - see identity.h.
 *
 * Hashing the whole file would read what this project exists not to read. 64 bytes of each tensor are enough to
 * tell two trainings of a model or two quantisations of it apart, and cost one small read each. The names of the
 * files, the splitting into shards and the metadata are left out: a renamed, merged or re-described file predicts
 * the same.
 */
#include "run/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { SAMPLE = 64 }; /* bytes of each tensor */

/* FNV-1a: no enemy is to be kept out, only mistakes. */
static uint64_t add(uint64_t hash, const void *data, size_t n) {
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ p[i]) * 0x100000001b3;
    }
    return hash;
}

/* 0 or an errno. Not the end of the file before `n` bytes: sluice_gguf_check saw to that. */
static int read_at(int fd, void *out, size_t n, uint64_t at) {
    size_t done = 0;
    while (done < n) {
        const ssize_t got = pread(fd, (char *)out + done, n - done, (off_t)(at + done));
        if (got > 0) {
            done += (size_t)got;
        } else if (got == 0 || errno != EINTR) {
            return got == 0 ? EIO : errno;
        }
    }
    return 0;
}

int sluice_model_identity(const struct sluice_gguf *g, uint64_t *out, struct sluice_error *err) {
    uint64_t hash = add(0xcbf29ce484222325, g->architecture, strlen(g->architecture));
    uint32_t shard = UINT32_MAX; /* the open one */
    int fd = -1, rc = 0;
    for (size_t i = 0; i < g->n_tensors && rc == 0; i++) {
        const struct sluice_gguf_tensor *t = &g->tensors[i];
        unsigned char sample[SAMPLE] = {0};
        if (t->shard != shard) {
            if (fd >= 0) {
                close(fd);
            }
            shard = t->shard;
            fd = open(g->shards[shard].path, O_RDONLY | O_CLOEXEC);
        }
        const int error =
            fd < 0 ? errno : read_at(fd, sample, t->bytes < SAMPLE ? (size_t)t->bytes : SAMPLE, t->offset);
        if (error) {
            rc = sluice_error_set(err, SLUICE_ERR_IO, "%s: %s", g->shards[shard].path, strerror(error));
        }
        const uint64_t facts[6] = {t->ne[0], t->ne[1], t->ne[2], t->ne[3], t->bytes, (uint64_t)t->type};
        hash = add(hash, t->name, strlen(t->name));
        hash = add(hash, facts, sizeof facts);
        hash = add(hash, sample, sizeof sample);
    }
    if (fd >= 0) {
        close(fd);
    }
    *out = hash;
    return rc;
}
