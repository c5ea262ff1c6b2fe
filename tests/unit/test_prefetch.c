/*
 * test_prefetch.c - the engine reads ahead: guesses that come true, that do not, and that demand overtakes.
 * Where it matters what is under way when demand arrives, reads are held up (engine_fixture.h).
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine_fixture.h"

static struct sluice_stats stats(const struct fixture *f) {
    struct sluice_stats s;
    engine_stats(f->e, &s);
    return s;
}

/* Wait until so many read requests ended well, of demand and ahead of it. */
static void until_reads(struct fixture *f, uint64_t n) {
    uint32_t seen;
    while (seen = engine_seen(f->e), stats(f).generation.reads < n) {
        engine_wait(f->e, seen);
    }
}

/* A guess at the next block of a layer. So many reads of it are to end well before this returns. */
static void guess(struct fixture *f, int layer, const int32_t *expert, uint32_t n, uint32_t reads) {
    const uint64_t before = stats(f).generation.reads;
    assert_true(engine_prefetches(f->e, &f->prefetcher));
    engine_prefetch(f->e, &f->prefetcher, f->group[layer], expert, n, false);
    until_reads(f, before + reads);
}

static void test_right_guess(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, fixture_budget(12));
    const int32_t now[] = {0, 1}, next[] = {3, 4};
    assert_false(engine_prefetches(f.e, &f.prefetcher)); /* nothing is cut */
    assert_true(fixture_block(&f, 0, now, 2));
    guess(&f, 1, next, 2, 2 * PARTS);
    struct sluice_stats s = stats(&f);
    assert_int_equal(s.foreseen.asked, 2);
    assert_true(s.foreseen.read_bytes >= 2 * PARTS * SLICE);
    assert_int_equal(s.resident, 4);
    assert_true(fixture_block(&f, 1, next, 2));
    s = stats(&f);
    assert_int_equal(s.generation.misses, 2);
    assert_int_equal(s.generation.hits, 2);
    assert_int_equal(s.generation.hit_bytes, 2 * PARTS * SLICE);
    assert_int_equal(s.generation.reads, 4 * PARTS);
    assert_int_equal(s.foreseen.begun, 2);
    assert_int_equal(s.foreseen.used, 2);
    /* What is there need not be foreseen. */
    engine_prefetch(f.e, &f.prefetcher, f.group[1], next, 2, false);
    assert_int_equal(stats(&f).foreseen.asked, 2);
    fixture_end(&f);
}

static void test_wrong_guess(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, fixture_budget(12));
    const int32_t now[] = {0}, wrong[] = {3}, right[] = {5};
    assert_true(fixture_block(&f, 0, now, 1));
    guess(&f, 1, wrong, 1, PARTS);
    assert_true(fixture_block(&f, 1, right, 1));
    struct sluice_stats s = stats(&f);
    assert_int_equal(s.generation.misses, 2);
    assert_int_equal(s.generation.hits, 0);
    assert_int_equal(s.foreseen.asked, 1);
    assert_int_equal(s.foreseen.begun, 1);
    assert_int_equal(s.foreseen.used, 0);
    /* It stays cached, and its first use, late as it is, counts once. */
    for (int i = 0; i < 2; i++) {
        assert_true(fixture_block(&f, 1, wrong, 1));
        s = stats(&f);
        assert_int_equal(s.generation.misses, 2);
        assert_int_equal(s.foreseen.used, 1);
    }
    fixture_end(&f);
}

/* Demand comes while the first of two foreseen bundles is being read: the rest is taken back. */
static void test_recall(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin_lanes(&f, fixture_budget(12), 1);
    const int32_t now[] = {0}, next[] = {3, 4}, other[] = {5};
    assert_true(fixture_block(&f, 0, now, 1));
    fixture_gate_close();
    assert_true(engine_prefetches(f.e, &f.prefetcher));
    engine_prefetch(f.e, &f.prefetcher, f.group[1], next, 2, false);
    fixture_gate_wait(1); /* the first part of expert 3 is begun */
    struct sluice_stats s = stats(&f);
    assert_int_equal(s.foreseen.asked, 2);
    assert_int_equal(s.foreseen.begun, 0);
    assert_int_equal(s.resident, 3);
    uint32_t slot, granted;
    const struct engine_want w = fixture_want(&f, 1, other, 1);
    assert_int_equal(engine_acquire(f.e, &w, &slot, &granted, &f.err), SLUICE_OK);
    assert_int_equal(granted, 1);
    s = stats(&f);
    assert_int_equal(s.resident, 3); /* 0, 3 and 5; 4 is forgotten */
    assert_int_equal(s.foreseen.begun, 1);
    fixture_gate_open();
    assert_true(fixture_right(f.e, slot, 1, 5));
    engine_release(f.e, &slot, 1);
    s = stats(&f);
    assert_int_equal(s.generation.reads, 2 * PARTS + 1);
    /* Of expert 3 one part is there, of expert 4 nothing. */
    const uint64_t hit = s.generation.hit_bytes, miss = s.generation.miss_bytes;
    assert_true(fixture_block(&f, 1, next, 1));
    s = stats(&f);
    assert_int_equal(s.generation.hit_bytes - hit, SLICE);
    assert_int_equal(s.generation.miss_bytes - miss, (PARTS - 1) * SLICE);
    assert_int_equal(s.foreseen.used, 1);
    assert_true(fixture_block(&f, 1, next + 1, 1));
    assert_int_equal(stats(&f).generation.misses, 4);
    assert_int_equal(stats(&f).foreseen.used, 1);
    fixture_end(&f);
}

/* The guess was right, but demand was faster: what was taken back is read as demand. */
static void test_overtaken(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin_lanes(&f, fixture_budget(12), 1);
    const int32_t now[] = {0}, next[] = {3, 4};
    assert_true(fixture_block(&f, 0, now, 1));
    fixture_gate_close();
    engine_prefetch(f.e, &f.prefetcher, f.group[1], next, 2, false);
    fixture_gate_wait(1);
    uint32_t slot[2], granted;
    const struct engine_want w = fixture_want(&f, 1, next, 2);
    assert_int_equal(engine_acquire(f.e, &w, slot, &granted, &f.err), SLUICE_OK);
    assert_int_equal(granted, 2);
    fixture_gate_open();
    assert_true(fixture_right(f.e, slot[0], 1, 3));
    assert_true(fixture_right(f.e, slot[1], 1, 4));
    engine_release(f.e, slot, 2);
    const struct sluice_stats s = stats(&f);
    assert_int_equal(s.generation.reads, 3 * PARTS); /* nothing was read twice */
    assert_int_equal(s.foreseen.asked, 2);
    assert_int_equal(s.foreseen.begun, 1);
    assert_int_equal(s.foreseen.used, 1);
    fixture_end(&f);
}

/* Who cannot be served tries again and again: what was begun is begun once. */
static void test_counted_once(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin_lanes(&f, fixture_budget(TOP_K), 1);
    const int32_t now[] = {0, 1, 2}, next[] = {3}, other[] = {5};
    uint32_t held[3], slot, granted;
    const struct engine_want w = fixture_want(&f, 0, now, 3);
    assert_int_equal(engine_acquire(f.e, &w, held, &granted, &f.err), SLUICE_OK);
    for (int i = 0; i < 3; i++) {
        assert_true(fixture_right(f.e, held[i], 0, now[i]));
    }
    fixture_gate_close();
    engine_prefetch(f.e, &f.prefetcher, f.group[1], next, 1, false);
    fixture_gate_wait(1);
    struct engine_want v = fixture_want(&f, 2, other, 1);
    v.wait = false;
    for (int i = 0; i < 3; i++) { /* three slots are pinned, one is being read into */
        assert_int_equal(engine_acquire(f.e, &v, &slot, &granted, &f.err), SLUICE_OK);
        assert_int_equal(granted, 0);
    }
    fixture_gate_open();
    engine_release(f.e, held, 3);
    assert_true(fixture_block(&f, 1, next, 1));
    assert_int_equal(stats(&f).foreseen.asked, 1);
    assert_int_equal(stats(&f).foreseen.begun, 1);
    assert_int_equal(stats(&f).foreseen.used, 1);
    fixture_end(&f);
}

/* A change of the budget forgets the guess; what was read of it is counted, and can be used later. */
static void test_resized(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, fixture_budget(12));
    const int32_t now[] = {0}, next[] = {3};
    assert_true(fixture_block(&f, 0, now, 1));
    guess(&f, 1, next, 1, PARTS);
    f.budget = fixture_budget(TOP_K);
    assert_int_equal(engine_resize(f.e, &f.err), SLUICE_OK);
    assert_int_equal(stats(&f).foreseen.begun, 1);
    assert_true(fixture_block(&f, 1, next, 1));
    const struct sluice_stats s = stats(&f);
    assert_int_equal(s.generation.misses, 1);
    assert_int_equal(s.generation.hits, 1);
    assert_int_equal(s.foreseen.used, 1);
    assert_int_equal(s.foreseen.begun, 1);
    fixture_end(&f);
}

/* Pieces of a large slice of which the first is begun are not taken back: half a part is of no use. */
static void test_large_slice(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin_lanes(&f, fixture_budget(40), 1);
    enum { BIG = 3 * (1 << 20) + 12345, PIECES = 4 };
    char path[64];
    const int fd = unit_file(path, 4 * BIG + 77);
    uint32_t file, tensor, slot, granted;
    assert_int_equal(engine_add_file(f.e, fd, path, &file, &f.err), SLUICE_OK);
    assert_int_equal(engine_add_tensor(f.e, file, 2, "big", 77, BIG, 4, 1, &tensor, &f.err), SLUICE_OK);
    f.budget = 16 * BIG; /* room for all */
    const uint32_t group = engine_tensor(f.e, tensor).group;
    const int32_t now[] = {0}, next[] = {2, 3};
    assert_true(fixture_block(&f, 0, now, 1));
    fixture_gate_close();
    engine_prefetch(f.e, &f.prefetcher, group, next, 2, false);
    fixture_gate_wait(1);
    const uint64_t reads = stats(&f).generation.reads;
    struct engine_want w = fixture_want(&f, 0, now, 1);
    assert_int_equal(engine_acquire(f.e, &w, &slot, &granted, &f.err),
                     SLUICE_OK); /* demand, though there is nothing to read */
    engine_release(f.e, &slot, 1);
    assert_int_equal(stats(&f).foreseen.begun, 1);
    fixture_gate_open();
    until_reads(&f, reads + PIECES);
    w = fixture_want(&f, 0, next, 1);
    w.group = group;
    w.parts = 1;
    assert_int_equal(engine_acquire(f.e, &w, &slot, &granted, &f.err), SLUICE_OK);
    assert_int_equal(fixture_settle(f.e, slot, 0), PART_READY);
    assert_true(unit_same(engine_part_data(f.e, slot, 0), 77 + 2ull * BIG, BIG));
    engine_release(f.e, &slot, 1);
    const struct sluice_stats s = stats(&f);
    assert_int_equal(s.generation.reads, reads + PIECES); /* each piece once, and nothing of expert 3 */
    assert_int_equal(s.foreseen.used, 1);
    engine_remove_tensors(f.e, &tensor, 1);
    close(fd);
    unlink(path);
    fixture_end(&f);
}

/* What blocks hold is never evicted for a guess. */
static void test_pinned(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, fixture_budget(TOP_K));
    const int32_t now[] = {0, 1, 2, 3}, next[] = {6, 7, 8};
    uint32_t slot[TOP_K], granted;
    const struct engine_want w = fixture_want(&f, 0, now, TOP_K);
    assert_int_equal(engine_acquire(f.e, &w, slot, &granted, &f.err), SLUICE_OK);
    assert_true(engine_prefetches(f.e, &f.prefetcher));
    engine_prefetch(f.e, &f.prefetcher, f.group[1], next, 3, false);
    assert_int_equal(stats(&f).foreseen.asked, 0); /* there is no slot */
    until_reads(&f, TOP_K * PARTS);
    engine_release(f.e, slot, 1); /* now there is one */
    engine_prefetch(f.e, &f.prefetcher, f.group[1], next, 3, false);
    assert_int_equal(stats(&f).foreseen.asked, 1);
    until_reads(&f, (TOP_K + 1) * PARTS);
    for (uint32_t i = 1; i < TOP_K; i++) {
        assert_true(fixture_right(f.e, slot[i], 0, now[i]));
    }
    engine_release(f.e, slot + 1, TOP_K - 1);
    assert_true(fixture_block(&f, 1, next, 1));
    assert_int_equal(stats(&f).foreseen.used, 1);
    assert_int_equal(stats(&f).generation.misses, TOP_K);
    fixture_end(&f);
}

/* Guesses that are always wrong stop for a while. */
static void test_pause(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, fixture_budget(12));
    int guesses = 0;
    int32_t now[1] = {0};
    assert_true(fixture_block(&f, 0, now, 1));
    while (stats(&f).foreseen.pauses == 0) {
        /* Guess expert 0..7 of layer 1, use another one of 8..15: none of them is ever there. */
        const int32_t wrong[] = {guesses % 8}, right[] = {8 + guesses % 8};
        const uint64_t reads = stats(&f).generation.reads, asked = stats(&f).foreseen.asked;
        assert_true(engine_prefetches(f.e, &f.prefetcher));
        engine_prefetch(f.e, &f.prefetcher, f.group[1], wrong, 1, false);
        until_reads(&f, reads + PARTS * (stats(&f).foreseen.asked - asked));
        assert_true(fixture_block(&f, 1, right, 1));
        for (int32_t i = 0; i < 6; i++) { /* push the guess out */
            const int32_t more[] = {2 * i, 2 * i + 1};
            assert_true(fixture_block(&f, 2 * (i % 2), more, 2));
        }
        guesses++;
        assert_true(guesses < 200);
    }
    assert_true(guesses > 10); /* a few wrong ones are no reason */
    assert_int_equal(stats(&f).foreseen.used, 0);
    int paused = 0;
    while (!engine_prefetches(f.e, &f.prefetcher)) {
        assert_true(fixture_block(&f, paused % LAYERS, &(const int32_t){(paused / LAYERS) % EXPERTS}, 1));
        paused++;
        assert_true(paused < 10000);
    }
    assert_true(paused > 1000);
    /* It gets another chance, and that does not end at the first wrong guess. */
    engine_prefetch(f.e, &f.prefetcher, f.group[1], &(const int32_t){15}, 1, false);
    assert_true(fixture_block(&f, 1, &(const int32_t){7}, 1));
    assert_int_equal(stats(&f).foreseen.pauses, 1);
    fixture_end(&f);
}

/* Guesses that come true go on and on. */
static void test_no_pause(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, fixture_budget(TOP_K));
    enum { GUESSES = 200 };
    const int32_t now[] = {0};
    assert_true(fixture_block(&f, 0, now, 1));
    for (int i = 0; i < GUESSES; i++) {
        const int32_t next[] = {i % EXPERTS}; /* long evicted when its turn comes again */
        const uint64_t reads = stats(&f).generation.reads;
        engine_prefetch(f.e, &f.prefetcher, f.group[1], next, 1, false);
        until_reads(&f, reads + PARTS);
        assert_true(fixture_block(&f, 1, next, 1));
    }
    const struct sluice_stats s = stats(&f);
    assert_int_equal(s.generation.hits, GUESSES);
    assert_int_equal(s.foreseen.used, GUESSES);
    assert_int_equal(s.foreseen.pauses, 0);
    fixture_end(&f);
}

/* A batch of many tokens: half of what may come in at once is asked for, whatever generation could use. */
static void test_wide(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, fixture_budget(12));
    const int32_t now[] = {0}, next[] = {3, 4, 5, 6, 7, 8, 9, 10};
    assert_true(fixture_block(&f, 0, now, 1));
    const uint32_t half = engine_staging(f.e, f.group[1]) / 2;
    assert_int_equal(half, 6);
    engine_prefetch(f.e, &f.prefetcher, f.group[1], next, 8, true);
    assert_int_equal(stats(&f).foreseen.asked, half);
    until_reads(&f, PARTS * (1 + half));
    /* The block takes them in turns, not those that were foreseen first. */
    for (int i = 7; i >= 0; i--) {
        uint32_t slot, granted;
        struct engine_want w = fixture_want(&f, 1, next + i, 1);
        w.all = false;
        assert_int_equal(engine_acquire(f.e, &w, &slot, &granted, &f.err), SLUICE_OK);
        assert_int_equal(granted, 1);
        assert_true(fixture_right(f.e, slot, 1, next[i]));
        engine_release(f.e, &slot, 1);
    }
    assert_int_equal(stats(&f).foreseen.used, half);
    assert_int_equal(stats(&f).generation.hits, half);
    assert_int_equal(stats(&f).foreseen.begun, half);
    /* Generation's own measure is what it was: a narrow guess asks for one or two. */
    engine_prefetch(f.e, &f.prefetcher, f.group[2], next, 8, false);
    assert_true(stats(&f).foreseen.asked <= half + 2);
    fixture_end(&f);
}

/* Batches whose experts come in turns: right guesses go on and on, wrong ones stop for a while. */
static void test_wide_pause(void **state) {
    (void)state;
    for (int right = 0; right < 2; right++) {
        struct fixture f;
        fixture_begin(&f, fixture_budget(12));
        int n = 0;
        assert_true(fixture_block(&f, 0, &(const int32_t){0}, 1));
        while (stats(&f).foreseen.pauses == 0 && n < 200) {
            const int32_t layer = n % LAYERS, guess[] = {2 * n % EXPERTS},
                          use[] = {(2 * n + (right ? 0 : 1)) % EXPERTS};
            const uint64_t reads = stats(&f).generation.reads, asked = stats(&f).foreseen.asked;
            engine_prefetch(f.e, &f.prefetcher, f.group[layer], guess, 1, true);
            until_reads(&f, reads + PARTS * (stats(&f).foreseen.asked - asked));
            uint32_t slot, granted;
            struct engine_want w = fixture_want(&f, layer, use, 1);
            w.all = false;
            assert_int_equal(engine_acquire(f.e, &w, &slot, &granted, &f.err), SLUICE_OK);
            assert_true(fixture_right(f.e, slot, layer, use[0]));
            engine_release(f.e, &slot, 1);
            n++;
        }
        assert_int_equal(stats(&f).foreseen.pauses, right ? 0 : 1);
        assert_true(n > 10);
        fixture_end(&f);
    }
}

/* Where it cannot help nothing is done: no cache, switched off, all hits. */
static void test_no_use(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 0);
    const int32_t now[] = {0}, next[] = {3};
    assert_true(fixture_block(&f, 0, now, 1));
    assert_false(engine_prefetches(f.e, &f.prefetcher));
    engine_prefetch(f.e, &f.prefetcher, f.group[1], next, 1, false);
    assert_int_equal(stats(&f).foreseen.asked, 0);
    assert_int_equal(stats(&f).resident, 0);
    fixture_end(&f);

    fixture_begin(&f, fixture_budget(12));
    assert_true(fixture_block(&f, 0, now, 1));
    assert_true(engine_prefetches(f.e, &f.prefetcher));
    for (int l = 1; l < LAYERS; l++) {
        assert_true(fixture_block(&f, l, now, 1));
    }
    for (int l = 0; l < LAYERS; l++) {
        assert_true(engine_prefetches(f.e, &f.prefetcher)); /* a layer may still miss: not all were seen to hit */
        assert_true(fixture_block(&f, l, now, 1));
    }
    assert_false(engine_prefetches(f.e, &f.prefetcher));
    assert_true(fixture_block(&f, 0, next, 1)); /* a miss */
    assert_true(engine_prefetches(f.e, &f.prefetcher));
    engine_set_lookahead(f.e, false);
    assert_false(engine_prefetches(f.e, &f.prefetcher));
    engine_set_lookahead(f.e, true);
    assert_true(engine_prefetches(f.e, &f.prefetcher));
    fixture_end(&f);
}

/* A read ahead fails: nobody is told, and who wants the bundle gets it read again. */
static void test_failed_read(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, fixture_budget(12));
    const int32_t now[] = {0}, next[] = {EXPERTS - 1};
    const uint64_t from = fixture_offset(2, 1, EXPERTS - 1) + SLICE - 10;
    assert_int_equal(ftruncate(f.fd, (off_t)from), 0);
    assert_true(fixture_block(&f, 1, now, 1));
    guess(&f, 2, next, 1, PARTS - 1);
    uint32_t seen;
    struct sluice_error err;
    while (seen = engine_seen(f.e), engine_read_error(f.e, &err), err.status == SLUICE_OK) {
        engine_wait(f.e, seen);
    }
    assert_non_null(strstr(err.message, "blk.2.part1.weight"));
    char rest[10];
    for (int i = 0; i < 10; i++) {
        rest[i] = (char)unit_byte(from + (uint64_t)i);
    }
    assert_int_equal(pwrite(f.fd, rest, 10, (off_t)from), 10);
    assert_true(fixture_block(&f, 2, next, 1));
    assert_int_equal(stats(&f).generation.misses, 2);
    assert_int_equal(stats(&f).generation.hits, 0);
    fixture_end(&f);
}

/* A model comes or goes while something is foreseen. */
static void test_bank_changes(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, fixture_budget(12));
    const int32_t now[] = {0}, next[] = {3, 4};
    uint32_t tensor;
    assert_true(fixture_block(&f, 0, now, 1));
    engine_prefetch(f.e, &f.prefetcher, f.group[1], next, 2, false);
    assert_int_equal(engine_add_tensor(f.e, f.file, 2, "other", 0, 100, 8, 2, &tensor, &f.err), SLUICE_OK);
    assert_true(fixture_block(&f, 1, next, 2)); /* cut anew */
    engine_prefetch(f.e, &f.prefetcher, f.group[2], next, 2, false);
    engine_remove_tensors(f.e, &tensor, 1);
    assert_true(fixture_block(&f, 2, next, 2));
    engine_prefetch(f.e, &f.prefetcher, f.group[0], next, 2, false);
    fixture_end(&f); /* with reads under way */
}

/* ---- several contexts ------------------------------------------------------------------------ */

/* Blocks of this thread are `c`'s from now on. */
static struct engine_prefetcher *as(struct engine_prefetcher *c) {
    fixture_context = c;
    return c;
}

/*
 * Blocks of so many contexts, each with experts of its own, of which its share of the cache never holds the next one.
 * Every other guess is right. In a round all contexts guess, their reads end, and then all compute.
 */
static struct sluice_foresee_stats rounds(uint32_t contexts) {
    enum { ROUNDS = 120, OWN = EXPERTS / 4, SHARE = 6 };
    struct fixture f;
    struct engine_prefetcher c[4];
    fixture_begin(&f, fixture_budget(SHARE * contexts));
    for (uint32_t i = 0; i < contexts; i++) {
        engine_prefetcher_begin(f.e, &c[i]);
    }
    for (uint32_t t = 0; t < ROUNDS; t++) {
        const uint64_t reads = stats(&f).generation.reads, asked = stats(&f).foreseen.asked;
        for (uint32_t i = 0; i < contexts && t; i++) {
            const int32_t next[] = {(int32_t)(i * OWN + (t / LAYERS + 2 * (t % 2)) % OWN)};
            if (engine_prefetches(f.e, &c[i])) {
                engine_prefetch(f.e, &c[i], f.group[t % LAYERS], next, 1, false);
            }
        }
        until_reads(&f, reads + PARTS * (stats(&f).foreseen.asked - asked));
        for (uint32_t i = 0; i < contexts; i++) {
            const int32_t use[] = {(int32_t)(i * OWN + t / LAYERS % OWN)};
            as(&c[i]);
            assert_true(fixture_block(&f, (int)(t % LAYERS), use, 1));
        }
    }
    const struct sluice_foresee_stats s = stats(&f).foreseen;
    for (uint32_t i = 0; i < contexts; i++) {
        engine_prefetcher_end(f.e, &c[i]);
    }
    as(NULL);
    fixture_end(&f);
    return s;
}

/* Each of several contexts begins and uses as much as one alone. */
static void test_contexts(void **state) {
    (void)state;
    const struct sluice_foresee_stats one = rounds(1);
    assert_true(one.begun > 80 && one.used > 40);
    for (uint32_t n = 2; n <= 4; n += 2) {
        const struct sluice_foresee_stats s = rounds(n);
        assert_in_range(10 * s.begun, 9 * n * one.begun, 11 * n * one.begun);
        assert_in_range(10 * s.used, 9 * n * one.used, 11 * n * one.used);
        assert_int_equal(s.pauses, n * one.pauses);
    }
}

/* Demand of one context leaves alone what another expects. */
static void test_others_demand(void **state) {
    (void)state;
    struct fixture f;
    struct engine_prefetcher other;
    fixture_begin_lanes(&f, fixture_budget(12), 1);
    engine_prefetcher_begin(f.e, &other);
    const int32_t now[] = {0}, next[] = {3, 4};
    assert_true(fixture_block(&f, 0, now, 1));
    fixture_gate_close();
    engine_prefetch(f.e, &f.prefetcher, f.group[1], next, 2, false);
    fixture_gate_wait(1); /* the first part of expert 3 is begun */
    uint32_t slot, granted;
    as(&other);
    struct engine_want w = fixture_want(&f, 2, now, 1);
    assert_int_equal(engine_acquire(f.e, &w, &slot, &granted, &f.err), SLUICE_OK);
    assert_int_equal(stats(&f).resident, 4); /* 0, 3 and 4, and the other's 0 */
    assert_int_equal(stats(&f).foreseen.begun, 0);
    fixture_gate_open();
    assert_true(fixture_right(f.e, slot, 2, 0));
    engine_release(f.e, &slot, 1);
    until_reads(&f, 4 * PARTS);
    as(NULL);
    assert_true(fixture_block(&f, 1, next, 2));
    const struct sluice_stats s = stats(&f);
    assert_int_equal(s.generation.hits, 2);
    assert_int_equal(s.generation.reads, 4 * PARTS);
    assert_int_equal(s.foreseen.begun, 2);
    assert_int_equal(s.foreseen.used, 2);
    engine_prefetcher_end(f.e, &other);
    fixture_end(&f);
}

/* What one context wants now does not wait in the idle queue because another expects it: it is read as demand, once. */
static void test_others_wanted(void **state) {
    (void)state;
    struct fixture f;
    struct engine_prefetcher other;
    fixture_begin_lanes(&f, fixture_budget(12), 1);
    engine_prefetcher_begin(f.e, &other);
    const int32_t now[] = {0}, next[] = {3, 4, 5};
    assert_true(fixture_block(&f, 0, now, 1));
    fixture_gate_close();
    engine_prefetch(f.e, &f.prefetcher, f.group[1], next, 3, true);
    fixture_gate_wait(1); /* the first part of expert 3 is begun */
    uint32_t slot[2], granted;
    as(&other);
    const struct engine_want w = fixture_want(&f, 1, next, 2);
    const struct sluice_stats before = stats(&f);
    assert_int_equal(engine_acquire(f.e, &w, slot, &granted, &f.err), SLUICE_OK);
    struct sluice_stats s = stats(&f);
    assert_int_equal(s.foreseen.begun - before.foreseen.begun, 1); /* expert 3, by the other's use */
    assert_int_equal(s.foreseen.used - before.foreseen.used, 1);
    assert_int_equal(s.generation.hit_bytes - before.generation.hit_bytes, SLICE); /* its part that is on its way */
    assert_int_equal(s.generation.miss_bytes - before.generation.miss_bytes, (2 * PARTS - 1) * SLICE);
    fixture_gate_open();
    assert_true(fixture_right(f.e, slot[0], 1, 3));
    assert_true(fixture_right(f.e, slot[1], 1, 4));
    engine_release(f.e, slot, 2);
    until_reads(&f, 4 * PARTS); /* expert 5 too, which nobody but the first context wants */
    as(NULL);
    assert_true(fixture_block(&f, 1, next, 3));
    s = stats(&f);
    assert_int_equal(s.generation.reads, 4 * PARTS);
    assert_int_equal(s.foreseen.asked - before.foreseen.asked, 0);
    assert_int_equal(s.foreseen.begun - before.foreseen.begun, 2); /* 3 and 5 */
    assert_int_equal(s.foreseen.used - before.foreseen.used, 2);
    engine_prefetcher_end(f.e, &other);
    fixture_end(&f);
}

/* A guess that another context makes come true has come true: begun and used, once each, whoever looks first. */
static void test_others_use(void **state) {
    (void)state;
    struct fixture f;
    struct engine_prefetcher other;
    fixture_begin(&f, fixture_budget(12));
    engine_prefetcher_begin(f.e, &other);
    const int32_t now[] = {0}, next[] = {3};
    assert_true(fixture_block(&f, 0, now, 1));
    guess(&f, 1, next, 1, PARTS);
    as(&other);
    assert_true(fixture_block(&f, 1, next, 1));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(stats(&f).foreseen.begun, 1);
        assert_int_equal(stats(&f).foreseen.used, 1);
        as(NULL);
        assert_true(fixture_block(&f, 1, next, 1));
    }
    assert_true(f.prefetcher.useful > 0.6f);
    engine_prefetcher_end(f.e, &other);
    fixture_end(&f);
}

/* Who gets no slot takes back what another context expects and is not begun, and does not wait for its reads. */
static void test_others_slots(void **state) {
    (void)state;
    struct fixture f;
    struct engine_prefetcher other;
    fixture_begin_lanes(&f, fixture_budget(TOP_K), 1);
    engine_prefetcher_begin(f.e, &other);
    const int32_t now[] = {0}, next[] = {3, 4}, want[] = {5, 6, 7};
    assert_true(fixture_block(&f, 0, now, 1));
    fixture_gate_close();
    engine_prefetch(f.e, &f.prefetcher, f.group[1], next, 2, false);
    fixture_gate_wait(1); /* expert 3 is being read, 4 waits: two slots are left */
    uint32_t slot[3], granted;
    as(&other);
    const struct engine_want w = fixture_want(&f, 2, want, 3);
    assert_int_equal(engine_acquire(f.e, &w, slot, &granted, &f.err), SLUICE_OK);
    assert_int_equal(granted, 3);
    assert_int_equal(stats(&f).foreseen.begun, 1);
    fixture_gate_open();
    for (int i = 0; i < 3; i++) {
        assert_true(fixture_right(f.e, slot[i], 2, want[i]));
    }
    engine_release(f.e, slot, 3);
    engine_prefetcher_end(f.e, &other);
    as(NULL);
    fixture_end(&f);
}

/* A context ends in the middle of its guess: what is not begun is taken back, the rest stays cached. */
static void test_context_ends(void **state) {
    (void)state;
    struct fixture f;
    struct engine_prefetcher other;
    fixture_begin_lanes(&f, fixture_budget(12), 1);
    engine_prefetcher_begin(f.e, &other);
    const int32_t now[] = {0}, next[] = {3, 4};
    assert_true(fixture_block(&f, 0, now, 1));
    fixture_gate_close();
    engine_prefetch(f.e, &other, f.group[1], next, 2, false);
    fixture_gate_wait(1);
    assert_int_equal(stats(&f).resident, 3);
    engine_prefetcher_end(f.e, &other);
    memset(&other, 0xee, sizeof other); /* nobody looks at it any more */
    assert_int_equal(stats(&f).resident, 2);
    assert_int_equal(stats(&f).foreseen.begun, 1);
    fixture_gate_open();
    assert_true(fixture_block(&f, 1, next, 1));
    assert_int_equal(stats(&f).foreseen.used, 1);
    fixture_end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_guess),  cmocka_unit_test(test_wrong_guess),   cmocka_unit_test(test_recall),
        cmocka_unit_test(test_overtaken),    cmocka_unit_test(test_counted_once),  cmocka_unit_test(test_resized),
        cmocka_unit_test(test_large_slice),  cmocka_unit_test(test_pinned),        cmocka_unit_test(test_pause),
        cmocka_unit_test(test_no_pause),     cmocka_unit_test(test_no_use),        cmocka_unit_test(test_failed_read),
        cmocka_unit_test(test_bank_changes), cmocka_unit_test(test_wide),          cmocka_unit_test(test_wide_pause),
        cmocka_unit_test(test_contexts),     cmocka_unit_test(test_others_demand), cmocka_unit_test(test_others_wanted),
        cmocka_unit_test(test_others_use),   cmocka_unit_test(test_others_slots),  cmocka_unit_test(test_context_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
