/* test_batch.c - where batches begin, and what they are: by the shapes of graphs, and by what a program says. */
#include "observe/batch.h"
#include "unit.h"

#include <pthread.h>

enum { LAYERS = 3 };

/* The scheduler shows a graph of LAYERS layers in which `last` of `rows` tokens reach the last one. */
static void show(struct batch *b, uint32_t rows, uint32_t last) {
    for (uint32_t group = 0; group < LAYERS; group++) {
        const uint32_t n = group + 1 < LAYERS ? rows : last;
        batch_show(b, group, n);
        batch_show(b, group, n); /* a block has several matmuls */
    }
}

/* It is computed: only its first block begins a batch. */
static void run(struct batch *b, uint32_t rows, uint32_t last) {
    const uint64_t number = b->number;
    for (uint32_t group = 0; group < LAYERS; group++) {
        if (group + 1 < LAYERS || last) {
            assert_int_equal(batch_block(b, group, group + 1 < LAYERS ? rows : last), group == 0);
            assert_int_equal(b->number, number + 1);
            assert_int_equal(b->rows, rows);
        }
    }
}

static void decode(struct batch *b, uint32_t rows, uint32_t last, enum sluice_phase phase) {
    show(b, rows, last);
    run(b, rows, last);
    assert_int_equal(b->phase, phase);
}

#define PROMPT     SLUICE_PHASE_PROMPT
#define GENERATION SLUICE_PHASE_GENERATION

/* A stock program with one sequence. */
static void test_one_sequence(void **state) {
    (void)state;
    struct batch b = {0};
    decode(&b, 8, 0, PROMPT); /* nobody wants logits of the first part: the last layer has no block */
    assert_int_equal(b.position, 0);
    decode(&b, 5, 1, PROMPT);
    assert_int_equal(b.position, 8);
    assert_int_equal(batch_position(&b, 5), 8);
    assert_int_equal(batch_position(&b, 1), 12); /* the row that reaches the last layer is the last */
    decode(&b, 1, 1, GENERATION);
    run(&b, 1, 1); /* the graph is used again: it is not shown */
    assert_int_equal(b.phase, GENERATION);
    assert_int_equal(b.position, 14);
    assert_int_equal(b.turn, 0);
    decode(&b, 3, 1, PROMPT);
    assert_int_equal(b.turn, 1);
    decode(&b, 3, 1, PROMPT);
    assert_int_equal(b.turn, 1);
    assert_int_equal(b.number, 6);
    batch_free(&b);
}

/* Four slots of a server: all rows of the next tokens reach the last layer. */
static void test_several_sequences(void **state) {
    (void)state;
    struct batch b = {0};
    decode(&b, 4, 4, PROMPT); /* a graph that may never drop rows */
    decode(&b, 20, 1, PROMPT);
    decode(&b, 4, 4, GENERATION);
    run(&b, 4, 4);
    assert_int_equal(b.phase, GENERATION);
    decode(&b, 9, 4, PROMPT); /* three tokens, and a piece of a prompt */
    decode(&b, 4, 4, GENERATION);
    decode(&b, 64, 64, GENERATION);
    decode(&b, 65, 65, PROMPT);
    batch_free(&b);
    /* Graphs that are planned for their size, and never computed, tell as well. */
    b = (struct batch){0};
    show(&b, 512, 4);
    decode(&b, 4, 4, GENERATION);
    batch_free(&b);
}

/* Nobody shows a graph: one row is generation, several are not. */
static void test_not_shown(void **state) {
    (void)state;
    struct batch b = {0};
    run(&b, 4, 1);
    assert_int_equal(b.phase, PROMPT);
    run(&b, 2, 2);
    assert_int_equal(b.phase, PROMPT);
    run(&b, 1, 1);
    assert_int_equal(b.phase, GENERATION);
    assert_int_equal(batch_next(&b, 1), 2);
    batch_free(&b);
}

static void test_next(void **state) {
    (void)state;
    struct batch b = {0};
    assert_int_equal(batch_next(&b, 0), UINT32_MAX);
    batch_show(&b, 7, 1);
    batch_show(&b, 9, 1);
    assert_int_equal(batch_next(&b, 7), 9);
    assert_int_equal(batch_next(&b, 9), 7); /* of the next batch */
    assert_int_equal(batch_next(&b, 8), UINT32_MAX);
    for (uint32_t group = 0; group < 300; group++) { /* another model's graph, of more layers than there was room for */
        batch_show(&b, group, 1);
    }
    assert_int_equal(batch_next(&b, 298), 299);
    assert_int_equal(batch_next(&b, 299), 0);
    batch_free(&b);
}

/* A decode that failed in the middle: the next one begins with an early layer again. */
static void test_broken_off(void **state) {
    (void)state;
    struct batch b = {0};
    show(&b, 6, 1);
    assert_true(batch_block(&b, 0, 6));
    assert_false(batch_block(&b, 1, 6));
    decode(&b, 6, 1, PROMPT);
    assert_int_equal(b.number, 2);
    batch_free(&b);
}

/* A thread that says nothing, and computes a context that another one has computed. */
static void *silent(void *p) {
    struct batch *b = p;
    decode(b, 1, 1, GENERATION);
    assert_int_equal(b->position, 109); /* goes on counting */
    return NULL;
}

static void *telling(void *p) {
    struct batch *b = p;
    pthread_t thread;
    const uint64_t generation = b->generation;
    sluice_route_trace_mark(3, PROMPT, 100);
    sluice_generation_begin();
    decode(b, 8, 8, PROMPT); /* whatever it looks like */
    assert_int_equal(b->turn, 3);
    assert_int_equal(b->position, 100);
    assert_int_equal(b->generation, generation + 1);
    decode(b, 1, 1, PROMPT); /* the same mark holds on, and its tokens are counted */
    assert_int_equal(b->position, 108);
    assert_int_equal(b->generation, generation + 1);
    pthread_create(&thread, NULL, silent, b);
    pthread_join(thread, NULL);
    sluice_route_trace_mark(3, GENERATION, 109);
    decode(b, 2, 1, GENERATION);
    assert_int_equal(b->position, 109);
    assert_int_equal(b->generation, generation + 1);
    sluice_generation_begin();
    sluice_route_trace_mark(0, PROMPT, 0);
    decode(b, 1, 1, PROMPT);
    assert_int_equal(b->position, 0);
    assert_int_equal(b->turn, 0);
    assert_int_equal(b->generation, generation + 2);
    return NULL;
}

static void test_told(void **state) {
    (void)state;
    struct batch b = {0};
    pthread_t thread; /* what is said on it is gone with it */
    pthread_create(&thread, NULL, telling, &b);
    pthread_join(thread, NULL);
    batch_free(&b);
}

/* Where nothing is told every batch of a prompt begins a generation, and the first batch does. */
static void test_generations(void **state) {
    (void)state;
    struct batch b = {0};
    decode(&b, 1, 1, GENERATION);
    assert_int_equal(b.generation, 1);
    decode(&b, 1, 1, GENERATION);
    assert_int_equal(b.generation, 1);
    decode(&b, 6, 1, PROMPT);
    decode(&b, 6, 1, PROMPT);
    assert_int_equal(b.generation, 3);
    decode(&b, 4, 4, GENERATION);
    assert_int_equal(b.generation, 3);
    batch_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_sequence), cmocka_unit_test(test_several_sequences), cmocka_unit_test(test_not_shown),
        cmocka_unit_test(test_next),         cmocka_unit_test(test_broken_off),        cmocka_unit_test(test_told),
        cmocka_unit_test(test_generations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
