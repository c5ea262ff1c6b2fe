/*
 * context.c - the llama_context of a runner: its settings, the micro-batch that suits a prompt, and its sampler.
 *
 * Logical and physical batch are the same size, so that one llama_decode is one graph: progress can be shown
 * between them and the comparison can replay them one by one. Only the last row of a batch has logits
 * (n_outputs_max): a row per prompt token is 600 KB of memory and a matmul with the largest dense weight each, for
 * nothing.
 *
 * In a dry run (dry.c) llama.cpp computes the sizes of its buffers and allocates nothing. The choice is made by the
 * same loop; only what the process would hold is added to what it holds.
 *
 * The sampler chain has the order of llama.cpp's own programs: top-k, top-p, min-p, temperature, then the random
 * choice, preceded by the tokens that must never be chosen: those that the model's file says, and with no_end all that
 * end a text. The latter is how measurements get the same number of tokens everywhere; it is the logit bias of
 * llama.cpp's own --ignore-eos, before everything else, so that the likeliest of the other tokens is chosen as if the
 * end had never been a choice. With temperature 0 it is the likeliest token and nothing else.
 */
#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>

#include "cache/error.h"
#include "run/internal.h"
#include "run/ubatch.h"

/* llama.cpp polls this between the nodes of a graph. */
static bool on_abort(void *user) {
    return sluice_runner_interrupted(user);
}

/* Make r->ctx with that micro-batch, and note what it takes. NULL when llama.cpp makes none. */
static void context_make(struct sluice_runner *r, uint32_t n_ubatch) {
    const struct sluice_runner_params *p = &r->params;
    struct llama_context_params cp = llama_context_default_params();
    cp.n_ctx = p->n_ctx;
    cp.n_batch = cp.n_ubatch = n_ubatch;
    cp.n_outputs_max = p->n_outputs ? p->n_outputs : 1;
    cp.n_threads = cp.n_threads_batch = p->n_threads;
    cp.abort_callback = on_abort;
    cp.abort_callback_data = r;
    cp.offload_kqv = false;
    cp.op_offload = false;
    r->sizes = (struct sluice_log_sizes){0};
    sluice_log_collect(p->log, &r->sizes);
    r->ctx = llama_init_from_model(r->model, cp);
    sluice_log_collect(p->log, NULL);
    plan_facts_read(&r->facts, "");
    if (p->dry) {
        const uint64_t kv = (uint64_t)((r->sizes.kv_mib - r->sizes.allocated_mib) * 1024 * 1024);
        r->facts.process.anon += kv;
        r->facts.process.data += kv + sluice_log_compute(&r->sizes);
        r->facts.limits.available -= r->facts.limits.available < kv ? r->facts.limits.available : kv;
    }
}

void sluice_context_free(struct sluice_runner *r) {
    llama_free(r->ctx);
    r->ctx = NULL;
#ifdef __GLIBC__
    malloc_trim(0); /* bionic and musl have no such thing */
#endif
}

/* Make a context for a prompt of `tokens` tokens: see ubatch.c. Leaves r->ctx NULL when llama.cpp makes none. */
static int context_choose(struct sluice_runner *r, uint64_t tokens, struct sluice_error *err) {
    const struct sluice_runner_params *p = &r->params;
    const uint32_t n_ctx = p->n_ctx ? p->n_ctx : (uint32_t)llama_model_n_ctx_train(r->model);
    uint32_t wish = p->n_ubatch ? p->n_ubatch : sluice_ubatch_wish(tokens, n_ctx);
    struct sluice_info info;
    const int rc = sluice_info_collect(p->gguf, &info, err);
    if (rc) {
        return rc;
    }
    for (;;) {
        struct sluice_ubatch_cost cost = {.refused = true}; /* as when there was no memory for its buffers */
        context_make(r, wish);
        if (p->n_ubatch || (r->ctx && !(p->streaming && p->settings))) {
            return 0; /* nothing is read per micro-batch, and there is no cache to leave memory for */
        }
        if (r->ctx) {
            sluice_ubatch_judge(p->settings, &info, tokens, &r->facts, &cost);
        }
        const uint32_t next = sluice_ubatch_next(tokens, wish, &cost);
        if (next >= wish) {
            return 0;
        }
        sluice_context_free(r); /* or the smaller buffers' plan would count what the larger ones left behind */
        wish = next;
    }
}

/* Add the tokens that must not be chosen, as a logit bias. False: no memory. */
static bool add_suppressed(struct llama_sampler *chain, const struct llama_vocab *vocab, bool no_end) {
    int32_t n_listed = 0, n = 0;
    const int32_t n_vocab = llama_vocab_n_tokens(vocab);
    const llama_token *tokens = llama_vocab_get_suppress_tokens(vocab, &n_listed);
    n_listed = tokens && n_listed > 0 ? n_listed : 0;
    llama_logit_bias *bias = calloc((size_t)n_listed + (size_t)n_vocab + 1, sizeof *bias);
    for (int32_t i = 0; bias && i < n_listed; i++) {
        bias[n++] = (llama_logit_bias){.token = tokens[i], .bias = -INFINITY};
    }
    for (llama_token t = 0; bias && no_end && t < n_vocab; t++) {
        if (llama_vocab_is_eog(vocab, t)) {
            bias[n++] = (llama_logit_bias){.token = t, .bias = -INFINITY};
        }
    }
    if (n > 0) {
        llama_sampler_chain_add(chain, llama_sampler_init_logit_bias(n_vocab, n, bias));
    }
    free(bias);
    return bias != NULL;
}

/* The sampler chain for these settings; NULL when there is no memory. */
static struct llama_sampler *sampler_new(const struct sluice_sampling *s, const struct llama_vocab *vocab) {
    struct llama_sampler_chain_params params = llama_sampler_chain_default_params();
    params.no_perf = true;
    struct llama_sampler *chain = llama_sampler_chain_init(params);
    if (!add_suppressed(chain, vocab, s->no_end)) {
        llama_sampler_free(chain);
        return NULL;
    }
    if (s->temp <= 0) {
        llama_sampler_chain_add(chain, llama_sampler_init_greedy());
        return chain;
    }
    llama_sampler_chain_add(chain, llama_sampler_init_top_k(s->top_k));
    llama_sampler_chain_add(chain, llama_sampler_init_top_p(s->top_p, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_min_p(s->min_p, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_temp(s->temp));
    llama_sampler_chain_add(chain, llama_sampler_init_dist(s->seed));
    return chain;
}

int sluice_runner_start(struct sluice_runner *r, uint64_t tokens, struct sluice_error *err) {
    int rc = context_choose(r, tokens, err);
    if (rc) {
        return rc;
    }
    if (!r->ctx) {
        return sluice_runner_reason(r, "no context could be made (less -c needs less memory)", err);
    }
    r->n_ctx = llama_n_ctx(r->ctx);
    r->n_ubatch = llama_n_ubatch(r->ctx);
    r->kv = malloc(r->n_ctx * sizeof *r->kv);
    r->batch = llama_batch_init((int32_t)r->n_ubatch, 0, 1);
    r->sampler = sampler_new(&r->params.sampling, r->vocab);
    if (!r->kv || !r->batch.token || !r->sampler) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory for a context of %" PRIu32 " tokens", r->n_ctx);
    }
    sluice_log_take(r->params.log, NULL, 0); /* errors that llama.cpp recovered from */
    return 0;
}

uint32_t sluice_runner_n_ctx(const struct sluice_runner *r) {
    return r->n_ctx;
}

uint32_t sluice_runner_n_ubatch(const struct sluice_runner *r) {
    return r->n_ubatch;
}
