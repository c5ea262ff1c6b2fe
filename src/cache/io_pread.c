/*
 * io_pread.c - lanes that are reader threads.
 *
 * A blocking pread per thread is the simplest way to have several reads in flight, and works on any
 * kernel and in any container. The threads sleep on a condition variable when there is nothing to
 * read, so they take no core from the compute threads.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/error.h"
#include "cache/io_impl.h"

struct io_pread {
    struct io base;        /* kind and callback */
    pthread_mutex_t lock;  /* guards the queue and stop */
    pthread_cond_t work;   /* the queue is not empty, or stop */
    struct io_queue queue; /* requests that no thread took yet */
    bool stop;             /* threads return */
    uint32_t n;            /* threads started */
    pthread_t thread[];    /* by lane */
};

static void *pread_main(void *arg) {
    struct io_pread *l = arg;
    bool idle = false; /* the last one was an idle one */
    for (;;) {
        struct io_request r;
        pthread_mutex_lock(&l->lock);
        if (idle) {
            io_queue_ended(&l->queue);
        }
        bool took;
        while (!(took = io_queue_pop(&l->queue, &r, &idle)) && !l->stop) {
            pthread_cond_wait(&l->work, &l->lock);
        }
        pthread_mutex_unlock(&l->lock);
        if (!took) {
            return NULL;
        }
        errno = 0;
        const int64_t got = stream_file_read(r.file, r.dst, r.offset, r.len, r.need);
        l->base.done(l->base.ud, &r, got, got < 0 ? errno : 0);
    }
}

static void pread_destroy(struct io *base) {
    struct io_pread *l = (struct io_pread *)base;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (uint32_t i = 0; i < l->n; i++) {
        pthread_join(l->thread[i], NULL);
    }
    assert(io_queue_empty(&l->queue));
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
    io_queue_free(&l->queue);
    free(l);
}

static int pread_submit(struct io *base, const struct io_request *r, size_t n, bool idle) {
    struct io_pread *l = (struct io_pread *)base;
    pthread_mutex_lock(&l->lock);
    const bool ok = io_queue_push(&l->queue, r, n, idle);
    if (ok && n == 1) {
        pthread_cond_signal(&l->work);
    } else if (ok) {
        pthread_cond_broadcast(&l->work);
    }
    pthread_mutex_unlock(&l->lock);
    return ok ? SLUICE_OK : SLUICE_ERR_MEMORY;
}

static void pread_recall(struct io *base, void (*recalled)(void *ud, const struct io_request *r), void *ud) {
    struct io_pread *l = (struct io_pread *)base;
    pthread_mutex_lock(&l->lock);
    if (io_queue_recall(&l->queue, recalled, ud)) {
        pthread_cond_broadcast(&l->work); /* several may have joined */
    }
    pthread_mutex_unlock(&l->lock);
}

static const struct io_ops pread_ops = {
    .kind = SLUICE_IO_PREAD, .destroy = pread_destroy, .submit = pread_submit, .recall = pread_recall};

struct io *io_pread_create(uint32_t n, io_done_fn done, void *ud, struct sluice_error *err) {
    struct io_pread *l = calloc(1, sizeof *l + n * sizeof l->thread[0]);
    if (!l || !io_queue_init(&l->queue, n)) {
        free(l);
        sluice_fail(err, SLUICE_ERR_MEMORY, "read lanes: out of memory");
        return NULL;
    }
    l->base = (struct io){.ops = &pread_ops, .done = done, .ud = ud};
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    for (; l->n < n; l->n++) {
        const int rc = io_thread_start(&l->thread[l->n], pread_main, l);
        if (rc && l->n) {
            break; /* fewer lanes are slower, not wrong */
        }
        if (rc) {
            pread_destroy(&l->base);
            sluice_fail(err, SLUICE_ERR_MEMORY, "read lanes: cannot start a thread: %s", strerror(rc));
            return NULL;
        }
    }
    sluice_ok(err);
    return &l->base;
}
