/*
 * settle.c - where the dense weights of mapped models are to be, for all buffers of a device.
 *
 * They go through three states (buffer_impl.h). While graphs are planned, those that are read in the mapping are noted.
 * Before the first block of a model they are moved to where the settings say (dense.c): out of the page cache, as a
 * rule. If moving fails, the mapping is as good as ever. But if a part of the mapping is gone, the model is lost for
 * good: the next graph would compute with what is not there, or end in SIGSEGV. So the loss is kept with all buffers of
 * the model, and whoever wants to compute with it is told, in every context.
 *
 * Locks: dense_lock guards what is known of dense weights and is held while they move; the device's lock guards
 * the list of buffers and the sums that the memory plan asks for, and is taken second.
 */
#include "ggml/buffer.h"
#include "ggml/buffer_impl.h"

/* The pages of b's file that should be in memory, told to the kernel. Caller holds the device's lock. */
static void buffer_advise(struct sluice_buffer *b, bool want) {
    pages_advise(b->fd, (char *)b->base - b->offset, b->file_size, b->ranges, b->n, b->device->settings.direct_io,
                 want);
}

void buffer_advise_pages(struct sluice_device *d) {
    pthread_mutex_lock(&d->lock);
    for (struct sluice_buffer *b = d->buffers; b; b = b->next) {
        if (!b->advised) {
            buffer_advise(b, d->settings.dense == SLUICE_DENSE_MMAP);
            b->advised = true;
        }
    }
    pthread_mutex_unlock(&d->lock);
}

/* If t, or what it is a view of, lies in a mapped model and is not ours, note it. Caller holds both locks. */
static void buffer_note_tensor(struct sluice_device *d, const struct ggml_tensor *t) {
    t = t && t->view_src ? t->view_src : t;
    if (!t || !t->data || !t->buffer || t->buffer->usage != GGML_BACKEND_BUFFER_USAGE_WEIGHTS ||
        t->buffer->buft == &d->buft || !ggml_backend_buffer_is_host(t->buffer)) {
        return;
    }
    const size_t len = ggml_nbytes(t);
    for (struct sluice_buffer *b = d->buffers; b; b = b->next) {
        const uintptr_t start = (uintptr_t)b->base - b->offset, at = (uintptr_t)t->data;
        if (at >= start && at - start < b->file_size && len <= b->file_size - (at - start)) {
            if (atomic_load_explicit(&b->state, memory_order_relaxed) == DENSE_COLLECTING) {
                dense_note(&b->dense, t->data, len); /* without memory it stays in the mapping */
                b->dense_noted = b->dense.noted_bytes;
            }
            return;
        }
    }
}

void buffer_note_dense(struct sluice_device *d, const struct ggml_tensor *op) {
    if (!atomic_load_explicit(&d->collecting, memory_order_acquire)) {
        return;
    }
    pthread_mutex_lock(&d->dense_lock);
    pthread_mutex_lock(&d->lock);
    buffer_note_tensor(d, op);
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        buffer_note_tensor(d, op->src[i]);
    }
    pthread_mutex_unlock(&d->lock);
    pthread_mutex_unlock(&d->dense_lock);
}

static struct dense_map buffer_dense_map(const struct sluice_buffer *b) {
    return (struct dense_map){
        .start = (char *)b->base - b->offset,
        .id = b->id,
        .file = engine_file(b->device->engine, b->file),
        .experts = b->ranges,
        .n_experts = b->n,
        .threads = b->device->settings.io_threads,
    };
}

/* A part of the mapping is gone: nothing of this model may be computed again. Caller holds dense_lock. */
static void buffer_lose(struct sluice_buffer *lost, const struct sluice_error *why) {
    struct sluice_device *d = lost->device;
    pthread_mutex_lock(&d->lock); /* buffers join the list under it */
    for (struct sluice_buffer *b = d->buffers; b; b = b->next) {
        if (b->owner != lost->owner || atomic_load(&b->state) == DENSE_LOST) {
            continue;
        }
        b->lost = *why;
        if (atomic_exchange(&b->state, DENSE_LOST) == DENSE_COLLECTING) {
            atomic_fetch_sub(&d->collecting, 1);
        }
    }
    pthread_mutex_unlock(&d->lock);
}

void buffer_leave_in_place(struct sluice_device *d, const struct ggml_tensor *op) {
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        const struct ggml_tensor *w = op->src[i];
        w = w && w->view_src ? w->view_src : w;
        struct sluice_buffer *b = w && w->extra ? buffer_of(w) : NULL;
        if (!b || b->device != d) {
            continue;
        }
        struct sluice_error err;
        pthread_mutex_lock(&d->dense_lock);
        const struct dense_map m = buffer_dense_map(b);
        if (dense_leave(&b->dense, &m, w->data, ggml_nbytes(w), &err)) {
            buffer_lose(b, &err);
            device_report(d, &err);
        }
        pthread_mutex_unlock(&d->dense_lock);
    }
}

/* Hold, fence and lock the dense weights of one file. Caller holds dense_lock. */
static int buffer_settle_one(struct sluice_buffer *b, struct sluice_error *err) {
    struct sluice_device *d = b->device;
    const enum sluice_dense where = d->settings.dense;
    int rc = SLUICE_OK;
    if (where != SLUICE_DENSE_MMAP && b->dense.noted.n && b->dense.held.n == 0) {
        const struct dense_map m = buffer_dense_map(b);
        rc = dense_hold(&b->dense, &m, err);
        if (rc == SLUICE_OK) {
            dense_fence(&b->dense, &m);
        } else if (rc == SLUICE_ERR_STATE) {
            buffer_lose(b, err);
            return rc;
        } else {
            /* The mapping is as good as ever, only slower: go on with it. */
            device_note(d, DEVICE_NOT_HELD, err->message);
            rc = SLUICE_OK;
            pthread_mutex_lock(&d->lock);
            buffer_advise(b, true);
            pthread_mutex_unlock(&d->lock);
        }
    }
    if (where == SLUICE_DENSE_LOCK) {
        rc = dense_lock(&b->dense, err);
    }
    pthread_mutex_lock(&d->lock);
    b->dense_held = b->dense.held_bytes;
    pthread_mutex_unlock(&d->lock);
    if (rc == SLUICE_OK) {
        atomic_store_explicit(&b->state, DENSE_SETTLED, memory_order_release);
        atomic_fetch_sub(&d->collecting, 1);
    }
    return rc;
}

int buffer_settle_dense(const struct ggml_tensor *w, struct sluice_error *err) {
    struct sluice_buffer *mine = w->buffer->context;
    struct sluice_device *d = mine->device;
    if (atomic_load_explicit(&mine->state, memory_order_acquire) == DENSE_SETTLED) {
        return SLUICE_OK;
    }
    int rc = SLUICE_OK;
    pthread_mutex_lock(&d->dense_lock);
    /*
     * All files of this model, and of no other: another one may still be loading. Nobody frees a buffer of
     * a model that computes, and the list only changes under dense_lock or at its head.
     */
    pthread_mutex_lock(&d->lock);
    struct sluice_buffer *b = d->buffers;
    pthread_mutex_unlock(&d->lock);
    for (; b && rc == SLUICE_OK; b = b->next) {
        if (b->owner == mine->owner && atomic_load_explicit(&b->state, memory_order_relaxed) == DENSE_COLLECTING) {
            rc = buffer_settle_one(b, err);
        }
    }
    if (atomic_load(&mine->state) == DENSE_LOST) {
        *err = mine->lost;
        rc = (int)err->status;
    }
    pthread_mutex_unlock(&d->dense_lock);
    return rc;
}

/*
 * Of the buffers in one mapping, the one that dense weights are noted at (buffer_note_tensor takes the first). Up to
 * v0.5.0 of llama.cpp a file has one buffer; v0.7.0 makes one of each run of experts. Caller holds the lock.
 */
static const struct sluice_buffer *buffer_noted_at(const struct sluice_buffer *b) {
    const struct sluice_buffer *first = b->device->buffers;
    while (first != b && (char *)first->base - first->offset != (char *)b->base - b->offset) {
        first = first->next;
    }
    return first;
}

void buffer_dense_sum(struct sluice_device *d, struct buffer_dense *sum) {
    *sum = (struct buffer_dense){0};
    pthread_mutex_lock(&d->lock);
    for (const struct sluice_buffer *b = d->buffers; b; b = b->next) {
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
        experts = experts > b->experts ? experts : b->experts; /* while it loads, only some are registered */
        if (b->dense_noted == 0) {
            sum->bytes += b->file_size > experts ? b->file_size - experts : 0;
            sum->guessed = true;
        } else if (b->dense_held) {
            sum->bytes += b->dense_held;
        } else {
            sum->bytes += b->dense_noted;
        }
        sum->held += b->dense_held;
        sum->in_mapping = sum->in_mapping || d->settings.dense == SLUICE_DENSE_MMAP ||
                          (atomic_load_explicit(&b->state, memory_order_relaxed) == DENSE_SETTLED && !b->dense_held);
    }
    pthread_mutex_unlock(&d->lock);
}
