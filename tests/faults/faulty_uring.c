/*
 * faulty_uring.c - faulty.c for reads by io_uring: it stands in for the three functions of liburing that
 * the lanes use, to make the ring, to enter it and to look at what ended.
 *
 * Before the ring is entered, the reads of models that are new in it are counted, and which of them to
 * spoil is noted by their user data; when such a one ended, its result and its bytes are spoilt before the
 * program sees it.
 */
#include <dlfcn.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>

#include "faulty.h"

#define EXPORT __attribute__((visibility("default")))

enum { FAULTY_OPS = 64 }; /* reads in the ring at most: as many as lanes */

/* Reads to spoil. A process may have two rings (the second reads a cold model); each has a thread that alone uses it.
 */
static _Thread_local struct {
    uint64_t user_data; /* of its entry; 0: free */
    void *buf;          /* where it reads to */
    off_t offset;       /* and from */
    bool direct;        /* by which descriptor */
} chosen[FAULTY_OPS];
static _Thread_local unsigned scanned; /* entries of the ring that were looked at */

EXPORT int faulty_init(unsigned entries, struct io_uring *ring, unsigned flags) __asm__("io_uring_queue_init");
EXPORT int faulty_enter(struct io_uring *ring, unsigned wait) __asm__("io_uring_submit_and_wait");
EXPORT unsigned faulty_peek(struct io_uring *ring, struct io_uring_cqe **cqes,
                            unsigned count) __asm__("io_uring_peek_batch_cqe");

static void note(const struct io_uring_sqe *sqe) {
    char path[PATH_MAX];
    bool direct;
    if (sqe->opcode != IORING_OP_READ || !faulty_is_model(sqe->fd, path, &direct) || !faulty_choose(direct, path)) {
        return;
    }
    int i = 0;
    while (i < FAULTY_OPS && chosen[i].user_data) {
        i++;
    }
    if (i == FAULTY_OPS) {
        abort(); /* more reads in the ring than lanes */
    }
    chosen[i].user_data = sqe->user_data;
    chosen[i].buf = (void *)(uintptr_t)sqe->addr;
    chosen[i].offset = (off_t)sqe->off;
    chosen[i].direct = direct;
}

int faulty_init(unsigned entries, struct io_uring *ring, unsigned flags) {
    int (*fn)(unsigned, struct io_uring *, unsigned);
    void *p = dlsym(RTLD_NEXT, "io_uring_queue_init");
    memcpy(&fn, &p, sizeof fn);
    return faulty_ring_forbidden() ? -EPERM : fn(entries, ring, flags);
}

int faulty_enter(struct io_uring *ring, unsigned wait) {
    int (*fn)(struct io_uring *, unsigned);
    void *p = dlsym(RTLD_NEXT, "io_uring_submit_and_wait");
    memcpy(&fn, &p, sizeof fn);
    if (faulty_ring_broken()) {
        return -EPERM;
    }
    for (; scanned != ring->sq.sqe_tail; scanned++) {
        note(&ring->sq.sqes[scanned & ring->sq.ring_mask]);
    }
    return fn(ring, wait);
}

unsigned faulty_peek(struct io_uring *ring, struct io_uring_cqe **cqes, unsigned count) {
    unsigned (*fn)(struct io_uring *, struct io_uring_cqe **, unsigned);
    void *p = dlsym(RTLD_NEXT, "io_uring_peek_batch_cqe");
    memcpy(&fn, &p, sizeof fn);
    const unsigned n = fn(ring, cqes, count);
    for (unsigned i = 0; i < n; i++) {
        for (int k = 0; k < FAULTY_OPS; k++) {
            if (chosen[k].user_data && chosen[k].user_data == cqes[i]->user_data) {
                cqes[i]->res = (int)faulty_spoil(chosen[k].buf, cqes[i]->res, chosen[k].offset, chosen[k].direct);
                chosen[k].user_data = 0;
            }
        }
    }
    return n;
}
