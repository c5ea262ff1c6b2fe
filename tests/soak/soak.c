/*
 * soak.c - a long run in which everything happens at once: several threads generate, the cache's budget is
 * changed at random all the while, generations are cancelled, contexts are freed and made anew, reads fail.
 * Every logit that is computed must be the one of the resident run, to the bit.
 *
 * First some texts are generated with the model resident, one token at a time after a short prompt, and
 * all logits are kept. Then the same texts are generated again and again with the model streaming. A step
 * that is cancelled or fails is tried again in the same context, or the context is freed; either way it
 * must go on correctly. A failure must have a cause: cancelled steps were asked to be, and failed ones
 * are at most as many as reads failed (for each thread, since all that wait for a read are told).
 *
 * What happens is drawn from the seed; when it happens also depends on how threads run. A soak in which
 * something did not happen at all proves nothing and fails.
 *
 * With --rounds it does so again and again, with the models that it is given in turn, each loaded and freed. When
 * nothing is loaded the process must have as many descriptors and threads as the last time, and the counters must fit
 * together at any time (quiet.c). tests/endurance/ runs it for hours' worth of tokens and watches its memory.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ggml-backend.h"
#include "llama.h"

#include "sluice.h"
#include "soak.h"

enum {
    TEXTS = 4,      /* generated again and again */
    STEPS = 30,     /* tokens of each after its prompt */
    PROMPT = 12,    /* tokens of the longest prompt */
    TEAMS = 2,      /* resident runs: with one compute thread and with two */
    WORKERS = 2,    /* threads that generate at once */
    N_CTX = 256,    /* tokens */
    NAP_NS = 50000, /* of a thread that waits, between two looks */
    AHEAD = 24,     /* tokens that workers may be ahead of the resizer */
    MODELS = 16,    /* files at most */
};

struct text {
    int n_prompt;                      /* tokens of the prompt, one batch */
    llama_token token[PROMPT + STEPS]; /* all */
    float *logits[TEAMS];              /* the resident run's: a row per token, [PROMPT + STEPS][n_vocab] */
};

static struct {
    const char *path;              /* of the model in turn */
    const char *trace;             /* file for route traces; NULL: none are written */
    uint64_t seed;                 /* of everything */
    uint64_t draw;                 /* the same of this round */
    uint32_t tokens;               /* to compute, each round */
    uint32_t rounds;               /* models loaded and freed */
    struct sluice_settings set;    /* of sluice */
    int n_vocab;                   /* logits in a row of the model in turn */
    struct text *text;             /* of the model in turn: TEXTS of them */
    struct llama_model *model;     /* the one that streams */
    _Atomic uint32_t done;         /* tokens computed and compared this round */
    _Atomic uint32_t working;      /* workers that have not ended */
    _Atomic uint32_t changed;      /* tokens computed this round when the budget was last changed */
    _Atomic uint32_t cancelled;    /* steps */
    _Atomic uint32_t failed;       /* steps */
    _Atomic uint32_t explained;    /* of those, with the reason that the disk gave */
    _Atomic uint32_t contexts;     /* made */
    _Atomic uint32_t resizes;      /* that worked */
    _Atomic uint32_t refused;      /* that did not, as they should not */
    _Atomic uint32_t traces;       /* route traces written */
    _Atomic uint32_t full;         /* of those, to a disk that is full */
    _Atomic uint32_t full_told;    /* of those, ended with an error */
    struct soak_counters counters; /* the last look at them */
    uint64_t total;                /* tokens computed and compared in all */
    _Atomic bool broken;           /* something is wrong: all end */
} soak;

__attribute__((format(printf, 1, 2))) static void broken(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    flockfile(stderr);
    fputs("soak: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    funlockfile(stderr);
    va_end(ap);
    atomic_store(&soak.broken, true);
}

static void no_log(enum ggml_log_level level, const char *text, void *user) {
    (void)level;
    (void)text;
    (void)user;
}

/* ---- decoding -------------------------------------------------------------------------------- */

/* When a step is to be cancelled. */
struct cancel {
    _Atomic int after; /* calls of the callback that go on; negative: all */
    _Atomic bool fired;
};

static bool on_poll(void *user) {
    struct cancel *c = user;
    if (atomic_load(&c->after) < 0 || atomic_fetch_sub(&c->after, 1) > 0) {
        return atomic_load(&c->fired);
    }
    atomic_store(&c->fired, true);
    return true;
}

static struct llama_context *new_context(struct llama_model *model, int threads, struct cancel *cancel) {
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = N_CTX;
    p.n_threads = p.n_threads_batch = threads;
    p.abort_callback = cancel ? on_poll : NULL;
    p.abort_callback_data = cancel;
    return llama_init_from_model(model, p);
}

/* Decode the tokens [at, at + n) of a text. */
static int decode(struct llama_context *ctx, const struct text *t, int at, int n) {
    struct llama_batch b = llama_batch_init(n, 0, 1);
    b.n_tokens = n;
    for (int i = 0; i < n; i++) {
        b.token[i] = t->token[at + i];
        b.pos[i] = at + i;
        b.n_seq_id[i] = 1;
        b.seq_id[i][0] = 0;
        b.logits[i] = 1;
    }
    const int rc = llama_decode(ctx, b);
    llama_batch_free(b);
    return rc;
}

/* Make the texts, with the model resident. */
static bool make_texts(void) {
    sluice_set_streaming(false);
    struct llama_model_params p = llama_model_default_params();
    p.use_extra_bufts = false;
    struct llama_model *model = llama_model_load_from_file(soak.path, p);
    if (!model) {
        broken("%s: cannot be loaded", soak.path);
        return false;
    }
    uint64_t seed = soak.seed;
    soak.n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    for (int i = 0; i < TEXTS * TEAMS && !soak.broken; i++) {
        struct text *t = &soak.text[i / TEAMS];
        const int team = i % TEAMS;
        struct llama_context *ctx = new_context(model, team + 1, NULL);
        float *rows = t->logits[team] = calloc((size_t)(PROMPT + STEPS) * (size_t)soak.n_vocab, sizeof *rows);
        if (!ctx || !rows) {
            broken("out of memory");
            llama_free(ctx);
            break;
        }
        if (team == 0) {
            t->n_prompt = 1 + (int)(soak_random(&seed) % PROMPT);
            for (int k = 0; k < t->n_prompt; k++) {
                t->token[k] = (llama_token)(soak_random(&seed) % (uint32_t)soak.n_vocab);
            }
        }
        for (int at = 0; at < t->n_prompt + STEPS - 1;) {
            const int n = at ? 1 : t->n_prompt;
            if (decode(ctx, t, at, n)) {
                broken("the resident run failed");
                break;
            }
            for (int k = 0; k < n; k++) {
                memcpy(rows + (size_t)(at + k) * (size_t)soak.n_vocab, llama_get_logits_ith(ctx, k),
                       (size_t)soak.n_vocab * sizeof *rows);
            }
            at += n;
            const float *last = rows + (size_t)(at - 1) * (size_t)soak.n_vocab;
            int best = 0;
            for (int k = 0; k < soak.n_vocab; k++) {
                best = last[k] > last[best] ? k : best;
            }
            if (team == 0) {
                t->token[at] = best;
            }
        }
        llama_free(ctx);
    }
    llama_model_free(model);
    return !soak.broken;
}

/* ---- generating ------------------------------------------------------------------------------ */

/* A step did not complete. Had it a reason? */
static void account(int rc, struct cancel *cancel) {
    struct sluice_error why;
    if (rc == 2 && atomic_load(&cancel->fired)) {
        atomic_fetch_add(&soak.cancelled, 1);
        return;
    }
    if (rc > 0 || rc == -1) {
        broken("llama_decode returned %d", rc);
        return;
    }
    const uint32_t failed = atomic_fetch_add(&soak.failed, 1) + 1;
    if (failed > soak_faults_failed() * WORKERS) {
        broken("%" PRIu32 " steps failed, and only %" PRIu32 " reads", failed, soak_faults_failed());
    }
    /* Another thread that failed for the same reason may have taken it. */
    if (sluice_take_error(&why)) {
        if (why.status != SLUICE_ERR_IO || !strstr(why.message, strerror(EIO)) || !strstr(why.message, soak.path)) {
            broken("the reason is not the disk's: %s", why.message);
        }
        atomic_fetch_add(&soak.explained, 1);
    }
}

/* Are the rows of the last batch the resident run's? */
static bool right(struct llama_context *ctx, const struct text *t, int team, int at, int n) {
    for (int k = 0; k < n; k++) {
        const float *got = llama_get_logits_ith(ctx, k);
        const float *want = t->logits[team] + (size_t)(at + k) * (size_t)soak.n_vocab;
        if (!got || memcmp(got, want, (size_t)soak.n_vocab * sizeof *got) != 0) {
            broken("text %d, token %d, %d thread(s): other logits", (int)(t - soak.text), at + k, team + 1);
            return false;
        }
    }
    return true;
}

static void nap(void) {
    const struct timespec t = {.tv_nsec = NAP_NS};
    nanosleep(&t, NULL);
}

/* On a busy machine the resizer may not get to run for long: how much it changes must not depend on that. */
static void wait_for_resizer(void) {
    while (soak.working && !soak.broken && atomic_load(&soak.done) > atomic_load(&soak.changed) + AHEAD) {
        nap();
    }
}

/* One text in a context, from the beginning; it may be given up. False: the context is to be freed. */
static bool generate(struct llama_context *ctx, const struct text *t, int team, struct cancel *cancel, uint64_t *seed) {
    llama_memory_clear(llama_get_memory(ctx), true);
    for (int at = 0; at < t->n_prompt + STEPS - 1 && !soak.broken;) {
        const int n = at ? 1 : t->n_prompt;
        const uint32_t what = soak_random(seed) % 64;
        char line[512];
        atomic_store(&cancel->fired, false);
        atomic_store(&cancel->after, what < 3 ? (int)(soak_random(seed) % 64) : -1);
        const int rc = decode(ctx, t, at, n);
        atomic_store(&cancel->after, -1);
        atomic_store(&cancel->fired, false);
        if (rc == 0) {
            if (!right(ctx, t, team, at, n)) {
                return false;
            }
            at += n;
            if (atomic_fetch_add(&soak.done, (uint32_t)n) + (uint32_t)n >= soak.tokens) {
                return false;
            }
            wait_for_resizer();
        } else {
            atomic_store(&cancel->fired, rc == 2);
            account(rc, cancel);
            if (soak_random(seed) % 3 == 0) {
                return false;
            }
            /* llama.cpp has removed the positions of a batch that did not complete. */
            if (llama_memory_seq_pos_max(llama_get_memory(ctx), 0) + 1 != at) {
                broken("position %d after a failure at %d", llama_memory_seq_pos_max(llama_get_memory(ctx), 0), at);
            }
        }
        if (what == 63) {
            return soak_random(seed) % 2; /* begin another text, or another context */
        }
        if (what == 62) { /* what people look at meanwhile */
            sluice_mode_line(line, sizeof line);
            sluice_plan_line(line, sizeof line);
        }
    }
    return true;
}

static void *worker(void *arg) {
    uint64_t seed = soak.draw * 31 + (uintptr_t)arg;
    while (atomic_load(&soak.done) < soak.tokens && !soak.broken) {
        struct cancel cancel = {.after = -1};
        const int team = soak_random(&seed) % 4 == 0; /* spinning teams crowd two processors */
        struct llama_context *ctx = new_context(soak.model, team + 1, &cancel);
        if (!ctx) {
            struct sluice_error why;
            sluice_take_error(&why);
            broken("no context: %s", why.message);
            break;
        }
        atomic_fetch_add(&soak.contexts, 1);
        while (atomic_load(&soak.done) < soak.tokens && !soak.broken &&
               generate(ctx, &soak.text[soak_random(&seed) % TEXTS], team, &cancel, &seed)) {
        }
        llama_free(ctx);
    }
    atomic_fetch_sub(&soak.working, 1);
    return NULL;
}

/* Of slots, which are a little larger than what lies in them. */
struct sizes {
    uint64_t index; /* all experts, bytes */
    uint64_t layer; /* the largest layer's demand for a token, bytes */
};

/* The counters must fit together, whatever runs meanwhile. Budget: that of now, 0: not known. */
static void check_counters(uint64_t budget) {
    struct sluice_stats st;
    char why[512];
    sluice_get_stats(&st);
    if (!soak_counters_ok(&soak.counters, &st, budget, why, sizeof why)) {
        broken("counters: %s", why);
    }
}

/* Where a route trace goes. */
enum trace { TRACE_NONE, TRACE_FILE, TRACE_FULL };

static enum trace begin_trace(bool full) {
    struct sluice_error err;
    if (sluice_route_trace_open(full ? "/dev/full" : soak.trace, NULL, &err)) {
        broken("a route trace: %s", err.message);
        return TRACE_NONE;
    }
    atomic_fetch_add(&soak.traces, 1);
    atomic_fetch_add(&soak.full, full);
    return full ? TRACE_FULL : TRACE_FILE;
}

/* End one. That a full disk took all of it can only be said of an empty one. */
static enum trace end_trace(enum trace trace) {
    struct sluice_error err;
    const int rc = trace == TRACE_NONE ? SLUICE_OK : sluice_route_trace_close(&err);
    atomic_fetch_add(&soak.full_told, rc == SLUICE_ERR_IO);
    if (trace == TRACE_FILE ? rc != SLUICE_OK : rc != SLUICE_OK && rc != SLUICE_ERR_IO) {
        broken("a route trace: %s", err.message);
    }
    return TRACE_NONE;
}

/* Change the budget all the time, about once in four tokens. */
static void *resizer(void *arg) {
    const struct sizes *sizes = arg;
    uint64_t seed = soak.draw * 77 + 5;
    struct sluice_error err;
    uint32_t next = 0;
    enum trace trace = TRACE_NONE;
    while (atomic_load(&soak.working) && !soak.broken) {
        if (atomic_load(&soak.done) < next) {
            nap();
            continue;
        }
        next = atomic_load(&soak.done) + soak_random(&seed) % 8;
        const uint32_t what = soak_random(&seed) % 8;
        /* Small ones more often than large ones. */
        const uint64_t bytes =
            1 + (sizes->index * (soak_random(&seed) % 1000) / 1000) * (soak_random(&seed) % 1200) / 1000;
        const int rc = what == 0   ? sluice_set_cache_budget(SLUICE_CACHE_OFF, 0, &err)
                       : what == 1 ? sluice_set_cache_budget(SLUICE_CACHE_AUTO, 0, &err)
                                   : sluice_set_cache_budget(SLUICE_CACHE_FIXED, bytes, &err);
        if (rc == SLUICE_ERR_BUDGET && what > 1 && bytes < sizes->layer) {
            atomic_fetch_add(&soak.refused, 1); /* less than a layer needs: all stays as it is */
        } else if (rc) {
            broken("a change of the budget to %" PRIu64 " bytes failed: %s", bytes, err.message);
        } else {
            atomic_fetch_add(&soak.resizes, 1);
        }
        if (sluice_set_cache_budget(SLUICE_CACHE_FIXED, 0, &err) != SLUICE_ERR_ARG) {
            broken("a budget that has no meaning was taken");
        }
        check_counters(rc == SLUICE_OK && what > 1 ? bytes : 0);
        atomic_store(&soak.changed, atomic_load(&soak.done));
        if (soak.trace && soak_random(&seed) % 64 == 0) {
            trace = end_trace(trace);
            trace = begin_trace(soak_random(&seed) % 2);
        }
    }
    end_trace(trace);
    return NULL;
}

static void must(bool happened, const char *what) {
    if (!happened && !soak.broken) {
        broken("it proves nothing: %s", what);
    }
}

/* Undisturbed, in a quiet cache: every byte that reads bring is counted, none twice. */
static void counted(struct llama_context *ctx, const struct text *t) {
    struct cancel none = {.after = -1};
    struct sluice_stats before, after;
    struct sluice_error err;
    uint64_t seed = 0;
    /* Without a cache everything is read; a change waits for the reads that are under way. */
    if (sluice_set_cache_budget(SLUICE_CACHE_OFF, 0, &err)) {
        broken("%s", err.message);
    }
    sluice_get_stats(&before);
    const uint64_t bytes = soak_read_bytes(), reads = soak_reads();
    generate(ctx, t, 0, &none, &seed);
    if (sluice_set_cache_budget(SLUICE_CACHE_OFF, 0, &err)) {
        broken("%s", err.message);
    }
    sluice_get_stats(&after);
    const uint64_t counted =
        after.prompt.read_bytes + after.generation.read_bytes - before.prompt.read_bytes - before.generation.read_bytes;
    const uint64_t requests =
        after.prompt.reads + after.generation.reads - before.prompt.reads - before.generation.reads;
    if (counted != soak_read_bytes() - bytes || requests != soak_reads() - reads || counted == 0) {
        broken("%" PRIu64 " bytes in %" PRIu64 " reads are counted, %" PRIu64 " in %" PRIu64 " were read", counted,
               requests, soak_read_bytes() - bytes, soak_reads() - reads);
    }
}

/* All threads at once, until the tokens of this round are computed. */
static void disturb(struct sizes *sizes) {
    pthread_t t[WORKERS + 1];
    atomic_store(&soak.working, WORKERS);
    atomic_store(&soak.changed, 0);
    soak_faults(soak.draw, true);
    int started = 0;
    for (; started <= WORKERS; started++) {
        const int rc = started < WORKERS ? pthread_create(&t[started], NULL, worker, (void *)(uintptr_t)(started + 1))
                                         : pthread_create(&t[started], NULL, resizer, sizes);
        if (rc) {
            broken("no thread: %s", strerror(rc));
            break;
        }
    }
    for (int i = 0; i < started; i++) {
        pthread_join(t[i], NULL);
    }
    soak_faults(soak.draw, false);
}

/* One model: loaded, soaked, freed. */
static void round_of(void) {
    struct llama_model_params p = llama_model_default_params();
    p.use_extra_bufts = false;
    sluice_set_streaming(true);
    soak.model = llama_model_load_from_file(soak.path, p);
    struct cancel none = {.after = -1};
    struct llama_context *first = soak.model ? new_context(soak.model, 1, NULL) : NULL;
    uint64_t seed = 0;
    if (!first) {
        broken("%s: cannot be loaded for streaming", soak.path);
        llama_model_free(soak.model);
        return;
    }
    soak.n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(soak.model));
    /* Undisturbed, once: then the dense weights are in place. */
    atomic_store(&soak.done, 0);
    generate(first, &soak.text[0], 0, &none, &seed);
    struct sluice_stats st;
    sluice_get_stats(&st);
    struct sizes sizes = {.index = st.bank_bytes * 2, .layer = st.layer_bytes * 2};
    atomic_store(&soak.done, 0);
    disturb(&sizes);
    /* After all that, undisturbed again. */
    if (!soak.broken) {
        counted(first, &soak.text[1]);
    }
    must(soak.done >= soak.tokens, "not all tokens were computed");
    soak.total += soak.done;
    llama_free(first);
    llama_model_free(soak.model);
}

/* What is left when nothing is loaded, and how far it got: a line for who watches. */
static void quiet(uint32_t round, struct soak_quiet *want) {
    const struct soak_quiet q = soak_quiet_measure();
    check_counters(0);
    printf("round %" PRIu32 " %s tokens %" PRIu64 " contexts %" PRIu32 " changes %" PRIu32 " cancelled %" PRIu32
           " failed %" PRIu32 " faults %" PRIu32 " fds %" PRIu32 " threads %" PRIu32 " heap_kib %" PRIu64
           " anon_kib %" PRIu64 "\n",
           round, strrchr(soak.path, '/') ? strrchr(soak.path, '/') + 1 : soak.path, soak.total, soak.contexts,
           soak.resizes, soak.cancelled, soak.failed, soak_faults_failed() + soak_faults_short(), q.fds, q.threads,
           q.heap_kib, q.anon_kib);
    fflush(stdout);
    if (round == 0) {
        *want = q;
    } else if (q.fds != want->fds || q.threads != want->threads) {
        broken("%" PRIu32 " descriptors and %" PRIu32 " threads between models, and after the first %" PRIu32
               " and %" PRIu32,
               q.fds, q.threads, want->fds, want->threads);
    }
}

static void run(char **models, uint32_t n_models) {
    struct text(*texts)[TEXTS] = calloc(n_models, sizeof *texts);
    struct soak_quiet want;
    for (uint32_t round = 0; round < soak.rounds && !soak.broken; round++) {
        const uint32_t m = round % n_models;
        if (!texts) {
            broken("out of memory");
            break;
        }
        soak.draw = soak.seed + round * UINT64_C(0x9e3779b97f4a7c15);
        soak.path = models[m];
        soak.text = texts[m];
        if (round >= n_models || make_texts()) {
            round_of();
            quiet(round, &want);
        }
    }
    for (uint32_t i = 0; texts && i < n_models * TEXTS * TEAMS; i++) {
        free(texts[i / TEAMS / TEXTS][i / TEAMS % TEXTS].logits[i % TEAMS]);
    }
    free(texts);
}

static void report(void) {
    struct sluice_stats st;
    sluice_get_stats(&st);
    printf("soak: %" PRIu64 " tokens, %" PRIu32 " contexts, %" PRIu32 " changes of the budget (%" PRIu32
           " refused), %" PRIu32 " steps cancelled, %" PRIu32 " failed (%" PRIu32 " reads failed, %" PRIu32
           " short), %" PRIu64 " misses, %" PRIu64 " hits, %" PRIu64 " evictions, foreseen %" PRIu64 " begun %" PRIu64
           " used %" PRIu64 ", %" PRIu32 " route traces (%" PRIu32 " to a full disk)\n",
           soak.total, soak.contexts, soak.resizes, soak.refused, soak.cancelled, soak.failed, soak_faults_failed(),
           soak_faults_short(), st.prompt.misses + st.generation.misses, st.prompt.hits + st.generation.hits,
           st.evictions, st.foreseen.asked, st.foreseen.begun, st.foreseen.used, soak.traces, soak.full);
    must(soak.contexts > WORKERS, "no context was made anew");
    must(soak.resizes >= soak.total / 40, "the budget was hardly changed");
    must(soak.refused > 0, "no budget was refused");
    must(soak.cancelled > 0, "no step was cancelled");
    must(soak.failed > 0 && soak_faults_failed() > 0, "no read failed");
    must(soak.explained > 0, "nobody was told why");
    must(soak_faults_short() > 0, "no read was short");
    must(st.evictions > 0 && st.prompt.hits + st.generation.hits > 0, "no evictions or no hits");
    must(st.foreseen.begun > 0 && st.foreseen.used > 0, "nothing was read ahead");
    must(!soak.full || soak.full_told, "a full disk took every route trace");
}

static bool set(const char *name, const char *value) {
    struct sluice_error err;
    if (sluice_settings_set(&soak.set, name, value, &err)) {
        broken("%s", err.message);
    }
    return !soak.broken;
}

int main(int argc, char **argv) {
    static const struct option longs[] = {{"seed", required_argument, 0, 's'},  {"tokens", required_argument, 0, 't'},
                                          {"set", required_argument, 0, 'e'},   {"rounds", required_argument, 0, 'r'},
                                          {"trace", required_argument, 0, 'f'}, {0, 0, 0, 0}};
    soak_quiet_begin();
    soak.seed = (uint64_t)time(NULL);
    soak.tokens = 2000;
    soak.rounds = 1;
    sluice_settings_default(&soak.set);
    soak.set.force_cache = soak.set.quiet = true;
    soak.set.publish = false; /* unless --set publish=1 */
    soak.set.cache = SLUICE_CACHE_OFF;
    int c;
    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        char *value = c == 'e' ? strchr(optarg, '=') : NULL;
        if (c == 's') {
            soak.seed = strtoull(optarg, NULL, 10);
        } else if (c == 't') {
            soak.tokens = (uint32_t)strtoul(optarg, NULL, 10);
        } else if (c == 'r') {
            soak.rounds = (uint32_t)strtoul(optarg, NULL, 10);
        } else if (c == 'f') {
            soak.trace = optarg;
        } else if (value) {
            *value = 0;
            set(optarg, value + 1);
        } else {
            optind = argc;
        }
    }
    if (optind >= argc || optind + MODELS < argc || soak.rounds == 0 || soak.broken) {
        fprintf(stderr, "usage: sluice-soak [--seed N] [--tokens N] [--rounds N] [--trace FILE] [--set NAME=VALUE]... "
                        "MODEL...\n");
        return 2;
    }
    printf("soak: seed %" PRIu64 "\n", soak.seed);
    fflush(stdout);
    llama_log_set(no_log, NULL);
    struct sluice_error err;
    if (sluice_register(&soak.set, &err)) {
        broken("%s", err.message);
        return 1;
    }
    llama_backend_init();
    run(argv + optind, (uint32_t)(argc - optind));
    report();
    llama_backend_free();
    return soak.broken ? 1 : 0;
}
