/* lanes.h - the reader threads and their queue. */
#ifndef SLUICE_STREAM_LANES_H
#define SLUICE_STREAM_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sluice.h"
#include "stream/file.h"

/* One read: bytes [offset, offset + len) of file into dst. See stream_file_read for the alignment. */
struct lane_request {
    const struct stream_file *file; /* open until the request is done */
    void *dst;                      /* memory, aligned like the file's reads */
    uint64_t offset;                /* file offset, bytes */
    uint32_t len;                   /* bytes to ask for */
    uint32_t need;                  /* bytes that must arrive; the rest may lie past the end of the file */
    void *owner;                    /* the caller's, e.g. its slot */
    uint32_t part;                  /* the caller's */
    uint32_t tag;                   /* the caller's, e.g. which phase to account to */
    bool follows;                   /* a later piece of what the request before it reads */
};

/* Called on a lane's thread when a request ended: got >= need bytes, or got < 0 with an errno. */
typedef void (*lane_done_fn)(void *ud, const struct lane_request *r, int64_t got, int error);

struct lanes;

/* Start n reader threads (1..64). NULL with *err set when memory or threads are not to be had. */
struct lanes *lanes_create(uint32_t n, lane_done_fn done, void *ud, struct sluice_error *err);

/* End the threads. Every request must have ended before. */
void lanes_destroy(struct lanes *l);

/* Queue n requests, first in first out. SLUICE_ERR_MEMORY: none was queued. Any thread. */
int lanes_submit(struct lanes *l, const struct lane_request *r, size_t n);

/*
 * The same for reads that may turn out useless: they are begun only while nothing of lanes_submit
 * waits, and by at most half of the lanes at a time, so that a lane is free when demand arrives.
 */
int lanes_submit_idle(struct lanes *l, const struct lane_request *r, size_t n);

/*
 * Take back what lanes_submit_idle queued and no lane has begun: recall is called for each request,
 * with the queue locked. Later pieces of something begun are not taken back but moved to the front queue.
 */
void lanes_recall(struct lanes *l, void (*recall)(void *ud, const struct lane_request *r), void *ud);

#endif
