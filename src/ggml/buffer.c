/*
 * buffer.c - where tensors live.
 *
 * Three kinds of buffer come from our buffer type:
 *
 *   weights over a mapped file   llama.cpp maps the model and hands us the address. Every tensor
 *                                placed in it is an expert tensor: its file offset follows from its
 *                                address, it is entered in the expert index, and the mapping under it is
 *                                never read again.
 *   anything else over a pointer not a mapped file (an embedder's own memory): plain host memory.
 *   allocated                    compute buffers of our splits; and expert weights when the program
 *                                loads without mapping. Those were read into memory already and are
 *                                computed from there, like stock llama.cpp; the mode line says so.
 *
 * A weights buffer also keeps the books on the dense weights of its file, which llama.cpp puts into
 * buffers of its own over the same mapping: they are noted while graphs are planned and moved out of
 * the page cache before the first block is computed (dense.c).
 *
 * All are host memory, so the CPU backend reads our outputs and we read its outputs, no copies.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ggml/backend.h"
#include "ggml/dense.h"
#include "ggml/maps.h"
#include "ggml/pages.h"
#include "gguf/gguf_check.h"
#include "memory/limits.h"
#include "cache/error.h"

enum { BUFFER_ALIGN = 64 }; /* bytes, for vector loads; ggml's CPU buffers promise 32 or 64 */

struct sluice_buffer {
    void *base;                     /* first byte */
    bool own;                       /* base is to be freed */
    bool mapped;                    /* a mapped file: tensors in it stream */
    uint32_t file;                  /* index in the expert index, when mapped */
    uint64_t offset;                /* file offset of base, bytes, when mapped */
    uint64_t owner;                 /* which load this is */
    uint32_t top_k;                 /* experts per token that the load announced */
    struct stream_weight **weights; /* tensors registered, for removal */
    uint32_t *tensors;              /* their ids */
    struct pages_range *ranges;     /* the bytes of the mapping under each */
    int fd;                         /* the file, for advice on its page cache; -1 when not mapped */
    uint64_t file_size;             /* its size, bytes */
    struct maps_id id;              /* which mappings are of that file */
    bool advised;                   /* buffer_advise_pages is done with it */
    _Atomic bool settled;           /* dense weights are where they are to be; set under dense_lock */
    struct dense dense;             /* which they are; under dense_lock */
    uint64_t dense_noted;           /* copies of its sums, bytes, under `lock` of the device */
    uint64_t dense_held;            /* the same */
    size_t n, cap;                  /* how many, and room */
    struct sluice_buffer *next;     /* in sluice_device.buffers, when mapped */
};

static void buffer_free(ggml_backend_buffer_t buffer) {
    struct sluice_buffer *b = buffer->context;
    device_keep_stats();
    pthread_mutex_lock(&sluice_device.dense_lock);
    pthread_mutex_lock(&sluice_device.lock);
    for (struct sluice_buffer **p = &sluice_device.buffers; *p; p = &(*p)->next) {
        if (*p == b) {
            *p = b->next;
            break;
        }
    }
    pthread_mutex_unlock(&sluice_device.lock);
    if (b->mapped && !atomic_load(&b->settled)) {
        atomic_fetch_sub(&sluice_device.collecting, 1);
    }
    pthread_mutex_unlock(&sluice_device.dense_lock);
    dense_free(&b->dense);
    cold_forget(&sluice_device.cold, b->weights, b->n);
    engine_remove_tensors(sluice_device.engine, b->tensors, b->n);
    struct sluice_stats st;
    device_stats(&st);
    if (st.tensors == 0) {
        step_unpublish(&sluice_device.steps);
    }
    if (b->mapped) {
        engine_drop_file(sluice_device.engine, b->file);
    }
    for (size_t i = 0; i < b->n; i++) {
        free(b->weights[i]);
    }
    free(b->weights);
    free(b->tensors);
    free(b->ranges);
    if (b->fd >= 0) {
        close(b->fd);
    }
    if (b->own) {
        free(b->base);
    }
    free(b);
}

static void *buffer_base(ggml_backend_buffer_t buffer) {
    struct sluice_buffer *b = buffer->context;
    /* ggml wants a base that is not NULL even for the empty buffers it asks questions with. */
    return b->base ? b->base : (void *)(uintptr_t)BUFFER_ALIGN;
}

/* Make room for one more weight. Caller holds the device's lock, since buffer_advise_pages walks the arrays. */
static bool buffer_grow(struct sluice_buffer *b) {
    if (b->n < b->cap) {
        return true;
    }
    const size_t cap = b->cap ? b->cap * 2 : 64;
    struct stream_weight **w = reallocarray(b->weights, cap, sizeof *w);
    if (w) {
        b->weights = w;
    }
    uint32_t *t = reallocarray(b->tensors, cap, sizeof *t);
    if (t) {
        b->tensors = t;
    }
    struct pages_range *r = reallocarray(b->ranges, cap, sizeof *r);
    if (r) {
        b->ranges = r;
    }
    if (!w || !t || !r) {
        return false;
    }
    b->cap = cap;
    return true;
}

/* The pages of b's file that should be in memory, told to the kernel. Caller holds the device's lock. */
static void buffer_advise(struct sluice_buffer *b, bool want) {
    pages_advise(b->fd, (char *)b->base - b->offset, b->file_size, b->ranges, b->n, sluice_device.settings.direct_io,
                 want);
}

void buffer_advise_pages(void) {
    pthread_mutex_lock(&sluice_device.lock);
    for (struct sluice_buffer *b = sluice_device.buffers; b; b = b->next) {
        if (!b->advised) {
            buffer_advise(b, sluice_device.settings.dense == SLUICE_DENSE_MMAP);
            b->advised = true;
        }
    }
    pthread_mutex_unlock(&sluice_device.lock);
}

static enum ggml_status buffer_init_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *t) {
    struct sluice_buffer *b = buffer->context;
    if (t->view_src || !b->mapped) {
        return GGML_STATUS_SUCCESS;
    }
    struct sluice_error err;
    if (!sluice_gguf_multiplies(t->type)) {
        sluice_fail(&err, SLUICE_ERR_FORMAT, "tensor %s has type %s, with which nothing can be multiplied", t->name,
                    ggml_type_name(t->type));
        device_report(&err);
        return GGML_STATUS_FAILED;
    }
    struct stream_weight *w = calloc(1, sizeof *w);
    pthread_mutex_lock(&sluice_device.lock);
    const bool room = w && buffer_grow(b);
    pthread_mutex_unlock(&sluice_device.lock);
    if (!room) {
        free(w);
        sluice_fail(&err, SLUICE_ERR_MEMORY, "tensor %s: out of memory", t->name);
        device_report(&err);
        return GGML_STATUS_ALLOC_FAILED;
    }
    const uint64_t offset = b->offset + (uint64_t)((char *)t->data - (char *)b->base);
    if (engine_add_tensor(sluice_device.engine, b->file, b->owner, t->name, offset, t->nb[2], (uint32_t)t->ne[2],
                          b->top_k, &w->tensor, &err)) {
        free(w);
        device_report(&err);
        return GGML_STATUS_FAILED;
    }
    const struct engine_tensor_info info = engine_tensor(sluice_device.engine, w->tensor);
    w->group = info.group;
    w->part = info.part;
    w->n_expert = info.n_expert;
    memcpy(w->name, t->name, sizeof w->name);
    w->type = t->type;
    w->ne[0] = t->ne[0];
    w->ne[1] = t->ne[1];
    w->offset = offset;
    pthread_mutex_lock(&sluice_device.lock);
    b->weights[b->n] = w;
    b->tensors[b->n] = w->tensor;
    b->ranges[b->n++] = (struct pages_range){.start = t->data, .len = ggml_nbytes(t)};
    pthread_mutex_unlock(&sluice_device.lock);
    t->extra = w;
    return GGML_STATUS_SUCCESS;
}

static void buffer_memset(ggml_backend_buffer_t buffer, struct ggml_tensor *t, uint8_t value, size_t offset,
                          size_t size) {
    (void)buffer;
    memset((char *)t->data + offset, value, size);
}

static void buffer_set(ggml_backend_buffer_t buffer, struct ggml_tensor *t, const void *data, size_t offset,
                       size_t size) {
    (void)buffer;
    memcpy((char *)t->data + offset, data, size);
}

static void buffer_get(ggml_backend_buffer_t buffer, const struct ggml_tensor *t, void *data, size_t offset,
                       size_t size) {
    struct sluice_buffer *b = buffer->context;
    const char *at = (const char *)t->data + offset;
    bool fenced = false;
    if (b->mapped) {
        pthread_mutex_lock(&sluice_device.dense_lock);
        fenced = dense_is_fenced(&b->dense, at, size);
        pthread_mutex_unlock(&sluice_device.dense_lock);
    }
    if (!fenced) {
        memcpy(data, at, size);
    } else if (stream_file_pread(b->fd, data, b->offset + (uint64_t)(at - (char *)b->base), size) != (int64_t)size) {
        GGML_ABORT("sluice: tensor %s cannot be read from its file", t->name); /* ggml has no way to say so */
    }
}

static void buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    struct sluice_buffer *b = buffer->context;
    if (b->own) {
        memset(b->base, value, buffer->size);
    }
}

static bool buffer_copy(ggml_backend_buffer_t buffer, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    (void)buffer;
    if (!ggml_backend_buffer_is_host(src->buffer)) {
        return false;
    }
    memcpy(dst->data, src->data, ggml_nbytes(src));
    return true;
}

/* Wrap b. Takes it over, also on failure. */
static ggml_backend_buffer_t buffer_make(struct sluice_buffer *b, size_t size) {
    const struct ggml_backend_buffer_i iface = {
        .free_buffer = buffer_free,
        .get_base = buffer_base,
        .init_tensor = buffer_init_tensor,
        .memset_tensor = buffer_memset,
        .set_tensor = buffer_set,
        .get_tensor = buffer_get,
        .cpy_tensor = buffer_copy,
        .clear = buffer_clear,
    };
    return ggml_backend_buffer_init(&sluice_device.buft, iface, b, size);
}

static struct sluice_buffer *buffer_new(void *base, bool own) {
    struct sluice_buffer *b = calloc(1, sizeof *b);
    if (!b) {
        struct sluice_error err;
        sluice_fail(&err, SLUICE_ERR_MEMORY, "out of memory");
        device_report(&err);
        if (own) {
            free(base);
        }
        return NULL;
    }
    b->base = base;
    b->own = own;
    b->fd = -1;
    return b;
}

static const char *buft_name(ggml_backend_buffer_type_t t) {
    (void)t;
    return "SLUICE";
}

static ggml_backend_buffer_t buft_alloc(ggml_backend_buffer_type_t t, size_t size) {
    (void)t;
    struct sluice_error err;
    if (device_refuses()) {
        return NULL;
    }
    void *p = NULL;
    if (size) {
        /* Weights that are loaded without mapping arrive here in one piece: a index bigger than memory
         * would be read until the kernel kills the process. Compute buffers are never that large. */
        struct plan_limits l;
        plan_limits_read(&l, "");
        if (l.available && size > l.available) {
            sluice_fail(&err, SLUICE_ERR_BUDGET,
                        "the program loads weights without mapping them and asks for %zu MiB where %llu MiB are left: "
                        "let it map the model (llama.cpp: --load-mode mmap), then experts stream",
                        size >> 20, (unsigned long long)(l.available >> 20));
            device_report(&err);
            return NULL;
        }
        if (posix_memalign(&p, BUFFER_ALIGN, size)) {
            sluice_fail(&err, SLUICE_ERR_MEMORY, "cannot allocate a buffer of %zu MiB", size >> 20);
            device_report(&err);
            return NULL;
        }
    }
    struct sluice_buffer *b = buffer_new(p, true);
    return b ? buffer_make(b, size) : NULL;
}

static size_t buft_alignment(ggml_backend_buffer_type_t t) {
    (void)t;
    return BUFFER_ALIGN;
}

static bool buft_is_host(ggml_backend_buffer_type_t t) {
    (void)t;
    return true;
}

void buffer_type_init(struct ggml_backend_buffer_type *t, ggml_backend_dev_t dev) {
    *t = (struct ggml_backend_buffer_type){
        .iface = {.get_name = buft_name,
                  .alloc_buffer = buft_alloc,
                  .get_alignment = buft_alignment,
                  .is_host = buft_is_host},
        .device = dev,
    };
}

ggml_backend_buffer_t buffer_from_host_ptr(ggml_backend_dev_t dev, void *ptr, size_t size, size_t max_tensor_size) {
    (void)dev;
    (void)max_tensor_size;
    struct sluice_error err;
    if (device_refuses()) {
        return NULL;
    }
    struct sluice_buffer *b = buffer_new(ptr, false);
    if (!b) {
        return NULL;
    }
    b->owner = match_load_owner(&b->top_k);
    struct maps_file m;
    if (maps_find(ptr, size, &m, &err) == SLUICE_OK) {
        if (engine_add_file(sluice_device.engine, m.fd, m.path, &b->file, &err) == SLUICE_OK) {
            b->mapped = true;
            b->offset = m.offset;
            b->file_size = m.size;
            b->fd = m.fd;
            b->id = m.id;
            pthread_mutex_lock(&sluice_device.lock);
            b->next = sluice_device.buffers;
            sluice_device.buffers = b;
            pthread_mutex_unlock(&sluice_device.lock);
            atomic_fetch_add(&sluice_device.collecting, 1);
        } else {
            close(m.fd);
        }
    }
    if (!b->mapped) {
        /* Correct without us: the data is where ptr says. Only the reason must not be lost. */
        device_note_plain(err.message);
    }
    return buffer_make(b, size);
}

const struct stream_weight *buffer_weight(const struct ggml_tensor *w) {
    if (!w->buffer || w->buffer->buft != &sluice_device.buft) {
        return NULL;
    }
    const struct sluice_buffer *b = w->buffer->context;
    return b && b->mapped ? w->extra : NULL; /* the empty buffers of load time have no context */
}

bool buffer_refused(const struct ggml_tensor *w) {
    if (!w->buffer || w->buffer->buft != &sluice_device.buft) {
        return false;
    }
    const struct sluice_buffer *b = w->buffer->context;
    return b && b->mapped && !w->extra && !w->view_src;
}

int buffer_each_weight(int (*visit)(void *ud, struct stream_weight *w, const struct cold_origin *from), void *ud) {
    struct sluice_device *d = &sluice_device;
    int rc = SLUICE_OK;
    /* Buffers leave the list under dense_lock, before they are freed; they join it, and grow, under the other. */
    pthread_mutex_lock(&d->dense_lock);
    pthread_mutex_lock(&d->lock);
    struct sluice_buffer *b = d->buffers;
    pthread_mutex_unlock(&d->lock);
    for (; b && rc == SLUICE_OK; b = b->next) {
        const struct cold_origin from = {.file = engine_file(d->engine, b->file), .owner = b->owner, .top_k = b->top_k};
        for (size_t i = 0; rc == SLUICE_OK; i++) {
            pthread_mutex_lock(&d->lock);
            struct stream_weight *w = i < b->n ? b->weights[i] : NULL;
            pthread_mutex_unlock(&d->lock);
            if (!w) {
                break;
            }
            rc = visit(ud, w, &from);
        }
    }
    pthread_mutex_unlock(&d->dense_lock);
    return rc;
}

/* ---- dense weights of mapped files ----------------------------------------------------------- */

/* If t, or what it is a view of, lies in a mapped model and is not ours, note it. Caller holds both locks. */
static void buffer_note_tensor(const struct ggml_tensor *t) {
    t = t && t->view_src ? t->view_src : t;
    if (!t || !t->data || !t->buffer || t->buffer->usage != GGML_BACKEND_BUFFER_USAGE_WEIGHTS ||
        t->buffer->buft == &sluice_device.buft || !ggml_backend_buffer_is_host(t->buffer)) {
        return;
    }
    const size_t len = ggml_nbytes(t);
    for (struct sluice_buffer *b = sluice_device.buffers; b; b = b->next) {
        const uintptr_t start = (uintptr_t)b->base - b->offset, at = (uintptr_t)t->data;
        if (at >= start && at - start < b->file_size && len <= b->file_size - (at - start)) {
            if (!atomic_load_explicit(&b->settled, memory_order_relaxed)) {
                dense_note(&b->dense, t->data, len); /* without memory it stays in the mapping */
                b->dense_noted = b->dense.noted_bytes;
            }
            return;
        }
    }
}

void buffer_note_dense(const struct ggml_tensor *op) {
    pthread_mutex_lock(&sluice_device.dense_lock);
    pthread_mutex_lock(&sluice_device.lock);
    buffer_note_tensor(op);
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        buffer_note_tensor(op->src[i]);
    }
    pthread_mutex_unlock(&sluice_device.lock);
    pthread_mutex_unlock(&sluice_device.dense_lock);
}

static struct dense_map buffer_dense_map(const struct sluice_buffer *b) {
    return (struct dense_map){
        .start = (char *)b->base - b->offset,
        .id = b->id,
        .file = engine_file(sluice_device.engine, b->file),
        .experts = b->ranges,
        .n_experts = b->n,
        .threads = sluice_device.settings.io_threads,
    };
}

void buffer_leave_in_place(const struct ggml_tensor *w) {
    struct sluice_buffer *b = w->buffer->context;
    if (!b || !b->mapped) {
        return;
    }
    struct sluice_error err;
    pthread_mutex_lock(&sluice_device.dense_lock);
    const struct dense_map m = buffer_dense_map(b);
    if (dense_leave(&b->dense, &m, w->data, ggml_nbytes(w), &err)) {
        device_report(&err);
    }
    pthread_mutex_unlock(&sluice_device.dense_lock);
}

/* Hold, fence and lock the dense weights of one file, as far as that is not done. Caller holds dense_lock. */
static int buffer_settle_one(struct sluice_buffer *b, struct sluice_error *err) {
    const enum sluice_dense where = sluice_device.settings.dense;
    int rc = SLUICE_OK;
    if (where != SLUICE_DENSE_MMAP && b->dense.noted.n && b->dense.held.n == 0) {
        const struct dense_map m = buffer_dense_map(b);
        rc = dense_hold(&b->dense, &m, err);
        if (rc == SLUICE_OK) {
            dense_fence(&b->dense, &m);
        } else if (rc != SLUICE_ERR_STATE) {
            /* The mapping is as good as ever, only slower: go on with it. */
            device_note_dense(err->message);
            rc = SLUICE_OK;
            pthread_mutex_lock(&sluice_device.lock);
            buffer_advise(b, true);
            pthread_mutex_unlock(&sluice_device.lock);
        }
    }
    if (rc == SLUICE_OK && where == SLUICE_DENSE_LOCK) {
        rc = dense_lock(&b->dense, err);
    }
    pthread_mutex_lock(&sluice_device.lock);
    b->dense_held = b->dense.held_bytes;
    pthread_mutex_unlock(&sluice_device.lock);
    if (rc == SLUICE_OK) {
        atomic_store_explicit(&b->settled, true, memory_order_release);
        atomic_fetch_sub(&sluice_device.collecting, 1);
    }
    return rc;
}

int buffer_settle_dense(const struct ggml_tensor *w, struct sluice_error *err) {
    const struct sluice_buffer *mine = w->buffer->context;
    if (atomic_load_explicit(&mine->settled, memory_order_acquire)) {
        return SLUICE_OK;
    }
    int rc = SLUICE_OK;
    pthread_mutex_lock(&sluice_device.dense_lock);
    /*
     * All files of this model, and of no other: another one may still be loading. Nobody frees a buffer of
     * a model that computes, and the list only changes under dense_lock or at its head.
     */
    pthread_mutex_lock(&sluice_device.lock);
    struct sluice_buffer *b = sluice_device.buffers;
    pthread_mutex_unlock(&sluice_device.lock);
    for (; b && rc == SLUICE_OK; b = b->next) {
        if (b->owner == mine->owner && !atomic_load_explicit(&b->settled, memory_order_relaxed)) {
            rc = buffer_settle_one(b, err);
        }
    }
    pthread_mutex_unlock(&sluice_device.dense_lock);
    return rc;
}

/*
 * Of the buffers in one mapping, the one that dense weights are noted at (buffer_note_tensor takes the first). Up to
 * v0.5.0 of llama.cpp a file has one buffer; v0.7.0 makes one of each run of experts. Caller holds the lock.
 */
static const struct sluice_buffer *buffer_noted_at(const struct sluice_buffer *b) {
    const struct sluice_buffer *first = sluice_device.buffers;
    while (first != b && (char *)first->base - first->offset != (char *)b->base - b->offset) {
        first = first->next;
    }
    return first;
}

void buffer_dense_sum(struct buffer_dense *sum) {
    *sum = (struct buffer_dense){0};
    pthread_mutex_lock(&sluice_device.lock);
    for (const struct sluice_buffer *b = sluice_device.buffers; b; b = b->next) {
        uint64_t experts = 0;
        if (buffer_noted_at(b) != b) {
            continue;
        }
        for (const struct sluice_buffer *s = b; s; s = s->next) {
            const size_t n = buffer_noted_at(s) == b ? s->n : 0;
            for (size_t i = 0; i < n; i++) {
                experts += s->ranges[i].len;
            }
        }
        if (b->dense_noted == 0) {
            sum->bytes += b->file_size > experts ? b->file_size - experts : 0;
            sum->guessed = true;
        } else if (b->dense_held) {
            sum->bytes += b->dense_held;
        } else {
            sum->bytes += b->dense_noted;
        }
        sum->held += b->dense_held;
        sum->in_mapping = sum->in_mapping || sluice_device.settings.dense == SLUICE_DENSE_MMAP ||
                          (atomic_load_explicit(&b->settled, memory_order_relaxed) && !b->dense_held);
    }
    pthread_mutex_unlock(&sluice_device.lock);
}
