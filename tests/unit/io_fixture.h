/* io_fixture.h - I/O threads over a file with known content, and a callback that can be held up. */
#ifndef SLUICE_TESTS_IO_FIXTURE_H
#define SLUICE_TESTS_IO_FIXTURE_H

#include "unit.h"

#include "cache/event.h"
#include "cache/io.h"

enum { SIZE = 1 << 20, MANY = 5000, BLOCK = 4096 };

struct fixture {
    struct stream_file file;  /* what is read */
    int fd;                   /* of it, to write to it */
    char path[64];            /* its name */
    struct sluice_error err;  /* scratch */
    struct event done;        /* any of the next */
    _Atomic uint32_t n_taken; /* entries of order given out */
    _Atomic uint32_t n_done;  /* requests ended, their entry of order written */
    _Atomic uint32_t n_wrong; /* of those, with other bytes than the file's */
    _Atomic uint32_t n_error; /* of those, failed */
    _Atomic int error;        /* the last errno */
    uint32_t order[MANY];     /* request numbers as they ended */
    _Atomic uint32_t hold;    /* the callback waits for requests with smaller tags */
    struct event let_go;      /* for it */
    _Atomic uint32_t n_here;  /* requests that came to the callback */
    uint8_t recalled[MANY];   /* how often, by tag */
    uint32_t n_recalled;      /* in all */
};

/* The callback of the threads; ud is the fixture. */
void io_done(void *ud, const struct io_request *r, int64_t got, int error);

/* Wait until n requests ended. */
void wait_for(struct fixture *f, uint32_t n);

void begin(struct fixture *f);
void end(struct fixture *f);

/* n threads. */
struct io *create(struct fixture *f, uint32_t n);

/* To read one block. */
struct io_request request(const struct fixture *f, void *dst, uint64_t offset, uint32_t tag);

/* Memory for n blocks. */
char *blocks(size_t n);

#endif
