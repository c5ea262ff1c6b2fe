/*
 * quality.c - see quality.h. Neither llama.cpp nor files: tests/unit/test_quality.c knows the answers.
 *
 * A row of logits is compared with another run's row as 16-bit codes: how many steps of 1/2048 nat a
 * logit is below the row's largest. Both rows are rounded the same way and both are normalised after it, hence
 *
 *   - equal bytes give a divergence of exactly 0, which no comparison of a rounded with an exact row does;
 *   - the rounding (at most 1/4096 nat per vocabulary entry) moves the divergence d of a token by up to 0.0003 times
 *     the root of d, either way, and the mean of many by less than a thousandth of itself: its first order is (q - p)
 *     times the rounding, which vanishes with d. test_quality.c measures it;
 *   - with p = e^(-c/2048) / sum, the divergence is a sum of table entries times differences of integers: no
 *     exponential or logarithm per vocabulary entry.
 *
 * Tokens less likely than e^-32 of the likeliest count as that. Keeping float32 instead would double the file
 * for nothing: perplexity and the likeliest token are taken from the floats before they are rounded.
 *
 * Standard errors: `se` treats tokens as independent, as llama-perplexity does, to be comparable with it. Tokens of
 * one chunk are not quite independent: they share a context, and a cache. Whole chunks are; `se_chunk` compares them.
 */
#include "run/quality.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool sluice_score_row(const float *logits, uint32_t n, uint32_t next, struct sluice_score *out) {
    float max = -INFINITY;
    double sum = 0;
    out->top = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (logits[i] > max) {
            max = logits[i];
            out->top = i;
        }
    }
    if (!isfinite(max)) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        sum += exp((double)logits[i] - (double)max);
    }
    out->max = max;
    out->nll = (double)max + log(sum) - (double)logits[next];
    return isfinite(out->nll); /* not when a logit was NaN, which is not larger than anything */
}

void sluice_encode_row(const float *logits, uint32_t n, float max, uint16_t *codes) {
    for (uint32_t i = 0; i < n; i++) {
        /* The difference in double is exact enough and the same everywhere; infinity becomes the last code. */
        const double steps = ((double)max - (double)logits[i]) * SLUICE_CODE_STEPS + 0.5;
        codes[i] = steps < SLUICE_CODES - 1 ? (uint16_t)steps : SLUICE_CODES - 1;
    }
}

void sluice_code_table(double *table) {
    for (int c = 0; c < SLUICE_CODES; c++) {
        table[c] = exp(-(double)c / SLUICE_CODE_STEPS);
    }
}

double sluice_divergence(const double *table, const uint16_t *p, const uint16_t *q, uint32_t n) {
    double sum_p = 0, sum_q = 0, more = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum_p += table[p[i]];
        sum_q += table[q[i]];
        more += table[p[i]] * ((double)q[i] - (double)p[i]);
    }
    const double kl = more / sum_p / SLUICE_CODE_STEPS + (log(sum_q) - log(sum_p));
    return kl > 0 ? kl : 0; /* it is never negative; the last bits of the sums may be */
}

void sluice_mean_of(const double *v, size_t n, size_t per_chunk, struct sluice_mean *out) {
    const size_t chunks = per_chunk ? n / per_chunk : 0;
    double sum = 0, square = 0, of_chunks = 0;
    *out = (struct sluice_mean){NAN, NAN, NAN};
    if (n == 0) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        sum += v[i];
    }
    out->mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) {
        square += (v[i] - out->mean) * (v[i] - out->mean);
    }
    if (n > 1) {
        out->se = sqrt(square / (double)n / (double)(n - 1));
    }
    if (chunks < 2) {
        return;
    }
    double whole = 0; /* mean over the whole chunks only */
    for (size_t i = 0; i < chunks * per_chunk; i++) {
        whole += v[i];
    }
    whole /= (double)(chunks * per_chunk);
    for (size_t c = 0; c < chunks; c++) {
        double part = 0;
        for (size_t i = 0; i < per_chunk; i++) {
            part += v[c * per_chunk + i];
        }
        part = part / (double)per_chunk - whole;
        of_chunks += part * part;
    }
    out->se_chunk = sqrt(of_chunks / (double)chunks / (double)(chunks - 1));
}

/* Between neighbours linearly. */
static double at_rank(const double *v, size_t n, double rank) {
    const size_t low = (size_t)rank, high = low + 1 < n ? low + 1 : low;
    return v[low] + (rank - (double)low) * (v[high] - v[low]);
}

void sluice_quantile_of(const double *v, size_t n, double q, struct sluice_quantile *out) {
    *out = (struct sluice_quantile){NAN, NAN};
    if (n == 0) {
        return;
    }
    const double rank = q * (double)(n - 1), off = sqrt((double)n * q * (1 - q));
    out->value = at_rank(v, n, rank);
    if (rank - off >= 0 && rank + off <= (double)(n - 1)) {
        out->se = (at_rank(v, n, rank + off) - at_rank(v, n, rank - off)) / 2;
    }
}

bool sluice_tally_make(struct sluice_tally *t, uint64_t most) {
    double *all = most < SIZE_MAX / 4 ? calloc(most + 1, 4 * sizeof *all) : NULL;
    t->nll = all;
    if (all) {
        t->nll_ref = all + most;
        t->kl = t->nll_ref + most;
        t->same = t->kl + most;
        t->most = most;
    }
    return all != NULL;
}

void sluice_tally_add(struct sluice_tally *t, double nll, double nll_ref, double kl, double same) {
    assert(t->n_tokens < t->most);
    t->nll[t->n_tokens] = nll;
    t->nll_ref[t->n_tokens] = nll_ref;
    t->kl[t->n_tokens] = kl;
    t->same[t->n_tokens++] = same;
}

void sluice_tally_free(struct sluice_tally *t) {
    free(t->nll); /* and the others, which are parts of it */
    memset(t, 0, sizeof *t);
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void sluice_tally_finish(struct sluice_tally *t, bool with_reference, struct sluice_quality *out) {
    const size_t n = t->n_tokens;
    memset(out, 0, sizeof *out);
    out->tokens = n;
    out->chunks = t->per_chunk ? n / t->per_chunk : 0;
    sluice_mean_of(t->nll, n, t->per_chunk, &out->nll);
    out->ppl = exp(out->nll.mean);
    out->ppl_se = out->ppl * out->nll.se;
    const size_t m = with_reference ? n : 0; /* nothing: all NaN */
    struct sluice_mean ref;
    sluice_mean_of(t->nll_ref, m, t->per_chunk, &ref);
    out->ppl_ref = exp(ref.mean);
    for (size_t i = 0; i < m; i++) {
        t->nll_ref[i] = t->nll[i] - t->nll_ref[i];
    }
    sluice_mean_of(t->nll_ref, m, t->per_chunk, &out->nll_more);
    sluice_mean_of(t->same, m, t->per_chunk, &out->same);
    sluice_mean_of(t->kl, m, t->per_chunk, &out->kl);
    if (m) {
        qsort(t->kl, m, sizeof *t->kl, ascending);
    }
    sluice_quantile_of(t->kl, m, 0.5, &out->kl_50);
    sluice_quantile_of(t->kl, m, 0.99, &out->kl_99);
    out->kl_max = m ? t->kl[m - 1] : NAN;
}
