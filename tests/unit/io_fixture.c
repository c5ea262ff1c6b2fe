/* io_fixture.c - I/O threads over a file with known content, and a callback that can be held up. */
#include "io_fixture.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void io_done(void *ud, const struct io_request *r, int64_t got, int error) {
    struct fixture *f = ud;
    uint32_t seen;
    atomic_fetch_add(&f->n_here, 1);
    event_bump(&f->done);
    while (seen = event_read(&f->let_go), r->tag < atomic_load(&f->hold)) {
        event_wait(&f->let_go, seen);
    }
    if (got < 0) {
        atomic_fetch_add(&f->n_error, 1);
        atomic_store(&f->error, error);
    } else if (got < r->need || got > r->len || !unit_same(r->dst, r->offset, r->need) || error) {
        atomic_fetch_add(&f->n_wrong, 1);
    }
    f->order[atomic_fetch_add(&f->n_taken, 1)] = r->tag;
    atomic_fetch_add(&f->n_done, 1); /* after the entry: who sees n_done == MANY may read all of them */
    event_bump(&f->done);
}

void wait_for(struct fixture *f, uint32_t n) {
    uint32_t seen;
    while (seen = event_read(&f->done), atomic_load(&f->n_done) < n) {
        event_wait(&f->done, seen);
    }
}

void begin(struct fixture *f) {
    memset(f, 0, sizeof *f);
    f->fd = unit_file(f->path, SIZE);
    assert_int_equal(stream_file_open(&f->file, f->path, true, &f->err), SLUICE_OK);
}

void end(struct fixture *f) {
    stream_file_close(&f->file);
    close(f->fd);
    unlink(f->path);
}

struct io *create(struct fixture *f, uint32_t n) {
    struct io *l = io_create(n, io_done, f, &f->err);
    if (!l) {
        fail_msg("%s", f->err.message);
    }
    return l;
}

struct io_request request(const struct fixture *f, void *dst, uint64_t offset, uint32_t tag) {
    return (struct io_request){.file = &f->file, .dst = dst, .offset = offset, .len = BLOCK, .need = BLOCK, .tag = tag};
}

char *blocks(size_t n) {
    void *p = NULL;
    assert_int_equal(posix_memalign(&p, BLOCK, n * BLOCK), 0);
    return p;
}
