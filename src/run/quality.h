/*
 * quality.h - how good predictions are: perplexity, and how far two runs' predictions lie apart. Numbers only.
 */
#ifndef SLUICE_RUN_QUALITY_H
#define SLUICE_RUN_QUALITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SLUICE_CODE_STEPS = 2048, /* codes per nat */
    SLUICE_CODES = 65536,     /* values of a code: probabilities down to e^-32 of the likeliest token's */
};

/* What one row of logits says about the token that follows. */
struct sluice_score {
    double nll;   /* -ln of the probability of the token that follows, nats */
    float max;    /* the largest logit */
    uint32_t top; /* its token; the first of several */
};

/*
 * Score a row of n logits. False when it is no prediction of `next`: a NaN or +infinity in it, or -infinity for that
 * token.
 */
bool sluice_score_row(const float *logits, uint32_t n, uint32_t next, struct sluice_score *out);

/* The row as codes: how far each logit is below the largest, in steps. `max` as sluice_score_row found it. */
void sluice_encode_row(const float *logits, uint32_t n, float max, uint16_t *codes);

/* Weight of each code: table[c] = e^(-c / SLUICE_CODE_STEPS). SLUICE_CODES entries. */
void sluice_code_table(double *table);

/*
 * KL divergence of the distribution q from p, nats, both as codes: the sum of p ln(p / q). Exactly 0 for equal codes.
 */
double sluice_divergence(const double *table, const uint16_t *p, const uint16_t *q, uint32_t n);

/* A mean with its standard errors. NaN where there are too few values. */
struct sluice_mean {
    double mean;     /* of all values */
    double se;       /* standard error, as if every value were independent */
    double se_chunk; /* standard error, from the means of the chunks: holds when values of one chunk go together */
};

/* A quantile with its standard error, from the values that stand one standard deviation of its rank away. */
struct sluice_quantile {
    double value; /* NaN: no values */
    double se;    /* NaN: too few values beyond it */
};

/* All scored tokens, in order. Set per_chunk, then sluice_tally_make. */
struct sluice_tally {
    double *nll;      /* of each token, n_tokens used; owned, with the memory of the next three */
    double *nll_ref;  /* the reference's */
    double *kl;       /* divergence from the reference */
    double *same;     /* 1: the likeliest token is the reference's; 0: it is not */
    size_t n_tokens;  /* used entries of each */
    size_t most;      /* entries of each */
    size_t per_chunk; /* tokens that a chunk has */
};

/* What a tally comes to. All but the first four are NaN without a reference. */
struct sluice_quality {
    uint64_t tokens;              /* scored */
    uint64_t chunks;              /* that they come from */
    double ppl, ppl_se;           /* perplexity: e^nll.mean, and its standard error, values independent */
    struct sluice_mean nll;       /* nats per token */
    double ppl_ref;               /* the reference's perplexity */
    struct sluice_mean nll_more;  /* nll less the reference's, token by token: ln(perplexity / reference's) */
    struct sluice_mean kl;        /* nats per token */
    struct sluice_quantile kl_50; /* median */
    struct sluice_quantile kl_99; /* 99 % of the tokens are below */
    double kl_max;                /* the worst token; a maximum has no standard error to speak of */
    struct sluice_mean same;      /* share of tokens whose likeliest one is the reference's */
};

/* Make room for `most` tokens. False: no memory. */
bool sluice_tally_make(struct sluice_tally *t, uint64_t most);

/* One more token. Without a reference, nll_ref, kl and same are NaN. */
void sluice_tally_add(struct sluice_tally *t, double nll, double nll_ref, double kl, double same);

/* Free it; it is empty then. */
void sluice_tally_free(struct sluice_tally *t);

/* The sums. Sorts kl, so this comes last. */
void sluice_tally_finish(struct sluice_tally *t, bool with_reference, struct sluice_quality *out);

/* The mean of n values in chunks of per_chunk (the last may be shorter; it is left out of se_chunk then). */
void sluice_mean_of(const double *v, size_t n, size_t per_chunk, struct sluice_mean *out);

/* The share q (0..1) of n SORTED values lies below this. */
void sluice_quantile_of(const double *v, size_t n, double q, struct sluice_quantile *out);

#endif
