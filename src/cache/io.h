/* io.h - reads in the background: a queue, and the I/O threads that work it off. */
#ifndef SLUICE_CACHE_IO_H
#define SLUICE_CACHE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sluice.h"
#include "cache/file.h"

/* One read: bytes [offset, offset + len) of file into dst. See stream_file_read for the alignment. */
struct io_request {
    const struct stream_file *file; /* open until the request is done */
    void *dst;                      /* memory, aligned like the file's reads */
    uint64_t offset;                /* file offset, bytes */
    uint32_t len;                   /* bytes to ask for */
    uint32_t need;                  /* bytes that must arrive; the rest may lie past the end of the file */
    bool follows;                   /* a later piece of what the request before it reads */
    void *owner;                    /* the caller's, e.g. its slot */
    uint32_t part;                  /* the caller's */
    uint32_t tag;                   /* the caller's, e.g. which phase to account to */
};

/* Called on an I/O thread when a request ended: got >= need bytes, or got < 0 with an errno. */
typedef void (*io_done_fn)(void *ud, const struct io_request *r, int64_t got, int error);

struct io;

/* Start n threads (1..64), which keep up to n requests in flight. NULL with SLUICE_ERR_MEMORY in *err. */
struct io *io_create(uint32_t n, io_done_fn done, void *ud, struct sluice_error *err);

/* End the threads. Every request must have ended before. Accepts NULL. */
void io_destroy(struct io *l);

/* Queue n requests, first in first out. SLUICE_ERR_MEMORY: none was queued. Any thread. */
int io_submit(struct io *l, const struct io_request *r, size_t n);

/*
 * The same for reads that may turn out useless: they are begun only while nothing of io_submit
 * waits, and at most half of those in flight at a time, so that there is room when demand arrives.
 */
int io_submit_idle(struct io *l, const struct io_request *r, size_t n);

/*
 * Take back those that io_submit_idle queued, nobody has begun and `selects` says yes to: `recalled` is called for
 * each such request, both with the queue locked. Later pieces of something begun are not taken back; they join the
 * demand, since it can only be used when they are there.
 */
void io_recall(struct io *l, bool (*selects)(void *ud, const struct io_request *r),
               void (*recalled)(void *ud, const struct io_request *r), void *ud);

#endif
