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
 * the page cache before the first block is computed (settle.c).
 *
 * All are host memory, so the CPU backend reads our outputs and we read its outputs, no copies.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ggml/buffer.h"
#include "ggml/buffer_impl.h"
#include "ggml/match.h"
#include "gguf/gguf_check.h"
#include "memory/limits.h"
#include "cache/error.h"

enum { BUFFER_ALIGN = 64 }; /* bytes, for vector loads; ggml's CPU buffers promise 32 or 64 */

/* Say what went wrong, where nothing can be returned but that. */
static void buffer_report(struct sluice_device *d, enum sluice_status status, const char *message) {
    struct sluice_error err;
    sluice_fail(&err, status, "%s", message);
    device_report(d, &err);
}

static void buffer_free(ggml_backend_buffer_t buffer) {
    struct sluice_buffer *b = buffer->context;
    struct sluice_device *d = b->device;
    device_keep_stats(d);
    pthread_mutex_lock(&d->dense_lock);
    pthread_mutex_lock(&d->lock);
    for (struct sluice_buffer **p = &d->buffers; *p; p = &(*p)->next) {
        if (*p == b) {
            *p = b->next;
            break;
        }
    }
    pthread_mutex_unlock(&d->lock);
    if (b->mapped && atomic_load(&b->state) == DENSE_COLLECTING) {
        atomic_fetch_sub(&d->collecting, 1);
    }
    pthread_mutex_unlock(&d->dense_lock);
    dense_free(&b->dense);
    cold_forget(&d->cold, b->weights, b->n);
    for (size_t i = 0; i < b->n; i++) {
        engine_remove_tensors(d->engine, &b->weights[i]->tensor, 1);
        free(b->weights[i]);
    }
    if (b->mapped) {
        struct sluice_stats st;
        device_stats(d, &st);
        if (st.tensors == 0) {
            step_unpublish(&d->steps);
        }
        engine_drop_file(d->engine, b->file);
    }
    free(b->weights);
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
    struct pages_range *r = reallocarray(b->ranges, cap, sizeof *r);
    if (r) {
        b->ranges = r;
    }
    if (!w || !r) {
        return false;
    }
    b->cap = cap;
    return true;
}

static enum ggml_status buffer_init_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *t) {
    struct sluice_buffer *b = buffer->context;
    struct sluice_device *d = b->device;
    if (t->view_src || !b->mapped) {
        return GGML_STATUS_SUCCESS;
    }
    struct sluice_error err;
    if (!sluice_gguf_multiplies(t->type)) {
        sluice_fail(&err, SLUICE_ERR_FORMAT, "tensor %s has type %s, with which nothing can be multiplied", t->name,
                    ggml_type_name(t->type));
        device_report(d, &err);
        return GGML_STATUS_FAILED;
    }
    struct stream_weight *w = calloc(1, sizeof *w);
    pthread_mutex_lock(&d->lock);
    const bool room = w && buffer_grow(b);
    pthread_mutex_unlock(&d->lock);
    if (!room) {
        free(w);
        sluice_fail(&err, SLUICE_ERR_MEMORY, "tensor %s: out of memory", t->name);
        device_report(d, &err);
        return GGML_STATUS_ALLOC_FAILED;
    }
    *w = (struct stream_weight){.n_expert = (uint32_t)t->ne[2],
                                .type = t->type,
                                .ne = {t->ne[0], t->ne[1]},
                                .offset = b->offset + (uint64_t)((char *)t->data - (char *)b->base)};
    memcpy(w->name, t->name, sizeof w->name);
    if (engine_add_tensor(d->engine, b->file, b->owner, t->name, w->offset, t->nb[2], w->n_expert, b->top_k, &w->tensor,
                          &err)) {
        free(w);
        device_report(d, &err);
        return GGML_STATUS_FAILED;
    }
    const struct engine_tensor_info info = engine_tensor(d->engine, w->tensor);
    w->group = info.group;
    w->part = info.part;
    pthread_mutex_lock(&d->lock);
    b->weights[b->n] = w;
    b->ranges[b->n++] = (struct pages_range){.start = t->data, .len = ggml_nbytes(t)};
    pthread_mutex_unlock(&d->lock);
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
        pthread_mutex_lock(&b->device->dense_lock);
        fenced = dense_is_fenced(&b->dense, at, size);
        pthread_mutex_unlock(&b->device->dense_lock);
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
    return ggml_backend_buffer_init(&b->device->buft, iface, b, size);
}

static struct sluice_buffer *buffer_new(struct sluice_device *d, void *base, bool own) {
    struct sluice_buffer *b = calloc(1, sizeof *b);
    if (!b) {
        buffer_report(d, SLUICE_ERR_MEMORY, "out of memory");
        if (own) {
            free(base);
        }
        return NULL;
    }
    b->device = d;
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
    struct sluice_device *d = t->context;
    struct sluice_error err;
    if (device_refuses(d)) {
        return NULL;
    }
    void *p = NULL;
    if (size) {
        /* Weights that are loaded without mapping arrive here in one piece: an index bigger than memory
         * would be read until the kernel kills the process. Compute buffers are never that large. */
        struct plan_limits l;
        plan_limits_read(&l, "");
        if (l.available && size > l.available) {
            sluice_fail(&err, SLUICE_ERR_BUDGET,
                        "the program loads weights without mapping them and asks for %zu MiB where %llu MiB are left: "
                        "let it map the model (llama.cpp: --load-mode mmap), then experts stream",
                        size >> 20, (unsigned long long)(l.available >> 20));
            device_report(d, &err);
            return NULL;
        }
        if (posix_memalign(&p, BUFFER_ALIGN, size)) {
            sluice_fail(&err, SLUICE_ERR_MEMORY, "cannot allocate a buffer of %zu MiB", size >> 20);
            device_report(d, &err);
            return NULL;
        }
    }
    struct sluice_buffer *b = buffer_new(d, p, true);
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

void buffer_type_init(struct sluice_device *d) {
    d->buft = (struct ggml_backend_buffer_type){
        .iface = {.get_name = buft_name,
                  .alloc_buffer = buft_alloc,
                  .get_alignment = buft_alignment,
                  .is_host = buft_is_host},
        .device = &d->dev,
        .context = d,
    };
}

/* Bytes of experts in the file, by its header; 0 if that is not known: the file cannot be opened, or is a later shard.
 */
static uint64_t buffer_experts(const char *path) {
    struct sluice_gguf *g = NULL;
    struct sluice_error err;
    uint64_t sum = 0;
    if (sluice_gguf_check(path, &g, &err) == SLUICE_OK) {
        for (size_t i = 0; i < g->n_tensors; i++) {
            const struct sluice_gguf_tensor *t = &g->tensors[i];
            sum += t->shard == 0 && t->n_dims == 3 && t->ne[2] > 1 ? t->bytes : 0;
        }
    }
    sluice_gguf_free(g);
    return sum;
}

ggml_backend_buffer_t buffer_from_host_ptr(struct sluice_device *d, void *ptr, size_t size) {
    struct sluice_error err;
    struct sluice_buffer *b = buffer_new(d, ptr, false);
    if (!b) {
        return NULL;
    }
    b->owner = match_load_owner(&b->top_k);
    struct maps_file m;
    if (maps_find(ptr, size, &m, &err) == SLUICE_OK) {
        if (engine_add_file(d->engine, m.fd, m.path, &b->file, &err) == SLUICE_OK) {
            b->mapped = true;
            b->offset = m.offset;
            b->file_size = m.size;
            b->fd = m.fd;
            b->id = m.id;
            b->experts = buffer_experts(m.path);
            pthread_mutex_lock(&d->lock);
            b->next = d->buffers;
            d->buffers = b;
            pthread_mutex_unlock(&d->lock);
            atomic_fetch_add(&d->collecting, 1);
        } else {
            close(m.fd);
        }
    }
    if (!b->mapped) {
        /* Correct without us: the data is where ptr says. Only the reason must not be lost. */
        device_note(d, DEVICE_NOT_STREAMED, err.message);
    }
    return buffer_make(b, size);
}

struct sluice_buffer *buffer_of(const struct ggml_tensor *t) {
    if (!t->buffer || t->buffer->iface.init_tensor != buffer_init_tensor) {
        return NULL; /* the empty buffers of load time have no functions */
    }
    struct sluice_buffer *b = t->buffer->context;
    return b->mapped ? b : NULL;
}

const struct stream_weight *buffer_weight(const struct ggml_tensor *w) {
    return buffer_of(w) ? w->extra : NULL;
}

bool buffer_refused(const struct ggml_tensor *w) {
    return buffer_of(w) && !w->extra && !w->view_src;
}

int buffer_each_weight(struct sluice_device *d, stream_visit_fn visit, void *ud) {
    int rc = SLUICE_OK;
    /* Buffers leave the list under dense_lock, before they are freed; they join it, and grow, under the other. */
    pthread_mutex_lock(&d->dense_lock);
    pthread_mutex_lock(&d->lock);
    struct sluice_buffer *b = d->buffers;
    pthread_mutex_unlock(&d->lock);
    for (; b && rc == SLUICE_OK; b = b->next) {
        const struct stream_origin from = {
            .file = engine_file(d->engine, b->file), .owner = b->owner, .top_k = b->top_k};
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
