/*
 * runner.c - open and close a model, and compute tokens.
 *
 * Loads with the settings under which streaming promises the bytes of the resident run: memory
 * mapped, no weight repacking (use_extra_bufts: repacked kernels sum in another order), nothing
 * offloaded. The context comes later (context.c), when the prompt has been split into tokens and its
 * length is known; only the model can split it.
 *
 * When llama_decode fails, its return code says only that it did. The reason is asked for in this
 * order: sluice (which file, offset and tensor could not be read), then llama.cpp's error log.
 */
#include "run/runner.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/clock.h"
#include "cache/error.h"
#include "run/internal.h"
#include "run/record.h"

static void on_log(enum ggml_log_level level, const char *text, void *log) {
    sluice_log_line(log, level, text);
}

void sluice_runner_setup(struct sluice_log *log, const char *program) {
    sluice_log_install(log, program);
    llama_log_set(on_log, log);
    /*
     * ggml_backend_load_all also loads what GGML_BACKEND_PATH names. In this process that must not be
     * the plug-in: the same code is linked in, and the experts would be offered to two devices.
     */
    const char *path = getenv("GGML_BACKEND_PATH");
    if (path && strstr(path, "ggml-sluice")) {
        unsetenv("GGML_BACKEND_PATH");
    }
    if (!ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU)) {
        ggml_backend_load_all();
    }
    /* It looks beside the program and in the current directory; ours may lie beside libggml instead. */
    Dl_info where;
    if (!ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) && dladdr((void *)ggml_backend_load_all, &where)) {
        char dir[4096];
        const char *slash = strrchr(where.dli_fname, '/');
        int n = slash ? (int)(slash - where.dli_fname) : -1;
        if (n > 0 && n < (int)sizeof dir) {
            snprintf(dir, sizeof dir, "%.*s", n, where.dli_fname);
            ggml_backend_load_all_from_path(dir);
        }
    }
}

double sluice_clock(void) {
    return clock_seconds();
}

int sluice_cpu_count(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) {
        return CPU_COUNT(&set);
    }
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

bool sluice_runner_interrupted(const struct sluice_runner *r) {
    return r->params.hooks.interrupted && r->params.hooks.interrupted(r->params.hooks.user);
}

/* llama.cpp calls this while it loads; false cancels the load. */
static bool on_load(float fraction, void *user) {
    const struct sluice_runner *r = user;
    if (r->params.hooks.loading) {
        r->params.hooks.loading(r->params.hooks.user, (double)fraction);
    }
    return !sluice_runner_interrupted(r);
}

int sluice_runner_reason(struct sluice_runner *r, const char *what, struct sluice_error *err) {
    struct sluice_error streamed;
    char logged[400];
    bool has_log = sluice_log_take(r->params.log, logged, sizeof logged);
    if (r->params.streaming && sluice_take_error(&streamed)) {
        return sluice_fail(err, streamed.status, "%s", streamed.message);
    }
    if (has_log) {
        return sluice_fail(err, SLUICE_ERR_LLAMA, "%s: %s", what, logged);
    }
    return sluice_fail(err, SLUICE_ERR_LLAMA, "%s: llama.cpp failed without a reason", what);
}

static int runner_load(struct sluice_runner *r, struct sluice_error *err) {
    const struct sluice_gguf *g = r->params.gguf;
    struct llama_model_kv_override overrides[2];
    struct llama_model_params mp = llama_model_default_params();
    mp.use_extra_bufts = false;
    mp.load_mode = r->params.dry ? LLAMA_LOAD_MODE_NONE : LLAMA_LOAD_MODE_MMAP;
    mp.no_alloc = r->params.dry;
    mp.n_gpu_layers = 0;
    mp.progress_callback = on_load;
    mp.progress_callback_user_data = r;
    if (r->params.n_expert_used) {
        memset(overrides, 0, sizeof overrides); /* the second one ends the list */
        overrides[0].tag = LLAMA_KV_OVERRIDE_TYPE_INT;
        overrides[0].val_i64 = r->params.n_expert_used;
        snprintf(overrides[0].key, sizeof overrides[0].key, "%s.expert_used_count", g->architecture);
        mp.kv_overrides = overrides;
    }
    sluice_set_streaming(r->params.streaming);
    r->model = llama_model_load_from_file(g->shards[0].path, mp);
    sluice_set_streaming(true);
    if (!r->model) {
        if (sluice_runner_interrupted(r)) {
            return sluice_fail(err, SLUICE_ERR_STATE, "interrupted");
        }
        return sluice_runner_reason(r, g->shards[0].path, err);
    }
    r->vocab = llama_model_get_vocab(r->model);
    if (llama_model_has_encoder(r->model) || !llama_model_has_decoder(r->model)) {
        return sluice_fail(err, SLUICE_ERR_ARG, "%s: not a text generation model (it has an encoder)",
                           g->shards[0].path);
    }
    if (llama_model_is_diffusion(r->model)) {
        return sluice_fail(err, SLUICE_ERR_ARG, "%s: a diffusion model does not generate token by token",
                           g->shards[0].path);
    }
    if (llama_vocab_type(r->vocab) == LLAMA_VOCAB_TYPE_NONE) {
        return sluice_fail(err, SLUICE_ERR_ARG, "%s: has no tokenizer, so it cannot read text", g->shards[0].path);
    }
    return 0;
}

int sluice_runner_open(struct sluice_runner **out, const struct sluice_runner_params *p, struct sluice_error *err) {
    *out = NULL;
    struct sluice_runner *r = calloc(1, sizeof *r);
    if (!r) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory");
    }
    r->params = *p;
    r->pending = -1;
    llama_backend_init();
    int rc = runner_load(r, err);
    if (rc) {
        sluice_runner_free(r);
        return rc;
    }
    sluice_log_take(p->log, NULL, 0); /* errors that llama.cpp recovered from */
    *out = r;
    return 0;
}

void sluice_runner_free(struct sluice_runner *r) {
    if (!r) {
        return;
    }
    llama_sampler_free(r->sampler);
    if (r->batch.token) {
        llama_batch_free(r->batch);
    }
    sluice_context_free(r);
    llama_model_free(r->model);
    free(r->logits);
    free(r->kv);
    free(r);
}

uint32_t sluice_runner_n_used(const struct sluice_runner *r) {
    return r->n_kv;
}

uint32_t sluice_runner_n_vocab(const struct sluice_runner *r) {
    return (uint32_t)llama_vocab_n_tokens(r->vocab);
}

void sluice_runner_record(struct sluice_runner *r, struct sluice_record *record) {
    r->record = record;
}

/*
 * After a batch that did not complete: llama.cpp has removed its positions where the kind of memory
 * allows that. Where it does not (recurrent state), what is left is of no use: forget everything.
 */
static void runner_after_abort(struct sluice_runner *r) {
    llama_memory_t memory = llama_get_memory(r->ctx);
    if (llama_memory_seq_pos_max(memory, 0) + 1 != (llama_pos)r->n_kv) {
        llama_memory_clear(memory, true);
        r->n_kv = 0;
        r->pending = -1;
    }
}

bool sluice_runner_progress(const struct sluice_runner *r, uint64_t done, uint64_t total) {
    if (r->params.hooks.prompt) {
        r->params.hooks.prompt(r->params.hooks.user, done, total);
    }
    return done < total && sluice_runner_interrupted(r);
}

int sluice_runner_compute(struct sluice_runner *r, enum sluice_phase phase, const int32_t *tokens, uint32_t n,
                          uint32_t first_row, enum sluice_stop *stop, struct sluice_error *err) {
    *stop = SLUICE_STOP_NONE;
    free(r->logits); /* of an earlier token now */
    r->logits = NULL;
    r->batch.n_tokens = (int32_t)n;
    for (uint32_t i = 0; i < n; i++) {
        r->batch.token[i] = tokens[i];
        r->batch.pos[i] = (llama_pos)(r->n_kv + i);
        r->batch.n_seq_id[i] = 1;
        r->batch.seq_id[i][0] = 0;
        r->batch.logits[i] = i >= first_row;
    }
    sluice_route_trace_mark(r->feeds ? r->feeds - 1 : 0, phase, r->n_kv);
    sluice_step_begin();
    int rc = llama_decode(r->ctx, r->batch);
    sluice_step_end(phase, rc == 0 ? n : 0, &r->step);
    if (rc == 2) {
        sluice_log_take(r->params.log, NULL, 0);
        runner_after_abort(r);
        *stop = SLUICE_STOP_INTERRUPTED;
        return 0;
    }
    if (rc == 1) {
        return sluice_fail(err, SLUICE_ERR_STATE, "the context of %" PRIu32 " tokens is full", r->n_ctx);
    }
    if (rc != 0) {
        runner_after_abort(r);
        return sluice_runner_reason(r, "a batch could not be computed", err);
    }
    memcpy(r->kv + r->n_kv, tokens, n * sizeof *tokens);
    r->n_kv += n;
    if (r->params.hooks.step) {
        r->params.hooks.step(r->params.hooks.user, &r->step);
    }
    return 0;
}

int sluice_runner_decode(struct sluice_runner *r, enum sluice_phase phase, const int32_t *tokens, uint32_t n,
                         enum sluice_stop *stop, struct sluice_error *err) {
    int rc = sluice_runner_compute(r, phase, tokens, n, n - 1, stop, err);
    if (rc || *stop || !r->record) {
        return rc;
    }
    return sluice_record_add(r->record, tokens, n, llama_get_logits_ith(r->ctx, -1), sluice_runner_n_vocab(r), err);
}

/* The batches of a feed whose tokens are known to fit. */
static int runner_feed_all(struct sluice_runner *r, const int32_t *tokens, size_t n, enum sluice_stop *stop,
                           struct sluice_error *err) {
    sluice_runner_progress(r, 0, n);
    for (size_t done = 0; done < n;) {
        uint32_t part = n - done < r->n_ubatch ? (uint32_t)(n - done) : r->n_ubatch;
        int rc = sluice_runner_decode(r, SLUICE_PHASE_PROMPT, tokens + done, part, stop, err);
        if (rc || *stop) {
            return rc;
        }
        done += part;
        if (sluice_runner_progress(r, done, n)) {
            *stop = SLUICE_STOP_INTERRUPTED;
            return 0;
        }
    }
    return 0;
}

int sluice_runner_feed(struct sluice_runner *r, const int32_t *tokens, size_t n, enum sluice_stop *stop,
                       struct sluice_error *err) {
    size_t extra = r->pending >= 0 ? 1 : 0;
    *stop = SLUICE_STOP_NONE;
    r->feeds++;
    sluice_generation_begin();
    if (n + extra > r->n_ctx - r->n_kv) {
        return sluice_fail(err, SLUICE_ERR_STATE,
                           "%zu more tokens do not fit: %" PRIu32 " of the context's %" PRIu32 " are in use", n + extra,
                           r->n_kv, r->n_ctx);
    }
    if (!extra) {
        return runner_feed_all(r, tokens, n, stop, err);
    }
    int32_t *all = malloc((n + 1) * sizeof *all);
    if (!all) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory for %zu tokens", n + 1);
    }
    all[0] = r->pending;
    memcpy(all + 1, tokens, n * sizeof *tokens);
    r->pending = -1;
    uint32_t before = r->n_kv;
    int rc = runner_feed_all(r, all, n + 1, stop, err);
    if ((rc || *stop) && r->n_kv == before) {
        r->pending = all[0]; /* nothing happened: it is still to be computed */
    }
    free(all);
    return rc;
}

uint32_t sluice_runner_keep(struct sluice_runner *r, uint32_t n) {
    llama_memory_t memory = llama_get_memory(r->ctx);
    r->pending = -1;
    if (n >= r->n_kv) {
        return r->n_kv;
    }
    if (n == 0 || !llama_memory_seq_rm(memory, 0, (llama_pos)n, -1)) {
        llama_memory_clear(memory, true);
        n = 0;
    }
    r->n_kv = n;
    return n;
}

uint32_t sluice_runner_match(const struct sluice_runner *r, const int32_t *tokens, size_t n) {
    uint32_t i = 0;
    while (i < r->n_kv && i < n && r->kv[i] == tokens[i]) {
        i++;
    }
    return i;
}

uint64_t sluice_runner_given_up(void) {
    struct sluice_stats st;
    sluice_get_stats(&st);
    const struct sluice_drop_stats *p = &st.prompt.drop, *g = &st.generation.drop;
    return p->dropped + p->substituted + g->dropped + g->substituted;
}
