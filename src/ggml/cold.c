/*
 * cold.c - the cold model: a second, smaller file with copies of the experts.
 *
 * Where a lossy setting would leave out a routed expert, because it is not in memory and weighs little,
 * its copy in another quantisation of the same model can be read instead: fewer bytes than the expert,
 * less loss than nothing. Here is the file: opening it, finding the copy of every expert tensor, and what
 * memory the copies get. executor.c computes with them.
 *
 * An engine of its own. The copies' index, slots, policy and lanes are a second instance of the stream
 * engine. So the first one, and with it everything that is not substituted, does exactly what it does without
 * a cold model: no eviction, class or layer number differs. A context acquires in both, always in the
 * same order: first experts, then copies. Who holds copies waits for nothing more, so contexts cannot
 * block each other. The price: as many reads again may be in flight, and the two queues know nothing of each other.
 *
 * How much memory. By replay of real traces (`sluice-coldsim TRACE BUDGET F 0.58`, 2026-11-30; MiB read
 * per generated token, both files; a copy is 0.58 of its expert, as Q2_K of Q4_K; policy cycle, which reads
 * up to 5 % less than LRU here):
 *
 *     share of the budget             0    1/64    1/32    1/16     1/8     1/4
 *     Qwen3-30B k6  2000  F=0.5   293.2   296.5   300.3   307.1   322.4   358.9
 *     Qwen3-30B k6  2000  F=0.8   254.4   253.8   254.4   256.5   264.5
 *     Qwen3-30B k6  2000  F=1     234.4   230.2   227.6   226.1   226.3   231.6
 *     Qwen3-30B k6  4000  F=1     118.3   109.5   106.1   101.4   103.2   115.3
 *     Gemma-4   k6  2000  F=1     189.5   184.8   180.8   176.7   174.1   172.6
 *     gpt-oss   k2  2000  F=1     443.3   440.9   439.1   436.9   437.4
 *
 * In proportion to the expert index, as size classes are, it would be 3/8. What is kept of the copies pays only
 * where they are most of what is read. So: nothing up to F = 0.5, then linearly up to 1/16 at F = 1; and
 * always the slots that one block needs.
 *
 * What is believed. Nothing of the file: its headers pass gguf_check.c, every tensor has to have the name
 * and shape of the model's, and the expert index checks that all slices lie in the file. That two files of equal
 * shapes are the same model cannot be told from headers; so one row of every tensor is compared with the
 * model's. Quantisations of the same weights point the same way (cosine 0.8 to 1, whatever the types),
 * other weights do not (about 0).
 */
#include "ggml/cold.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf/gguf_check.h"
#include "cache/error.h"

#define COLD_SHARE 0.0625 /* of the cache that the copies have at F = 1 */
#define COLD_FROM  0.5    /* F up to which they have no more than one block needs */
#define COLD_ALIGN 4      /* bytes; floats in it must be readable as such (the format's own default is 32) */
#define COLD_ALIKE 0.5    /* cosine of rows of the two files under which they are not the same model */

/* One call of cold_match. */
struct cold_matching {
    struct cold *cold;               /* what is matched */
    struct sluice_error *err;        /* where to say what is wrong */
    uint32_t found, missing;         /* weights without a copy so far: names that the file has, and has not */
    char lost[GGML_MAX_NAME];        /* the first that it has not */
    uint32_t compared;               /* rows compared with the model's */
    double alike;                    /* sum of their cosines */
    uint64_t bytes[GGML_TYPE_COUNT]; /* of the copies, by type */
};

/* How much memory the copies have; the engine asks when it cuts its arena. */
static int cold_budget(void *ud, const struct expert_index *b, uint64_t held, uint64_t *budget,
                       struct sluice_error *err) {
    struct cold *c = ud;
    (void)b;
    (void)held;
    pthread_mutex_lock(&c->memory_lock);
    *budget = c->budget ? c->budget : 1; /* 1: the slots of a block, and kept while nobody else wants them */
    pthread_mutex_unlock(&c->memory_lock);
    return sluice_ok(err);
}

int cold_setup(struct cold *c, const struct sluice_settings *s, _Atomic double *below, struct sluice_error *err) {
    c->path = s->cold_model;
    c->below = below;
    if (!s->cold_model[0]) {
        return sluice_ok(err);
    }
    struct sluice_settings own = *s;
    own.lookahead = false;
    c->engine = engine_create(&own, cold_budget, c, err);
    return c->engine ? SLUICE_OK : SLUICE_ERR_MEMORY;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Read the headers. */
static int cold_read(struct cold *c, struct sluice_error *err) {
    struct sluice_error why;
    const int rc = sluice_gguf_check(c->path, &c->gguf, &why);
    if (rc) {
        return sluice_fail(err, why.status, "cold model: %s", why.message);
    }
    c->file = malloc(c->gguf->n_shards * sizeof *c->file);
    if (!c->file) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "cold model: out of memory");
    }
    memset(c->file, 0xff, c->gguf->n_shards * sizeof *c->file); /* all UINT32_MAX */
    return SLUICE_OK;
}

/* Forget the headers, and let go of the shards that cold_file opened: their tensors, if any, hold them now. */
static void cold_close(struct cold *c) {
    for (uint32_t i = 0; c->file && i < c->gguf->n_shards; i++) {
        if (c->file[i] != UINT32_MAX) {
            engine_drop_file(c->engine, c->file[i]);
        }
    }
    sluice_gguf_free(c->gguf);
    free(c->file);
    c->gguf = NULL;
    c->file = NULL;
}

/* Open a shard in the engine. It must not be `from`, the model's own file. */
static int cold_file(struct cold *c, uint32_t shard, const struct stream_file *from, struct sluice_error *err) {
    const char *path = c->gguf->shards[shard].path;
    if (c->file[shard] == UINT32_MAX) {
        const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0) {
            return sluice_fail(err, SLUICE_ERR_IO, "cold model: %s: %s", path, strerror(errno));
        }
        const int rc = engine_add_file(c->engine, fd, path, &c->file[shard], err);
        close(fd);
        if (rc) {
            c->file[shard] = UINT32_MAX;
            return rc;
        }
    }
    const struct stream_file *f = engine_file(c->engine, c->file[shard]);
    if (f->dev == from->dev && f->ino == from->ino) {
        return sluice_fail(err, SLUICE_ERR_ARG, "cold model: %s is the model itself, not a smaller copy of it", path);
    }
    return SLUICE_OK;
}

static const struct sluice_gguf_tensor *cold_find(const struct cold *c, const char *name) {
    for (size_t i = 0; i < c->gguf->n_tensors; i++) {
        if (strcmp(c->gguf->tensors[i].name, name) == 0) {
            return &c->gguf->tensors[i];
        }
    }
    return NULL;
}

/* ---- is it the same model? ------------------------------------------------------------------- */

/* Row `row` of a tensor at `offset` of the file, as floats. False: cannot be read, or no memory. */
static bool cold_row(const struct stream_file *f, uint64_t offset, enum ggml_type type, int64_t n, uint64_t row,
                     float *out) {
    const uint64_t bytes = ggml_row_size(type, n), at = offset + row * bytes;
    const uint64_t begin = at / f->align * f->align;
    const size_t len = (size_t)((at + bytes + f->align - 1) / f->align * f->align - begin);
    void *buf = NULL;
    if (posix_memalign(&buf, f->align > 64 ? f->align : 64, len)) {
        return false;
    }
    const bool ok = stream_file_read(f, buf, begin, len, (size_t)(at - begin + bytes)) >= 0;
    if (ok && type == GGML_TYPE_F32) {
        memcpy(out, (char *)buf + (at - begin), (size_t)bytes);
    } else if (ok) {
        /* Quantised blocks want no alignment of their own; halves and floats are aligned by the format. */
        ggml_get_type_traits(type)->to_float((char *)buf + (at - begin), out, n);
    }
    free(buf);
    return ok;
}

/* Compare the middle row of the middle expert. */
static int cold_compare(struct cold_matching *m, const struct stream_weight *w, const struct stream_origin *from,
                        const struct sluice_gguf_tensor *t) {
    const struct cold *c = m->cold;
    const int64_t n = w->ne[0];
    const uint64_t row = (uint64_t)w->n_expert / 2 * (uint64_t)w->ne[1] + (uint64_t)w->ne[1] / 2;
    float *a = calloc((size_t)n, 2 * sizeof *a);
    if (!a) {
        return sluice_fail(m->err, SLUICE_ERR_MEMORY, "cold model: out of memory");
    }
    float *b = a + n;
    const struct stream_file *copy = engine_file(c->engine, c->file[t->shard]);
    int rc = SLUICE_OK;
    if (!sluice_gguf_multiplies(w->type)) {
        free(a);
        return rc; /* nothing to compare with */
    }
    if (!cold_row(from->file, w->offset, w->type, n, row, a)) {
        rc = sluice_fail(m->err, SLUICE_ERR_IO, "%s: reading tensor %s failed: %s", from->file->path, w->name,
                         strerror(errno));
    } else if (!cold_row(copy, t->offset, (enum ggml_type)t->type, n, row, b)) {
        rc = sluice_fail(m->err, SLUICE_ERR_IO, "%s: reading tensor %s failed: %s", copy->path, w->name,
                         strerror(errno));
    }
    double dot = 0, a2 = 0, b2 = 0;
    for (int64_t i = 0; i < n && rc == SLUICE_OK; i++) {
        dot += (double)a[i] * (double)b[i];
        a2 += (double)a[i] * (double)a[i];
        b2 += (double)b[i] * (double)b[i];
    }
    if (isfinite(dot) && isfinite(a2) && isfinite(b2) && a2 > 0 && b2 > 0) {
        m->alike += dot / sqrt(a2 * b2); /* every row counts the same, however large its values */
        m->compared++;
    }
    free(a);
    return rc;
}

/* ---- matching -------------------------------------------------------------------------------- */

/* Is there anything to match? */
static int cold_visit_need(void *ud, struct stream_weight *w, const struct stream_origin *from) {
    bool *need = ud;
    (void)from;
    *need = *need || !w->cold;
    return SLUICE_OK;
}

/* First round: is there a copy of everything, and is it one? Changes nothing. */
static int cold_visit_check(void *ud, struct stream_weight *w, const struct stream_origin *from) {
    struct cold_matching *m = ud;
    if (w->cold) {
        return SLUICE_OK;
    }
    const char *path = m->cold->gguf->shards[0].path;
    const struct sluice_gguf_tensor *t = cold_find(m->cold, w->name);
    if (!t) {
        if (m->missing++ == 0) {
            memcpy(m->lost, w->name, sizeof m->lost);
        }
        return SLUICE_OK;
    }
    m->found++;
    if (t->ne[0] != (uint64_t)w->ne[0] || t->ne[1] != (uint64_t)w->ne[1] || t->ne[2] != w->n_expert || t->ne[3] != 1) {
        return sluice_fail(
            m->err, SLUICE_ERR_FORMAT,
            "cold model: %s: tensor %s is %llu x %llu with %llu experts, the model's is %lld x %lld with %u", path,
            w->name, (unsigned long long)t->ne[0], (unsigned long long)t->ne[1], (unsigned long long)t->ne[2],
            (long long)w->ne[0], (long long)w->ne[1], w->n_expert);
    }
    if (!sluice_gguf_multiplies(t->type)) {
        return sluice_fail(m->err, SLUICE_ERR_FORMAT,
                           "cold model: %s: tensor %s has type %s, with which nothing can be multiplied", path, w->name,
                           ggml_type_name((enum ggml_type)t->type));
    }
    if (t->offset % COLD_ALIGN) {
        return sluice_fail(m->err, SLUICE_ERR_FORMAT, "cold model: %s: damaged: tensor %s lies at an odd offset", path,
                           w->name);
    }
    const int rc = cold_file(m->cold, t->shard, from->file, m->err);
    return rc ? rc : cold_compare(m, w, from, t);
}

/* Second round: enter the copies. */
static int cold_visit_add(void *ud, struct stream_weight *w, const struct stream_origin *from) {
    struct cold_matching *m = ud;
    struct cold *c = m->cold;
    const struct sluice_gguf_tensor *t = cold_find(c, w->name);
    if (t) {
        m->bytes[t->type] += t->bytes;
    }
    if (w->cold || !t) {
        return SLUICE_OK; /* a tensor that another thread's load added since the first round has its turn later */
    }
    if (c->file[t->shard] == UINT32_MAX) {
        return SLUICE_OK; /* likewise */
    }
    struct cold_weight *k = calloc(1, sizeof *k);
    if (!k) {
        return sluice_fail(m->err, SLUICE_ERR_MEMORY, "cold model: out of memory");
    }
    const uint64_t slice = t->bytes / w->n_expert;
    const int rc = engine_add_tensor(c->engine, c->file[t->shard], from->owner, w->name, t->offset, slice, w->n_expert,
                                     from->top_k, &k->tensor, m->err);
    if (rc) {
        free(k);
        return rc;
    }
    const struct engine_tensor_info info = engine_tensor(c->engine, k->tensor);
    k->group = info.group;
    k->part = info.part;
    k->like = (struct ggml_tensor){.type = (enum ggml_type)t->type, .ne = {w->ne[0], w->ne[1], w->n_expert, 1}};
    k->like.nb[0] = ggml_type_size(k->like.type);
    k->like.nb[1] = ggml_row_size(k->like.type, w->ne[0]);
    k->like.nb[2] = (size_t)slice;
    k->like.nb[3] = (size_t)t->bytes;
    memcpy(k->like.name, w->name, sizeof k->like.name);
    w->cold = k;
    return SLUICE_OK;
}

/* Third round: all parts of the copies are known. */
static int cold_visit_sum(void *ud, struct stream_weight *w, const struct stream_origin *from) {
    const struct cold_matching *m = ud;
    (void)from;
    if (w->cold) {
        w->cold->bundle = engine_bundle_bytes(m->cold->engine, w->cold->group);
    }
    return SLUICE_OK;
}

/* Note what the file is, for the mode line and the plan. */
static int cold_note(struct cold *c, const struct cold_matching *m, struct sluice_error *err) {
    uint64_t least = 0;
    const int rc = engine_measure(c->engine, 1, &least, err);
    int most = 0;
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        most = m->bytes[i] > m->bytes[most] ? i : most;
    }
    pthread_mutex_lock(&c->memory_lock);
    c->least = least;
    strncpy(c->type, ggml_type_name((enum ggml_type)most), sizeof c->type - 1);
    for (char *p = c->type; *p; p++) {
        *p = (char)(*p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p); /* as quantisations are named everywhere else */
    }
    pthread_mutex_unlock(&c->memory_lock);
    return rc;
}

/* With the lock held and the headers read. */
static int cold_match_all(struct cold *c, cold_each_fn each, void *device, struct sluice_error *err) {
    struct cold_matching m = {.cold = c, .err = err};
    int rc = each(device, cold_visit_check, &m);
    if (rc) {
        return rc;
    }
    if (m.missing && m.found) {
        return sluice_fail(err, SLUICE_ERR_FORMAT, "cold model: %s: has no tensor %s", c->path, m.lost);
    }
    if (m.missing) {
        return sluice_fail(err, SLUICE_ERR_FORMAT, "cold model: %s: holds none of the model's expert tensors (no %s)",
                           c->path, m.lost);
    }
    if (m.compared && m.alike / m.compared < COLD_ALIKE) {
        return sluice_fail(
            err, SLUICE_ERR_FORMAT,
            "cold model: %s: its experts are not this model's (their values agree to %.2f; copies to 0.8 "
            "and more)",
            c->path, m.alike / m.compared);
    }
    rc = each(device, cold_visit_add, &m);
    rc = rc ? rc : each(device, cold_visit_sum, &m);
    return rc ? rc : cold_note(c, &m, err);
}

int cold_match(struct cold *c, cold_each_fn each, void *device, struct sluice_error *err) {
    bool need = false;
    if (!c->engine) {
        return sluice_ok(err);
    }
    pthread_mutex_lock(&c->lock);
    each(device, cold_visit_need, &need);
    int rc = SLUICE_OK;
    if (need) { /* else a further context, or one without weights, by which a program sees what it needs */
        rc = cold_read(c, err);
        rc = rc ? rc : cold_match_all(c, each, device, err);
        cold_close(c);
    }
    pthread_mutex_unlock(&c->lock);
    return rc ? rc : sluice_ok(err);
}

void cold_forget(struct cold *c, struct stream_weight *const *w, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (w[i]->cold) {
            engine_remove_tensors(c->engine, &w[i]->cold->tensor, 1);
            free(w[i]->cold);
            w[i]->cold = NULL;
        }
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Is anything substituted? */
static bool cold_used(const struct cold *c) {
    return c->engine && atomic_load_explicit(c->below, memory_order_relaxed) > 0;
}

uint64_t cold_least(struct cold *c) {
    pthread_mutex_lock(&c->memory_lock);
    const uint64_t least = cold_used(c) ? c->least : 0;
    pthread_mutex_unlock(&c->memory_lock);
    return least;
}

uint64_t cold_held(struct cold *c) {
    struct sluice_stats own = {0};
    if (c->engine) {
        engine_stats(c->engine, &own);
    }
    return own.cache_bytes;
}

uint64_t cold_take_share(struct cold *c, uint64_t budget, uint64_t index) {
    const double f = atomic_load_explicit(c->below, memory_order_relaxed);
    uint64_t share = 0;
    pthread_mutex_lock(&c->memory_lock);
    if (cold_used(c) && budget) {
        share = f > COLD_FROM ? (uint64_t)((double)budget * COLD_SHARE * (f - COLD_FROM) / (1 - COLD_FROM)) : 0;
        if (budget >= index && budget - index < share) {
            share = budget - index; /* with all experts in memory no copy is ever asked for */
        }
        share = share > c->least ? share : c->least;
    }
    c->budget = share;
    pthread_mutex_unlock(&c->memory_lock);
    return share;
}

void cold_add_stats(struct cold *c, struct sluice_stats *s) {
    if (!c->engine) {
        return;
    }
    struct sluice_stats own;
    engine_stats(c->engine, &own);
    struct sluice_phase_stats *to[] = {&s->prompt, &s->generation};
    const struct sluice_phase_stats *from[] = {&own.prompt, &own.generation};
    for (int i = 0; i < 2; i++) {
        to[i]->reads += from[i]->reads;
        to[i]->read_bytes += from[i]->read_bytes;
        s->cold.copies += from[i]->routed;
        s->cold.hits += from[i]->hits;
        s->cold.reads += from[i]->reads;
        s->cold.read_bytes += from[i]->read_bytes;
    }
    s->submits += own.submits;
    s->queue_sum += own.queue_sum;
    s->cold.cache_bytes = own.cache_bytes;
    s->cold.tensors = own.tensors;
    s->direct_io = s->direct_io && (own.direct_io || own.tensors == 0);
}

bool cold_describe(struct cold *c, char *buf, size_t cap) {
    if (!c->engine) {
        return false;
    }
    const char *path = c->path, *slash = strrchr(path, '/');
    pthread_mutex_lock(&c->memory_lock);
    snprintf(buf, cap, "%.96s (%s)", slash ? slash + 1 : path, c->type[0] ? c->type : "not read yet");
    pthread_mutex_unlock(&c->memory_lock);
    return true;
}
