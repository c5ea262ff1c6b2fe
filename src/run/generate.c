/*
 * generate.c - text to tokens, tokens to text, and the loop between.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cache/clock.h"
#include "cache/error.h"
#include "run/internal.h"
#include "run/utf8.h"

/* Text that is generated but not complete UTF-8 yet. */
struct held {
    char *text; /* cap bytes, owned */
    size_t n;   /* bytes held back */
    size_t cap; /* bytes allocated */
};

int sluice_runner_tokenize(struct sluice_runner *r, const char *text, size_t n, bool first, bool markup, int32_t **out,
                           size_t *n_out, struct sluice_error *err) {
    *out = NULL;
    *n_out = 0;
    if (n > INT32_MAX / 2) {
        return sluice_fail(err, SLUICE_ERR_ARG, "a text of %zu bytes is too long", n);
    }
    /* A token is at least one byte, plus BOS and EOS and a prefix space. */
    size_t cap = n + 8;
    int32_t *tokens = malloc(cap * sizeof *tokens);
    if (!tokens) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory for %zu tokens", cap);
    }
    int32_t got = llama_tokenize(r->vocab, text, (int32_t)n, tokens, (int32_t)cap, first, markup);
    if (got < 0 && got != INT32_MIN) { /* not seen with any tokenizer, but the interface allows it */
        cap = (size_t)-got;
        int32_t *more = realloc(tokens, cap * sizeof *tokens);
        if (more) {
            tokens = more;
            got = llama_tokenize(r->vocab, text, (int32_t)n, tokens, (int32_t)cap, first, markup);
        }
    }
    if (got < 0) {
        free(tokens);
        return sluice_fail(err, SLUICE_ERR_LLAMA, "the text could not be split into tokens");
    }
    *out = tokens;
    *n_out = (size_t)got;
    return 0;
}

/* Append the text of one token. Control tokens have none. */
static int hold_piece(struct held *h, const struct llama_vocab *vocab, int32_t token, struct sluice_error *err) {
    for (;;) {
        int32_t room = (int32_t)(h->cap - h->n);
        int32_t got = llama_token_to_piece(vocab, token, h->text + h->n, room, 0, false);
        if (got >= 0) {
            h->n += (size_t)got;
            return 0;
        }
        size_t cap = h->n + (size_t)-got;
        char *more = cap > h->cap ? realloc(h->text, cap) : NULL;
        if (!more) {
            return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory for the text of a token");
        }
        h->text = more;
        h->cap = cap;
    }
}

/* Pass on what is complete; everything with `all`. False when the caller wants no more. */
static bool hold_release(struct held *h, bool all, sluice_text_fn text, void *user) {
    size_t ready = all ? h->n : sluice_utf8_ready(h->text, h->n);
    bool more = true;
    if (ready && text) {
        more = text(user, h->text, ready);
    }
    memmove(h->text, h->text + ready, h->n - ready);
    h->n -= ready;
    return more;
}

/* Choose a token; from restored logits as llama_sampler_sample does it from the context's. */
static int sample(struct sluice_runner *r, llama_token *out, struct sluice_error *err) {
    if (!r->logits) {
        *out = llama_sampler_sample(r->sampler, r->ctx, -1);
        return 0;
    }
    const int32_t n = llama_vocab_n_tokens(r->vocab);
    llama_token_data *data = malloc((size_t)n * sizeof *data);
    if (!data) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory for %" PRId32 " logits", n);
    }
    for (llama_token t = 0; t < n; t++) {
        data[t] = (llama_token_data){.id = t, .logit = r->logits[t]};
    }
    llama_token_data_array all = {.data = data, .size = (size_t)n, .selected = -1};
    llama_sampler_apply(r->sampler, &all);
    const bool chosen = all.selected >= 0 && (size_t)all.selected < all.size;
    if (chosen) {
        *out = all.data[all.selected].id;
        llama_sampler_accept(r->sampler, *out);
    }
    free(data);
    return chosen ? 0 : sluice_fail(err, SLUICE_ERR_LLAMA, "no token could be chosen");
}

/* The loop. Leaves in *h what could not be shown yet. */
static int generate_loop(struct sluice_runner *r, int64_t n_max, struct held *h, sluice_text_fn text, void *user,
                         struct sluice_generated *out, struct sluice_error *err) {
    while (n_max < 0 || out->tokens < (uint64_t)n_max) {
        llama_token token;
        int rc = sample(r, &token, err);
        if (rc) {
            return rc;
        }
        if (out->first_at == 0) {
            out->first_at = clock_seconds();
        }
        if (llama_vocab_is_eog(r->vocab, token)) {
            out->stop = SLUICE_STOP_END;
            return 0;
        }
        out->tokens++;
        r->pending = token;
        rc = hold_piece(h, r->vocab, token, err);
        if (rc) {
            return rc;
        }
        if (!hold_release(h, false, text, user)) {
            out->stop = SLUICE_STOP_CALLER;
            return 0;
        }
        if (n_max >= 0 && out->tokens == (uint64_t)n_max) {
            break; /* the last token is not computed: nobody asked for what follows it */
        }
        if (r->n_kv >= r->n_ctx) {
            out->stop = SLUICE_STOP_CONTEXT;
            return 0;
        }
        rc = sluice_runner_decode(r, SLUICE_PHASE_GENERATION, &token, 1, &out->stop, err);
        if (rc || out->stop) {
            return rc;
        }
        r->pending = -1;
        out->steps++;
        out->steps_s += r->step.wall_s;
    }
    out->stop = SLUICE_STOP_LENGTH;
    return 0;
}

int sluice_runner_generate(struct sluice_runner *r, int64_t n_max, sluice_text_fn text, void *user,
                           struct sluice_generated *out, struct sluice_error *err) {
    struct held h = {.cap = 64};
    memset(out, 0, sizeof *out);
    h.text = malloc(h.cap);
    if (!h.text) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory for text");
    }
    int rc = generate_loop(r, n_max, &h, text, user, out, err);
    if (rc == 0 && out->stop != SLUICE_STOP_CALLER) {
        hold_release(&h, true, text, user); /* a sequence that nothing completes any more */
    }
    free(h.text);
    return rc;
}
