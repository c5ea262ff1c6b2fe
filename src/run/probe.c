/*
 * probe.c - see probe.h.
 *
 * A bound that is to judge the engine needs the disk's rate for exactly what the engine asks of it:
 * slices of the size that this model has, anywhere in its expert tensors, in pieces of at most 1 MiB,
 * from as many threads. So the product's own lanes and files are used; a tool that reads big blocks in
 * order would name a rate that nobody can reach, and one with another queue depth a rate that means
 * nothing. The lanes are kept busy: whenever a piece is done, the next is queued.
 *
 * What a bench reads twice may come from a cache inside the disk or below a virtual machine. Slices
 * are chosen from all of the model, as routing would, which is all that can be done about that here.
 *
 * Of a file whose download has not ended, only slices that lie in it are read. Some programs make the file as long as
 * it will be and fill it in: reading such a hole costs nothing and would measure memory, so slices in holes are not
 * read either, as far as the file system tells (lseek, SEEK_HOLE).
 */
#include "run/probe.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/error.h"
#include "run/info.h"
#include "cache/clock.h"
#include "cache/file.h"
#include "cache/io.h"

enum {
    PROBE_CHUNK = 1 << 20, /* bytes of a piece, as the engine's */
    PROBE_DEPTH = 4,       /* pieces in flight per lane: enough that no lane ever waits for this thread */
    PROBE_TRIES = 1000,    /* slices in a row that are not in the file, after which it is taken to have none */
};

/* A probe that runs. */
struct probe {
    const struct sluice_gguf *gguf;            /* the model */
    const struct sluice_probe_params *params;  /* the wishes */
    struct stream_file *files;                 /* one per shard, owned */
    const struct sluice_gguf_tensor **experts; /* the tensors that stream, owned */
    size_t n_experts;                          /* of them */
    uint8_t *memory;                           /* all buffers, owned */
    size_t buffer_bytes;                       /* of one buffer */
    uint32_t n_buffers;                        /* pieces in flight at most */
    struct io *lanes;                          /* owned */
    pthread_mutex_t lock;                      /* guards what follows */
    pthread_cond_t ended;                      /* a piece is done */
    uint32_t *free_list;                       /* buffers that nobody reads into, owned */
    uint32_t n_free;                           /* of them */
    uint64_t bytes;                            /* read so far */
    int error;                                 /* errno of the first read that failed */
    const char *failed;                        /* path of its file */
    uint64_t random;                           /* state of the choice */
};

/* On a lane's thread. */
static void on_done(void *ud, const struct io_request *r, int64_t got, int error) {
    struct probe *p = ud;
    pthread_mutex_lock(&p->lock);
    if (got < 0) {
        p->failed = p->error ? p->failed : r->file->path;
        p->error = p->error ? p->error : error ? error : EIO;
    } else {
        p->bytes += (uint64_t)got;
    }
    p->free_list[p->n_free++] = r->part;
    pthread_cond_signal(&p->ended);
    pthread_mutex_unlock(&p->lock);
}

static uint64_t random_next(struct probe *p) {
    uint64_t x = p->random += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Open the shards, list the tensors, get the memory, start the lanes. */
static int probe_open(struct probe *p, struct sluice_error *err) {
    const struct sluice_gguf *g = p->gguf;
    const uint64_t experts = g->experts.n ? g->experts.value[0] : 0;
    uint32_t align = 512;
    p->files = calloc(g->n_shards, sizeof *p->files);
    p->experts = calloc(g->n_tensors + 1, sizeof *p->experts);
    p->n_buffers = p->params->lanes * PROBE_DEPTH;
    p->free_list = calloc(p->n_buffers, sizeof *p->free_list);
    if (!p->files || !p->experts || !p->free_list) {
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
    for (uint32_t i = 0; i < g->n_shards; i++) {
        const int rc = stream_file_open(&p->files[i], g->shards[i].path, p->params->direct, err);
        if (rc) {
            return rc;
        }
        align = p->files[i].align > align ? p->files[i].align : align;
    }
    p->buffer_bytes = ((size_t)PROBE_CHUNK + align - 1) / align * align; /* a piece is at most this */
    p->memory = aligned_alloc(align, p->buffer_bytes * p->n_buffers);
    if (!p->memory) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory for %" PRIu32 " reads", p->n_buffers);
    }
    memset(p->memory, 1, p->buffer_bytes * p->n_buffers); /* or the first reads would measure how pages are made */
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        p->free_list[p->n_free++] = i;
    }
    p->lanes = io_create(p->params->lanes, on_done, p, err);
    return p->lanes ? 0 : SLUICE_ERR_MEMORY;
}

static void probe_close(struct probe *p) {
    if (p->lanes) {
        pthread_mutex_lock(&p->lock);
        while (p->n_free < p->n_buffers) {
            pthread_cond_wait(&p->ended, &p->lock);
        }
        pthread_mutex_unlock(&p->lock);
        io_destroy(p->lanes);
    }
    for (uint32_t i = 0; p->files && i < p->gguf->n_shards; i++) {
        stream_file_close(&p->files[i]);
    }
    free(p->files);
    free(p->experts);
    free(p->free_list);
    free(p->memory);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->ended);
}

/* A buffer, as soon as there is one. *bytes: what was read so far. */
static uint32_t take_buffer(struct probe *p, uint64_t *bytes, int *error) {
    pthread_mutex_lock(&p->lock);
    while (p->n_free == 0) {
        pthread_cond_wait(&p->ended, &p->lock);
    }
    const uint32_t buffer = p->free_list[--p->n_free];
    *bytes = p->bytes;
    *error = p->error;
    pthread_mutex_unlock(&p->lock);
    return buffer;
}

static void give_buffer(struct probe *p, uint32_t buffer) {
    pthread_mutex_lock(&p->lock);
    p->free_list[p->n_free++] = buffer;
    pthread_mutex_unlock(&p->lock);
}

/* Are these bytes of the file there, and not a hole? */
static bool is_there(const struct stream_file *f, uint64_t from, uint64_t to) {
    if (to > f->size) {
        return false;
    }
    const off_t hole = lseek(f->fd, (off_t)from, SEEK_HOLE);
    return hole < 0 || (uint64_t)hole >= to; /* a file system that cannot tell has none */
}

/* A slice that is there, by chance. False: none seems to be. */
static bool choose_slice(struct probe *p, const struct sluice_gguf_tensor **tensor, uint64_t *from) {
    for (int i = 0; i < PROBE_TRIES; i++) {
        const struct sluice_gguf_tensor *t = p->experts[random_next(p) % p->n_experts];
        const uint64_t slice = t->bytes / t->ne[2];
        *tensor = t;
        *from = t->offset + random_next(p) % t->ne[2] * slice;
        if (is_there(&p->files[t->shard], *from, *from + slice)) {
            return true;
        }
    }
    return false;
}

/* Queue the pieces of a slice that is chosen by chance. *more becomes false when it is enough. */
static int read_slice(struct probe *p, double end, bool *more, struct sluice_error *err) {
    const struct sluice_gguf_tensor *t;
    uint64_t from;
    if (!choose_slice(p, &t, &from)) {
        return sluice_fail(err, SLUICE_ERR_ARG, "%s: has no experts to read", p->gguf->shards[0].path);
    }
    const struct stream_file *f = &p->files[t->shard];
    const uint64_t to = from + t->bytes / t->ne[2],
                   chunk = ((uint64_t)PROBE_CHUNK + f->align - 1) / f->align * f->align;
    for (uint64_t at = from / f->align * f->align; at < to && *more; at += chunk) {
        uint64_t bytes;
        int error;
        const uint32_t buffer = take_buffer(p, &bytes, &error);
        const uint64_t rest = (to - at + f->align - 1) / f->align * f->align;
        const struct io_request r = {
            .file = f,
            .dst = p->memory + p->buffer_bytes * buffer,
            .offset = at,
            .len = (uint32_t)(rest < chunk ? rest : chunk),
            .need = (uint32_t)(to - at < chunk ? to - at : chunk),
            .part = buffer,
        };
        *more = !error && clock_seconds() < end && bytes < p->params->max_bytes;
        if (!*more) {
            give_buffer(p, buffer);
        } else if (io_submit(p->lanes, &r, 1)) {
            give_buffer(p, buffer);
            return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory to queue a read");
        }
    }
    return 0;
}

int sluice_probe_disk(const struct sluice_gguf *g, const struct sluice_probe_params *params, struct sluice_probe *out,
                      struct sluice_error *err) {
    struct probe p = {.gguf = g, .params = params, .random = params->seed};
    memset(out, 0, sizeof *out);
    pthread_mutex_init(&p.lock, NULL);
    pthread_cond_init(&p.ended, NULL);
    int rc = probe_open(&p, err);
    const double start = clock_seconds();
    for (bool more = true; rc == 0 && more;) {
        rc = read_slice(&p, start + params->seconds, &more, err);
        out->slices += more;
        if (rc == 0 && params->interrupted && params->interrupted(params->user)) {
            rc = sluice_fail(err, SLUICE_ERR_STATE, "interrupted");
        }
    }
    out->direct = rc == 0;
    for (uint32_t i = 0; rc == 0 && i < g->n_shards; i++) {
        out->direct = out->direct && p.files[i].fd_direct >= 0;
    }
    pthread_mutex_lock(&p.lock);
    while (p.lanes && p.n_free < p.n_buffers) {
        pthread_cond_wait(&p.ended, &p.lock);
    }
    pthread_mutex_unlock(&p.lock);
    out->seconds = clock_seconds() - start;
    out->bytes = p.bytes;
    out->per_second = out->seconds > 0 ? (double)out->bytes / out->seconds : 0;
    if (rc == 0 && p.error) {
        rc = sluice_fail(err, SLUICE_ERR_IO, "%s: %s", p.failed, strerror(p.error));
    }
    probe_close(&p);
    return rc;
}
