/*
 * test_policy.c - the eviction orders against naive models. LRU: an array of the slots, most recent
 * first, moved about with memmove. Cycle: the expected wait, computed from the whole history.
 */
#include "unit.h"

#include <math.h>
#include <string.h>

#include "cache/policy.h"

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

static void naive_move(struct naive *m, uint32_t from, uint32_t to) {
    for (uint32_t i = 0; i < m->n; i++) {
        m->order[i] = m->order[i] == from ? to : m->order[i];
    }
}

static bool naive_holds(const struct naive *m, uint32_t slot) {
    bool holds = false;
    for (uint32_t i = 0; i < m->n; i++) {
        holds = holds || m->order[i] == slot;
    }
    return holds;
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
    int moves = 0;
    for (int step = 0; step < STEPS; step++) {
        const uint32_t slot = unit_random(&seed) % SLOTS, other = unit_random(&seed) % SLOTS;
        switch (unit_random(&seed) % 10) {
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
        case 3: /* as fresh as what is used */
            policy_place(p, slot, 0, slot);
            naive_touch(&m, slot);
            break;
        case 4:
            if (naive_holds(&m, slot) && !naive_holds(&m, other)) {
                policy_move(p, slot, other);
                naive_move(&m, slot, other);
                moves++;
            }
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
    assert_true(moves > STEPS / 100);
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

/* The slot that holds a bundle (-1: none); SLOTS when no slot does. */
static uint32_t history_find(const struct history *h, int32_t bundle) {
    uint32_t slot = 0;
    while (slot < SLOTS && h->bundle[slot] != bundle) {
        slot++;
    }
    return slot;
}

/* Evict what the policy says, and see that nothing has longer to wait. */
static uint32_t history_evict(struct history *h, struct policy *p, uint64_t *pinned) {
    const uint32_t slot = policy_victim(p, not_pinned, pinned);
    assert_true(slot < SLOTS && h->bundle[slot] >= 0);
    double longest = 0;
    for (uint32_t i = 0; i < SLOTS; i++) {
        const double wait = *pinned >> i & 1 || h->bundle[i] < 0 ? 0 : history_wait(h, (uint32_t)h->bundle[i]);
        longest = wait > longest ? wait : longest;
    }
    /* Single precision may choose among equals. */
    assert_true(history_wait(h, (uint32_t)h->bundle[slot]) >= longest * 0.999);
    policy_remove(p, slot);
    h->bundle[slot] = -1;
    return slot;
}

/* A slot for the bundle: its own, a free one, or one evicted. */
static uint32_t history_slot(struct history *h, struct policy *p, uint32_t bundle, uint64_t *pinned, int *victims) {
    uint32_t slot = history_find(h, (int32_t)bundle);
    slot = slot == SLOTS ? history_find(h, -1) : slot;
    if (slot == SLOTS) {
        slot = history_evict(h, p, pinned);
        ++*victims;
    }
    h->bundle[slot] = (int32_t)bundle;
    return slot;
}

static void test_cycle(void **state) {
    (void)state;
    static struct history h;
    memset(&h, 0, sizeof h);
    memset(h.bundle, 0xff, sizeof h.bundle);
    struct policy *p = policy_create(SLUICE_POLICY_CYCLE, &(struct policy_shape){SLOTS, GROUPS, BUNDLES});
    assert_non_null(p);
    uint64_t seed = 11, none = 0;
    int victims = 0, moves = 0;
    for (int step = 0; step < 1500; step++) {
        const uint32_t group = (uint32_t)step % GROUPS;
        /* A token, a few at once (they count as one visit), or a piece of text, whose tokens all count. */
        const uint32_t rows = step % 11 == 7 ? 40 : step % 7 == 3 ? 5 : 1;
        const uint32_t span = rows == 40 ? rows : 1;
        policy_visit(p, group, rows);
        h.now = group;
        h.visits[group] += span;
        uint64_t pinned = 0;
        uint32_t picked[3];
        for (int k = 0; k < 3; k++) {
            /* Skewed: low experts are popular. */
            const uint32_t a = unit_random(&seed) % EXPERTS, b = unit_random(&seed) % EXPERTS;
            picked[k] = group * EXPERTS + (a < b ? a : b);
        }
        for (uint32_t ago = rows; ago-- > 0;) {
            for (uint32_t k = 0; k < 3; k++) {
                if (ago % 3 == k || (rows < 3 && k != 1)) {
                    policy_use(p, group, picked[k], ago);
                    policy_use(p, group, picked[k], ago); /* within a visit this is one use */
                    h.used[picked[k]][h.visits[group] - (span == 1 ? 0 : ago)] = 1;
                }
            }
        }
        for (int k = 0; k < 3; k++) {
            const uint32_t slot = history_slot(&h, p, picked[k], &pinned, &victims);
            policy_touch(p, slot, group, picked[k]);
            policy_touch(p, slot, group, picked[k]); /* no use */
            pinned |= (uint64_t)1 << slot;
        }
        /* Something of the next group is expected. That it is placed says nothing of how often it is used. */
        const uint32_t next = (group + 1) % GROUPS;
        const uint32_t bundle = next * EXPERTS + unit_random(&seed) % EXPERTS;
        if (history_find(&h, (int32_t)bundle) == SLOTS) {
            policy_place(p, history_slot(&h, p, bundle, &none, &victims), next, bundle);
        }
        /* One is evicted, and another one is carried over to its place. */
        if (history_find(&h, -1) == SLOTS) {
            const uint32_t to = history_evict(&h, p, &none), from = unit_random(&seed) % SLOTS;
            victims++;
            if (from != to) {
                policy_move(p, from, to);
                h.bundle[to] = h.bundle[from];
                h.bundle[from] = -1;
                moves++;
            }
        }
    }
    assert_true(victims > 100 && moves > 100);
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
            policy_visit(p, group, 1);
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
                policy_use(p, group, b, 0);
                policy_touch(p, slot, group, b);
            }
        }
        policy_destroy(p);
    }
    assert_int_equal(hits[1], 0);
    assert_true(hits[0] > 1500);
}

/* ---- against Belady: what is used latest goes, which needs to know the future ----------------- */

enum { LENGTH = 6000, PER_VISIT = 2 };

/* PER_VISIT bundles per visit, visits going round the groups. */
struct sequence {
    uint32_t bundle[LENGTH];
};

static uint64_t belady_hits(const uint32_t *bundle, uint32_t length, uint32_t room) {
    static uint32_t next[LENGTH]; /* when is this one's bundle used again? */
    uint32_t last[BUNDLES], until[BUNDLES], n = 0;
    bool there[BUNDLES] = {false};
    uint64_t hits = 0;
    for (uint32_t b = 0; b < BUNDLES; b++) {
        last[b] = UINT32_MAX;
    }
    for (uint32_t i = length; i-- > 0;) {
        next[i] = last[bundle[i]];
        last[bundle[i]] = i;
    }
    for (uint32_t i = 0; i < length; i++) {
        const uint32_t b = bundle[i];
        if (there[b]) {
            hits++;
        } else if (n < room) {
            n++;
        } else {
            uint32_t latest = BUNDLES;
            for (uint32_t k = 0; k < BUNDLES; k++) {
                if (there[k] && (latest == BUNDLES || until[k] > until[latest])) {
                    latest = k;
                }
            }
            there[latest] = false;
        }
        there[b] = true;
        until[b] = next[i];
    }
    return hits;
}

static uint64_t policy_hits(enum sluice_policy kind, const struct sequence *s, uint32_t room) {
    int32_t bundle[SLOTS];
    uint64_t hits = 0, none = 0;
    struct policy *p = policy_create(kind, &(struct policy_shape){room, GROUPS, BUNDLES});
    assert_non_null(p);
    assert_true(room <= SLOTS);
    memset(bundle, 0xff, sizeof bundle);
    for (uint32_t i = 0; i < LENGTH; i++) {
        const uint32_t b = s->bundle[i], group = b / EXPERTS;
        if (i % PER_VISIT == 0) {
            policy_visit(p, group, 1);
        }
        policy_use(p, group, b, 0);
        uint32_t slot = 0;
        while (slot < room && bundle[slot] != (int32_t)b) {
            slot++;
        }
        if (slot < room) {
            hits++;
        } else {
            slot = 0;
            while (slot < room && bundle[slot] >= 0) {
                slot++;
            }
            if (slot == room) {
                slot = policy_victim(p, not_pinned, &none);
                assert_true(slot < room);
                policy_remove(p, slot);
            }
        }
        bundle[slot] = (int32_t)b;
        policy_touch(p, slot, group, b);
    }
    policy_destroy(p);
    return hits;
}

/* Always the same: experts 0 and 1 of each group. */
static void make_cycle(struct sequence *s) {
    for (uint32_t i = 0; i < LENGTH; i++) {
        s->bundle[i] = i / PER_VISIT % GROUPS * EXPERTS + i % PER_VISIT;
    }
}

/* One popular expert (of two: every other time one of them) and one that is any; from `shift` on others are popular. */
static void make_popular(struct sequence *s, uint32_t shift) {
    uint64_t seed = 17;
    for (uint32_t i = 0; i < LENGTH; i += PER_VISIT) {
        const uint32_t group = i / PER_VISIT % GROUPS, popular = (i < shift ? 0 : 6) + unit_random(&seed) % 2;
        s->bundle[i] = group * EXPERTS + popular;
        s->bundle[i + 1] = group * EXPERTS + (popular + 1 + unit_random(&seed) % (EXPERTS - 1)) % EXPERTS;
    }
}

static void test_belady_itself(void **state) {
    (void)state;
    /* By hand: 1 2 3 miss (2 goes, being used latest), 1 hits, 2 misses, 3 hits. */
    const uint32_t three[] = {1, 2, 3, 1, 2, 3};
    assert_int_equal(belady_hits(three, 6, 2), 2);
    assert_int_equal(belady_hits(three, 6, 3), 3);
    assert_int_equal(belady_hits(three, 6, 1), 0);
    /* 7 never comes again, so it goes first: 5 and 6 stay. */
    const uint32_t once[] = {5, 6, 7, 5, 6};
    assert_int_equal(belady_hits(once, 5, 2), 1);
    assert_int_equal(belady_hits(once, 5, 3), 2);
}

static void test_against_belady(void **state) {
    (void)state;
    static struct sequence s[3];
    make_cycle(&s[0]);
    make_popular(&s[1], LENGTH);
    make_popular(&s[2], LENGTH / 2);
    for (int i = 0; i < 3; i++) {
        uint64_t before = 0;
        for (uint32_t room = PER_VISIT; room <= 30; room += 4) {
            const uint64_t best = belady_hits(s[i].bundle, LENGTH, room);
            const uint64_t cycle = policy_hits(SLUICE_POLICY_CYCLE, &s[i], room);
            const uint64_t lru = policy_hits(SLUICE_POLICY_LRU, &s[i], room);
            assert_true(cycle <= best);
            assert_true(lru <= best);
            assert_true(best >= before); /* more room, more hits */
            before = best;
            const uint32_t demand = PER_VISIT * GROUPS;
            if (i == 0 && room < demand) {
                /* The cliff: LRU hits nothing at all, cycle a good part of what can be. */
                assert_int_equal(lru, 0);
                assert_true(cycle > (room == PER_VISIT ? 0 : best / 4));
            } else if (i == 0) {
                assert_int_equal(lru, LENGTH - demand);
                assert_int_equal(cycle, LENGTH - demand);
                assert_int_equal(best, LENGTH - demand);
            } else {
                assert_true(cycle > lru); /* it knows what is popular */
                assert_true(cycle > best / 2);
            }
        }
    }
    /* What was popular is forgotten: the shift costs less than a sixth. */
    const uint64_t steady = policy_hits(SLUICE_POLICY_CYCLE, &s[1], 14),
                   shifted = policy_hits(SLUICE_POLICY_CYCLE, &s[2], 14);
    assert_true(shifted > steady * 5 / 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),   cmocka_unit_test(test_edges),         cmocka_unit_test(test_cycle),
        cmocka_unit_test(test_no_cliff), cmocka_unit_test(test_belady_itself), cmocka_unit_test(test_against_belady),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
