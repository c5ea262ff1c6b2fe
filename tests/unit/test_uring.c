/*
 * test_uring.c - lanes on a ring that misbehaves. The few functions of liburing through which the
 * lanes reach the kernel are defined here as well, so they win over the library's; each does what the
 * library's does, but for the fault of the test at hand.
 */
#include "unit.h"

#include <dlfcn.h>
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/event.h"
#include "cache/io.h"

enum { BLOCK = 4096, SIZE = 256 * BLOCK, MANY = 2000, DEPTH = 8 };

/* The fault: what, from which call on, and for how many. */
static struct {
    int setup;               /* what io_uring_queue_init fails with; 0: nothing */
    int enter;               /* what io_uring_submit_and_wait fails with */
    _Atomic int enter_after; /* calls that work before */
    _Atomic int enter_count; /* calls that fail then */
    int result;              /* what reads end with; 1: short, by about half; 0: nothing */
    int every;               /* of the reads, every so manieth */
    _Atomic int faults;      /* that happened */
    _Atomic int reads;       /* that ended */
} fault;

/* The library's function of that name. */
static void *real(const char *name) {
    void *p = dlsym(RTLD_NEXT, name);
    assert_non_null(p);
    return p;
}

int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags) {
    int (*fn)(unsigned, struct io_uring *, unsigned);
    void *p = real("io_uring_queue_init");
    memcpy(&fn, &p, sizeof fn);
    if (fault.setup) {
        fault.faults++;
        return -fault.setup;
    }
    return fn(entries, ring, flags);
}

int io_uring_submit_and_wait(struct io_uring *ring, unsigned wait) {
    int (*fn)(struct io_uring *, unsigned);
    void *p = real("io_uring_submit_and_wait");
    memcpy(&fn, &p, sizeof fn);
    if (fault.enter && fault.enter_after-- <= 0 && fault.enter_count-- > 0) {
        fault.faults++;
        return -fault.enter;
    }
    return fn(ring, wait);
}

unsigned io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes, unsigned count) {
    unsigned (*fn)(struct io_uring *, struct io_uring_cqe **, unsigned);
    void *p = real("io_uring_peek_batch_cqe");
    memcpy(&fn, &p, sizeof fn);
    const unsigned n = fn(ring, cqes, count);
    for (unsigned i = 0; i < n; i++) {
        const bool wake_up = !cqes[i]->user_data;
        if (wake_up || ++fault.reads % (fault.every ? fault.every : 1) || !fault.result) {
            continue;
        }
        if (fault.result != 1) {
            cqes[i]->res = fault.result;
            fault.faults++;
        } else if (cqes[i]->res > 1) {
            cqes[i]->res = (cqes[i]->res + 1) / 2;
            fault.faults++;
        }
    }
    return n;
}

struct fixture {
    struct stream_file file;
    int fd;
    char path[64];
    char *buf; /* MANY blocks */
    struct sluice_error err;
    struct event done;
    _Atomic uint32_t n_done;     /* requests ended */
    _Atomic uint32_t n_error;    /* of those, failed */
    _Atomic uint32_t n_wrong;    /* of those that did not, with other bytes than the file's */
    _Atomic int error;           /* the last errno */
    _Atomic uint8_t ended[MANY]; /* how often, by request */
};

static void on_done(void *ud, const struct io_request *r, int64_t got, int error) {
    struct fixture *f = ud;
    if (got < 0) {
        f->n_error++;
        f->error = error;
    } else if (got < r->need || !unit_same(r->dst, r->offset, r->need)) {
        f->n_wrong++;
    }
    f->ended[r->tag]++;
    f->n_done++;
    event_bump(&f->done);
}

static void begin(struct fixture *f) {
    memset(f, 0, sizeof *f);
    memset(&fault, 0, sizeof fault);
    f->fd = unit_file(f->path, SIZE);
    assert_int_equal(stream_file_open(&f->file, f->path, true, &f->err), SLUICE_OK);
    void *p = NULL;
    assert_int_equal(posix_memalign(&p, BLOCK, (size_t)MANY * BLOCK), 0);
    f->buf = p;
}

static void end(struct fixture *f) {
    stream_file_close(&f->file);
    close(f->fd);
    unlink(f->path);
    free(f->buf);
}

/* Submit MANY requests, some at a time, with the fault that is set; each ends once. */
static void run(struct fixture *f) {
    struct io *l = io_create(SLUICE_IO_URING, DEPTH, on_done, f, &f->err);
    assert_non_null(l);
    uint64_t seed = 7;
    uint32_t n = 0;
    while (n < MANY) {
        struct io_request r[50];
        uint32_t k = 0;
        while (k < 50 && n + k < MANY) {
            const uint64_t offset = unit_random(&seed) % (SIZE / BLOCK) * BLOCK;
            r[k] = (struct io_request){.file = &f->file,
                                       .dst = f->buf + (size_t)(n + k) * BLOCK,
                                       .offset = offset,
                                       .len = BLOCK,
                                       .need = BLOCK,
                                       .tag = n + k};
            k++;
        }
        assert_int_equal(io_submit(l, r, k), SLUICE_OK);
        n += k;
        uint32_t seen;
        while (seen = event_read(&f->done), f->n_done + 20 < n) { /* some are under way when the next come */
            event_wait(&f->done, seen);
        }
    }
    uint32_t seen;
    while (seen = event_read(&f->done), f->n_done < MANY) {
        event_wait(&f->done, seen);
    }
    io_destroy(l);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(f->ended[i], 1);
    }
    assert_int_equal(f->n_wrong, 0);
}

/* Short reads, EINTR and EAGAIN are nobody's business. */
static void test_unnoticed(void **state) {
    (void)state;
    const int results[] = {1, -EINTR, -EAGAIN};
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        for (int every = 2; every < 6; every += 3) {
            struct fixture f;
            begin(&f);
            fault.result = results[i];
            fault.every = every;
            run(&f);
            /* A read that is told to try again twice in a row may be given up, with that reason. */
            if (results[i] == -EAGAIN) {
                assert_true(f.n_error < MANY / 2);
                assert_true(f.n_error == 0 || f.error == EAGAIN);
            } else {
                assert_int_equal(f.n_error, 0);
            }
            assert_true(fault.faults > MANY / 10);
            end(&f);
        }
    }
}

/* The kernel has no memory for requests, for a while. */
static void test_no_memory_for_a_while(void **state) {
    (void)state;
    const int errors[] = {EAGAIN, EBUSY, EINTR};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        struct fixture f;
        begin(&f);
        fault.enter = errors[i];
        fault.enter_after = 5;
        fault.enter_count = 20;
        run(&f);
        assert_int_equal(f.n_error, 0);
        assert_int_equal(fault.faults, 20);
        end(&f);
    }
}

/* Failed reads are reported, each its own. */
static void test_failures(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    fault.result = -EIO;
    fault.every = 4;
    run(&f);
    assert_int_equal(f.n_error, MANY / 4);
    assert_int_equal(fault.faults, MANY / 4);
    assert_int_equal(f.error, EIO);
    end(&f);
}

/* The ring is taken away, at once or in the middle: reader threads do the rest. */
static void test_ring_breaks(void **state) {
    (void)state;
    for (int after = 0; after < 40; after += 3) {
        struct fixture f;
        begin(&f);
        fault.enter = EPERM;
        fault.enter_after = after;
        fault.enter_count = 1 << 30;
        run(&f);
        assert_int_equal(f.n_error, 0);
        assert_int_equal(fault.faults, 1); /* it is not tried again */
        end(&f);
    }
}

/* The kernel refuses rings: asked for, that is an error which says so; auto asks for none. */
static void test_setup_refused(void **state) {
    (void)state;
    const int errors[] = {EPERM, ENOSYS, ENOMEM};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        struct fixture f;
        begin(&f);
        fault.setup = errors[i];
        enum sluice_io got = SLUICE_IO_AUTO;
        assert_int_equal(io_choose(SLUICE_IO_URING, &got, &f.err), SLUICE_ERR_ARG);
        assert_non_null(strstr(f.err.message, "io_uring"));
        assert_non_null(strstr(f.err.message, strerror(errors[i])));
        assert_null(io_create(SLUICE_IO_URING, 4, on_done, &f, &f.err));
        assert_int_equal(f.err.status, SLUICE_ERR_ARG);
        assert_int_equal(io_choose(SLUICE_IO_AUTO, &got, &f.err), SLUICE_OK);
        assert_int_equal(got, SLUICE_IO_PREAD);
        assert_int_equal(f.err.status, SLUICE_OK);
        struct io *l = io_create(SLUICE_IO_AUTO, 4, on_done, &f, &f.err);
        assert_non_null(l);
        assert_int_equal(io_kind(l), SLUICE_IO_PREAD);
        assert_int_equal(f.err.status, SLUICE_OK);
        io_destroy(l);
        assert_int_equal(fault.faults, 2);
        end(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unnoticed),     cmocka_unit_test(test_no_memory_for_a_while),
        cmocka_unit_test(test_failures),      cmocka_unit_test(test_ring_breaks),
        cmocka_unit_test(test_setup_refused),
    };
    if (!unit_uring_allowed()) {
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
