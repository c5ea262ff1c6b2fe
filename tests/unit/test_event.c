/* test_event.c - no wake-up is lost: a waiter that saw the count before a change always returns. */
#include "unit.h"

#include <pthread.h>

#include "cache/event.h"

static void test_changed_before_waiting(void **state) {
    (void)state;
    struct event e = {0};
    const uint32_t seen = event_read(&e);
    event_bump(&e);
    event_wait(&e, seen); /* returns at once, or this test hangs */
    assert_int_equal(event_read(&e), seen + 1);
    assert_int_equal(atomic_load(&e.waiters), 0);
}

static void test_count_wraps(void **state) {
    (void)state;
    struct event e = {.count = UINT32_MAX};
    const uint32_t seen = event_read(&e);
    event_bump(&e);
    event_wait(&e, seen);
    assert_int_equal(event_read(&e), 0);
}

/* Two threads hand a number back and forth; each step needs one wake-up of the other. */
enum { TURNS = 20000 };

struct game {
    struct event e;
    _Atomic uint32_t turn; /* whose move: even or odd */
};

static void game_play(struct game *g, uint32_t parity) {
    for (;;) {
        const uint32_t seen = event_read(&g->e);
        const uint32_t turn = atomic_load(&g->turn);
        if (turn >= TURNS) {
            return;
        }
        if (turn % 2 == parity) {
            atomic_store(&g->turn, turn + 1);
            event_bump(&g->e);
        } else {
            event_wait(&g->e, seen);
        }
    }
}

static void *game_odd(void *arg) {
    game_play(arg, 1);
    return NULL;
}

static void test_two_threads(void **state) {
    (void)state;
    struct game g = {0};
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, game_odd, &g), 0);
    game_play(&g, 0);
    assert_int_equal(pthread_join(t, NULL), 0);
    assert_int_equal(atomic_load(&g.turn), TURNS);
    assert_int_equal(atomic_load(&g.e.waiters), 0);
}

/* One bump wakes all sleepers, however many there are. */
enum { SLEEPERS = 8, ROUNDS = 500 };

struct crowd {
    struct event work, done;
    _Atomic uint32_t round;    /* the current one */
    _Atomic uint32_t finished; /* sleepers that saw it */
};

static void *crowd_main(void *arg) {
    struct crowd *c = arg;
    for (uint32_t want = 1; want <= ROUNDS; want++) {
        uint32_t seen;
        while (seen = event_read(&c->work), atomic_load(&c->round) < want) {
            event_wait(&c->work, seen);
        }
        atomic_fetch_add(&c->finished, 1);
        event_bump(&c->done);
    }
    return NULL;
}

static void test_one_bump_wakes_all(void **state) {
    (void)state;
    struct crowd c = {0};
    pthread_t t[SLEEPERS];
    for (int i = 0; i < SLEEPERS; i++) {
        assert_int_equal(pthread_create(&t[i], NULL, crowd_main, &c), 0);
    }
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        atomic_store(&c.round, round);
        event_bump(&c.work);
        uint32_t seen;
        while (seen = event_read(&c.done), atomic_load(&c.finished) < round * SLEEPERS) {
            event_wait(&c.done, seen);
        }
    }
    for (int i = 0; i < SLEEPERS; i++) {
        assert_int_equal(pthread_join(t[i], NULL), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changed_before_waiting),
        cmocka_unit_test(test_count_wraps),
        cmocka_unit_test(test_two_threads),
        cmocka_unit_test(test_one_bump_wakes_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
