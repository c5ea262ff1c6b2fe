/*
 * prompt_cache.c - see prompt_cache.h.
 *
 * What is kept is llama.cpp's state of the sequence (KV cache, recurrent state), the tokens, and the logits of the last
 * one. With the logits the same prompt needs no computation at all and gives the same text to the bit; without them the
 * last token would be computed again, alone, and a batch of one rounds differently from the prompt's. The sampler needs
 * nothing: it has seen no token before the first one that it chooses, so the seed is all of its state.
 *
 * The promise: the restored part has the bytes that the saving run computed, and the same prompt continues as it did
 * there. A longer prompt is computed from where the file ends, so in other micro-batches than without the file, which
 * llama.cpp rounds differently (as with its own prompt caching).
 *
 * A state can be used only where everything that went into it is the same: the model, and whatever of llama.cpp's
 * version, processor and settings changes its numbers or their layout. These are lines of text in the file, compared
 * whole.
 */
#include "run/prompt_cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/error.h"
#include "run/identity.h"
#include "run/internal.h"
#include "run/prompt_file.h"

struct sluice_prompt_cache {
    struct sluice_runner *r;          /* not owned */
    const char *path;                 /* not owned */
    char *facts;                      /* of this run, owned */
    size_t n_facts;                   /* bytes */
    struct sluice_prompt_file *file;  /* verified; NULL: none that can be used */
    struct sluice_prompt_parts parts; /* of it */
    char refused[512];                /* why there is none, "" when there is no reason to tell */
};

/* Settings that leave experts out change what is computed, as a model does. */
static void lossy_facts(FILE *f, const struct sluice_settings *s) {
    fprintf(f, "setting of --drop-cold-experts=");
    if (s && s->drop_cold_experts > 0) {
        fprintf(f, "%.9g %d %d %d %s", s->drop_cold_experts, s->drop_renorm, s->drop_in_prefill, s->drop_reproducible,
                s->cold_model);
    }
    fputc('\n', f);
}

/* Everything that the state depends on. The keys are what a user is told when one differs. */
static int make_facts(struct sluice_prompt_cache *c, struct sluice_error *err) {
    const struct sluice_runner_params *p = &c->r->params;
    const struct llama_context_params cp = llama_context_default_params(); /* context.c changes none of these */
    struct sluice_identity id;
    const int rc = sluice_model_identity(p->gguf, &id, err);
    if (rc) {
        return rc;
    }
    FILE *f = open_memstream(&c->facts, &c->n_facts);
    if (f) {
        fprintf(f, "model=%s\n", id.files);
        fprintf(f, "llama.cpp=%s\n", llama_version());
        fprintf(f, "context size=%" PRIu32 "\n", p->n_ctx);
        fprintf(f, "experts per token=%" PRIu32 "\n", p->n_expert_used);
        fprintf(f, "type of K=%d\ntype of V=%d\n", (int)cp.type_k, (int)cp.type_v);
        fprintf(f, "attention=%d %d %d\n", (int)cp.flash_attn_type, cp.swa_full, cp.kv_unified);
        lossy_facts(f, p->settings);
        fprintf(f, "processor=%s\n", llama_print_system_info());
    }
    if (!f || fclose(f)) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory");
    }
    return 0;
}

int sluice_prompt_cache_open(struct sluice_prompt_cache **out, struct sluice_runner *r, const char *path,
                             struct sluice_error *err) {
    struct sluice_error why;
    bool absent;
    *out = NULL;
    struct sluice_prompt_cache *c = calloc(1, sizeof *c);
    if (!c) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory");
    }
    c->r = r;
    c->path = path;
    const int rc = make_facts(c, err);
    if (rc) {
        sluice_prompt_cache_free(c);
        return rc;
    }
    if (sluice_prompt_file_open(&c->file, path, &c->parts, &absent, &why)) {
        if (!absent) {
            snprintf(c->refused, sizeof c->refused, "%.400s: the prompt is read from its start", why.message);
        }
    } else {
        (void)sluice_prompt_parts_fit(&c->parts, c->facts, c->n_facts, sluice_runner_n_vocab(r), c->path, c->refused,
                                      sizeof c->refused);
    }
    if (c->refused[0]) {
        sluice_prompt_file_close(c->file);
        c->file = NULL;
    }
    *out = c;
    return 0;
}

void sluice_prompt_cache_free(struct sluice_prompt_cache *c) {
    if (c) {
        sluice_prompt_file_close(c->file);
        free(c->facts);
        free(c);
    }
}

const char *sluice_prompt_cache_refused(const struct sluice_prompt_cache *c) {
    return c->refused[0] ? c->refused : NULL;
}

/* How many tokens the file begins with as well. */
static uint64_t same_tokens(const struct sluice_prompt_cache *c, const int32_t *tokens, size_t n) {
    return c->file ? sluice_prompt_parts_same(&c->parts, tokens, n) : 0;
}

uint64_t sluice_prompt_cache_match(const struct sluice_prompt_cache *c, const int32_t *tokens, size_t n) {
    const uint64_t same = same_tokens(c, tokens, n);
    /* Of a prompt that ends inside of what the file holds there are no logits: compute its last token. */
    return same && same == n && n < c->parts.n_tokens ? same - 1 : same;
}

/* The state into the empty context. */
static bool load_state(struct sluice_prompt_cache *c) {
    struct sluice_runner *r = c->r;
    llama_memory_t memory = llama_get_memory(r->ctx);
    const uint64_t n = c->parts.n_tokens;
    const bool ok = n <= r->n_ctx &&
                    llama_state_seq_set_data(r->ctx, c->parts.state, c->parts.n_state, 0) == c->parts.n_state &&
                    llama_memory_seq_pos_max(memory, 0) + 1 == (llama_pos)n;
    sluice_log_take(r->params.log, NULL, 0);
    if (!ok) {
        llama_memory_clear(memory, true);
        return false;
    }
    memcpy(r->kv, c->parts.tokens, n * sizeof *r->kv);
    r->n_kv = (uint32_t)n;
    return true;
}

uint64_t sluice_prompt_cache_restore(struct sluice_prompt_cache *c, uint64_t n_tokens) {
    struct sluice_runner *r = c->r;
    if (n_tokens == 0 || !c->file) {
        return 0;
    }
    if (!load_state(c)) {
        snprintf(c->refused, sizeof c->refused, "%s: not used, llama.cpp does not take its state", c->path);
        return 0;
    }
    if (n_tokens < c->parts.n_tokens) {
        return sluice_runner_keep(r, (uint32_t)n_tokens);
    }
    r->logits = malloc(c->parts.n_logits * sizeof *r->logits);
    if (!r->logits) {
        return sluice_runner_keep(r, 0);
    }
    memcpy(r->logits, c->parts.logits, c->parts.n_logits * sizeof *r->logits);
    return n_tokens;
}

int sluice_prompt_cache_save(struct sluice_prompt_cache *c, struct sluice_error *err) {
    struct sluice_runner *r = c->r;
    if (same_tokens(c, r->kv, r->n_kv) == r->n_kv) {
        return 0;
    }
    const struct sluice_settings *set = r->params.settings;
    if (!(set && set->drop_cold_experts > 0) && sluice_runner_given_up()) { /* changed while it ran: no fact says so */
        return sluice_fail(err, SLUICE_ERR_STATE,
                           "%s: experts were left out meanwhile, which this run's settings do not say", c->path);
    }
    struct sluice_prompt_parts parts = {
        .facts = c->facts,
        .tokens = r->kv,
        .logits = llama_get_logits_ith(r->ctx, -1),
        .n_facts = c->n_facts,
        .n_tokens = r->n_kv,
        .n_logits = sluice_runner_n_vocab(r),
        .n_state = llama_state_seq_get_size(r->ctx, 0),
    };
    struct sluice_prompt_file *f;
    if (!parts.logits || !parts.n_state) {
        return sluice_fail(err, SLUICE_ERR_LLAMA, "%s: llama.cpp gives no state of this model", c->path);
    }
    int rc = sluice_prompt_file_create(&f, c->path, &parts, err);
    if (rc == 0 && llama_state_seq_get_data(r->ctx, parts.state, parts.n_state, 0) != parts.n_state) {
        rc = sluice_fail(err, SLUICE_ERR_LLAMA, "%s: llama.cpp gives no state of this model", c->path);
    }
    rc = rc ? rc : sluice_prompt_file_commit(f, err);
    sluice_prompt_file_close(f);
    return rc;
}
