/*
 * test_policy.c - the eviction order against a naive model: an array of the slots in the list, most
 * recent first, moved about with memmove.
 */
#include "unit.h"

#include <string.h>

#include "stream/policy.h"

enum { SLOTS = 37, STEPS = 200000 };

struct naive {
    uint32_t order[SLOTS]; /* most recent first */
    uint32_t n;            /* entries */
};

static void naive_remove(struct naive *m, uint32_t slot) {
    for (uint32_t i = 0; i < m->n; i++) {
        if (m->order[i] == slot) {
            memmove(&m->order[i], &m->order[i + 1], (m->n - i - 1) * sizeof *m->order);
            m->n--;
            return;
        }
    }
}

static void naive_touch(struct naive *m, uint32_t slot) {
    naive_remove(m, slot);
    memmove(&m->order[1], &m->order[0], m->n * sizeof *m->order);
    m->order[0] = slot;
    m->n++;
}

static uint32_t naive_victim(const struct naive *m, uint64_t pinned) {
    for (uint32_t i = m->n; i-- > 0;) {
        if (!(pinned >> m->order[i] & 1)) {
            return m->order[i];
        }
    }
    return UINT32_MAX;
}

static bool not_pinned(void *ud, uint32_t slot) {
    assert_true(slot < SLOTS);
    return !(*(uint64_t *)ud >> slot & 1);
}

static void test_random(void **state) {
    (void)state;
    struct policy *p = policy_create(SLUICE_POLICY_LRU, SLOTS);
    assert_non_null(p);
    struct naive m = {.n = 0};
    uint64_t seed = 7, pinned = 0;
    for (int step = 0; step < STEPS; step++) {
        const uint32_t slot = unit_random(&seed) % SLOTS;
        switch (unit_random(&seed) % 8) {
        case 0:
            policy_remove(p, slot);
            naive_remove(&m, slot);
            break;
        case 1:
            pinned ^= (uint64_t)1 << slot;
            break;
        case 2:
            pinned = unit_random(&seed) % 16 == 0 ? UINT64_MAX : 0;
            break;
        default:
            policy_touch(p, slot);
            naive_touch(&m, slot);
        }
        const uint32_t want = naive_victim(&m, pinned);
        assert_int_equal(policy_victim(p, not_pinned, &pinned), want);
        if (want != UINT32_MAX && unit_random(&seed) % 2) {
            policy_remove(p, want);
            naive_remove(&m, want);
        }
    }
    /* The whole order, by taking one victim after the other. */
    pinned = 0;
    while (m.n) {
        const uint32_t want = m.order[--m.n];
        assert_int_equal(policy_victim(p, not_pinned, &pinned), want);
        policy_remove(p, want);
    }
    assert_int_equal(policy_victim(p, not_pinned, &pinned), UINT32_MAX);
    policy_destroy(p);
}

static void test_edges(void **state) {
    (void)state;
    uint64_t pinned = 0;
    struct policy *p = policy_create(SLUICE_POLICY_LRU, 0);
    assert_non_null(p);
    assert_int_equal(policy_victim(p, not_pinned, &pinned), UINT32_MAX);
    policy_destroy(p);
    p = policy_create(SLUICE_POLICY_LRU, 1);
    assert_non_null(p);
    policy_remove(p, 0); /* not there */
    policy_touch(p, 0);
    policy_touch(p, 0);
    assert_int_equal(policy_victim(p, not_pinned, &pinned), 0);
    pinned = 1;
    assert_int_equal(policy_victim(p, not_pinned, &pinned), UINT32_MAX);
    policy_remove(p, 0);
    policy_remove(p, 0);
    pinned = 0;
    assert_int_equal(policy_victim(p, not_pinned, &pinned), UINT32_MAX);
    policy_destroy(p);
    policy_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
