/*
 * test_replay.c - the replay simulator on small traces whose answers can be worked out by hand, and on
 * random ones against naive models: LRU by a list, Belady by trying every way to evict.
 */
#include "unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cache/classes.h"
#include "trace/offline.h"
#include "trace/replay.h"

/* A trace of our own making. */
struct made {
    struct trace t;
    struct trace_layer layers[4];
    struct trace_row rows[4000];
};

static struct made *make(uint32_t n_layers, uint32_t n_expert, uint32_t top_k, uint64_t bytes) {
    struct made *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->t.head = (struct trace_head){
        .n_layer = n_layers, .n_expert = n_expert, .n_expert_used = top_k, .layers = m->layers, .n_layers = n_layers};
    for (uint32_t i = 0; i < n_layers; i++) {
        m->layers[i] = (struct trace_layer){.number = i, .expert_bytes = bytes};
    }
    m->t.rows = m->rows;
    return m;
}

static void row(struct made *m, int phase, uint32_t step, uint32_t layer, uint16_t slot, uint32_t expert,
                float weight) {
    assert_true(m->t.n_rows < 4000);
    m->rows[m->t.n_rows++] = (struct trace_row){
        .phase = (uint8_t)phase, .step = step, .layer = layer, .slot = slot, .expert = expert, .weight = weight};
}

static struct replay_result run(const struct made *m, struct replay_options o) {
    struct replay_result r;
    struct sluice_error err;
    assert_int_equal(replay_run(&m->t, &o, &r, &err), SLUICE_OK);
    const struct replay_counts *n = r.phase;
    assert_int_equal(n[0].routed + n[1].routed, n[0].hits + n[0].misses + n[1].hits + n[1].misses);
    return r;
}

/* One layer, one expert a token: a sequence of pages. */
static struct made *sequence(const char *experts) {
    struct made *m = make(1, 26, 1, 100);
    for (uint32_t i = 0; experts[i]; i++) {
        row(m, TRACE_GENERATION, i, 0, 0, (uint32_t)(experts[i] - 'a'), 1);
    }
    return m;
}

static uint64_t misses(const char *experts, enum replay_policy policy, uint64_t slots) {
    struct made *m = sequence(experts);
    const struct replay_result r = run(m, (struct replay_options){.policy = policy, .budget = slots * 100});
    assert_int_equal(r.phase[1].steps, strlen(experts));
    assert_int_equal(r.phase[1].miss_bytes, r.phase[1].misses * 100);
    free(m);
    return r.phase[1].misses;
}

/* Textbook sequences. */
static void test_by_hand(void **state) {
    (void)state;
    assert_int_equal(misses("abcabcabc", REPLAY_LRU, 2), 9);
    assert_int_equal(misses("abcabcabc", REPLAY_LRU, 3), 3);
    assert_int_equal(misses("abcabcabc", REPLAY_BELADY, 2), 6);
    assert_int_equal(misses("aaabcdabcd", REPLAY_LFU, 2), 7); /* a stays */
    assert_int_equal(misses("aaabcdabcd", REPLAY_LRU, 2), 8);
    assert_int_equal(misses("aaaabcbcbca", REPLAY_LFU, 2), 7); /* b and c push each other out, a has four uses */
    assert_int_equal(misses("aaaabcbcbca", REPLAY_LRU, 2), 4);
    for (int p = 0; p < REPLAY_POLICIES; p++) {
        assert_int_equal(misses("aaaa", (enum replay_policy)p, 0), 4); /* no cache keeps nothing */
        assert_int_equal(misses("abcdeabcde", (enum replay_policy)p, 5), 5);
    }
}

/* The fewest misses, by trying everything. Slots as a bit mask of experts. */
static uint32_t fewest(const uint8_t *page, uint32_t n, uint32_t held, uint32_t slots) {
    while (n && held >> *page & 1) {
        page++;
        n--;
    }
    if (n == 0) {
        return 0;
    }
    const uint32_t with = held | 1u << *page;
    if ((uint32_t)__builtin_popcount(held) < slots) {
        return 1 + fewest(page + 1, n - 1, with, slots);
    }
    uint32_t best = UINT32_MAX;
    for (uint32_t e = 0; e < 32; e++) {
        if (held >> e & 1) {
            const uint32_t m = 1 + fewest(page + 1, n - 1, with & ~(1u << e), slots);
            best = m < best ? m : best;
        }
    }
    return best;
}

static void test_belady_is_least(void **state) {
    (void)state;
    uint64_t seed = 11;
    for (int i = 0; i < 60; i++) {
        uint8_t page[14];
        struct made *m = make(1, 6, 1, 100);
        for (uint32_t k = 0; k < 14; k++) {
            page[k] = (uint8_t)(unit_random(&seed) % 6);
            row(m, TRACE_GENERATION, k, 0, 0, page[k], 1);
        }
        for (uint32_t slots = 1; slots <= 4; slots++) {
            const uint32_t best = fewest(page, 14, 0, slots);
            for (int p = 0; p < REPLAY_POLICIES; p++) {
                const struct replay_result r =
                    run(m, (struct replay_options){.policy = (enum replay_policy)p, .budget = slots * 100});
                assert_true(r.phase[1].misses >= best);
                assert_true(p != REPLAY_BELADY || r.phase[1].misses == best);
                assert_true(r.cache_bytes == slots * 100 && r.slots == slots);
            }
        }
        free(m);
    }
}

/* A random trace of several layers: prompts of a few tokens, then generation. */
static struct made *random_trace(uint64_t *seed, uint32_t n_layers, uint32_t n_expert, uint32_t top_k,
                                 uint64_t other_bytes) {
    struct made *m = make(n_layers, n_expert, top_k, 1000);
    for (uint32_t i = 1; i < n_layers; i += 2) {
        m->layers[i].expert_bytes = other_bytes;
    }
    uint32_t step = 0;
    while (m->t.n_rows < 3000) {
        const bool prompt = step % 12 == 0;
        const uint32_t tokens = prompt ? 2 : 1;
        for (uint32_t layer = 0; layer < n_layers; layer++) {
            for (uint32_t t = 0; t < tokens; t++) {
                uint32_t used = 0;
                for (uint32_t k = 0; k < top_k;) {
                    const uint32_t a = unit_random(seed) % n_expert, b = unit_random(seed) % n_expert;
                    const uint32_t e = a < b ? a : b; /* low numbers are liked */
                    if (!(used >> e & 1)) {
                        used |= 1u << e;
                        row(m, prompt ? TRACE_PROMPT : TRACE_GENERATION, step + t, layer, (uint16_t)k, e,
                            0.5f / (float)(1 << k));
                        k++;
                    }
                }
            }
        }
        step += tokens;
    }
    return m;
}

static int ascending(const void *a, const void *b) {
    return *(const uint32_t *)a < *(const uint32_t *)b ? -1 : *(const uint32_t *)a > *(const uint32_t *)b;
}

/* LRU over bytes with a plain list, most recent first. */
static uint64_t naive_lru(const struct made *m, uint64_t budget) {
    uint32_t list[256], n = 0;
    uint64_t used = 0, miss = 0;
    for (size_t first = 0; first < m->t.n_rows;) {
        uint32_t want[64], n_want = 0;
        size_t i = first;
        const struct trace_row *a = &m->rows[first];
        for (; i < m->t.n_rows && m->rows[i].layer == a->layer && m->rows[i].phase == a->phase &&
               (a->phase == TRACE_PROMPT || m->rows[i].step == a->step);
             i++) {
            const uint32_t b = m->rows[i].layer * 32 + m->rows[i].expert;
            bool seen = false;
            for (uint32_t k = 0; k < n_want; k++) {
                seen = seen || want[k] == b;
            }
            if (!seen) {
                want[n_want++] = b;
            }
        }
        if (a->phase == TRACE_PROMPT) { /* several tokens: in the order of the experts */
            qsort(want, n_want, sizeof *want, ascending);
        }
        uint32_t held[256], n_held = 0; /* those of the block that are there: they may not go */
        for (uint32_t k = 0; k < n_want; k++) {
            for (uint32_t j = 0; j < n; j++) {
                if (list[j] == want[k]) {
                    held[n_held++] = want[k];
                }
            }
        }
        const uint32_t hits = n_held;
        for (uint32_t k = 0; k < n_want; k++) {
            bool there = false;
            for (uint32_t j = 0; j < hits; j++) {
                there = there || held[j] == want[k];
            }
            if (there) {
                continue;
            }
            const uint64_t size = m->layers[want[k] / 32].expert_bytes;
            miss += size;
            for (uint32_t j = n; used + size > budget && j-- > 0;) {
                bool pinned = false;
                for (uint32_t q = 0; q < n_held; q++) {
                    pinned = pinned || held[q] == list[j];
                }
                if (!pinned) {
                    used -= m->layers[list[j] / 32].expert_bytes;
                    memmove(&list[j], &list[j + 1], (n - j - 1) * sizeof *list);
                    n--;
                }
            }
            used += size;
            held[n_held++] = want[k];
        }
        for (uint32_t k = 0; k < n_want; k++) { /* touched in the order of the routing */
            for (uint32_t j = 0; j < n; j++) {
                if (list[j] == want[k]) {
                    memmove(&list[j], &list[j + 1], (n - j - 1) * sizeof *list);
                    n--;
                    break;
                }
            }
            memmove(&list[1], &list[0], n * sizeof *list);
            list[0] = want[k];
            n++;
        }
        first = i;
    }
    return miss;
}

static void test_random(void **state) {
    (void)state;
    uint64_t seed = 17;
    for (int i = 0; i < 8; i++) {
        struct made *m = random_trace(&seed, 3, 16, 3, i % 2 ? 800 : 1000);
        for (uint64_t budget = 8000; budget <= 44000; budget += 6000) {
            uint64_t bytes[REPLAY_POLICIES], asked = 0;
            for (int p = 0; p < REPLAY_POLICIES; p++) {
                const struct replay_result r =
                    run(m, (struct replay_options){.policy = (enum replay_policy)p, .budget = budget});
                bytes[p] = r.phase[0].miss_bytes + r.phase[1].miss_bytes;
                const uint64_t all = bytes[p] + r.phase[0].hit_bytes + r.phase[1].hit_bytes;
                assert_true(asked == 0 || asked == all); /* the demand is not the policy's */
                asked = all;
                assert_false(r.classes);
            }
            assert_int_equal(bytes[REPLAY_LRU], naive_lru(m, budget));
            for (int p = 0; p < REPLAY_BELADY && i % 2 == 0; p++) { /* a bound for bundles of one size */
                assert_true(bytes[REPLAY_BELADY] <= bytes[p]);
            }
        }
        free(m);
    }
}

/* Classes share the budget as the engine's do, and a larger cache never reads more under LRU. */
static void test_classes(void **state) {
    (void)state;
    uint64_t seed = 23;
    struct made *m = random_trace(&seed, 4, 16, 2, 800);
    m->t.head.engine = true;
    m->t.head.align = 4096;
    m->t.head.n_groups = 4;
    for (int i = 0; i < 4; i++) {
        m->layers[i].slot_bytes = i % 2 ? 4096 : 12288;
        m->layers[i].top_k = 2;
    }
    uint64_t last = UINT64_MAX;
    for (uint64_t budget = 50000; budget <= 700000; budget += 50000) {
        const struct replay_result r = run(m, (struct replay_options){.policy = REPLAY_LRU, .budget = budget});
        const struct classes_class a = {.slot_bytes = 12288, .bundles = 32, .top_k = 2};
        const struct classes_class b = {.slot_bytes = 4096, .bundles = 32, .top_k = 2};
        const uint64_t index = 32 * (12288 + 4096);
        assert_true(r.classes);
        assert_int_equal(r.slots, classes_share(&a, budget, index) + classes_share(&b, budget, index));
        assert_true(r.cache_bytes <= budget || budget < 2 * index / 16);
        assert_true(r.phase[1].miss_bytes <= last);
        last = r.phase[1].miss_bytes;
    }
    /* Asked for by name, whatever the trace says. */
    struct replay_result r =
        run(m, (struct replay_options){.policy = REPLAY_CYCLE, .budget = 50000, .division = REPLAY_POOL});
    assert_true(!r.classes && r.cache_bytes == 50000);
    m->layers[0].slot_bytes = 0;
    r = run(m, (struct replay_options){.policy = REPLAY_CYCLE, .budget = 50000});
    assert_false(r.classes);
    free(m);
}

/* A prompt that asks for more experts than fit goes through in pieces; each is read once. */
static void test_larger_than_cache(void **state) {
    (void)state;
    struct made *m = make(1, 100, 1, 10);
    for (uint32_t i = 0; i < 100; i++) {
        row(m, TRACE_PROMPT, i, 0, 0, i, 1);
    }
    for (int p = 0; p < REPLAY_POLICIES; p++) {
        const struct replay_result r = run(m, (struct replay_options){.policy = (enum replay_policy)p, .budget = 250});
        assert_int_equal(r.phase[0].blocks, 1);
        assert_int_equal(r.phase[0].steps, 100);
        assert_int_equal(r.phase[0].misses, 100);
        const struct replay_result none = run(m, (struct replay_options){.policy = (enum replay_policy)p, .budget = 5});
        assert_int_equal(none.phase[0].misses, 100); /* not one fits */
    }
    free(m);
}

static void test_lossy(void **state) {
    (void)state;
    struct made *m = make(1, 8, 4, 100);
    const float w[] = {0.4f, 0.3f, 0.2f, 0.1f};
    for (uint32_t t = 0; t < 2; t++) {
        for (uint16_t k = 0; k < 4; k++) {
            row(m, TRACE_GENERATION, t, 0, k, t * 4 + k, w[k]);
        }
    }
    struct replay_options o = {.policy = REPLAY_LRU, .budget = 800, .drop = 1};
    struct replay_result r = run(m, o); /* under 1/4: ranks 2 and 3 of both tokens */
    assert_int_equal(r.phase[1].examined, 8);
    assert_int_equal(r.phase[1].lost, 4);
    assert_int_equal(r.phase[1].lost_reads, 4);
    assert_int_equal(r.phase[1].misses, 4);
    assert_true(fabs(r.phase[1].weight - 2) < 1e-6 && fabs(r.phase[1].lost_weight - 0.6) < 1e-6);
    o.what_if = true;
    r = run(m, o);
    assert_int_equal(r.phase[1].lost, 4);
    assert_int_equal(r.phase[1].misses, 8);
    o = (struct replay_options){.policy = REPLAY_LRU, .budget = 800, .drop = 0.5};
    r = run(m, o); /* under 1/8 */
    assert_int_equal(r.phase[1].lost, 2);
    o = (struct replay_options){.policy = REPLAY_LRU, .budget = 800, .n_expert_used = 3};
    r = run(m, o);
    assert_int_equal(r.phase[1].lost, 2);
    assert_int_equal(r.phase[1].misses, 6);
    o.drop = 1; /* the rest weighs 4/9, 3/9 and 2/9 of the whole: only the last is under 1/3 by enough */
    r = run(m, o);
    assert_int_equal(r.phase[1].examined, 6);
    assert_int_equal(r.phase[1].lost, 2 + 2);
    /* One expert per token is the strongest, and stays. */
    o = (struct replay_options){.policy = REPLAY_LRU, .budget = 800, .n_expert_used = 1, .drop = 1};
    r = run(m, o);
    assert_int_equal(r.phase[1].misses, 2);
    /* In a prompt, and where the weight is not known, nothing is dropped. */
    for (size_t i = 0; i < 8; i++) {
        m->rows[i].weight = NAN;
    }
    o = (struct replay_options){.policy = REPLAY_LRU, .budget = 800, .drop = 1};
    assert_int_equal(run(m, o).phase[1].lost, 0);
    for (size_t i = 0; i < 8; i++) {
        m->rows[i].weight = 0.1f;
        m->rows[i].phase = TRACE_PROMPT;
    }
    assert_int_equal(run(m, o).phase[0].lost, 0);
    /* What is there is not dropped, however little it weighs. */
    struct made *twice = make(1, 8, 2, 100);
    for (uint32_t t = 0; t < 2; t++) {
        row(twice, TRACE_GENERATION, t, 0, 0, 0, t ? 0.1f : 0.9f);
        row(twice, TRACE_GENERATION, t, 0, 1, 1, t ? 0.9f : 0.1f);
    }
    r = run(twice, (struct replay_options){.policy = REPLAY_LRU, .budget = 800, .drop = 1});
    assert_int_equal(r.phase[1].lost, 1);
    assert_int_equal(r.phase[1].hits, 1);
    assert_int_equal(r.phase[1].misses, 2);
    free(twice);
    /* Rows marked as dropped never asked: not under any policy, and not for the sake of what_if. */
    struct made *marked = make(1, 8, 2, 100);
    for (uint32_t t = 0; t < 3; t++) {
        row(marked, TRACE_GENERATION, t, 0, 0, 0, 0.6f);
        row(marked, TRACE_GENERATION, t, 0, 1, 1, 0.4f);
        marked->rows[marked->t.n_rows - 1].dropped = t != 1;
    }
    for (int p = 0; p < REPLAY_POLICIES; p++) {
        for (int what_if = 0; what_if < 2; what_if++) {
            r = run(marked, (struct replay_options){
                                .policy = (enum replay_policy)p, .budget = 800, .drop = what_if, .what_if = what_if});
            assert_int_equal(r.phase[1].routed, 4);
            assert_int_equal(r.phase[1].misses, 2);
            assert_int_equal(r.phase[1].lost, what_if); /* of token 1, 0.4 under 1/2 */
        }
    }
    free(marked);
    struct sluice_error err;
    o.drop = (double)NAN;
    assert_int_equal(replay_run(&m->t, &o, &r, &err), SLUICE_ERR_ARG);
    o.drop = -1;
    assert_int_equal(replay_run(&m->t, &o, &r, &err), SLUICE_ERR_ARG);
    free(m);
}

static void test_facts(void **state) {
    (void)state;
    struct made *m = make(2, 4, 2, 100);
    m->layers[1].expert_bytes = 50;
    struct replay_facts f;
    struct sluice_error err;
    for (uint32_t layer = 0; layer < 2; layer++) {
        for (uint32_t t = 0; t < 3; t++) {
            row(m, TRACE_PROMPT, t, layer, 0, 0, 0.5f);
            row(m, TRACE_PROMPT, t, layer, 1, 1 + t % 2, 0.5f);
        }
    }
    row(m, TRACE_GENERATION, 3, 0, 0, 0, NAN);
    m->rows[12].residency = TRACE_HIT;
    m->rows[12].turn = 1;
    assert_int_equal(replay_facts(&m->t, &f, &err), SLUICE_OK);
    assert_int_equal(f.bank_bytes, 600);
    assert_int_equal(f.token_bytes, 2 * 100 + 2 * 50);
    assert_int_equal(f.turns, 2);
    assert_true(f.weights);
    assert_int_equal(f.phase[0].steps, 3);
    assert_int_equal(f.phase[0].blocks, 2);
    assert_int_equal(f.phase[0].routed, 6);
    assert_int_equal(f.phase[0].misses, 6);
    assert_int_equal(f.phase[1].steps, 1);
    assert_int_equal(f.phase[1].hits, 1);
    free(m);
}

static bool any(void *ud, uint32_t slot) {
    return slot != *(uint32_t *)ud;
}

/* The offline policies as the interface has them: moving keeps the order, pinned slots stay. */
static void test_offline_interface(void **state) {
    (void)state;
    const struct policy_shape shape = {.n_slots = 4, .n_groups = 1, .n_bundles = 4};
    struct policy *p = offline_lfu(&shape);
    assert_non_null(p);
    for (uint32_t i = 0; i < 3; i++) {
        policy_visit(p, 0, 1);
        for (uint32_t k = 0; k <= i; k++) {
            policy_touch(p, i, 0, i);
        }
    }
    uint32_t pinned = 9;
    assert_int_equal(policy_victim(p, any, &pinned), 0);
    policy_move(p, 0, 3);
    policy_remove(p, 0); /* holds nothing: no effect */
    assert_int_equal(policy_victim(p, any, &pinned), 3);
    pinned = 3;
    assert_int_equal(policy_victim(p, any, &pinned), 1);
    policy_remove(p, 3);
    pinned = 9;
    assert_int_equal(policy_victim(p, any, &pinned), 1);
    policy_remove(p, 1);
    policy_remove(p, 2);
    assert_int_equal(policy_victim(p, any, &pinned), UINT32_MAX);
    policy_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand), cmocka_unit_test(test_belady_is_least),   cmocka_unit_test(test_random),
        cmocka_unit_test(test_classes), cmocka_unit_test(test_larger_than_cache), cmocka_unit_test(test_lossy),
        cmocka_unit_test(test_facts),   cmocka_unit_test(test_offline_interface),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
