/*
 * test_idle.c - the idle queue: what goes first, how much is begun, what is taken
 * back. The callback is held up, so what is begun is known and no test depends on how fast the disk is.
 */
#include <stdlib.h>

#include "io_fixture.h"

static void wait_here(struct fixture *f, uint32_t n) {
    uint32_t seen;
    while (seen = event_read(&f->done), atomic_load(&f->n_here) < n) {
        event_wait(&f->done, seen);
    }
}

static void let_go(struct fixture *f) {
    atomic_store(&f->hold, 0);
    event_bump(&f->let_go);
}

static bool all(void *ud, const struct io_request *r) {
    (void)ud, (void)r;
    return true;
}

static void on_recalled(void *ud, const struct io_request *r) {
    struct fixture *f = ud;
    f->recalled[r->tag]++;
    f->n_recalled++;
}

/* Requests with the tags [from, from + n), every one its own block of buf; a letter of `follows` says 'f': it follows.
 */
static int submit_tags(struct fixture *f, struct io *l, char *buf, uint32_t from, uint32_t n, const char *follows,
                       bool idle) {
    struct io_request r[64];
    assert_true(n <= 64);
    for (uint32_t i = 0; i < n; i++) {
        r[i] = request(f, buf + (size_t)(from + i) * BLOCK, (from + i) % (SIZE / BLOCK) * BLOCK, from + i);
        r[i].follows = follows && follows[i] == 'f';
    }
    return idle ? io_submit_idle(l, r, n) : io_submit(l, r, n);
}

/* Every tag below n was either read once or taken back once; `recalled` lists the latter. */
static void check_recalled(const struct fixture *f, uint32_t n, const char *recalled) {
    assert_int_equal(f->n_done + f->n_recalled, n);
    assert_int_equal(f->n_wrong, 0);
    assert_int_equal(f->n_error, 0);
    uint8_t ended[MANY] = {0};
    for (uint32_t i = 0; i < f->n_done; i++) {
        ended[f->order[i]]++;
    }
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(ended[i] + f->recalled[i], 1);
        if (recalled) {
            assert_int_equal(f->recalled[i], recalled[i] == 'r');
        }
    }
}

/* What somebody waits for goes first, whenever it comes. */
static void test_demand_first(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    char *buf = blocks(64);
    struct io *l = create(&f, 1);
    atomic_store(&f.hold, 1);
    assert_int_equal(submit_tags(&f, l, buf, 0, 1, NULL, false), SLUICE_OK);
    wait_here(&f, 1); /* the only lane is busy */
    assert_int_equal(submit_tags(&f, l, buf, 1, 5, NULL, true), SLUICE_OK);
    assert_int_equal(submit_tags(&f, l, buf, 6, 3, NULL, false), SLUICE_OK);
    assert_int_equal(submit_tags(&f, l, buf, 9, 2, NULL, true), SLUICE_OK);
    assert_int_equal(submit_tags(&f, l, buf, 11, 1, NULL, false), SLUICE_OK);
    let_go(&f);
    wait_for(&f, 12);
    const uint32_t order[] = {0, 6, 7, 8, 11, 1, 2, 3, 4, 5, 9, 10};
    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(f.order[i], order[i]);
    }
    check_recalled(&f, 12, NULL);
    io_destroy(l);
    free(buf);
    end(&f);
}

/* Half of the lanes at most; of one lane, that one. The rest can be had back, and demand finds room. */
static void test_idle_half(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= 5; n++) {
        struct fixture f;
        begin(&f);
        char *buf = blocks(64);
        struct io *l = create(&f, n);
        const uint32_t most = n > 1 ? n / 2 : 1;
        atomic_store(&f.hold, 20);
        assert_int_equal(submit_tags(&f, l, buf, 0, 20, NULL, true), SLUICE_OK);
        wait_here(&f, most);
        if (n > 1) {
            assert_int_equal(submit_tags(&f, l, buf, 20, 4, NULL, false), SLUICE_OK);
            wait_for(&f, 4); /* the idle ones are held all the while */
            assert_int_equal(f.n_here, most + 4);
        }
        io_recall(l, all, on_recalled, &f);
        assert_int_equal(f.n_recalled, 20 - most);
        io_recall(l, all, on_recalled, &f); /* there is nothing more */
        assert_int_equal(f.n_recalled, 20 - most);
        const uint32_t all = n > 1 ? 24 : 20;
        let_go(&f);
        wait_for(&f, all - f.n_recalled);
        char recalled[24];
        for (uint32_t i = 0; i < 24; i++) {
            recalled[i] = i >= most && i < 20 ? 'r' : '.';
        }
        check_recalled(&f, all, recalled);
        io_destroy(l);
        free(buf);
        end(&f);
    }
}

/* Later pieces of what is begun are not taken back but join the demand, behind what is there. */
static void test_recall_pieces(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    char *buf = blocks(64);
    struct io *l = create(&f, 1);
    atomic_store(&f.hold, 1);
    assert_int_equal(submit_tags(&f, l, buf, 0, 6, ".ff.f.", true), SLUICE_OK);
    wait_here(&f, 1); /* 0 is begun; 1 and 2 follow it, 4 follows 3 */
    assert_int_equal(submit_tags(&f, l, buf, 6, 2, NULL, false), SLUICE_OK);
    io_recall(l, all, on_recalled, &f);
    assert_int_equal(f.n_recalled, 3);
    assert_int_equal(submit_tags(&f, l, buf, 8, 1, NULL, false), SLUICE_OK);
    let_go(&f);
    wait_for(&f, 6);
    check_recalled(&f, 9, "...rrr...");
    const uint32_t order[] = {0, 6, 7, 1, 2, 8};
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(f.order[i], order[i]);
    }
    /* Nothing is begun: all of it comes back, the pieces too. */
    atomic_store(&f.hold, 10);
    assert_int_equal(submit_tags(&f, l, buf, 9, 1, NULL, false), SLUICE_OK);
    wait_here(&f, 7);
    assert_int_equal(submit_tags(&f, l, buf, 10, 3, ".ff", true), SLUICE_OK);
    io_recall(l, all, on_recalled, &f);
    let_go(&f);
    wait_for(&f, 7);
    check_recalled(&f, 13, "...rrr....rrr");
    io_destroy(l);
    free(buf);
    end(&f);
}

/* Lanes that slept, because half is the most for idle reads, take the pieces that became demand. */
static void test_recall_wakes_all(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    char *buf = blocks(64);
    struct io *l = create(&f, 4);
    atomic_store(&f.hold, 4);
    assert_int_equal(submit_tags(&f, l, buf, 0, 4, ".fff", true), SLUICE_OK);
    wait_here(&f, 2);
    io_recall(l, all, on_recalled, &f);
    assert_int_equal(f.n_recalled, 0);
    wait_here(&f, 4); /* all four threads are at it */
    let_go(&f);
    wait_for(&f, 4);
    check_recalled(&f, 4, "....");
    io_destroy(l);
    free(buf);
    end(&f);
}

/* At random, also across growths of the queues: each request is read once or taken back once. */
static void test_idle_random(void **state) {
    (void)state;
    for (uint32_t lanes = 1; lanes <= 8; lanes *= 2) {
        struct fixture f;
        begin(&f);
        char *buf = blocks(MANY);
        struct io *l = create(&f, lanes);
        uint64_t seed = lanes;
        uint32_t n = 0;
        while (n + 64 <= MANY) {
            const uint32_t k = 1 + unit_random(&seed) % 64, what = unit_random(&seed) % 8;
            char follows[64];
            for (uint32_t i = 0; i < k; i++) {
                follows[i] = i && unit_random(&seed) % 2 ? 'f' : '.';
            }
            if (what == 0) {
                io_recall(l, all, on_recalled, &f);
            } else {
                assert_int_equal(submit_tags(&f, l, buf, n, k, follows, what < 6), SLUICE_OK);
                n += k;
            }
            if (what == 7 && unit_random(&seed) % 2) { /* now and then all is worked off */
                wait_for(&f, n - f.n_recalled);
            }
        }
        io_recall(l, all, on_recalled, &f);
        wait_for(&f, n - f.n_recalled);
        check_recalled(&f, n, NULL);
        assert_true(f.n_recalled > 0 && f.n_done > 100);
        io_destroy(l);
        free(buf);
        end(&f);
    }
}

/* An end right after a recall, and one after idle reads alone. */
static void test_idle_destroy(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 60; i++) {
        struct fixture f;
        begin(&f);
        char *buf = blocks(64);
        struct io *l = create(&f, 1 + i % 5);
        assert_int_equal(submit_tags(&f, l, buf, 0, 30, NULL, true), SLUICE_OK);
        if (i % 2) {
            io_recall(l, all, on_recalled, &f);
        }
        wait_for(&f, 30 - f.n_recalled);
        io_destroy(l);
        check_recalled(&f, 30, NULL);
        free(buf);
        end(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_demand_first),  cmocka_unit_test(test_idle_half),
        cmocka_unit_test(test_recall_pieces), cmocka_unit_test(test_recall_wakes_all),
        cmocka_unit_test(test_idle_random),   cmocka_unit_test(test_idle_destroy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
