/* test_hold.c - the experts of a block: all at once, in turns by several threads, and renumbered. */
#include "engine_fixture.h"
#include "ggml/hold.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 4 };

/* A routing of one token to n experts, from 0 on. */
struct made_route {
    struct route r;
    int32_t expert[EXPERTS], first[EXPERTS + 1], list[EXPERTS];
};

static void make_route(struct made_route *m, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        m->expert[i] = (int32_t)i;
        m->first[i] = m->list[i] = (int32_t)i;
    }
    m->first[n] = (int32_t)n;
    m->r = (struct route){.K = n, .T = 1, .n = n, .n_all = n, .expert = m->expert, .first = m->first, .list = m->list};
}

static void test_all(void **state) {
    (void)state;
    struct fixture f;
    struct hold h;
    struct made_route m;
    fixture_begin(&f, fixture_budget(8));
    hold_init(&h, f.e, &f.prefetcher);
    make_route(&m, TOP_K);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(hold_begin(&h, &m.r, f.group[0], ENGINE_GENERATION, true, &f.err), SLUICE_OK);
        assert_int_equal(hold_all(&h, 3, NULL, NULL, &f.err), SLUICE_OK);
        assert_true(h.all);
        hold_node(&h, 1, NULL);
        assert_false(hold_roll(&h, true)); /* nothing to roll */
        for (uint32_t p = 0; p < TOP_K; p++) {
            assert_int_equal(h.found[p], again ? ENGINE_FOUND : ENGINE_FOUND_NOT);
            assert_int_equal(hold_stage(&h, p), HOLD_OPEN);
            assert_true(fixture_right(f.e, hold_slot(&h, p), 0, m.expert[p]));
        }
        assert_int_equal(hold_node_end(&h, &f.err), SLUICE_OK);
        assert_true(h.all); /* for the next node */
        hold_release(&h);
    }
    hold_free(&h);
    fixture_end(&f);
}

/* A thread that computes a node whose experts pass in turns. */
struct computing {
    struct fixture *f;
    struct hold *h;
    uint32_t part;
    _Atomic uint32_t *claimed; /* by place */
    _Atomic uint32_t *left;    /* experts that nobody has computed */
    bool ok;
};

static void *compute(void *p) {
    struct computing *c = p;
    struct hold *h = c->h;
    c->ok = true;
    while (atomic_load(c->left)) {
        const uint32_t seen = engine_seen(h->engine);
        bool any = false;
        for (uint32_t i = 0; i < h->route->n; i++) {
            if (hold_stage(h, i) == HOLD_WAITING || atomic_load(&c->claimed[i]) || hold_slot(h, i) == UINT32_MAX ||
                atomic_exchange(&c->claimed[i], 1)) {
                continue;
            }
            const uint32_t slot = hold_slot(h, i); /* nobody gives it back before hold_done */
            char want[SLICE];
            const off_t at = (off_t)fixture_offset(1, (int)c->part, h->route->expert[i]);
            c->ok = c->ok && fixture_settle(h->engine, slot, c->part) == PART_READY &&
                    pread(c->f->fd, want, SLICE, at) == SLICE &&
                    memcmp(want, engine_part_data(h->engine, slot, c->part), SLICE) == 0;
            any = true;
            atomic_fetch_sub(c->left, 1);
            hold_done(h, i);
            hold_roll(h, false);
        }
        if (!any && !hold_roll(h, true) && atomic_load(c->left)) {
            engine_wait(h->engine, seen);
        }
    }
    engine_wake(h->engine);
    return NULL;
}

static void run_node(struct fixture *f, struct hold *h, uint32_t part) {
    _Atomic uint32_t claimed[EXPERTS] = {0}, left = h->route->n;
    struct computing c[THREADS];
    pthread_t thread[THREADS];
    hold_node(h, 1u << part, NULL);
    for (int i = 0; i < THREADS; i++) {
        c[i] = (struct computing){.f = f, .h = h, .part = part, .claimed = claimed, .left = &left};
        pthread_create(&thread[i], NULL, compute, &c[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_true(c[i].ok);
    }
    assert_int_equal(hold_node_end(h, &f->err), SLUICE_OK);
    assert_int_equal(h->open, 0);
}

/* More experts than slots, some of them in memory: each is read once per node at most, and counted once per block. */
static void test_turns(void **state) {
    (void)state;
    struct fixture f;
    struct hold h;
    struct made_route few, all;
    struct sluice_stats st;
    fixture_begin(&f, fixture_budget(6));
    hold_init(&h, f.e, &f.prefetcher);
    make_route(&few, 3);
    make_route(&all, EXPERTS);
    assert_int_equal(hold_begin(&h, &few.r, f.group[1], ENGINE_GENERATION, true, &f.err), SLUICE_OK);
    assert_int_equal(hold_all(&h, 3, NULL, NULL, &f.err), SLUICE_OK);
    hold_release(&h);
    for (int block = 0; block < 20; block++) {
        assert_int_equal(hold_begin(&h, &all.r, f.group[1], ENGINE_PROMPT, true, &f.err), SLUICE_OK);
        assert_int_equal(hold_all(&h, 3, NULL, NULL, &f.err), SLUICE_OK);
        assert_false(h.all);
        hold_keep(&h);
        for (uint32_t part = 0; part < PARTS; part++) {
            run_node(&f, &h, part);
        }
        hold_release(&h);
        assert_int_equal(h.n_kept, 0);
    }
    engine_stats(f.e, &st);
    assert_int_equal(st.prompt.hits + st.prompt.misses, 20 * EXPERTS);
    assert_true(st.prompt.miss_bytes <= 20ull * EXPERTS * PARTS * SLICE);
    hold_free(&h);
    fixture_end(&f);
}

/* Another model is loaded while a block's experts are about to pass in turns: the next acquire cuts the arena anew. */
static void test_cut_anew(void **state) {
    (void)state;
    struct fixture f;
    struct hold h;
    struct made_route all;
    uint32_t tensor;
    fixture_begin(&f, fixture_budget(6));
    hold_init(&h, f.e, &f.prefetcher);
    make_route(&all, EXPERTS);
    assert_int_equal(hold_begin(&h, &all.r, f.group[1], ENGINE_PROMPT, true, &f.err), SLUICE_OK);
    assert_int_equal(hold_all(&h, 3, NULL, NULL, &f.err), SLUICE_OK);
    hold_keep(&h);
    assert_int_equal(engine_add_tensor(f.e, f.file, 2, "blk.9.ffn_up_exps.weight", fixture_offset(0, 0, 0), SLICE,
                                       EXPERTS, TOP_K, &tensor, &f.err),
                     SLUICE_OK);
    run_node(&f, &h, 0);
    hold_release(&h);
    hold_free(&h);
    engine_remove_tensors(f.e, &tensor, 1);
    fixture_end(&f);
}

static void test_set_aside(void **state) {
    (void)state;
    struct fixture f;
    struct hold h;
    struct made_route m;
    static const uint8_t leave[TOP_K] = {ENGINE_LEAVE_COLD, ENGINE_TAKE, ENGINE_LEAVE_COLD, ENGINE_TAKE};
    static const uint8_t aside[TOP_K] = {1, 0, 1, 0};
    fixture_begin(&f, fixture_budget(8));
    hold_init(&h, f.e, &f.prefetcher);
    make_route(&m, TOP_K);
    assert_int_equal(hold_begin(&h, &m.r, f.group[0], ENGINE_GENERATION, true, &f.err), SLUICE_OK);
    assert_int_equal(hold_all(&h, 3, leave, NULL, &f.err), SLUICE_OK);
    assert_true(h.all);
    m.r.n = 2; /* as route_set_aside has it: experts 1, 3, 0, 2 */
    hold_set_aside(&h, aside);
    for (uint32_t p = 0; p < TOP_K; p++) {
        assert_int_equal(h.found[p], p < 2 ? ENGINE_FOUND_NOT : ENGINE_LEFT);
    }
    assert_true(fixture_right(f.e, hold_slot(&h, 0), 0, 1));
    assert_true(fixture_right(f.e, hold_slot(&h, 1), 0, 3));
    hold_release(&h);
    hold_free(&h);
    fixture_end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_cut_anew),
        cmocka_unit_test(test_set_aside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
