/*
 * test_warm.c - models come and go, and what is cached of the others stays.
 *
 * The second model lies in a file of its own, whose bytes are others at every offset. Every byte of what a block gets
 * is checked, so whoever takes a slot of a model that is gone for one of its successor, which has the same names and
 * numbers, fails.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine_fixture.h"

enum { TWO_LAYERS = 2, TWO_SHIFT = 8 * 1024, TWO_SIZE = 1 << 21 };

/* A model beside the fixture's. */
struct two {
    struct fixture *f;           /* whose engine */
    uint32_t tensor[TWO_LAYERS]; /* ids */
    uint32_t group[TWO_LAYERS];  /* ids */
    uint32_t file;               /* its index in the engine */
    uint64_t slice, start;       /* bytes of an expert; where the first one begins */
};

static struct sluice_stats stats(const struct fixture *f) {
    struct sluice_stats s;
    engine_stats(f->e, &s);
    return s;
}

/* Load it. Its tensors have one part each, of `slice` bytes. */
static void two_load(struct two *t, struct fixture *f, uint64_t owner, int fd, const char *path, uint64_t slice,
                     uint64_t start) {
    *t = (struct two){.f = f, .slice = slice, .start = start};
    assert_int_equal(engine_add_file(f->e, fd, path, &t->file, &f->err), SLUICE_OK);
    for (int l = 0; l < TWO_LAYERS; l++) {
        char name[INDEX_NAME_MAX];
        snprintf(name, sizeof name, "blk.%d.part0.weight", l);
        assert_int_equal(engine_add_tensor(f->e, t->file, owner, name, start + (uint64_t)l * EXPERTS * slice, slice,
                                           EXPERTS, TOP_K, &t->tensor[l], &f->err),
                         SLUICE_OK);
        t->group[l] = engine_tensor(f->e, t->tensor[l]).group;
    }
}

static void two_free(struct two *t) {
    engine_remove_tensors(t->f->e, t->tensor, TWO_LAYERS);
    engine_drop_file(t->f->e, t->file);
}

/* A block of it; its misses. */
static uint64_t two_block(struct two *t, int layer, const int32_t *expert, uint32_t n) {
    struct fixture *f = t->f;
    const uint64_t before = stats(f).generation.misses;
    uint32_t slot[EXPERTS], granted;
    struct engine_want w = fixture_want(f, 0, expert, n);
    w.group = t->group[layer];
    w.parts = 1;
    assert_int_equal(fixture_begin_block(f, w.group, expert, n, &f->err), SLUICE_OK);
    assert_int_equal(engine_acquire(f->e, &w, slot, &granted, &f->err), SLUICE_OK);
    assert_int_equal(granted, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(fixture_settle(f->e, slot[i], 0), PART_READY);
        const uint64_t at = t->start + ((uint64_t)layer * EXPERTS + (uint64_t)expert[i]) * t->slice;
        assert_true(unit_same(engine_part_data(f->e, slot[i], 0), at, t->slice));
    }
    engine_release(f->e, slot, n);
    return stats(f).generation.misses - before;
}

/* Misses of a block of the first model. Every byte is checked. */
static uint64_t misses_of(struct fixture *f, int layer, const int32_t *expert, uint32_t n) {
    const uint64_t before = stats(f).generation.misses;
    assert_true(fixture_block(f, layer, expert, n));
    return stats(f).generation.misses - before;
}

static const int32_t low[] = {0, 1, 2, 3}, high[] = {8, 9, 10, 11};

static uint64_t misses_of_all(struct fixture *f) {
    uint64_t n = 0;
    for (int l = 0; l < LAYERS; l++) {
        n += misses_of(f, l, low, TOP_K);
    }
    return n;
}

/* How often the first model's expert was asked for, as the map shows it. */
static uint32_t uses_of(struct fixture *f, uint32_t layer, uint32_t expert) {
    uint8_t place[EXPERTS];
    uint32_t uses[EXPERTS], n, top_k;
    assert_true(engine_bundles(f->e, layer, place, uses, EXPERTS, &n, &top_k));
    return uses[expert];
}

/* With room for everything, of slots as large as the first model's, and much larger or smaller ones. */
static void test_stays(void **state) {
    (void)state;
    const uint64_t slice[] = {2 * SLICE, 3 * SLICE, 1000, 2 * SLICE + 400};
    for (size_t i = 0; i < sizeof slice / sizeof *slice; i++) {
        for (int policy = 0; policy < 2; policy++) {
            struct fixture f;
            struct two t;
            char path[64];
            const int fd = unit_file(path, TWO_SIZE);
            fixture_begin_policy(&f, UINT64_C(1) << 30, policy ? SLUICE_POLICY_CYCLE : SLUICE_POLICY_LRU);
            assert_int_equal(misses_of_all(&f), LAYERS * TOP_K);
            const struct sluice_stats before = stats(&f);
            two_load(&t, &f, 2, fd, path, slice[i], TWO_SHIFT + i);
            /* Not used yet: what there is, is told. */
            assert_int_equal(stats(&f).resident, LAYERS * TOP_K);
            assert_int_equal(stats(&f).cache_bytes, before.cache_bytes);
            assert_int_equal(misses_of_all(&f), 0);
            assert_int_equal(stats(&f).resident, LAYERS * TOP_K);
            assert_int_equal(stats(&f).slots, (LAYERS + TWO_LAYERS) * EXPERTS);
            assert_int_equal(uses_of(&f, 1, 2), 2);
            assert_int_equal(uses_of(&f, 1, 9), 0);
            for (int l = 0; l < TWO_LAYERS; l++) {
                assert_int_equal(two_block(&t, l, high, TOP_K), TOP_K);
                assert_int_equal(two_block(&t, l, high, TOP_K), 0);
            }
            two_free(&t);
            assert_int_equal(stats(&f).resident, LAYERS * TOP_K); /* those of the freed one are gone */
            assert_int_equal(misses_of_all(&f), 0);
            assert_int_equal(uses_of(&f, 1, 2), 3);
            assert_int_equal(stats(&f).slots, LAYERS * EXPERTS);
            assert_int_equal(stats(&f).cache_bytes, before.cache_bytes);
            assert_int_equal(stats(&f).evictions, 0);
            assert_int_equal(stats(&f).generation.routed - before.generation.routed,
                             2 * LAYERS * TOP_K + 2 * TWO_LAYERS * TOP_K);
            /* Loaded again, from other places of the file: the same names and numbers, other bytes. */
            two_load(&t, &f, 3, fd, path, slice[i], 3 * TWO_SHIFT + i);
            for (int l = 0; l < TWO_LAYERS; l++) {
                assert_int_equal(two_block(&t, l, high, TOP_K), TOP_K);
            }
            assert_int_equal(misses_of_all(&f), 0);
            /* The first one is freed and not the second; the second stays. */
            engine_remove_tensors(f.e, &f.tensor[0][0], LAYERS * PARTS);
            assert_int_equal(stats(&f).resident, TWO_LAYERS * TOP_K);
            for (int l = 0; l < TWO_LAYERS; l++) {
                assert_int_equal(two_block(&t, l, high, TOP_K), 0);
            }
            two_free(&t);
            assert_int_equal(stats(&f).resident, 0);
            assert_int_equal(stats(&f).cache_bytes, 0);
            engine_drop_file(f.e, f.file);
            engine_prefetcher_end(f.e, &f.prefetcher);
            engine_destroy(f.e);
            close(f.fd);
            unlink(f.path);
            close(fd);
            unlink(path);
        }
    }
}

/* Less room than before: the arena gets no larger than the plan at any time, and what was used last stays. */
static void test_less_budget(void **state) {
    (void)state;
    struct fixture f;
    struct two t;
    char path[64];
    const int fd = unit_file(path, TWO_SIZE);
    fixture_begin(&f, fixture_budget(3 * TOP_K));
    assert_int_equal(misses_of_all(&f), LAYERS * TOP_K);
    /* While it loads, the budget function allows less: at once there is no more than that. */
    f.budget = fixture_budget(2 * TOP_K);
    two_load(&t, &f, 2, fd, path, 2 * SLICE, TWO_SHIFT);
    assert_true(stats(&f).cache_bytes <= f.budget);
    assert_int_equal(stats(&f).resident, 2 * TOP_K);
    assert_int_equal(misses_of(&f, 2, low, TOP_K), 0); /* as the freshest, it is there */
    assert_true(stats(&f).cache_bytes <= f.budget);
    assert_true(stats(&f).resident >= TOP_K); /* in proportion, as a new arena would have been divided */
    /* Nothing may be cached: nothing is, and it works. */
    f.budget = 0;
    two_free(&t);
    assert_int_equal(engine_check(f.e, &f.err), SLUICE_OK);
    assert_int_equal(stats(&f).cache_bytes, 0);
    assert_int_equal(misses_of(&f, 2, low, TOP_K), TOP_K);
    assert_int_equal(stats(&f).resident, 0);
    /* Refused while a model loads: nothing is kept, and who computes is told. */
    f.budget = fixture_budget(3 * TOP_K);
    assert_int_equal(engine_resize(f.e, &f.err), SLUICE_OK);
    assert_int_equal(misses_of_all(&f), LAYERS * TOP_K);
    f.refuse = true;
    two_load(&t, &f, 2, fd, path, 2 * SLICE, TWO_SHIFT);
    assert_int_equal(stats(&f).cache_bytes, 0);
    assert_int_equal(engine_check(f.e, &f.err), SLUICE_ERR_BUDGET);
    assert_false(fixture_block(&f, 0, low, TOP_K));
    f.refuse = false;
    assert_int_equal(misses_of(&f, 0, low, TOP_K), TOP_K);
    two_free(&t);
    fixture_end(&f);
    close(fd);
    unlink(path);
}

/* There is memory for one arena and some of another: what stays is carried over all the same. */
static void test_one_arena(void **state) {
    (void)state;
    if (!unit_limit_holds()) {
        skip();
    }
    struct fixture f;
    struct two t;
    char path[64];
    const int fd = unit_file(path, TWO_SIZE);
    fixture_begin(&f, fixture_budget(LAYERS * EXPERTS));
    for (int l = 0; l < LAYERS; l++) {
        for (int32_t e = 0; e < EXPERTS; e += TOP_K) {
            const int32_t expert[TOP_K] = {e, e + 1, e + 2, e + 3};
            assert_int_equal(misses_of(&f, l, expert, TOP_K), TOP_K);
        }
    }
    two_load(&t, &f, 2, fd, path, 2 * SLICE, TWO_SHIFT);
    assert_int_equal(stats(&f).resident, LAYERS * EXPERTS);
    fixture_limit_memory(fixture_budget(LAYERS * EXPERTS / 3));
    const uint64_t misses = misses_of(&f, 2, low, TOP_K);
    fixture_unlimit_memory();
    assert_int_equal(misses, 0);
    assert_true(stats(&f).resident >= 2 * EXPERTS); /* as many as the first model's part of the budget holds */
    assert_true(stats(&f).cache_bytes <= f.budget);
    two_free(&t);
    fixture_end(&f);
    close(fd);
    unlink(path);
}

/* One expert whose reading the gate holds up, and nobody holds (its context was freed): then a model is freed. */
struct freer {
    struct two *t;     /* the model */
    _Atomic bool over; /* it is freed */
};

static void *free_it(void *arg) {
    struct freer *r = arg;
    two_free(r->t);
    atomic_store(&r->over, true);
    return NULL;
}

static void test_reads_in_flight(void **state) {
    (void)state;
    struct fixture f;
    struct two t;
    char path[64];
    const int fd = unit_file(path, TWO_SIZE);
    fixture_begin(&f, UINT64_C(1) << 30);
    assert_int_equal(misses_of_all(&f), LAYERS * TOP_K);
    two_load(&t, &f, 2, fd, path, 2 * SLICE, TWO_SHIFT);
    assert_int_equal(two_block(&t, 0, low, TOP_K), TOP_K);
    uint32_t slot, granted;
    const int32_t nine[] = {9};
    fixture_gate_close();
    struct engine_want w = fixture_want(&f, 0, nine, 1); /* one of the model that stays, one of the other */
    assert_int_equal(engine_acquire(f.e, &w, &slot, &granted, &f.err), SLUICE_OK);
    engine_release(f.e, &slot, 1);
    w.group = t.group[1];
    w.parts = 1;
    assert_int_equal(engine_acquire(f.e, &w, &slot, &granted, &f.err), SLUICE_OK);
    engine_release(f.e, &slot, 1);
    fixture_gate_wait(2);
    struct freer r = {.t = &t};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, free_it, &r), 0);
    do { /* until it waits */
        struct engine_want any = fixture_want(&f, 2, low, 1);
        any.wait = any.first = false;
        assert_int_equal(engine_acquire(f.e, &any, &slot, &granted, &f.err), SLUICE_OK);
        engine_release(f.e, &slot, granted);
    } while (granted);
    assert_false(atomic_load(&r.over));
    fixture_gate_open();
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(misses_of(&f, 0, nine, 1), 0);
    assert_int_equal(misses_of_all(&f), 0);
    fixture_end(&f);
    close(fd);
    unlink(path);
}

/* The arena matches what is loaded: cut anew if need be, and nothing else. */
static int ready(struct fixture *f) {
    const struct engine_routing none = {.tokens = 0, .top_k = 1};
    return engine_begin_block(f->e, f->group[0], ENGINE_PROMPT, &none, &f->err);
}

/* The policy goes on where it was: after another model came and went, the next victims are the same. */
static void test_same_victims(void **state) {
    (void)state;
    for (int policy = 0; policy < 2; policy++) {
        uint8_t place[2][LAYERS][EXPERTS];
        for (int with = 0; with < 2; with++) {
            struct fixture f;
            struct two t;
            char path[64];
            uint64_t seed = 77;
            const int fd = unit_file(path, TWO_SIZE);
            fixture_begin_policy(&f, fixture_budget(20), policy ? SLUICE_POLICY_CYCLE : SLUICE_POLICY_LRU);
            for (int step = 0; step < 400; step++) {
                int32_t expert[TOP_K];
                fixture_choose(&seed, expert, 1 + step % TOP_K);
                if (step == 200 && with) {
                    /* Far smaller experts: of the budget nearly nothing is theirs, and then it is again as before. */
                    assert_int_equal(stats(&f).resident, 20);
                    f.budget = fixture_budget(25);
                    two_load(&t, &f, 2, fd, path, 16, TWO_SHIFT);
                    assert_int_equal(ready(&f), SLUICE_OK);
                    assert_int_equal(stats(&f).resident, 20);
                    two_free(&t);
                    assert_int_equal(ready(&f), SLUICE_OK);
                    assert_int_equal(stats(&f).resident, 20);
                    f.budget = fixture_budget(20);
                    assert_int_equal(engine_resize(f.e, &f.err), SLUICE_OK);
                }
                assert_true(fixture_block(&f, step % LAYERS, expert, 1 + (uint32_t)step % TOP_K));
            }
            for (uint32_t l = 0; l < LAYERS; l++) {
                uint32_t uses[EXPERTS], n, top_k;
                assert_true(engine_bundles(f.e, l, place[with][l], uses, EXPERTS, &n, &top_k));
            }
            fixture_end(&f);
            close(fd);
            unlink(path);
        }
        assert_memory_equal(place[0], place[1], sizeof place[0]);
    }
}

/* Models come and go while threads compute with another; every byte is checked. */
struct churn {
    struct fixture *f;
    int fd;
    const char *path;
    _Atomic int working; /* workers that have not ended */
    uint32_t turns;      /* loads */
};

static void *churn_main(void *arg) {
    struct churn *c = arg;
    uint64_t seed = 5;
    struct engine_prefetcher prefetcher;
    engine_prefetcher_begin(c->f->e, &prefetcher);
    fixture_context = &prefetcher;
    while (atomic_load(&c->working)) {
        struct two t;
        int32_t expert[TOP_K];
        struct fixture view = {.e = c->f->e}; /* the rest is of other threads */
        const uint64_t slice = 500 + unit_random(&seed) % (3 * SLICE);
        c->f->budget = fixture_budget(TOP_K + unit_random(&seed) % 60);
        two_load(&t, &view, 100 + c->turns, c->fd, c->path, slice, unit_random(&seed) % 100000);
        for (uint32_t k = unit_random(&seed) % 6; k > 0; k--) {
            uint32_t slot[TOP_K], granted;
            const int layer = (int)(k % TWO_LAYERS);
            fixture_choose(&seed, expert, TOP_K);
            struct engine_want w = fixture_want(&view, 0, expert, TOP_K);
            w.group = t.group[layer];
            w.parts = 1;
            assert_int_equal(engine_acquire(view.e, &w, slot, &granted, &view.err), SLUICE_OK);
            for (uint32_t i = 0; i < TOP_K; i++) {
                assert_int_equal(fixture_settle(view.e, slot[i], 0), PART_READY);
                const uint64_t at = t.start + ((uint64_t)layer * EXPERTS + (uint64_t)expert[i]) * slice;
                assert_true(unit_same(engine_part_data(view.e, slot[i], 0), at, slice));
            }
            engine_release(view.e, slot, TOP_K);
        }
        two_free(&t);
        c->turns++;
    }
    engine_prefetcher_end(c->f->e, &prefetcher);
    fixture_context = NULL;
    return NULL;
}

struct member {
    struct fixture_worker worker; /* first */
    struct churn *churn;
};

static void *member_main(void *arg) {
    struct member *m = arg;
    fixture_worker(&m->worker);
    atomic_fetch_sub(&m->churn->working, 1);
    return NULL;
}

static void test_churn(void **state) {
    (void)state;
    enum { MEMBERS = 3 };
    char path[64];
    const int fd = unit_file(path, TWO_SIZE);
    for (int policy = 0; policy < 2; policy++) {
        struct fixture f;
        fixture_begin_policy(&f, fixture_budget(20), policy ? SLUICE_POLICY_CYCLE : SLUICE_POLICY_LRU);
        struct churn c = {.f = &f, .fd = fd, .path = path, .working = MEMBERS};
        struct member m[MEMBERS];
        pthread_t t[MEMBERS + 1];
        for (int i = 0; i < MEMBERS; i++) {
            m[i] = (struct member){
                {.f = &f, .seed = 500 + 50 * (uint64_t)i, .turns = 400, .rolling = i == 0, .foresee = i > 0}, &c};
            assert_int_equal(pthread_create(&t[i], NULL, member_main, &m[i]), 0);
        }
        assert_int_equal(pthread_create(&t[MEMBERS], NULL, churn_main, &c), 0);
        for (int i = 0; i <= MEMBERS; i++) {
            assert_int_equal(pthread_join(t[i], NULL), 0);
        }
        for (int i = 0; i < MEMBERS; i++) {
            assert_true(m[i].worker.ok);
        }
        const struct sluice_stats s = stats(&f);
        assert_true(c.turns > 0);
        assert_true(s.generation.hits > 0);
        assert_int_equal(s.generation.routed, s.generation.hits + s.generation.misses);
        fixture_end(&f);
    }
    close(fd);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stays),           cmocka_unit_test(test_one_arena),    cmocka_unit_test(test_less_budget),
        cmocka_unit_test(test_reads_in_flight), cmocka_unit_test(test_same_victims), cmocka_unit_test(test_churn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
