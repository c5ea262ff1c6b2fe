/*
 * mkmoe_fill.c - the bytes of a synthetic model: random numbers, quantisation, and the file writer.
 *
 * The contents of a tensor depend on the seed and the tensor's name only, never on its place in a
 * file, so two layouts of one model hold the same weights.
 *
 * Quantising 30 billion weights takes an hour; drawing random quants takes no longer than writing
 * them. A fast fill draws the bits of each block and sets only its scales, chosen so that the weights
 * have mean 0 and standard deviation near 1/sqrt(inputs), as trained ones do.
 *
 * Routing locality: with independent random embeddings the router picks experts with no memory at
 * all, which no real model does. Every embedding is a common vector plus noise; noise 3 gives the LRU
 * hit rates measured on Qwen3-30B-A3B (53 % at 2000 MiB of cache, 76 % at 4000 MiB).
 *
 * The writer goes around the page cache where the file system allows it: copying into the cache took
 * 5 times as long as the disk on the machine this was measured on (0.3 against 1.6 GB/s), and it
 * pushed everything else out of memory. Direct writes need whole blocks from aligned memory, hence
 * the buffer; the tail of a file goes buffered.
 */
#include "mkmoe.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_BYTES ((size_t)4 << 20) /* one write, and the floats quantised at a time */

/* ---- random numbers ---------------------------------------------------------------------- */

/* splitmix64: one addition and a mix, so that a stream can start from any 64-bit number. */
static inline uint64_t next_u64(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Nearly normal, mean 0, deviation 1: four uniforms from one draw. The tails end at 3.5, which
 * also keeps outliers from spoiling a quantisation block. */
static inline float next_normal(uint64_t *state) {
    uint64_t r = next_u64(state);
    int32_t sum =
        (int32_t)(r & 0xffff) + (int32_t)(r >> 16 & 0xffff) + (int32_t)(r >> 32 & 0xffff) + (int32_t)(r >> 48);
    return ((float)sum - 131070.0f) * (1.7320508f / 65536.0f);
}

/* FNV-1a: the stream of a tensor is a function of its name. */
static uint64_t stream_of(int64_t seed, const char *name) {
    uint64_t h = 0xcbf29ce484222325u ^ (uint64_t)seed * 0x9e3779b97f4a7c15u;
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h;
}

/* ---- the file ---------------------------------------------------------------------------- */

static bool write_all(int fd, const char *p, size_t n, const char *path) {
    while (n) {
        ssize_t got = write(fd, p, n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            complain("%s: %s", path, got < 0 ? strerror(errno) : "nothing could be written");
            return false;
        }
        p += got, n -= (size_t)got;
    }
    return true;
}

bool writer_open(struct writer *w, const char *path) {
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    *w = (struct writer){.path = path, .buf = aligned_alloc(4096, CHUNK_BYTES)};
    if (!w->buf) {
        complain("out of memory");
        return false;
    }
    w->fd = open(path, flags | O_DIRECT, 0666);
    w->direct = w->fd >= 0;
    if (!w->direct)
        w->fd = open(path, flags, 0666);
    if (w->fd >= 0)
        return true;
    complain("%s: %s", path, strerror(errno));
    free(w->buf);
    return false;
}

bool writer_put(struct writer *w, const void *data, size_t n) {
    const char *p = data;
    while (n) {
        size_t now = CHUNK_BYTES - w->used < n ? CHUNK_BYTES - w->used : n;
        memcpy(w->buf + w->used, p, now);
        w->used += now, w->total += now, p += now, n -= now;
        if (w->used == CHUNK_BYTES) {
            if (!write_all(w->fd, w->buf, CHUNK_BYTES, w->path))
                return false;
            w->used = 0;
        }
    }
    return true;
}

bool writer_close(struct writer *w, bool ok) {
    if (ok && w->direct && fcntl(w->fd, F_SETFL, fcntl(w->fd, F_GETFL) & ~O_DIRECT) < 0) {
        complain("%s: %s", w->path, strerror(errno));
        ok = false;
    }
    ok = ok && write_all(w->fd, w->buf, w->used, w->path);
    if (close(w->fd) && ok) {
        complain("%s: %s", w->path, strerror(errno));
        ok = false;
    }
    free(w->buf);
    return ok;
}

/* ---- contents ---------------------------------------------------------------------------- */

void fill_free(struct fill *f) {
    free(f->values), free(f->quants), free(f->common), free(f->imatrix);
    ggml_quantize_free(); /* the grids of the IQ types */
}

bool fill_init(struct fill *f, int64_t seed, double noise, bool fast, size_t longest_row) {
    *f = (struct fill){.seed = seed, .noise = noise, .fast = fast};
    f->n_values = CHUNK_BYTES / sizeof(float) > longest_row ? CHUNK_BYTES / sizeof(float) : longest_row;
    f->values = malloc(f->n_values * sizeof(float));
    f->quants = malloc(f->n_values * sizeof(float));
    f->common = malloc(longest_row * sizeof(float));
    f->imatrix = malloc(longest_row * sizeof(float));
    if (!f->values || !f->quants || !f->common || !f->imatrix) {
        complain("out of memory");
        return false;
    }
    uint64_t rng = stream_of(seed, "common");
    for (size_t i = 0; i < longest_row; i++) {
        f->common[i] = next_normal(&rng);
        f->imatrix[i] = 1.0f;
    }
    return true;
}

static void draw_values(const struct tensor *t, struct fill *f, size_t rows, uint64_t *rng) {
    const size_t n = (size_t)t->ne[0];
    const float scale = (t->role == ROLE_ROUTER ? 3.0f : 1.0f) / sqrtf((float)n);
    for (size_t r = 0; r < rows; r++) {
        float *row = f->values + r * n;
        switch (t->role) {
        case ROLE_NORM:
            for (size_t i = 0; i < n; i++)
                row[i] = 1.0f;
            break;
        case ROLE_EMBEDDING:
            for (size_t i = 0; i < n; i++)
                row[i] = 0.02f * (f->common[i] + (float)f->noise * next_normal(rng));
            break;
        case ROLE_ROUTER:
        case ROLE_MATRIX:
            for (size_t i = 0; i < n; i++)
                row[i] = scale * next_normal(rng);
            break;
        }
    }
}

static bool write_quantized(struct writer *w, const struct tensor *t, struct fill *f) {
    const int64_t n = t->ne[0], at_once = (int64_t)f->n_values / n;
    int64_t rows = (t->n_dims > 1 ? t->ne[1] : 1) * (t->n_dims > 2 ? t->ne[2] : 1);
    uint64_t rng = stream_of(f->seed, t->name);
    while (rows > 0) {
        int64_t now = rows < at_once ? rows : at_once;
        draw_values(t, f, (size_t)now, &rng);
        size_t bytes = ggml_quantize_chunk(t->type, f->values, f->quants, 0, now, n,
                                           ggml_quantize_requires_imatrix(t->type) ? f->imatrix : NULL);
        if (bytes != (size_t)now * ggml_row_size(t->type, n)) {
            complain("%s: ggml quantised %zu bytes where %zu were due", t->name, bytes,
                     (size_t)now * ggml_row_size(t->type, n));
            return false;
        }
        if (!writer_put(w, f->quants, bytes))
            return false;
        rows -= now;
    }
    return true;
}

/*
 * Random quants. A Q4_K weight is d * scale * q - dmin * min with 6-bit scale and min and 4-bit q, a
 * Q6_K weight d * scale * (q - 32) with 8-bit scale: the divisors are the deviations of those
 * products over random bits, and dmin = 7.5 d centres Q4_K. d and dmin lead a Q4_K block, d ends
 * a Q6_K block.
 */
static bool write_random(struct writer *w, const struct tensor *t, struct fill *f) {
    const size_t block = ggml_type_size(t->type), at_once = CHUNK_BYTES / block;
    const float target = 1.0f / sqrtf((float)t->ne[0]);
    const bool q4 = t->type == GGML_TYPE_Q4_K;
    const ggml_fp16_t d = ggml_fp32_to_fp16(q4 ? target / 180.0f : target / (18.0f * 64.0f));
    const ggml_fp16_t dmin = ggml_fp32_to_fp16(target / 180.0f * 7.5f);
    size_t left = ggml_row_size(t->type, t->ne[0]) / block * (size_t)t->ne[1] * (size_t)(t->n_dims > 2 ? t->ne[2] : 1);
    uint64_t rng = stream_of(f->seed, t->name);
    while (left) {
        size_t now = left < at_once ? left : at_once;
        uint64_t *words = f->quants;
        for (size_t i = 0; i < (now * block + 7) / 8; i++)
            words[i] = next_u64(&rng);
        for (char *b = f->quants, *end = b + now * block; b < end; b += block) {
            if (q4) {
                memcpy(b, &d, sizeof(d));
                memcpy(b + sizeof(d), &dmin, sizeof(dmin));
            } else {
                memcpy(b + block - sizeof(d), &d, sizeof(d));
            }
        }
        if (!writer_put(w, f->quants, now * block))
            return false;
        left -= now;
    }
    return true;
}

bool fill_fast_type(enum ggml_type type) {
    return type == GGML_TYPE_Q4_K || type == GGML_TYPE_Q6_K;
}

bool fill_tensor(struct writer *w, const struct tensor *t, struct fill *f) {
    return f->fast && t->role == ROLE_MATRIX ? write_random(w, t, f) : write_quantized(w, t, f);
}
