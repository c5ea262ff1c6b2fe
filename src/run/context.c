/*
 * context.c - the llama_context of a runner: its settings, and the micro-batch that suits a prompt.
 *
 * Logical and physical batch are the same size, so that one llama_decode is one graph: progress can be shown
 * between them and the comparison can replay them one by one. Only the last row of a batch has logits
 * (n_outputs_max): a row per prompt token is 600 KB of memory and a matmul with the largest dense weight each, for
 * nothing.
 *
 * In a dry run (dry.c) llama.cpp computes the sizes of its buffers and allocates nothing. The choice is made by the
 * same loop; only what the process would hold is added to what it holds.
 */
#include <inttypes.h>
#include <malloc.h>
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
    r->sampler = sluice_sampler_new(&r->params.sampling, r->vocab);
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
