/* test_timing.c - parts of time add up, and waiting is counted once however many wait. */
#include "unit.h"

#include "cache/idle.h"
#include "cache/timing.h"

static void test_parts(void **state) {
    (void)state;
    struct timing l;
    timing_start(&l, TIMING_BOOKKEEPING, 100);
    timing_switch(&l, TIMING_EXPERT, 101);
    timing_switch(&l, TIMING_BOOKKEEPING, 105);
    timing_switch(&l, TIMING_STALL, 105.5);
    timing_switch(&l, TIMING_BOOKKEEPING, 107.5);
    timing_switch(&l, TIMING_OTHER, 108);
    timing_switch(&l, TIMING_OTHER, 116);
    assert_true(l.s[TIMING_BOOKKEEPING] == 2);
    assert_true(l.s[TIMING_EXPERT] == 4);
    assert_true(l.s[TIMING_STALL] == 2);
    assert_true(l.s[TIMING_OTHER] == 8);
    timing_move(&l, TIMING_EXPERT, TIMING_STALL, 1.5);
    assert_true(l.s[TIMING_EXPERT] == 2.5);
    assert_true(l.s[TIMING_STALL] == 3.5);
    /* Whatever is moved, the sum is the time that went by. */
    assert_true(l.s[0] + l.s[1] + l.s[2] + l.s[3] == 16);
    timing_start(&l, TIMING_OTHER, 7);
    assert_true(l.s[0] == 0 && l.s[1] == 0 && l.s[2] == 0 && l.s[3] == 0);
}

static void test_union(void **state) {
    (void)state;
    struct idle i;
    idle_init(&i);
    /* Two threads: 10..20 and 12..25 wait; both from 12 to 20. */
    idle_enter(&i, 2, 10);
    idle_enter(&i, 2, 12);
    idle_leave(&i, 2, 20);
    idle_leave(&i, 2, 25);
    assert_true(i.total == 8);
    /* One waits while the other computes: nothing is lost. */
    idle_enter(&i, 2, 30);
    idle_leave(&i, 2, 40);
    assert_true(i.total == 8);
    /* One of two wakes, finds nothing and waits again: two intervals. */
    idle_enter(&i, 2, 50);
    idle_enter(&i, 2, 51);
    idle_leave(&i, 2, 55);
    idle_enter(&i, 2, 56);
    idle_leave(&i, 2, 60);
    idle_leave(&i, 2, 61);
    assert_true(i.total == 8 + 4 + 4);
    /* A clock that was read before the lock was taken may be older than the last one's. */
    idle_enter(&i, 2, 70);
    idle_enter(&i, 2, 72);
    idle_leave(&i, 2, 71);
    idle_leave(&i, 2, 73);
    assert_true(i.total == 16);
    /* A team of one. */
    idle_enter(&i, 1, 80);
    idle_leave(&i, 1, 81);
    assert_true(i.total == 17);
    idle_destroy(&i);
}

/* Threads of a team come and go; each counts with a clock of its own that all share. */
enum { TEAM = 4, ROUNDS = 20000 };

static struct {
    struct idle idle;
    _Atomic uint64_t clock;
} team;

static void *team_main(void *arg) {
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        idle_enter(&team.idle, TEAM, (double)team.clock++);
        idle_leave(&team.idle, TEAM, (double)team.clock++);
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    pthread_t t[TEAM];
    idle_init(&team.idle);
    for (int i = 0; i < TEAM; i++) {
        assert_int_equal(pthread_create(&t[i], NULL, team_main, NULL), 0);
    }
    for (int i = 0; i < TEAM; i++) {
        assert_int_equal(pthread_join(t[i], NULL), 0);
    }
    assert_int_equal(team.idle.waiting, 0);
    assert_true(team.idle.total >= 0 && team.idle.total <= (double)team.clock);
    idle_destroy(&team.idle);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_union),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
