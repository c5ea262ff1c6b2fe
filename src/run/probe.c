/*
 * probe.c - see probe.h.
 *
 * A bound that is to judge the engine needs the disk's rate for exactly what the engine asks of it: slices of the size
 * that this model has, anywhere in its expert tensors, in pieces of at most 1 MiB, from as many threads. So the
 * product's own files are read, by threads that do what its I/O threads do: take the next piece in order and read it.
 * A tool that reads big blocks in order would report a rate that the engine cannot reach, and one with another queue
 * depth a rate that says nothing about it.
 *
 * What a bench reads twice may come from a cache inside the disk or below a virtual machine. Slices are chosen from all
 * of the model, as routing would, which is all that can be done about that here.
 *
 * Of a file whose download has not ended, only slices that lie in it are read. Some programs make the file as long as
 * it will be and fill it in: reading such a hole costs nothing and would measure memory, so slices in holes are not
 * read either, as far as the file system tells (lseek, SEEK_HOLE).
 */
#include "run/probe.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/clock.h"
#include "cache/error.h"
#include "cache/file.h"
#include "run/info.h"

enum {
    PROBE_PIECE = 1 << 20, /* bytes of a piece, as the engine's */
    PROBE_TRIES = 1000,    /* slices in a row that are not in the file, after which it is taken to have none */
    PROBE_THREADS = 64,    /* at most, as --io-threads */
};

/* A probe that runs. What the lock guards is the threads' next piece, and what came of the others. */
struct probe {
    const struct sluice_gguf *gguf;            /* the model */
    const struct sluice_probe_params *params;  /* as given */
    struct stream_file *files;                 /* one per shard, owned */
    const struct sluice_gguf_tensor **experts; /* the tensors that stream, owned */
    size_t n_experts;                          /* of them */
    uint8_t *memory;                           /* a buffer per thread, owned */
    size_t buffer_bytes;                       /* of one */
    pthread_mutex_t lock;                      /* guards what follows */
    const struct stream_file *file;            /* where the current slice is */
    uint64_t at, to;                           /* the rest of it, file offsets; none if equal */
    uint64_t random;                           /* state of the choice */
    uint32_t n_begun;                          /* threads that took a buffer */
    double begin;                              /* when the first of them did, seconds of the clock */
    struct sluice_probe *out;                  /* bytes and slices are counted in it */
    int rc;                                    /* the first failure; ends all threads */
    struct sluice_error err;                   /* its message */
};

static uint64_t random_next(struct probe *p) {
    uint64_t x = p->random += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Are these bytes of the file there, and not a hole? */
static bool is_there(const struct stream_file *f, uint64_t from, uint64_t to) {
    if (to > f->size) {
        return false;
    }
    const off_t hole = lseek(f->fd, (off_t)from, SEEK_HOLE);
    return hole < 0 || (uint64_t)hole >= to; /* a file system that cannot tell has none */
}

/* Make a slice that is there, by chance, the current one. False: none seems to be. */
static bool choose_slice(struct probe *p) {
    for (int i = 0; i < PROBE_TRIES; i++) {
        const struct sluice_gguf_tensor *t = p->experts[random_next(p) % p->n_experts];
        const uint64_t slice = t->bytes / t->ne[2];
        const uint64_t from = t->offset + random_next(p) % t->ne[2] * slice;
        p->file = &p->files[t->shard];
        if (is_there(p->file, from, from + slice)) {
            p->at = from / p->file->align * p->file->align;
            p->to = from + slice;
            p->out->slices++;
            return true;
        }
    }
    return false;
}

/* With the lock held: is there more to read? Then the current slice has a piece left. */
static bool more(struct probe *p) {
    const struct sluice_probe_params *params = p->params;
    if (p->rc == 0 && params->interrupted && params->interrupted(params->user)) {
        p->rc = sluice_fail(&p->err, SLUICE_ERR_STATE, "interrupted");
    }
    const bool enough = clock_seconds() - p->begin >= params->seconds || p->out->bytes >= params->max_bytes;
    if (p->rc || (enough && p->out->bytes > 0)) { /* a busy machine may let a short time pass without a read */
        return false;
    }
    if (p->at >= p->to && !choose_slice(p)) {
        p->rc = sluice_fail(&p->err, SLUICE_ERR_ARG, "%s: has no experts to read", p->gguf->shards[0].path);
    }
    return p->rc == 0;
}

/* One reading thread: takes the next piece of the current slice, reads it, until it is enough. */
static void *read_pieces(void *ud) {
    struct probe *p = ud;
    pthread_mutex_lock(&p->lock);
    p->begin = p->n_begun == 0 ? clock_seconds() : p->begin;
    uint8_t *buffer = p->memory + p->buffer_bytes * p->n_begun++;
    while (more(p)) {
        const struct stream_file *f = p->file;
        const uint64_t align = f->align, at = p->at, left = p->to - at;
        const uint64_t piece = (PROBE_PIECE + align - 1) / align * align, all = (left + align - 1) / align * align;
        p->at += piece;
        pthread_mutex_unlock(&p->lock);
        const int64_t got = stream_file_read(f, buffer, at, all < piece ? all : piece, left < piece ? left : piece);
        const int error = errno;
        pthread_mutex_lock(&p->lock);
        if (got >= 0) {
            p->out->bytes += (uint64_t)got;
        } else if (p->rc == 0) {
            p->rc = sluice_fail(&p->err, SLUICE_ERR_IO, "%s: %s", f->path, strerror(error));
        }
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Open the shards, list the tensors, get the memory. */
static int probe_open(struct probe *p, struct sluice_error *err) {
    const struct sluice_gguf *g = p->gguf;
    const uint64_t experts = g->experts.n ? g->experts.value[0] : 0;
    uint32_t align = 512;
    p->files = calloc(g->n_shards, sizeof *p->files);
    p->experts = calloc(g->n_tensors + 1, sizeof *p->experts);
    if (!p->files || !p->experts) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory");
    }
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct sluice_gguf_tensor *t = &g->tensors[i];
        if (sluice_info_streams(t, experts) && t->offset + t->bytes / t->ne[2] <= g->shards[t->shard].bytes) {
            p->experts[p->n_experts++] = t;
        }
    }
    if (p->n_experts == 0) {
        return sluice_fail(err, SLUICE_ERR_ARG, "%s: has no experts to read", g->shards[0].path);
    }
    p->out->direct = true;
    for (uint32_t i = 0; i < g->n_shards; i++) {
        const int rc = stream_file_open(&p->files[i], g->shards[i].path, p->params->direct, err);
        if (rc) {
            return rc;
        }
        p->out->direct = p->out->direct && p->files[i].fd_direct >= 0;
        align = p->files[i].align > align ? p->files[i].align : align;
    }
    p->buffer_bytes = ((size_t)PROBE_PIECE + align - 1) / align * align;
    p->memory = aligned_alloc(align, p->buffer_bytes * p->params->lanes);
    if (!p->memory) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory for %" PRIu32 " reads", p->params->lanes);
    }
    memset(p->memory, 1, p->buffer_bytes * p->params->lanes); /* or the first reads would measure how pages are made */
    return 0;
}

int sluice_probe_disk(const struct sluice_gguf *g, const struct sluice_probe_params *params, struct sluice_probe *out,
                      struct sluice_error *err) {
    struct probe p = {.gguf = g, .params = params, .random = params->seed, .out = out};
    pthread_t threads[PROBE_THREADS];
    uint32_t n = 0;
    *out = (struct sluice_probe){0};
    assert(params->lanes <= PROBE_THREADS);
    pthread_mutex_init(&p.lock, NULL);
    int rc = probe_open(&p, err);
    while (rc == 0 && n < params->lanes && pthread_create(&threads[n], NULL, read_pieces, &p) == 0) {
        n++;
    }
    if (rc == 0 && n < params->lanes) {
        pthread_mutex_lock(&p.lock);
        p.rc = sluice_fail(&p.err, SLUICE_ERR_MEMORY, "cannot start %" PRIu32 " threads", params->lanes);
        pthread_mutex_unlock(&p.lock);
    }
    for (uint32_t i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
    }
    out->seconds = n ? clock_seconds() - p.begin : 0;
    out->per_second = out->seconds > 0 ? (double)out->bytes / out->seconds : 0;
    if (rc == 0 && p.rc) {
        rc = sluice_fail(err, p.err.status, "%s", p.err.message);
    }
    for (uint32_t i = 0; p.files && i < g->n_shards; i++) {
        stream_file_close(&p.files[i]);
    }
    free(p.files);
    free(p.experts);
    free(p.memory);
    pthread_mutex_destroy(&p.lock);
    return rc;
}
