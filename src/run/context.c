/*
 * context.c - the llama_context of a runner: its settings, and the micro-batch that suits a prompt.
 *
 * Logical and physical batch are the same size, so that one llama_decode is one graph: progress can be shown
 * between them and the comparison can replay them one by one. Only the last row of a batch has logits
 * (n_outputs_max): a row per prompt token is 600 KB of memory and a matmul with the largest dense weight each, for
 * nothing.
 */
#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>

#include "run/internal.h"
#include "run/ubatch.h"

void sluice_runner_trim(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/* llama.cpp polls this between the nodes of a graph. */
static bool on_abort(void *user) {
    return sluice_runner_interrupted(user);
}

struct llama_context *sluice_context_new(struct sluice_runner *r, uint32_t n_ubatch) {
    const struct sluice_runner_params *p = &r->params;
    struct llama_context_params cp = llama_context_default_params();
    cp.n_ctx = p->n_ctx;
    cp.n_batch = cp.n_ubatch = n_ubatch;
    cp.n_outputs_max = r->params.n_outputs ? r->params.n_outputs : 1;
    cp.n_threads = cp.n_threads_batch = p->n_threads;
    cp.abort_callback = on_abort;
    cp.abort_callback_data = r;
    cp.offload_kqv = false;
    cp.op_offload = false;
    return llama_init_from_model(r->model, cp);
}

/* Make a context for a prompt of so many tokens: see ubatch.c. Leaves r->ctx NULL when llama.cpp makes none. */
static int context_choose(struct sluice_runner *r, uint64_t tokens, struct sluice_error *err) {
    const struct sluice_runner_params *p = &r->params;
    struct sluice_info info;
    if (p->n_ubatch) {
        r->ctx = sluice_context_new(r, p->n_ubatch);
        return 0;
    }
    const int rc = sluice_info_collect(p->gguf, &info, err);
    if (rc) {
        return rc;
    }
    const uint32_t trained = (uint32_t)llama_model_n_ctx_train(r->model);
    for (uint32_t wish = sluice_ubatch_wish(tokens, p->n_ctx ? p->n_ctx : trained);;) {
        struct sluice_ubatch_cost cost = {.refused = true}; /* as when there was no memory for its buffers */
        r->ctx = sluice_context_new(r, wish);
        if (r->ctx && p->streaming && p->settings) {
            struct plan_facts facts;
            plan_facts_read(&facts, "");
            sluice_ubatch_judge(p->settings, &info, tokens, &facts, &cost);
        } else if (r->ctx) {
            return 0; /* nothing is read per micro-batch, and there is no cache to leave memory for */
        }
        const uint32_t next = sluice_ubatch_next(tokens, wish, &cost);
        if (next >= wish) {
            return 0;
        }
        if (r->ctx) {
            llama_free(r->ctx);
            r->ctx = NULL;
            sluice_runner_trim(); /* or the smaller buffers' plan would count what the larger ones left behind */
        }
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
        return sluice_error_set(err, SLUICE_ERR_MEMORY, "no memory for a context of %" PRIu32 " tokens", r->n_ctx);
    }
    char ignored[400]; /* errors that llama.cpp recovered from */
    sluice_log_take(r->params.log, ignored, sizeof ignored);
    return 0;
}

uint32_t sluice_runner_n_ctx(const struct sluice_runner *r) {
    return r->n_ctx;
}

uint32_t sluice_runner_n_ubatch(const struct sluice_runner *r) {
    return r->n_ubatch;
}
