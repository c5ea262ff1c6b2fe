/*
 * headers.c - see headers.h.
 *
 * The engine's own index, filled from what gguf_check.c read instead of from a model that llama.cpp loads: so a plan
 * counts what a run will count, window by window. Apart from dry.c, which needs llama.cpp, because this is the last
 * thing that is made of a stranger's numbers alone, and tests/fuzz feeds it without a model.
 */
#include "run/headers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int sluice_bank_of_headers(struct expert_index *b, const struct sluice_gguf *g, const struct sluice_info *info,
                           struct sluice_error *err) {
    int rc = 0;
    uint32_t *file = calloc(g->n_shards, sizeof *file);
    uint32_t open_files = 0;
    if (!file) {
        return sluice_error_set(err, SLUICE_ERR_MEMORY, "no memory");
    }
    for (; rc == 0 && open_files < g->n_shards; open_files++) {
        const struct sluice_gguf_shard *s = &g->shards[open_files];
        const int fd = open(s->path, O_RDONLY | O_CLOEXEC);
        rc = fd < 0 ? sluice_error_set(err, SLUICE_ERR_IO, "%s: %s", s->path, strerror(errno))
                    : index_add_file(b, fd, s->path, true, &file[open_files], err);
        if (fd >= 0) {
            close(fd);
        }
        if (rc == 0) { /* what is not there yet will be */
            struct stream_file *io = &b->files[file[open_files]]->io;
            io->size = io->size < s->whole ? s->whole : io->size;
        }
    }
    for (size_t i = 0; rc == 0 && i < g->n_tensors; i++) {
        const struct sluice_gguf_tensor *t = &g->tensors[i];
        uint32_t id;
        if (sluice_info_streams(t, info->experts)) {
            rc = index_add_tensor(b, file[t->shard], 1, t->name, t->offset, t->bytes / t->ne[2], (uint32_t)t->ne[2],
                                  (uint32_t)info->top_k_max, &id, err);
        }
    }
    free(file);
    return rc; /* index_free closes the files */
}
