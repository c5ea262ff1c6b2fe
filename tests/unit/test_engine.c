/*
 * test_engine.c - the engine against a naive simulation of what it should do, and against itself
 * from several threads. The weights are ranges of a file with known content, so every byte that is
 * handed out can be checked.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine_fixture.h"

/* ---- counts ---------------------------------------------------------------------------------- */

/* A naive LRU: bundles with the step of their last use. */
struct naive {
    uint64_t used[LAYERS][EXPERTS]; /* 0: not there */
    uint64_t clock, hits, misses, evictions;
    uint32_t there, capacity;
};

static void naive_block(struct naive *m, int layer, const int32_t *expert, uint32_t n) {
    bool wanted[EXPERTS] = {false};
    for (uint32_t i = 0; i < n; i++) {
        wanted[expert[i]] = true;
        *(m->used[layer][expert[i]] ? &m->hits : &m->misses) += 1;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (m->used[layer][expert[i]]) {
            continue;
        }
        if (m->there == m->capacity) {
            uint64_t *oldest = NULL;
            for (int l = 0; l < LAYERS; l++) {
                for (int e = 0; e < EXPERTS; e++) {
                    if (m->used[l][e] && !(l == layer && wanted[e]) && (!oldest || m->used[l][e] < *oldest)) {
                        oldest = &m->used[l][e];
                    }
                }
            }
            *oldest = 0;
            m->there--;
            m->evictions++;
        }
        m->there++;
        m->used[layer][expert[i]] = 1; /* it may not be evicted in this block; the real time is set below */
    }
    for (uint32_t i = 0; i < n; i++) {
        m->used[layer][expert[i]] = 2 + m->clock++;
    }
}

static void test_counts(void **state) {
    (void)state;
    for (uint32_t slots = TOP_K; slots <= LAYERS * EXPERTS; slots += 11) {
        struct fixture f;
        fixture_begin(&f, fixture_budget(slots));
        struct naive m = {.capacity = slots};
        uint64_t seed = slots, bytes = 0;
        for (int step = 0; step < 600; step++) {
            int32_t expert[TOP_K];
            uint32_t slot[TOP_K], granted = 0;
            const int layer = step % LAYERS;
            const uint32_t n = 1 + unit_random(&seed) % TOP_K;
            fixture_choose(&seed, expert, n);
            const struct engine_want w = fixture_want(&f, layer, expert, n);
            assert_int_equal(fixture_begin_block(&f, w.group, expert, n, &f.err), SLUICE_OK);
            assert_int_equal(engine_acquire(f.e, &w, slot, &granted, &f.err), SLUICE_OK);
            assert_int_equal(granted, n);
            naive_block(&m, layer, expert, n);
            for (uint32_t i = 0; i < n; i++) {
                assert_true(fixture_right(f.e, slot[i], layer, expert[i]));
            }
            engine_release(f.e, slot, n);
        }
        struct sluice_stats s;
        engine_stats(f.e, &s);
        assert_int_equal(s.slots, slots);
        assert_int_equal(s.generation.hits, m.hits);
        assert_int_equal(s.generation.misses, m.misses);
        assert_int_equal(s.generation.routed, m.hits + m.misses);
        assert_int_equal(s.generation.hit_bytes, m.hits * PARTS * SLICE);
        assert_int_equal(s.generation.miss_bytes, m.misses * PARTS * SLICE);
        assert_int_equal(s.generation.reads, m.misses * PARTS);
        assert_true(s.generation.read_bytes >= s.generation.miss_bytes);
        assert_int_equal(s.generation.blocks, 600);
        assert_int_equal(s.evictions, m.evictions);
        assert_int_equal(s.resident, m.there);
        assert_int_equal(s.prompt.routed, 0);
        assert_int_equal(s.tensors, LAYERS * PARTS);
        assert_int_equal(s.layers, LAYERS);
        assert_int_equal(s.lanes, 3);
        assert_int_equal(s.io, SLUICE_IO_PREAD);
        bytes = (uint64_t)LAYERS * PARTS * EXPERTS * SLICE;
        assert_int_equal(s.bank_bytes, bytes);
        assert_int_equal(s.token_bytes, LAYERS * TOP_K * PARTS * SLICE);
        assert_int_equal(s.layer_bytes, TOP_K * PARTS * SLICE);
        assert_int_equal(s.cache_bytes, fixture_budget(slots));
        fixture_end(&f);
    }
}

/* What the cache map is made from. */
static void test_bundles(void **state) {
    (void)state;
    struct fixture f;
    uint8_t place[EXPERTS];
    uint32_t uses[EXPERTS], n = 0, top_k = 0;
    fixture_begin_lanes(&f, fixture_budget(TOP_K), 1);
    assert_true(engine_bundles(f.e, LAYERS - 1, place, uses, EXPERTS, &n, &top_k)); /* nothing is cut */
    assert_int_equal(n, EXPERTS);
    assert_int_equal(top_k, TOP_K);
    assert_false(engine_bundles(f.e, LAYERS, place, uses, EXPERTS, &n, &top_k));
    const int32_t first[] = {1, 2}, second[] = {2, 5, 9};
    assert_true(fixture_block(&f, 0, first, 2));
    fixture_gate_close();
    uint32_t slot[3], granted = 0;
    const struct engine_want w = fixture_want(&f, 0, second, 3);
    assert_int_equal(fixture_begin_block(&f, f.group[0], second, 3, &f.err), SLUICE_OK);
    assert_int_equal(engine_acquire(f.e, &w, slot, &granted, &f.err), SLUICE_OK);
    assert_true(engine_bundles(f.e, 0, place, uses, EXPERTS, &n, &top_k));
    for (uint32_t x = 0; x < EXPERTS; x++) {
        assert_int_equal(place[x], x == 1             ? ENGINE_RESIDENT
                                   : x == 2           ? ENGINE_IN_USE
                                   : x == 5 || x == 9 ? ENGINE_READING
                                                      : ENGINE_COLD);
        assert_int_equal(uses[x], x == 2 ? 2 : x == 1 || x == 5 || x == 9);
    }
    fixture_gate_open();
    for (int i = 0; i < 3; i++) {
        assert_true(fixture_right(f.e, slot[i], 0, second[i]));
    }
    engine_release(f.e, slot, 3);
    /* What another layer evicts is cold, its uses stay known. */
    const int32_t all[] = {0, 1, 2, 3};
    assert_true(fixture_block(&f, 2, all, 4));
    memset(place, 0xff, sizeof place);
    assert_true(engine_bundles(f.e, 0, place, uses, 7, &n, &top_k)); /* not more than there is room for */
    assert_int_equal(n, 7);
    assert_int_equal(place[2], ENGINE_COLD);
    assert_int_equal(place[7], 0xff);
    assert_int_equal(uses[2], 2);
    assert_true(engine_bundles(f.e, 2, place, uses, EXPERTS, &n, &top_k));
    assert_int_equal(place[3], ENGINE_RESIDENT);
    fixture_end(&f);
}

/* A refusal because too many would come in at once says how many are not in memory. */
static void test_too_many_absent(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin_staging(&f, fixture_budget(12), 3, 1); /* TOP_K at least */
    const int32_t some[] = {1, 2}, all[] = {0, 1, 2, 3, 4, 5, 6};
    uint32_t slot[7], granted;
    assert_true(fixture_block(&f, 0, some, 2));
    const struct engine_want w = fixture_want(&f, 0, all, 7);
    assert_int_equal(engine_acquire(f.e, &w, slot, &granted, &f.err), SLUICE_ERR_BUDGET);
    assert_int_equal(granted, 0);
    assert_string_equal(f.err.message, "5 experts are not in memory, too many to read at once");
    fixture_end(&f);
}

static void test_no_cache(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, 0);
    const int32_t expert[] = {1, 2, 3};
    const struct engine_want w = fixture_want(&f, 0, expert, 3);
    for (int i = 0; i < 10; i++) {
        uint32_t slot[3], granted;
        assert_int_equal(engine_acquire(f.e, &w, slot, &granted, &f.err), SLUICE_OK);
        for (int k = 0; k < 3; k++) {
            assert_true(fixture_right(f.e, slot[k], 0, expert[k]));
        }
        engine_release(f.e, slot, 3);
    }
    struct sluice_stats s;
    engine_stats(f.e, &s);
    assert_int_equal(s.generation.hits, 0);
    assert_int_equal(s.generation.misses, 30);
    assert_int_equal(s.resident, 0);
    assert_int_equal(s.evictions, 0);
    bool cut = false;
    assert_int_equal(engine_budget(f.e, &cut), 0);
    assert_true(cut);
    fixture_end(&f);
}

/* Parts are asked for apart: a bundle is a miss for the part that is not there. */
static void test_parts(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, fixture_budget(8));
    const int32_t expert[] = {5};
    struct engine_want w = fixture_want(&f, 1, expert, 1);
    uint32_t slot, granted;
    w.parts = 2;
    assert_int_equal(engine_acquire(f.e, &w, &slot, &granted, &f.err), SLUICE_OK);
    assert_int_equal(fixture_settle(f.e, slot, 1), PART_READY);
    assert_int_equal(engine_part_state(f.e, slot, 0), PART_EMPTY);
    engine_release(f.e, &slot, 1);
    struct sluice_stats s;
    engine_stats(f.e, &s);
    assert_int_equal(s.generation.misses, 1);
    assert_int_equal(s.generation.miss_bytes, SLICE);
    w.parts = 3;
    assert_int_equal(engine_acquire(f.e, &w, &slot, &granted, &f.err), SLUICE_OK);
    assert_true(fixture_right(f.e, slot, 1, 5));
    engine_release(f.e, &slot, 1);
    w.first = false; /* the same block once more: bytes count, demand does not */
    assert_int_equal(engine_acquire(f.e, &w, &slot, &granted, &f.err), SLUICE_OK);
    engine_release(f.e, &slot, 1);
    engine_stats(f.e, &s);
    assert_int_equal(s.generation.misses, 2);
    assert_int_equal(s.generation.hits, 0);
    assert_int_equal(s.generation.reads, 2);
    assert_int_equal(s.generation.hit_bytes, SLICE + 2 * SLICE);
    fixture_end(&f);
}

/* A slice larger than one request arrives whole. */
static void test_large_slices(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, fixture_budget(TOP_K));
    enum { BIG = 3 * (1 << 20) + 12345 };
    char path[64];
    const int fd = unit_file(path, 2 * BIG + 77);
    uint32_t file, tensor, slot[2], granted;
    assert_int_equal(engine_add_file(f.e, fd, path, &file, &f.err), SLUICE_OK);
    assert_int_equal(engine_add_tensor(f.e, file, 2, "big", 77, BIG, 2, 2, &tensor, &f.err), SLUICE_OK);
    const int32_t expert[] = {0, 1};
    const struct engine_want w = {.group = engine_tensor(f.e, tensor).group,
                                  .parts = 1,
                                  .expert = expert,
                                  .n = 2,
                                  .phase = ENGINE_PROMPT,
                                  .first = true,
                                  .all = true,
                                  .wait = true};
    assert_int_equal(engine_acquire(f.e, &w, slot, &granted, &f.err), SLUICE_OK);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(fixture_settle(f.e, slot[i], 0), PART_READY);
        assert_true(unit_same(engine_part_data(f.e, slot[i], 0), 77 + (uint64_t)i * BIG, BIG));
    }
    engine_release(f.e, slot, 2);
    struct sluice_stats s;
    engine_stats(f.e, &s);
    assert_int_equal(s.prompt.reads, 8);
    engine_remove_tensors(f.e, &tensor, 1);
    close(fd);
    unlink(path);
    fixture_end(&f);
}

/* ---- not enough slots ------------------------------------------------------------------------ */

static void test_partial(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, fixture_budget(6));
    const int32_t all[EXPERTS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    uint32_t slot[EXPERTS], granted = 77;
    struct engine_want w = fixture_want(&f, 0, all, 7);
    assert_int_equal(engine_capacity(f.e, f.group[0]), 0); /* nothing is cut yet */
    /* More than can ever be: all is refused with the numbers, some are given. */
    assert_int_equal(engine_acquire(f.e, &w, slot, &granted, &f.err), SLUICE_ERR_BUDGET);
    assert_non_null(strstr(f.err.message, "holds 6"));
    assert_non_null(strstr(f.err.message, "7 are needed"));
    assert_int_equal(granted, 0);
    assert_int_equal(slot[0], UINT32_MAX);
    assert_int_equal(engine_capacity(f.e, f.group[0]), 6);
    w.n = EXPERTS;
    w.all = false;
    assert_int_equal(engine_acquire(f.e, &w, slot, &granted, &f.err), SLUICE_OK);
    assert_int_equal(granted, 6);
    for (uint32_t i = 0; i < EXPERTS; i++) {
        assert_true((slot[i] == UINT32_MAX) == (i >= 6));
    }
    /* All are pinned: nothing can be had without waiting, but what is pinned already may be shared. */
    uint32_t more[4], n = 77;
    struct engine_want other = fixture_want(&f, 1, all, 2);
    other.all = other.wait = false;
    assert_int_equal(engine_acquire(f.e, &other, more, &n, &f.err), SLUICE_OK);
    assert_int_equal(n, 0);
    struct engine_want shared = fixture_want(&f, 0, all + 4, 4); /* 4 and 5 are there, 6 and 7 are not */
    shared.all = shared.wait = false;
    assert_int_equal(engine_acquire(f.e, &shared, more, &n, &f.err), SLUICE_OK);
    assert_int_equal(n, 2);
    assert_int_equal(more[0], slot[4]);
    assert_int_equal(more[1], slot[5]);
    assert_int_equal(more[2], UINT32_MAX);
    for (uint32_t i = 0; i < 6; i++) {
        assert_true(fixture_right(f.e, slot[i], 0, all[i]));
    }
    engine_release(f.e, slot, EXPERTS); /* places without a slot are skipped */
    /* Experts 4 and 5 are pinned still: four slots are free to have, not five. */
    struct engine_want five = fixture_want(&f, 1, all, 5);
    five.wait = false;
    assert_int_equal(engine_acquire(f.e, &five, slot, &granted, &f.err), SLUICE_OK);
    assert_int_equal(granted, 0);
    five.n = 4;
    assert_int_equal(engine_acquire(f.e, &five, slot, &granted, &f.err), SLUICE_OK);
    assert_int_equal(granted, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(fixture_right(f.e, slot[i], 1, all[i]));
    }
    assert_true(fixture_right(f.e, more[0], 0, 4) && fixture_right(f.e, more[1], 0, 5));
    engine_release(f.e, slot, 4);
    engine_release(f.e, more, 4);
    fixture_end(&f);
}

static void test_refused_budget(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, fixture_budget(6));
    f.refuse = true;
    const int32_t expert[] = {0};
    const struct engine_want w = fixture_want(&f, 0, expert, 1);
    uint32_t slot = 0, granted = 77;
    assert_int_equal(engine_check(f.e, &f.err), SLUICE_ERR_BUDGET);
    assert_string_equal(f.err.message, "the test says no");
    assert_int_equal(engine_acquire(f.e, &w, &slot, &granted, &f.err), SLUICE_ERR_BUDGET);
    assert_string_equal(f.err.message, "the test says no");
    assert_int_equal(granted, 0);
    assert_int_equal(slot, UINT32_MAX);
    f.refuse = false; /* memory came free */
    assert_int_equal(engine_check(f.e, &f.err), SLUICE_OK);
    assert_int_equal(engine_acquire(f.e, &w, &slot, &granted, &f.err), SLUICE_OK);
    assert_true(fixture_right(f.e, slot, 0, 0));
    engine_release(f.e, &slot, 1);
    fixture_end(&f);
}

/* ---- another model comes and goes ------------------------------------------------------------ */

static void test_cut_again(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, fixture_budget(8));
    const int32_t expert[] = {3};
    struct engine_want w = fixture_want(&f, 2, expert, 1);
    uint32_t slot, granted, tensor;
    assert_int_equal(engine_acquire(f.e, &w, &slot, &granted, &f.err), SLUICE_OK);
    assert_true(fixture_right(f.e, slot, 2, 3));
    engine_release(f.e, &slot, 1);
    assert_int_equal(f.n_budget, 1);
    assert_int_equal(engine_add_tensor(f.e, f.file, 2, "blk.0.part0.weight", 0, 100, 8, 2, &tensor, &f.err), SLUICE_OK);
    bool cut = true;
    engine_budget(f.e, &cut);
    assert_false(cut);
    assert_int_equal(engine_capacity(f.e, f.group[2]), 0);
    assert_int_equal(f.n_budget, 2); /* how much of it may stay until it is used */
    w.wait = false;                  /* someone who may hold pins must not cut */
    assert_int_equal(engine_acquire(f.e, &w, &slot, &granted, &f.err), SLUICE_OK);
    assert_int_equal(granted, 0);
    w.wait = true;
    assert_int_equal(engine_acquire(f.e, &w, &slot, &granted, &f.err), SLUICE_OK);
    assert_int_equal(f.n_budget, 3);
    assert_true(fixture_right(f.e, slot, 2, 3)); /* carried over */
    engine_release(f.e, &slot, 1);
    struct sluice_stats s;
    engine_stats(f.e, &s);
    assert_int_equal(s.generation.misses, 1);
    /* The other model's bytes are its own, though the names are the same. */
    const int32_t first[] = {0, 7};
    uint32_t two[2];
    const struct engine_want v = {.group = engine_tensor(f.e, tensor).group,
                                  .parts = 1,
                                  .expert = first,
                                  .n = 2,
                                  .phase = ENGINE_GENERATION,
                                  .first = true,
                                  .all = true,
                                  .wait = true};
    assert_int_equal(engine_acquire(f.e, &v, two, &granted, &f.err), SLUICE_OK);
    assert_int_equal(fixture_settle(f.e, two[1], 0), PART_READY);
    assert_true(unit_same(engine_part_data(f.e, two[1], 0), 700, 100));
    assert_int_equal(fixture_settle(f.e, two[0], 0), PART_READY);
    engine_release(f.e, two, 2);
    engine_remove_tensors(f.e, &tensor, 1);
    assert_int_equal(engine_acquire(f.e, &w, &slot, &granted, &f.err), SLUICE_OK);
    assert_true(fixture_right(f.e, slot, 2, 3));
    engine_release(f.e, &slot, 1);
    fixture_end(&f);
}

/*
 * A model is being loaded, its file known and its tensors not yet, when the last other model is
 * freed: the file must stay open.
 */
static void test_load_while_another_is_freed(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, fixture_budget(8));
    char path[64];
    const int fd = unit_file(path, 10000);
    uint32_t file, tensor;
    assert_int_equal(engine_add_file(f.e, fd, path, &file, &f.err), SLUICE_OK);
    engine_remove_tensors(f.e, &f.tensor[0][0], LAYERS * PARTS);
    assert_int_equal(engine_add_tensor(f.e, file, 2, "blk.0.part0.weight", 10, 1000, 8, 2, &tensor, &f.err), SLUICE_OK);
    const int32_t expert[] = {6};
    uint32_t slot, granted;
    const struct engine_want w = {.group = engine_tensor(f.e, tensor).group,
                                  .parts = 1,
                                  .expert = expert,
                                  .n = 1,
                                  .phase = ENGINE_GENERATION,
                                  .first = true,
                                  .all = true,
                                  .wait = true};
    assert_int_equal(engine_acquire(f.e, &w, &slot, &granted, &f.err), SLUICE_OK);
    assert_int_equal(fixture_settle(f.e, slot, 0), PART_READY);
    assert_true(unit_same(engine_part_data(f.e, slot, 0), 6010, 1000));
    engine_release(f.e, &slot, 1);
    engine_remove_tensors(f.e, &tensor, 1);
    engine_prefetcher_end(f.e, &f.prefetcher);
    engine_destroy(f.e);
    close(fd);
    unlink(path);
    close(f.fd);
    unlink(f.path);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Did a read fail so far, and why? */
static bool read_error(struct engine *e, struct sluice_error *out) {
    engine_read_error(e, out);
    return out->status != SLUICE_OK;
}

static void test_failed_read(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, fixture_budget(8));
    /* Cut ten bytes off expert 9 of layer 1, part 1: fewer than lie before it in its window. */
    const uint64_t from = fixture_offset(1, 1, 9) + SLICE - 10;
    assert_true(fixture_offset(1, 1, 9) % 4096 > 10);
    assert_int_equal(ftruncate(f.fd, (off_t)from), 0);
    const int32_t expert[] = {8, 9};
    const struct engine_want w = fixture_want(&f, 1, expert, 2);
    uint32_t slot[2], granted;
    struct sluice_error err;
    assert_false(read_error(f.e, &err));
    assert_int_equal(engine_acquire(f.e, &w, slot, &granted, &f.err), SLUICE_OK);
    assert_true(fixture_right(f.e, slot[0], 1, 8));
    assert_int_equal(fixture_settle(f.e, slot[1], 0), PART_READY);
    assert_int_equal(fixture_settle(f.e, slot[1], 1), PART_FAILED);
    assert_true(read_error(f.e, &err));
    assert_int_equal(err.status, SLUICE_ERR_IO);
    char offset[32];
    snprintf(offset, sizeof offset, "offset %llu", (unsigned long long)fixture_offset(1, 1, 9) / 4096 * 4096);
    assert_non_null(strstr(err.message, f.path));
    assert_non_null(strstr(err.message, "blk.1.part1.weight"));
    assert_non_null(strstr(err.message, "expert 9"));
    assert_non_null(strstr(err.message, offset));
    assert_non_null(strstr(err.message, "the file ended early"));
    assert_null(strchr(err.message, '\n'));
    struct sluice_error again;
    assert_true(read_error(f.e, &again)); /* every context that waited is told */
    assert_string_equal(again.message, err.message);
    engine_release(f.e, slot, 2);
    /* It is still cut: the next try fails again, and says why again. */
    assert_int_equal(engine_acquire(f.e, &w, slot, &granted, &f.err), SLUICE_OK);
    assert_int_equal(fixture_settle(f.e, slot[1], 1), PART_FAILED);
    assert_true(read_error(f.e, &err));
    engine_release(f.e, slot, 2);
    /* The rest comes back: the next try works. */
    char *rest = malloc(SIZE - from);
    assert_non_null(rest);
    for (uint64_t i = 0; i < SIZE - from; i++) {
        rest[i] = (char)unit_byte(from + i);
    }
    assert_int_equal(pwrite(f.fd, rest, SIZE - from, (off_t)from), SIZE - from);
    free(rest);
    assert_int_equal(engine_acquire(f.e, &w, slot, &granted, &f.err), SLUICE_OK);
    assert_true(fixture_right(f.e, slot[0], 1, 8));
    assert_true(fixture_right(f.e, slot[1], 1, 9));
    engine_release(f.e, slot, 2);
    fixture_end(&f);
}

/* Some requests of a part fail and others do not: it fails, however they are ordered, and a retry is whole. */
static void test_failed_piece(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, fixture_budget(TOP_K));
    enum { BIG = 6 << 20, ROUNDS = 60 };
    char path[64];
    const int fd = unit_file(path, BIG);
    uint32_t file, tensor, slot, granted;
    assert_int_equal(engine_add_file(f.e, fd, path, &file, &f.err), SLUICE_OK);
    assert_int_equal(engine_add_tensor(f.e, file, 2, "big", 0, BIG, 1, 1, &tensor, &f.err), SLUICE_OK);
    const int32_t expert[] = {0};
    const struct engine_want w = {.group = engine_tensor(f.e, tensor).group,
                                  .parts = 1,
                                  .expert = expert,
                                  .n = 1,
                                  .phase = ENGINE_PROMPT,
                                  .first = true,
                                  .all = true,
                                  .wait = true};
    char *last = malloc(1 << 20);
    assert_non_null(last);
    for (uint64_t i = 0; i < 1 << 20; i++) {
        last[i] = (char)unit_byte(BIG - (1 << 20) + i);
    }
    for (int round = 0; round < ROUNDS; round++) {
        /* The last piece is missing at first, and comes back while the reads may still be under way. */
        assert_int_equal(ftruncate(fd, BIG - (1 << 20)), 0);
        assert_int_equal(engine_acquire(f.e, &w, &slot, &granted, &f.err), SLUICE_OK);
        const enum part_state s = fixture_settle(f.e, slot, 0);
        assert_int_equal(s, PART_FAILED);
        struct sluice_error err;
        assert_true(read_error(f.e, &err));
        assert_int_equal(pwrite(fd, last, 1 << 20, BIG - (1 << 20)), 1 << 20);
        engine_release(f.e, &slot, 1);
        /* At once again. Whatever it says is true: failed for the old reason, or ready and right. */
        enum part_state again = PART_FAILED;
        while (again == PART_FAILED) {
            assert_int_equal(engine_acquire(f.e, &w, &slot, &granted, &f.err), SLUICE_OK);
            again = fixture_settle(f.e, slot, 0);
            if (again == PART_READY) {
                assert_true(unit_same(engine_part_data(f.e, slot, 0), 0, BIG));
            }
            engine_release(f.e, &slot, 1);
        }
        /* Push it out, so that the next round reads it again. */
        engine_remove_tensors(f.e, &tensor, 1);
        assert_int_equal(engine_add_file(f.e, fd, path, &file, &f.err), SLUICE_OK);
        assert_int_equal(engine_add_tensor(f.e, file, 2, "big", 0, BIG, 1, 1, &tensor, &f.err), SLUICE_OK);
    }
    free(last);
    engine_remove_tensors(f.e, &tensor, 1);
    close(fd);
    unlink(path);
    fixture_end(&f);
}

/* ---- several threads ------------------------------------------------------------------------- */

enum { THREADS = 4 };

/* On as few slots as one block needs, and on a few more; with and without a cache. */
static void test_threads(void **state) {
    (void)state;
    const uint64_t budgets[] = {fixture_budget(TOP_K), fixture_budget(TOP_K + 1), fixture_budget(20), 0};
    for (size_t b = 0; b < sizeof budgets / sizeof *budgets; b++) {
        struct fixture f;
        fixture_begin(&f, budgets[b]);
        struct fixture_worker w[THREADS];
        pthread_t t[THREADS];
        for (int i = 0; i < THREADS; i++) {
            w[i] = (struct fixture_worker){.f = &f, .seed = 1000 * b + 100 * (uint64_t)i, .rolling = i % 2};
            assert_int_equal(pthread_create(&t[i], NULL, fixture_worker, &w[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_join(t[i], NULL), 0);
            assert_true(w[i].ok);
        }
        struct sluice_stats s;
        engine_stats(f.e, &s);
        assert_int_equal(s.generation.routed, s.generation.hits + s.generation.misses);
        fixture_end(&f);
    }
}

/* Models are loaded and freed while others compute. */
static void *loader_main(void *arg) {
    struct fixture_worker *w = arg;
    w->ok = true;
    for (int i = 0; i < 60 && w->ok; i++) {
        uint32_t tensor[2];
        struct sluice_error err;
        uint32_t file;
        w->ok = engine_add_file(w->f->e, w->f->fd, w->f->path, &file, &err) == SLUICE_OK;
        for (int k = 0; k < 2 && w->ok; k++) {
            w->ok = engine_add_tensor(w->f->e, file, 100 + (uint64_t)i, "blk.0.other.weight", 64, 1000 + (uint64_t)i, 8,
                                      2, &tensor[k], &err) == SLUICE_OK;
        }
        if (w->ok) {
            engine_remove_tensors(w->f->e, tensor, 2);
        }
    }
    return NULL;
}

static void test_threads_and_loads(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin(&f, fixture_budget(20));
    struct fixture_worker w[3] = {{.f = &f, .seed = 1}, {.f = &f, .seed = 2, .rolling = true}, {.f = &f, .seed = 3}};
    pthread_t t[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&t[i], NULL, i == 2 ? loader_main : fixture_worker, &w[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(t[i], NULL), 0);
        assert_true(w[i].ok);
    }
    fixture_end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_bundles),
        cmocka_unit_test(test_too_many_absent),
        cmocka_unit_test(test_no_cache),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_large_slices),
        cmocka_unit_test(test_partial),
        cmocka_unit_test(test_refused_budget),
        cmocka_unit_test(test_cut_again),
        cmocka_unit_test(test_failed_read),
        cmocka_unit_test(test_failed_piece),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_threads_and_loads),
        cmocka_unit_test(test_load_while_another_is_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
