/*
 * test_policy.c - the eviction orders against naive models. LRU: an array of the slots, most recent
 * first, moved about with memmove. Cycle: the expected wait, computed from the whole history.
 */
#include "unit.h"

#include <math.h>
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
    struct policy *p = policy_create(SLUICE_POLICY_LRU, &(struct policy_shape){SLOTS, 1, SLOTS});
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
            policy_touch(p, slot, 0, slot);
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

static void edges(enum sluice_policy kind) {
    uint64_t pinned = 0;
    struct policy *p = policy_create(kind, &(struct policy_shape){0, 1, 1});
    assert_non_null(p);
    assert_int_equal(policy_victim(p, not_pinned, &pinned), UINT32_MAX);
    policy_destroy(p);
    p = policy_create(kind, &(struct policy_shape){1, 1, 1});
    assert_non_null(p);
    policy_remove(p, 0); /* not there */
    policy_touch(p, 0, 0, 0);
    policy_touch(p, 0, 0, 0);
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

static void test_edges(void **state) {
    (void)state;
    edges(SLUICE_POLICY_LRU);
    edges(SLUICE_POLICY_CYCLE);
}

/* ---- cycle: against the formula, computed from the whole history ----------------------------- */

enum { GROUPS = 5, EXPERTS = 12, BUNDLES = GROUPS * EXPERTS, VISITS = 4000 };

struct history {
    uint8_t used[BUNDLES][VISITS]; /* by bundle and visit of its group: 1 when used */
    uint32_t visits[GROUPS];       /* so far */
    int32_t bundle[SLOTS];         /* by slot: what is in it, or -1 */
    uint32_t now;                  /* group visited last */
};

/* The expected wait until the bundle is used, in visits: distance to its group and chance of a use. */
static double history_wait(const struct history *h, uint32_t bundle) {
    const uint32_t group = bundle / EXPERTS, n = h->visits[group];
    const double rate[] = {exp2(-1 / 4.0), exp2(-1 / 64.0)};
    double chance = 0;
    for (int r = 0; r < 2; r++) {
        double f = 0;
        for (uint32_t v = 1; v <= n; v++) {
            f = f * rate[r] + (h->used[bundle][v] ? 1 - rate[r] : 0);
        }
        chance += 0.5 * f;
    }
    chance = chance < 1e-6 ? 1e-6 : chance > 1 ? 1 : chance;
    const uint32_t ahead = (group + GROUPS - h->now) % GROUPS;
    return (ahead ? ahead : GROUPS) + GROUPS * (1 - chance) / chance;
}

static void test_cycle(void **state) {
    (void)state;
    static struct history h;
    memset(&h, 0, sizeof h);
    memset(h.bundle, 0xff, sizeof h.bundle);
    struct policy *p = policy_create(SLUICE_POLICY_CYCLE, &(struct policy_shape){SLOTS, GROUPS, BUNDLES});
    assert_non_null(p);
    uint64_t seed = 11;
    int victims = 0;
    for (int step = 0; step < 1500; step++) {
        const uint32_t group = (uint32_t)step % GROUPS;
        policy_visit(p, group);
        h.now = group;
        h.visits[group]++;
        uint64_t pinned = 0;
        for (int k = 0; k < 3; k++) {
            /* Skewed: low experts are popular. */
            const uint32_t a = unit_random(&seed) % EXPERTS, b = unit_random(&seed) % EXPERTS;
            const uint32_t bundle = group * EXPERTS + (a < b ? a : b);
            uint32_t slot = 0;
            while (slot < SLOTS && h.bundle[slot] != (int32_t)bundle) {
                slot++;
            }
            if (slot == SLOTS) {
                slot = 0;
                while (slot < SLOTS && h.bundle[slot] >= 0) {
                    slot++;
                }
            }
            if (slot == SLOTS) {
                slot = policy_victim(p, not_pinned, &pinned);
                assert_true(slot < SLOTS);
                double longest = 0;
                for (uint32_t i = 0; i < SLOTS; i++) {
                    const double wait = pinned >> i & 1 ? 0 : history_wait(&h, (uint32_t)h.bundle[i]);
                    longest = wait > longest ? wait : longest;
                }
                /* Single precision may choose among equals. */
                assert_true(history_wait(&h, (uint32_t)h.bundle[slot]) >= longest * 0.999);
                policy_remove(p, slot);
                victims++;
            }
            h.bundle[slot] = (int32_t)bundle;
            h.used[bundle][h.visits[group]] = 1;
            policy_touch(p, slot, group, bundle);
            policy_touch(p, slot, group, bundle); /* within a visit this is one use */
            pinned |= (uint64_t)1 << slot;
        }
    }
    assert_true(victims > 100);
    policy_destroy(p);
}

/* Less room than one token: LRU hits nothing, cycle keeps what is popular. */
static void test_no_cliff(void **state) {
    (void)state;
    uint64_t hits[2] = {0, 0}, none = 0;
    for (int kind = 0; kind < 2; kind++) {
        enum { ROOM = 6 }; /* a token uses 2 * GROUPS */
        int32_t bundle[ROOM];
        memset(bundle, 0xff, sizeof bundle);
        struct policy *p = policy_create(kind ? SLUICE_POLICY_LRU : SLUICE_POLICY_CYCLE,
                                         &(struct policy_shape){ROOM, GROUPS, BUNDLES});
        uint64_t seed = 5;
        for (int step = 0; step < 2000; step++) {
            const uint32_t group = (uint32_t)step % GROUPS;
            policy_visit(p, group);
            for (uint32_t k = 0; k < 2; k++) {
                /* The first expert is always used, the second one is any. */
                const uint32_t b = group * EXPERTS + (k ? 1 + unit_random(&seed) % (EXPERTS - 1) : 0);
                uint32_t slot = 0;
                while (slot < ROOM && bundle[slot] != (int32_t)b) {
                    slot++;
                }
                if (slot < ROOM) {
                    hits[kind]++;
                } else {
                    slot = 0;
                    while (slot < ROOM && bundle[slot] >= 0) {
                        slot++;
                    }
                    if (slot == ROOM) {
                        slot = policy_victim(p, not_pinned, &none);
                        policy_remove(p, slot);
                    }
                }
                bundle[slot] = (int32_t)b;
                policy_touch(p, slot, group, b);
            }
        }
        policy_destroy(p);
    }
    assert_int_equal(hits[1], 0);
    assert_true(hits[0] > 1500);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_cycle),
        cmocka_unit_test(test_no_cliff),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
