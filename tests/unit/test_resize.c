/*
 * test_resize.c - the engine's arena made larger and smaller while it is in use: what is kept, what a
 * failure leaves, and that nothing moves under whoever computes from it.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine_fixture.h"

static struct sluice_stats stats(const struct fixture *f) {
    struct sluice_stats s;
    engine_stats(f->e, &s);
    return s;
}

/* Misses of a block of these experts. Every byte is checked. */
static uint64_t misses_of(struct fixture *f, int layer, const int32_t *expert, uint32_t n) {
    const uint64_t before = stats(f).generation.misses;
    assert_true(fixture_block(f, layer, expert, n));
    return stats(f).generation.misses - before;
}

/* Experts 0..TOP_K-1 of each layer, layer after layer. */
static void fill(struct fixture *f) {
    const int32_t expert[TOP_K] = {0, 1, 2, 3};
    for (int l = 0; l < LAYERS; l++) {
        assert_true(fixture_block(f, l, expert, TOP_K));
    }
}

static int resize(struct fixture *f, uint64_t budget) {
    f->budget = budget;
    return engine_resize(f->e, &f->err);
}

/* Before the arena is cut there is nothing to do; the new budget counts when it is. */
static void test_before_the_first_use(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, fixture_budget(5));
    assert_int_equal(resize(&f, fixture_budget(9)), SLUICE_OK);
    assert_int_equal(f.n_budget, 0);
    assert_int_equal(stats(&f).slots, 0);
    fill(&f);
    assert_int_equal(stats(&f).slots, 9);
    fixture_end(&f);
}

static void test_grow_and_shrink(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, fixture_budget(12));
    const int32_t low[] = {0, 1, 2, 3}, high[] = {8, 9, 10, 11};
    fill(&f);
    assert_int_equal(stats(&f).resident, 12);
    assert_int_equal(stats(&f).generation.misses, 12);
    /* Larger: all stays, and there is room for more. */
    assert_int_equal(resize(&f, fixture_budget(20)), SLUICE_OK);
    assert_int_equal(stats(&f).slots, 20);
    assert_int_equal(engine_capacity(f.e, f.group[0]), 20);
    assert_int_equal(stats(&f).cache_bytes, fixture_budget(20));
    bool cut = false;
    assert_int_equal(engine_budget(f.e, &cut), fixture_budget(20));
    assert_true(cut);
    for (int l = 0; l < LAYERS; l++) {
        assert_int_equal(misses_of(&f, l, low, TOP_K), 0);
    }
    assert_int_equal(misses_of(&f, 0, high, TOP_K), TOP_K);
    assert_int_equal(misses_of(&f, 1, high, TOP_K), TOP_K);
    assert_int_equal(stats(&f).evictions, 0);
    /* Smaller: what was used longest ago is gone, the layers 0 and 1 of `low`. */
    assert_int_equal(resize(&f, fixture_budget(12)), SLUICE_OK);
    assert_int_equal(stats(&f).slots, 12);
    assert_int_equal(stats(&f).resident, 12);
    assert_int_equal(stats(&f).cache_bytes, fixture_budget(12));
    assert_int_equal(misses_of(&f, 2, low, TOP_K), 0);
    assert_int_equal(misses_of(&f, 0, high, TOP_K), 0);
    assert_int_equal(misses_of(&f, 1, high, TOP_K), 0);
    assert_int_equal(misses_of(&f, 0, low, TOP_K), TOP_K);
    assert_int_equal(stats(&f).evictions, TOP_K); /* that of the last block alone */
    /* As small as can be, and further down than that. */
    for (uint32_t n = TOP_K; n > 0; n -= TOP_K / 2) {
        assert_int_equal(resize(&f, fixture_budget(n)), SLUICE_OK);
        assert_int_equal(stats(&f).slots, TOP_K);
        assert_int_equal(misses_of(&f, 0, low, TOP_K), 0);
    }
    fixture_end(&f);
}

/* No cache any more, and one again. */
static void test_to_staging_and_back(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, fixture_budget(12));
    const int32_t low[] = {0, 1, 2, 3};
    fill(&f);
    assert_int_equal(resize(&f, 0), SLUICE_OK);
    assert_int_equal(stats(&f).resident, 0);
    bool cut = false;
    assert_int_equal(engine_budget(f.e, &cut), 0);
    assert_true(cut);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(misses_of(&f, 0, low, TOP_K), TOP_K); /* nothing outlives its use */
        assert_int_equal(stats(&f).resident, 0);
    }
    assert_int_equal(resize(&f, fixture_budget(8)), SLUICE_OK);
    assert_int_equal(stats(&f).slots, 8);
    assert_int_equal(misses_of(&f, 0, low, TOP_K), TOP_K);
    assert_int_equal(misses_of(&f, 0, low, TOP_K), 0);
    assert_int_equal(stats(&f).evictions, 0);
    fixture_end(&f);
}

/* The budget function says no: the reason comes back, and all is as it was. */
static void test_refused(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, fixture_budget(12));
    const int32_t low[] = {0, 1, 2, 3};
    fill(&f);
    f.refuse = true;
    const uint64_t budgets[] = {fixture_budget(30), fixture_budget(5), 0};
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        assert_int_equal(resize(&f, budgets[i]), SLUICE_ERR_BUDGET);
        assert_string_equal(f.err.message, "the test says no");
        assert_int_equal(stats(&f).slots, 12);
        assert_int_equal(stats(&f).resident, 12);
        bool cut = false;
        assert_int_equal(engine_budget(f.e, &cut), fixture_budget(12));
        assert_true(cut);
        for (int l = 0; l < LAYERS; l++) {
            assert_int_equal(misses_of(&f, l, low, TOP_K), 0);
        }
    }
    fixture_end(&f);
}

/* There is no memory to grow: what was cached stays, also when the cache was to be given up (staging is larger). */
static void test_no_memory(void **state) {
    (void)state;
    if (!unit_limit_holds()) {
        skip();
    }
    struct fixture f;
    fixture_begin(&f, fixture_budget(12));
    const int32_t low[] = {0, 1, 2, 3};
    fill(&f);
    const uint64_t budgets[] = {fixture_budget(40), 0};
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        fixture_limit_memory(fixture_budget(10));
        const int rc = resize(&f, budgets[i]);
        fixture_unlimit_memory();
        assert_int_equal(rc, SLUICE_ERR_MEMORY);
        assert_non_null(strstr(f.err.message, "cannot allocate"));
        assert_int_equal(stats(&f).slots, 12);
        bool cut = false;
        assert_int_equal(engine_budget(f.e, &cut), fixture_budget(12));
        for (int l = 0; l < LAYERS; l++) {
            assert_int_equal(misses_of(&f, l, low, TOP_K), 0);
        }
    }
    assert_int_equal(resize(&f, fixture_budget(40)), SLUICE_OK); /* there is memory again */
    assert_int_equal(stats(&f).slots, 40);
    assert_int_equal(misses_of(&f, 0, low, TOP_K), 0);
    fixture_end(&f);
}

/* ---- while others are at it ------------------------------------------------------------------ */

struct resizer {
    struct fixture *f;
    _Atomic bool over; /* it returned */
    int rc;            /* what */
};

static void *resize_once(void *arg) {
    struct resizer *r = arg;
    struct sluice_error err;
    r->rc = engine_resize(r->f->e, &err);
    atomic_store(&r->over, true);
    return NULL;
}

/* Let it get to where it waits: from then on nothing is granted to those who do not wait. */
static void until_it_waits(struct fixture *f, int layer, int32_t there) {
    uint32_t slot, granted;
    do {
        struct engine_want w = fixture_want(f, layer, &there, 1);
        w.wait = w.first = false;
        assert_int_equal(engine_acquire(f->e, &w, &slot, &granted, &f->err), SLUICE_OK);
        if (granted) {
            engine_release(f->e, &slot, 1);
        }
    } while (granted);
}

/* A block is running: its slots keep their place and their bytes, and the change comes after it. */
static void test_waits_for_pins(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, fixture_budget(12));
    fill(&f);
    const int32_t expert[] = {0, 1, 2, 3};
    uint32_t slot[TOP_K], granted;
    const struct engine_want w = fixture_want(&f, 2, expert, TOP_K);
    assert_int_equal(engine_acquire(f.e, &w, slot, &granted, &f.err), SLUICE_OK);
    assert_int_equal(granted, TOP_K);
    struct resizer r = {.f = &f};
    pthread_t t;
    f.budget = fixture_budget(TOP_K);
    assert_int_equal(pthread_create(&t, NULL, resize_once, &r), 0);
    until_it_waits(&f, 2, 0);
    for (int round = 0; round < 100; round++) {
        assert_false(atomic_load(&r.over));
        assert_int_equal(stats(&f).slots, 12);
        for (uint32_t i = 0; i < TOP_K; i++) {
            assert_true(fixture_right(f.e, slot[i], 2, expert[i]));
        }
    }
    engine_release(f.e, slot, TOP_K);
    assert_int_equal(pthread_join(t, NULL), 0);
    assert_int_equal(r.rc, SLUICE_OK);
    assert_int_equal(stats(&f).slots, TOP_K);
    assert_int_equal(misses_of(&f, 2, expert, TOP_K), 0); /* the freshest: carried over */
    fixture_end(&f);
}

/* Nobody holds pins, but reads are under way (a context was freed while it computed): they are waited for. */
static void test_waits_for_reads(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, fixture_budget(12));
    fill(&f);
    const int32_t expert[] = {9};
    uint32_t slot, granted;
    const struct engine_want w = fixture_want(&f, 0, expert, 1);
    fixture_gate_close();
    assert_int_equal(engine_acquire(f.e, &w, &slot, &granted, &f.err), SLUICE_OK);
    engine_release(f.e, &slot, 1);
    fixture_gate_wait(1);
    struct resizer r = {.f = &f};
    pthread_t t;
    f.budget = fixture_budget(TOP_K);
    assert_int_equal(pthread_create(&t, NULL, resize_once, &r), 0);
    until_it_waits(&f, 2, 0);
    assert_false(atomic_load(&r.over));
    assert_int_equal(stats(&f).slots, 12);
    fixture_gate_open();
    assert_int_equal(pthread_join(t, NULL), 0);
    assert_int_equal(r.rc, SLUICE_OK);
    assert_int_equal(stats(&f).slots, TOP_K);
    assert_int_equal(misses_of(&f, 0, expert, 1), 0); /* it was the freshest */
    fixture_end(&f);
}

struct crowd {
    struct fixture *f;
    _Atomic int working; /* workers that have not ended */
    uint32_t resizes;    /* done while there were any */
    bool ok;             /* all of them */
};

static void *crowd_resizer(void *arg) {
    struct crowd *c = arg;
    uint64_t seed = 99;
    c->ok = true;
    while (atomic_load(&c->working) && c->ok) {
        struct sluice_error err;
        const uint32_t n = unit_random(&seed) % (LAYERS * EXPERTS + 1);
        c->f->refuse = unit_random(&seed) % 8 == 0;
        c->f->budget = unit_random(&seed) % 6 ? fixture_budget(n) : 0;
        const int rc = engine_resize(c->f->e, &err);
        c->ok = rc == (c->f->refuse ? SLUICE_ERR_BUDGET : SLUICE_OK);
        c->f->refuse = false;
        c->resizes++;
    }
    return NULL;
}

struct member {
    struct fixture_worker worker; /* first */
    struct crowd *crowd;
};

static void *member_main(void *arg) {
    struct member *m = arg;
    fixture_worker(&m->worker);
    atomic_fetch_sub(&m->crowd->working, 1);
    return NULL;
}

/* Budgets change all the time while several threads compute, read ahead, and check every byte. */
static void test_crowd(void **state) {
    (void)state;
    enum { MEMBERS = 4 };
    struct fixture f;
    fixture_begin(&f, fixture_budget(20));
    fill(&f); /* cut: a refusal now is the resizer's alone */
    struct crowd c = {.f = &f, .working = MEMBERS};
    struct member m[MEMBERS];
    pthread_t t[MEMBERS + 1];
    for (int i = 0; i < MEMBERS; i++) {
        m[i] = (struct member){
            {.f = &f, .seed = 500 + 50 * (uint64_t)i, .turns = 1500, .rolling = i == 0, .foresee = i > 1}, &c};
        assert_int_equal(pthread_create(&t[i], NULL, member_main, &m[i]), 0);
    }
    assert_int_equal(pthread_create(&t[MEMBERS], NULL, crowd_resizer, &c), 0);
    for (int i = 0; i <= MEMBERS; i++) {
        assert_int_equal(pthread_join(t[i], NULL), 0);
    }
    for (int i = 0; i < MEMBERS; i++) {
        assert_true(m[i].worker.ok);
    }
    assert_true(c.ok);
    assert_true(c.resizes > 20);
    const struct sluice_stats s = stats(&f);
    assert_int_equal(s.generation.routed, s.generation.hits + s.generation.misses);
    assert_true(s.generation.hits > 0);
    assert_true(s.foreseen.asked > 0);
    assert_true(s.foreseen.begun <= s.foreseen.asked);
    assert_true(s.foreseen.used <= s.foreseen.begun);
    fixture_end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_before_the_first_use),
        cmocka_unit_test(test_grow_and_shrink),
        cmocka_unit_test(test_to_staging_and_back),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_waits_for_pins),
        cmocka_unit_test(test_waits_for_reads),
        cmocka_unit_test(test_crowd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
