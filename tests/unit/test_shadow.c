/*
 * test_shadow.c - leaving out experts, and the cache without data that may decide it.
 *
 * The engine decides in the step that pins: what it leaves out is neither read, nor counted, nor used, nor
 * evicts anything. The shadow holds what the engine holds, block by block, as long as both are asked the same.
 */
#include <stdlib.h>
#include <string.h>

#include "engine_fixture.h"
#include "cache/shadow.h"

static void stats(struct fixture *f, struct sluice_stats *s) {
    engine_stats(f->e, s);
}

/* Acquire with `leave`; *found gets how each was found. Returns the status; the granted are checked and released. */
static int acquire(struct fixture *f, int layer, const int32_t *expert, const uint8_t *leave, uint32_t n,
                   uint8_t *found) {
    uint32_t slot[EXPERTS], granted = 0;
    struct engine_want w = fixture_want(f, layer, expert, n);
    w.leave = leave;
    w.found = found;
    assert_int_equal(fixture_begin_block(f, w.group, expert, n, &f->err), SLUICE_OK);
    const int rc = engine_acquire(f->e, &w, slot, &granted, &f->err);
    for (uint32_t i = 0; i < n; i++) {
        if (rc || found[i] >= ENGINE_LEFT) {
            assert_int_equal(slot[i], UINT32_MAX);
        } else {
            assert_true(fixture_right(f->e, slot[i], layer, expert[i]));
        }
    }
    engine_release(f->e, slot, n);
    return rc;
}

static void test_leave(void **state) {
    (void)state;
    struct fixture f;
    struct sluice_stats s;
    uint8_t found[4];
    fixture_begin(&f, fixture_budget(6));
    const int32_t expert[] = {3, 4, 5, 6};
    assert_int_equal(acquire(&f, 0, expert, (const uint8_t[]){ENGINE_TAKE, ENGINE_TAKE}, 2, found), SLUICE_OK);
    /* 3 and 4 are there and stay, 5 must be taken, 6 is missing and may go. */
    const uint8_t cold[] = {ENGINE_LEAVE_COLD, ENGINE_LEAVE_COLD, ENGINE_TAKE, ENGINE_LEAVE_COLD};
    assert_int_equal(acquire(&f, 0, expert, cold, 4, found), SLUICE_OK);
    assert_memory_equal(found, ((uint8_t[]){ENGINE_FOUND, ENGINE_FOUND, ENGINE_FOUND_NOT, ENGINE_LEFT}), 4);
    stats(&f, &s);
    assert_int_equal(s.generation.routed, 5);
    assert_int_equal(s.generation.misses, 3);
    assert_int_equal(s.generation.reads, 3 * PARTS);
    assert_int_equal(s.resident, 3);
    /* Wherever it is: 4 is there. */
    const uint8_t always[] = {ENGINE_TAKE, ENGINE_LEAVE_ALWAYS, ENGINE_TAKE, ENGINE_LEAVE_ALWAYS};
    assert_int_equal(acquire(&f, 0, expert, always, 4, found), SLUICE_OK);
    assert_memory_equal(found, ((uint8_t[]){ENGINE_FOUND, ENGINE_LEFT_THERE, ENGINE_FOUND, ENGINE_LEFT}), 4);
    stats(&f, &s);
    assert_int_equal(s.generation.reads, 3 * PARTS);
    /* Not used: the four bundles that come next push out 4, the one that was not touched for longest. */
    const int32_t next[] = {7, 8, 9, 10};
    assert_int_equal(acquire(&f, 1, next, (const uint8_t[4]){0}, 4, found), SLUICE_OK);
    assert_int_equal(acquire(&f, 0, expert, cold, 4, found), SLUICE_OK);
    assert_memory_equal(found, ((uint8_t[]){ENGINE_FOUND, ENGINE_LEFT, ENGINE_FOUND, ENGINE_LEFT}), 4);
    fixture_end(&f);
}

/* More than there are slots is refused, but what is left out is decided, and then fits or does not. */
static void test_too_many(void **state) {
    (void)state;
    struct fixture f;
    uint8_t found[6];
    fixture_begin(&f, fixture_budget(TOP_K));
    const int32_t expert[] = {0, 1, 2, 3, 4, 5};
    uint8_t leave[6] = {ENGINE_TAKE, ENGINE_TAKE, ENGINE_TAKE, ENGINE_TAKE, ENGINE_TAKE, ENGINE_LEAVE_COLD};
    assert_int_equal(acquire(&f, 0, expert, leave, 6, found), SLUICE_ERR_BUDGET);
    assert_memory_equal(found, ((uint8_t[]){0, 0, 0, 0, 0, ENGINE_LEFT}), 6);
    leave[1] = ENGINE_LEAVE_COLD;
    assert_int_equal(acquire(&f, 0, expert, leave, 6, found), SLUICE_OK);
    assert_memory_equal(found, ((uint8_t[]){0, ENGINE_LEFT, 0, 0, 0, ENGINE_LEFT}), 6);
    struct sluice_stats s;
    stats(&f, &s);
    assert_int_equal(s.generation.routed, 4);
    fixture_end(&f);
}

/* Without a cache all would be missing always: nothing is left out for that. */
static void test_no_cache(void **state) {
    (void)state;
    struct fixture f;
    uint8_t found[2];
    fixture_begin(&f, 0);
    const int32_t expert[] = {1, 2};
    const uint8_t leave[] = {ENGINE_TAKE, ENGINE_LEAVE_COLD};
    assert_int_equal(acquire(&f, 0, expert, leave, 2, found), SLUICE_OK);
    assert_memory_equal(found, ((uint8_t[]){0, 0}), 2);
    struct sluice_stats s;
    stats(&f, &s);
    assert_int_equal(s.generation.misses, 2);
    struct engine_group g[LAYERS];
    struct engine_arena arena;
    const uint32_t n = engine_groups(f.e, g, LAYERS, &arena);
    assert_null(shadow_create(g, n, &arena, SLUICE_POLICY_LRU));
    fixture_end(&f);
}

/* What was on its way is there: nothing waits for the disk to decide. */
static void test_on_its_way(void **state) {
    (void)state;
    struct fixture f;
    fixture_begin_lanes(&f, fixture_budget(8), 1);
    const int32_t expert[] = {0, 1};
    uint32_t slot[2], again[2], granted = 0;
    uint8_t found[2];
    struct engine_want w = fixture_want(&f, 0, expert, 2);
    assert_int_equal(fixture_begin_block(&f, w.group, expert, 2, &f.err), SLUICE_OK);
    fixture_gate_close();
    assert_int_equal(engine_acquire(f.e, &w, slot, &granted, &f.err), SLUICE_OK);
    fixture_gate_wait(1);
    const uint8_t leave[] = {ENGINE_TAKE, ENGINE_LEAVE_COLD};
    w.leave = leave;
    w.found = found;
    assert_int_equal(engine_acquire(f.e, &w, again, &granted, &f.err), SLUICE_OK);
    assert_int_equal(granted, 2);
    assert_int_equal(found[1], ENGINE_FOUND);
    fixture_gate_open();
    assert_true(fixture_right(f.e, again[1], 0, 1));
    engine_release(f.e, slot, 2);
    engine_release(f.e, again, 2);
    fixture_end(&f);
}

/* Block by block the shadow knows what the engine has, with experts left out now and then. */
static void test_same_as_engine(void **state) {
    (void)state;
    for (uint32_t slots = TOP_K; slots <= LAYERS * EXPERTS; slots += 9) {
        struct fixture f;
        fixture_begin(&f, fixture_budget(slots));
        struct shadow *shadow = NULL;
        uint64_t seed = slots, left = 0, hits = 0;
        for (int step = 0; step < 500; step++) {
            int32_t expert[TOP_K], taken[TOP_K];
            uint8_t leave[TOP_K], found[TOP_K];
            uint32_t n_taken = 0;
            const int layer = step % LAYERS;
            const uint32_t n = 1 + unit_random(&seed) % TOP_K;
            fixture_choose(&seed, expert, n);
            leave[0] = ENGINE_TAKE;
            for (uint32_t i = 1; i < n; i++) {
                leave[i] = (uint8_t)(unit_random(&seed) % 3);
            }
            assert_int_equal(acquire(&f, layer, expert, leave, n, found), SLUICE_OK);
            if (!shadow) { /* the first block cut the arena; the shadow has seen nothing of it yet */
                struct engine_group g[LAYERS];
                struct engine_arena arena;
                assert_int_equal(engine_groups(f.e, g, LAYERS, &arena), LAYERS);
                shadow = shadow_create(g, LAYERS, &arena, SLUICE_POLICY_LRU);
                assert_non_null(shadow);
            }
            const struct engine_routing r = fixture_routing(expert, n);
            shadow_visit(shadow, f.group[layer], &r);
            for (uint32_t i = 0; i < n; i++) {
                const bool there = found[i] == ENGINE_FOUND || found[i] == ENGINE_LEFT_THERE;
                assert_int_equal(shadow_has(shadow, f.group[layer], expert[i]), there);
                left += found[i] >= ENGINE_LEFT;
                hits += there;
                if (found[i] < ENGINE_LEFT) {
                    taken[n_taken++] = expert[i];
                }
            }
            shadow_acquire(shadow, f.group[layer], taken, n_taken);
        }
        assert_true(left > 100 && hits > 10);
        shadow_destroy(shadow);
        fixture_end(&f);
    }
}

/* More experts than slots pass through it, and leave it whole. */
static void test_passes(void **state) {
    (void)state;
    const struct engine_group g = {.group = 0, .n_expert = 200, .top_k = 2, .weight_bytes = 4096, .slot_bytes = 4096};
    const struct engine_arena arena = {.budget = 10 * 4096, .align = 4096, .n_groups = 1};
    struct shadow *s = shadow_create(&g, 1, &arena, SLUICE_POLICY_CYCLE);
    assert_non_null(s);
    int32_t expert[200];
    for (int32_t i = 0; i < 200; i++) {
        expert[i] = i;
    }
    for (int turn = 0; turn < 3; turn++) {
        const struct engine_routing r = fixture_routing(expert, 200);
        shadow_visit(s, 0, &r);
        shadow_acquire(s, 0, expert, 200);
        uint32_t there = 0;
        for (int32_t i = 0; i < 200; i++) {
            there += shadow_has(s, 0, i);
        }
        assert_int_equal(there, 10);
    }
    /* Ten distinct ones fit at once, whatever is there. */
    const struct engine_routing r = fixture_routing(expert + 50, 10);
    shadow_visit(s, 0, &r);
    shadow_acquire(s, 0, expert + 50, 10);
    for (int32_t i = 50; i < 60; i++) {
        assert_true(shadow_has(s, 0, i));
    }
    shadow_destroy(s);
    shadow_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leave),      cmocka_unit_test(test_too_many),       cmocka_unit_test(test_no_cache),
        cmocka_unit_test(test_on_its_way), cmocka_unit_test(test_same_as_engine), cmocka_unit_test(test_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
