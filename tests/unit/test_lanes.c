/* test_lanes.c - the reader threads: order, many requests, growth of the queue, failures, the end. */
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stream/event.h"
#include "stream/lanes.h"

enum { SIZE = 1 << 20, MANY = 5000, BLOCK = 4096 };

struct fixture {
    struct stream_file file;
    int fd;
    char path[64];
    struct sluice_error err;
    struct event done;
    _Atomic uint32_t n_taken; /* entries of order given out */
    _Atomic uint32_t n_done;  /* requests ended, their entry of order written */
    _Atomic uint32_t n_wrong; /* of those, with other bytes than the file's */
    _Atomic uint32_t n_error; /* of those, failed */
    _Atomic int error;        /* the last errno */
    uint32_t order[MANY];     /* request numbers as they ended */
    _Atomic uint32_t hold;    /* 1: the callback waits */
    struct event let_go;      /* for it */
};

static void on_done(void *ud, const struct lane_request *r, int64_t got, int error) {
    struct fixture *f = ud;
    uint32_t seen;
    while (seen = event_read(&f->let_go), atomic_load(&f->hold)) {
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

static void wait_for(struct fixture *f, uint32_t n) {
    uint32_t seen;
    while (seen = event_read(&f->done), atomic_load(&f->n_done) < n) {
        event_wait(&f->done, seen);
    }
}

static void begin(struct fixture *f) {
    memset(f, 0, sizeof *f);
    f->fd = unit_file(f->path, SIZE);
    assert_int_equal(stream_file_open(&f->file, f->path, true, &f->err), SLUICE_OK);
}

static void end(struct fixture *f) {
    stream_file_close(&f->file);
    close(f->fd);
    unlink(f->path);
}

static struct lane_request request(const struct fixture *f, void *dst, uint64_t offset, uint32_t tag) {
    return (struct lane_request){
        .file = &f->file, .dst = dst, .offset = offset, .len = BLOCK, .need = BLOCK, .tag = tag};
}

static char *blocks(size_t n) {
    void *p = NULL;
    assert_int_equal(posix_memalign(&p, BLOCK, n * BLOCK), 0);
    return p;
}

/* With one lane requests end in the order in which they were queued, also across growths of the queue. */
static void test_order(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    char *buf = blocks(1);
    struct lanes *l = lanes_create(1, on_done, &f, &f.err);
    assert_non_null(l);
    atomic_store(&f.hold, 1);
    uint64_t seed = 1;
    uint32_t n = 0;
    while (n < MANY) {
        struct lane_request r[97];
        uint32_t k = 0;
        while (k < 1 + unit_random(&seed) % 97 && k < 97 && n + k < MANY) {
            r[k] = request(&f, buf, unit_random(&seed) % (SIZE / BLOCK) * BLOCK, n + k);
            k++;
        }
        assert_int_equal(lanes_submit(l, r, k), SLUICE_OK);
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
    lanes_destroy(l);
    free(buf);
    end(&f);
}

static void test_many_lanes(void **state) {
    (void)state;
    for (uint32_t lanes = 2; lanes <= 64; lanes *= 4) {
        struct fixture f;
        begin(&f);
        char *buf = blocks(MANY);
        struct lanes *l = lanes_create(lanes, on_done, &f, &f.err);
        assert_non_null(l);
        struct lane_request *r = calloc(MANY, sizeof *r);
        assert_non_null(r);
        uint64_t seed = lanes;
        for (uint32_t i = 0; i < MANY; i++) {
            r[i] = request(&f, buf + (size_t)i * BLOCK, unit_random(&seed) % (SIZE / BLOCK) * BLOCK, i);
        }
        assert_int_equal(lanes_submit(l, r, 1), SLUICE_OK);
        assert_int_equal(lanes_submit(l, r + 1, MANY - 1), SLUICE_OK); /* one growth by more than double */
        wait_for(&f, MANY);
        assert_int_equal(f.n_wrong, 0);
        assert_int_equal(f.n_error, 0);
        uint8_t *seen = calloc(MANY, 1); /* every request ended once */
        assert_non_null(seen);
        for (uint32_t i = 0; i < MANY; i++) {
            assert_int_equal(seen[f.order[i]]++, 0);
        }
        free(seen);
        lanes_destroy(l);
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
    struct lanes *l = lanes_create(2, on_done, &f, &f.err);
    assert_non_null(l);
    struct lane_request r = request(&f, buf, SIZE, 0); /* behind the end */
    assert_int_equal(lanes_submit(l, &r, 1), SLUICE_OK);
    wait_for(&f, 1);
    assert_int_equal(f.n_error, 1);
    assert_int_equal(f.error, ENODATA);
    struct stream_file closed = f.file; /* descriptors that are not open */
    closed.fd = closed.fd_direct = 1 << 20;
    r = request(&f, buf, 0, 1);
    r.file = &closed;
    assert_int_equal(lanes_submit(l, &r, 1), SLUICE_OK);
    wait_for(&f, 2);
    assert_int_equal(f.n_error, 2);
    assert_int_equal(f.error, EBADF);
    r = request(&f, buf, 0, 2); /* a failure is no end: the lane goes on */
    assert_int_equal(lanes_submit(l, &r, 1), SLUICE_OK);
    wait_for(&f, 3);
    assert_int_equal(f.n_error, 2);
    assert_int_equal(f.n_wrong, 0);
    lanes_destroy(l);
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

/* A signal to the process must never run its handler on a lane. */
static void test_signals_pass_by(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    struct sigaction act = {.sa_handler = on_signal}, before;
    assert_int_equal(sigaction(SIGUSR1, &act, &before), 0);
    struct lanes *l = lanes_create(8, on_done, &f, &f.err);
    assert_non_null(l);
    sigset_t mask;
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
    assert_false(sigismember(&mask, SIGUSR1)); /* the caller's mask is as it was */
    for (int i = 1; i <= 50; i++) {
        assert_int_equal(kill(getpid(), SIGUSR1), 0);
        assert_int_equal(signals, i); /* delivered here before kill returns: no other thread takes it */
        assert_true(pthread_equal(signal_thread, pthread_self()));
    }
    lanes_destroy(l);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
    end(&f);
}

static void test_destroy(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    for (uint32_t i = 0; i < 50; i++) {
        struct lanes *l = lanes_create(1 + i % 8, on_done, &f, &f.err);
        assert_non_null(l);
        lanes_destroy(l); /* threads that never got a request, some not even started */
    }
    lanes_destroy(NULL);
    end(&f);
}

/* The main thread submits; so do others at the same time. */
enum { SUBMITTERS = 4, EACH = 1000 };

struct submitter {
    struct fixture *f;
    struct lanes *lanes;
    char *buf;
    uint32_t from;
};

static void *submitter_main(void *arg) {
    const struct submitter *s = arg;
    for (uint32_t i = 0; i < EACH; i++) {
        struct lane_request r =
            request(s->f, s->buf + (size_t)i * BLOCK, (s->from + i) % (SIZE / BLOCK) * BLOCK, s->from + i);
        if (lanes_submit(s->lanes, &r, 1)) {
            return arg;
        }
    }
    return NULL;
}

static void test_submit_from_threads(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    struct lanes *l = lanes_create(3, on_done, &f, &f.err);
    assert_non_null(l);
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
    lanes_destroy(l);
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
        cmocka_unit_test(test_signals_pass_by),
        cmocka_unit_test(test_submit_from_threads),
        cmocka_unit_test(test_destroy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
