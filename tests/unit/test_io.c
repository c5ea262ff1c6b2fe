/*
 * test_io.c - the I/O threads: order, many requests, growth of the queue, short reads, failures, the end.
 */
#include "io_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* One at a time, requests end in the order in which they were queued, also across growths of the queue. */
static void test_order(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    char *buf = blocks(1);
    struct io *l = create(&f, 1);
    atomic_store(&f.hold, MANY);
    uint64_t seed = 1;
    uint32_t n = 0;
    while (n < MANY) {
        struct io_request r[97];
        uint32_t k = 0;
        while (k < 1 + unit_random(&seed) % 97 && k < 97 && n + k < MANY) {
            r[k] = request(&f, buf, unit_random(&seed) % (SIZE / BLOCK) * BLOCK, n + k);
            k++;
        }
        assert_int_equal(io_submit(l, r, k), SLUICE_OK);
        n += k;
    }
    atomic_store(&f.hold, 0);
    event_bump(&f.let_go);
    wait_for(&f, MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(f.order[i], i);
    }
    assert_int_equal(f.n_wrong, 0);
    assert_int_equal(f.n_error, 0);
    io_destroy(l);
    free(buf);
    end(&f);
}

static void test_many_lanes(void **state) {
    (void)state;
    for (uint32_t lanes = 2; lanes <= 64; lanes *= 4) {
        struct fixture f;
        begin(&f);
        char *buf = blocks(MANY);
        struct io *l = create(&f, lanes);
        struct io_request *r = calloc(MANY, sizeof *r);
        assert_non_null(r);
        uint64_t seed = lanes;
        for (uint32_t i = 0; i < MANY; i++) {
            r[i] = request(&f, buf + (size_t)i * BLOCK, unit_random(&seed) % (SIZE / BLOCK) * BLOCK, i);
        }
        assert_int_equal(io_submit(l, r, 1), SLUICE_OK);
        assert_int_equal(io_submit(l, r + 1, MANY - 1), SLUICE_OK); /* one growth by more than double */
        wait_for(&f, MANY);
        assert_int_equal(f.n_wrong, 0);
        assert_int_equal(f.n_error, 0);
        uint8_t *seen = calloc(MANY, 1); /* every request ended once */
        assert_non_null(seen);
        for (uint32_t i = 0; i < MANY; i++) {
            assert_int_equal(seen[f.order[i]]++, 0);
        }
        free(seen);
        io_destroy(l);
        free(r);
        free(buf);
        end(&f);
    }
}

static void test_failures(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    char *buf = blocks(2);
    struct io *l = create(&f, 2);
    struct io_request r = request(&f, buf, SIZE, 0); /* behind the end */
    assert_int_equal(io_submit(l, &r, 1), SLUICE_OK);
    wait_for(&f, 1);
    assert_int_equal(f.n_error, 1);
    assert_int_equal(f.error, ENODATA);
    struct stream_file closed = f.file; /* descriptors that are not open */
    closed.fd = closed.fd_direct = 1 << 20;
    r = request(&f, buf, 0, 1);
    r.file = &closed;
    assert_int_equal(io_submit(l, &r, 1), SLUICE_OK);
    wait_for(&f, 2);
    assert_int_equal(f.n_error, 2);
    assert_int_equal(f.error, EBADF);
    r = request(&f, buf, 0, 2); /* a failure is no end: the thread goes on */
    assert_int_equal(io_submit(l, &r, 1), SLUICE_OK);
    wait_for(&f, 3);
    assert_int_equal(f.n_error, 2);
    assert_int_equal(f.n_wrong, 0);
    io_destroy(l);
    free(buf);
    end(&f);
}

/* What a file's direct descriptor does not give comes from the other, wherever it stops. */
static void test_short_reads(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    enum { LEN = 16 * BLOCK };
    char *buf = blocks(LEN / BLOCK);
    struct io *l = create(&f, 3);
    /* A file that ends early stands in for a direct descriptor: at a block's end, within a block, at its start. */
    const uint64_t ends[] = {3 * BLOCK, 5 * BLOCK + 123, 0, LEN - 1};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char path[64];
        const int part = unit_file(path, ends[i]);
        struct stream_file file = f.file;
        file.fd_direct = part;
        struct io_request r = request(&f, buf, 0, 0);
        r.file = &file;
        r.len = r.need = LEN;
        memset(buf, 0xee, LEN);
        assert_int_equal(io_submit(l, &r, 1), SLUICE_OK);
        wait_for(&f, (uint32_t)i + 1);
        assert_int_equal(f.n_wrong, 0);
        assert_int_equal(f.n_error, 0);
        close(part);
        unlink(path);
    }
    io_destroy(l);
    free(buf);
    end(&f);
}

/* The kernel refuses a direct read (an address that is not aligned): the bytes come all the same. */
static void test_refused_direct(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    char *buf = blocks(2);
    struct io *l = create(&f, 2);
    struct io_request r = request(&f, buf + 1, BLOCK, 0);
    assert_int_equal(io_submit(l, &r, 1), SLUICE_OK);
    wait_for(&f, 1);
    assert_int_equal(f.n_wrong, 0);
    assert_int_equal(f.n_error, 0);
    io_destroy(l);
    free(buf);
    end(&f);
}

/* Through the page cache, with the end of the file inside the last window. */
static void test_buffered(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    enum { ODD = SIZE - 1000, WINDOWS = SIZE / BLOCK };
    assert_int_equal(ftruncate(f.fd, ODD), 0);
    for (int direct = 0; direct < 2; direct++) {
        struct stream_file file;
        assert_int_equal(stream_file_open(&file, f.path, direct, &f.err), SLUICE_OK);
        char *buf = blocks(WINDOWS);
        struct io *l = create(&f, 4);
        struct io_request r[WINDOWS];
        for (uint32_t i = 0; i < WINDOWS; i++) {
            r[i] = request(&f, buf + (size_t)i * BLOCK, (uint64_t)i * BLOCK, i);
            r[i].file = &file;
        }
        r[WINDOWS - 1].need = BLOCK - 1000;
        assert_int_equal(io_submit(l, r, WINDOWS), SLUICE_OK);
        wait_for(&f, WINDOWS * ((uint32_t)direct + 1));
        assert_int_equal(f.n_wrong, 0);
        assert_int_equal(f.n_error, 0);
        r[WINDOWS - 1].need++; /* one byte more than there is */
        assert_int_equal(io_submit(l, &r[WINDOWS - 1], 1), SLUICE_OK);
        wait_for(&f, WINDOWS * ((uint32_t)direct + 1) + 1);
        assert_int_equal(f.n_error, 1);
        assert_int_equal(f.error, ENODATA);
        io_destroy(l);
        free(buf);
        stream_file_close(&file);
        atomic_store(&f.n_done, WINDOWS);
        atomic_store(&f.n_taken, WINDOWS);
        atomic_store(&f.n_error, 0);
    }
    end(&f);
}

/* Errors keep their number: memory that is not there, a descriptor that is no file. */
static void test_error_numbers(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    struct io *l = create(&f, 2);
    void *nothing = mmap(NULL, BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(nothing != MAP_FAILED);
    struct io_request r = request(&f, nothing, 0, 0);
    assert_int_equal(io_submit(l, &r, 1), SLUICE_OK);
    wait_for(&f, 1);
    assert_int_equal(f.n_error, 1);
    assert_int_equal(f.error, EFAULT);
    struct stream_file file = f.file;
    file.fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(file.fd >= 0);
    file.fd_direct = -1;
    char *buf = blocks(1);
    r = request(&f, buf, 0, 1);
    r.file = &file;
    assert_int_equal(io_submit(l, &r, 1), SLUICE_OK);
    wait_for(&f, 2);
    assert_int_equal(f.n_error, 2);
    assert_int_equal(f.error, EISDIR);
    close(file.fd);
    io_destroy(l);
    munmap(nothing, BLOCK);
    free(buf);
    end(&f);
}

static pthread_t signal_thread; /* which thread ran the handler */
static volatile sig_atomic_t signals;

static void on_signal(int sig) {
    (void)sig;
    signal_thread = pthread_self();
    signals = signals + 1;
}

/* A signal to the process must never run its handler on an I/O thread. */
static void test_signals_pass_by(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    signals = 0;
    struct sigaction act = {.sa_handler = on_signal}, before;
    assert_int_equal(sigaction(SIGUSR1, &act, &before), 0);
    struct io *l = create(&f, 8);
    sigset_t mask;
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
    assert_false(sigismember(&mask, SIGUSR1)); /* the caller's mask is as it was */
    for (int i = 1; i <= 50; i++) {
        assert_int_equal(kill(getpid(), SIGUSR1), 0);
        assert_int_equal(signals, i); /* delivered here before kill returns: no other thread takes it */
        assert_true(pthread_equal(signal_thread, pthread_self()));
    }
    io_destroy(l);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
    end(&f);
}

static void test_destroy(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    for (uint32_t i = 0; i < 50; i++) {
        struct io *l = create(&f, 1 + i % 8);
        io_destroy(l); /* threads that never got a request, some not even started */
    }
    io_destroy(NULL);
    end(&f);
}

/* The main thread submits; so do others at the same time. */
enum { SUBMITTERS = 4, EACH = 1000 };

struct submitter {
    struct fixture *f;
    struct io *lanes;
    char *buf;
    uint32_t from;
};

static void *submitter_main(void *arg) {
    const struct submitter *s = arg;
    for (uint32_t i = 0; i < EACH; i++) {
        struct io_request r =
            request(s->f, s->buf + (size_t)i * BLOCK, (s->from + i) % (SIZE / BLOCK) * BLOCK, s->from + i);
        if (io_submit(s->lanes, &r, 1)) {
            return arg;
        }
    }
    return NULL;
}

static void test_submit_from_threads(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    struct io *l = create(&f, 3);
    struct submitter s[SUBMITTERS];
    pthread_t t[SUBMITTERS];
    for (uint32_t i = 0; i < SUBMITTERS; i++) {
        s[i] = (struct submitter){&f, l, blocks(EACH), i * EACH};
        assert_int_equal(pthread_create(&t[i], NULL, submitter_main, &s[i]), 0);
    }
    for (uint32_t i = 0; i < SUBMITTERS; i++) {
        void *failed;
        assert_int_equal(pthread_join(t[i], &failed), 0);
        assert_null(failed);
    }
    wait_for(&f, SUBMITTERS * EACH);
    assert_int_equal(f.n_wrong, 0);
    assert_int_equal(f.n_error, 0);
    io_destroy(l);
    for (uint32_t i = 0; i < SUBMITTERS; i++) {
        free(s[i].buf);
    }
    end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_many_lanes),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_short_reads),
        cmocka_unit_test(test_refused_direct),
        cmocka_unit_test(test_buffered),
        cmocka_unit_test(test_error_numbers),
        cmocka_unit_test(test_signals_pass_by),
        cmocka_unit_test(test_submit_from_threads),
        cmocka_unit_test(test_destroy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
