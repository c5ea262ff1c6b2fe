/*
 * guess.c - which experts several tokens will probably want, likeliest first.
 *
 * Each token votes for the experts that its router would pick, with the probabilities that it gives
 * them, and votes add up: an expert that three tokens half want comes before one that a single token is sure
 * of. With one token that is the order of its logits.
 *
 * Of three orders tried on several tokens (2026-11-30; docs/benchmarks.md, "Several sequences") this names most
 * experts rightly: adding up the probabilities of all experts, not only of each token's picks, is worse by up
 * to 0.06 in the middle ranks, and so is taking the highest instead of the sum.
 */
#include "cache/guess.h"

#include <math.h>

/* Index of the largest of x[0..n) that is no NaN; -1: there is none. */
static int64_t guess_largest(const float *x, int64_t n) {
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        if (x[i] == x[i] && (best < 0 || x[i] > x[best])) {
            best = i;
        }
    }
    return best;
}

void guess_add(float *score, float *logit, int64_t n, int64_t top_k) {
    int64_t best = guess_largest(logit, n);
    if (best < 0) {
        return;
    }
    const float max = logit[best];
    float sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += logit[i] == logit[i] ? expf(logit[i] - max) : 0;
    }
    for (int64_t k = 0; k < top_k && best >= 0; k++, best = guess_largest(logit, n)) {
        /* Never 0: it is picked, however small its share. (Infinite logits have none; fmaxf takes the number.) */
        score[best] += fmaxf(expf(logit[best] - max) / sum, 1e-30f);
        logit[best] = NAN;
    }
}

uint32_t guess_rank(float *score, int64_t n, int32_t *expert, uint32_t cap) {
    uint32_t picked = 0;
    while (picked < cap) {
        const int64_t best = guess_largest(score, n);
        if (best < 0 || score[best] <= 0) {
            break;
        }
        expert[picked++] = (int32_t)best;
        score[best] = 0;
    }
    return picked;
}
