/* test_guess.c - which experts several tokens will probably want: votes add up, ties, logits that are no numbers. */
#include <math.h>
#include <string.h>

#include "cache/guess.h"
#include "unit.h"

enum { EXPERTS = 6 };

/* One token's logits, added to *score. */
static void vote(float *score, const float *logit, int64_t top_k) {
    float l[EXPERTS];
    memcpy(l, logit, sizeof l);
    guess_add(score, l, EXPERTS, top_k);
}

static void ranked(float *score, uint32_t cap, const int32_t *expected, uint32_t n) {
    int32_t got[EXPERTS];
    assert_int_equal(guess_rank(score, EXPERTS, got, cap), n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(got[i], expected[i]);
    }
}

static void test_one_token(void **state) {
    (void)state;
    const float logit[EXPERTS] = {0.5f, -1, 3, 2, -200, 2.5f};
    float score[EXPERTS] = {0};
    vote(score, logit, 3);
    ranked(score, EXPERTS, (const int32_t[]){2, 5, 3}, 3); /* no more than top_k, in the order of the logits */
    vote(score, logit, 3);
    ranked(score, 2, (const int32_t[]){2, 5}, 2);
    memset(score, 0, sizeof score);
    vote(score, logit, 9); /* more than there are; a probability that is 0 in float is still a pick */
    ranked(score, EXPERTS, (const int32_t[]){2, 5, 3, 0, 1, 4}, EXPERTS);
}

/* Three tokens half want expert 0; a fourth is sure of 1; none has 5 among its picks. */
static void test_votes_add_up(void **state) {
    (void)state;
    const float half[3][EXPERTS] = {{2, 0, 2, 0, 0, 0}, {2, 0, 0, 2, 0, 0}, {2, 0, 0, 0, 2, 0}};
    const float sure[EXPERTS] = {0, 9, 0, 0, -1, -1};
    float score[EXPERTS] = {0};
    vote(score, sure, 1);
    for (int i = 0; i < 3; i++) {
        vote(score, half[i], 2);
    }
    ranked(score, EXPERTS, (const int32_t[]){0, 1, 2, 3, 4}, 5); /* equal votes: the lower number first */
}

static void test_no_numbers(void **state) {
    (void)state;
    const float logit[EXPERTS] = {NAN, 1, NAN, 2, NAN, NAN}, nothing[EXPERTS] = {NAN, NAN, NAN, NAN, NAN, NAN};
    float score[EXPERTS] = {0};
    vote(score, nothing, 2);
    ranked(score, EXPERTS, NULL, 0);
    vote(score, logit, 4);
    ranked(score, EXPERTS, (const int32_t[]){3, 1}, 2);
    const float infinite[EXPERTS] = {INFINITY, 0, 0, 0, 0, 0};
    memset(score, 0, sizeof score);
    vote(score, infinite, 1);
    ranked(score, EXPERTS, (const int32_t[]){0}, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_token),
        cmocka_unit_test(test_votes_add_up),
        cmocka_unit_test(test_no_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
