/*
 * plan.c - `sluice plan`: will it fit, how will it run, how fast, before anything is loaded.
 *
 * Nothing here has a rule of its own. How much memory: llama.cpp's arithmetic and the memory plan of the engine
 * (run/dry.c, memory/ledger.c), which `run` and `chat` ask at their first token. How fast the disk is: the engine's
 * own I/O threads on this file's experts (run/probe.c). How fast the processor is: ggml's kernels on weights of these
 * shapes (run/speed.c). What follows for tokens per second: memory/predict.c. This file asks them in an order in which
 * they do not disturb each other: memory first, because what the probes leave behind would count as the program's.
 *
 * What cannot be found out is not guessed. A reason takes its place, and whatever depends on it is unknown too.
 */
#include "cli/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/stats.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "memory/ledger.h"

enum {
    PLAN_PROMPT = 512,    /* tokens of the prompt that is planned for */
    PLAN_CTX_LEAST = 512, /* tokens: no smaller context is proposed */
};

static const double PLAN_SPEED_SECONDS = 0.8;                    /* computing made-up tokens */
static const uint64_t PLAN_POOL = 256ull << 20;                  /* bytes of made-up weights at most */
static const double PLAN_DISK_SLOW = 0.8, PLAN_DISK_FAST = 1.15; /* what a run may find beside the probe's extremes */
static const double PLAN_COMPUTE_SLOW = 1.2, PLAN_COMPUTE_FAST = 0.9; /* the same, of the median token's seconds */

/* ---- memory ----------------------------------------------------------------------------------- */

static void find_sizes(struct outlook *p) {
    for (uint32_t i = 0; i < p->gguf->n_shards; i++) {
        const struct sluice_gguf_shard *s = &p->gguf->shards[i];
        p->whole_bytes += s->whole > s->bytes ? s->whole : s->bytes;
        p->present_bytes += s->bytes;
    }
}

static int dry_run(struct outlook *p, uint32_t n_ctx, struct sluice_dry *dry, struct sluice_error *err) {
    const struct sluice_dry_params params = {
        .gguf = p->gguf,
        .info = &p->info,
        .settings = &p->settings,
        .log = &p->log,
        .tokens = p->tokens,
        .n_ctx = n_ctx,
        .n_threads = p->threads,
    };
    return sluice_dry_run(&params, dry, err);
}

/* The plan with other settings for the cache, and the slot memory that the engine would cut. */
static int plan_with(const struct outlook *p, const struct sluice_dry *dry, enum sluice_cache_mode cache,
                     uint64_t bytes, struct sluice_plan *memory, uint64_t *budget, struct sluice_error *err) {
    struct sluice_settings s = p->settings;
    uint64_t cut = 0;
    s.cache = cache;
    s.cache_bytes = bytes;
    s.force_cache = true; /* whether LRU would hit is another question */
    int rc = plan_make(&s, &dry->demand, &dry->facts, memory, budget, err);
    if (rc == 0 && p->info.expert_tensors) {
        rc = sluice_dry_cut(p->gguf, &p->info, *budget, &cut, err);
        plan_set_cache(memory, rc ? memory->cache_bytes : cut);
    }
    return rc;
}

/* "a cache of 4110 MiB, 24 % of the experts" */
static void say_streaming(struct outlook *p, uint64_t budget) {
    const double mib = 1024 * 1024;
    if (budget == 0) {
        snprintf(p->mode_why, sizeof p->mode_why,
                 "no memory is left for a cache: every expert is read each time it is used");
        return;
    }
    snprintf(p->mode_why, sizeof p->mode_why,
             "a cache of %.0f MiB holds %.0f %% of the experts, the others are read when they are used",
             (double)p->memory.cache_bytes / mib,
             100 * (double)p->memory.cache_bytes / (double)(p->all_bytes ? p->all_bytes : 1));
}

/* The largest context that fits, halving; 0: none. */
static uint32_t find_smaller(struct outlook *p) {
    struct sluice_plan memory;
    uint64_t budget;
    for (uint32_t n = p->dry.n_ctx / 2; n >= PLAN_CTX_LEAST && !cli_interrupted(); n /= 2) {
        struct sluice_dry dry;
        if (dry_run(p, n, &dry, NULL)) {
            return 0;
        }
        if (plan_with(p, &dry, p->settings.cache, p->settings.cache_bytes, &memory, &budget, NULL) == 0) {
            return n;
        }
    }
    return 0;
}

/* A model without experts: llama.cpp alone. */
static void judge_dense(struct outlook *p) {
    const struct sluice_plan *m = &p->memory;
    p->mode = m->limit_bytes == 0 ? PLAN_UNKNOWN : m->total_bytes <= m->limit_bytes ? PLAN_RESIDENT : PLAN_NONE;
    snprintf(p->mode_why, sizeof p->mode_why, "%s",
             p->mode == PLAN_RESIDENT ? "it has no experts to stream, and fits in memory"
             : p->mode == PLAN_NONE   ? "it has no experts to stream, and does not fit in memory"
                                      : "how much memory there is is not known");
}

/* What plan_make says about the experts. */
static void judge_experts(struct outlook *p) {
    struct sluice_error err = {0};
    uint64_t budget = 0;
    sluice_dry_cut(p->gguf, &p->info, UINT64_MAX / 2, &p->all_bytes, NULL);
    if (plan_with(p, &p->dry, p->settings.cache, p->settings.cache_bytes, &p->memory, &budget, &err)) {
        p->mode = PLAN_NONE;
        snprintf(p->mode_why, sizeof p->mode_why, "%s", err.message);
        p->smaller_ctx = find_smaller(p);
        return;
    }
    if (p->all_bytes && p->memory.cache_bytes >= p->all_bytes) {
        p->mode = PLAN_RESIDENT;
        snprintf(p->mode_why, sizeof p->mode_why, "the cache has room for all experts");
    } else {
        p->mode = PLAN_STREAMING;
        say_streaming(p, budget);
    }
}

/* Memory, and from it how it will run. */
static void find_memory(struct outlook *p) {
    struct sluice_error err = {0};
    const int rc = dry_run(p, (uint32_t)p->config->n_ctx, &p->dry, &err);
    if (rc) {
        snprintf(p->dry_why, sizeof p->dry_why, "%s", err.message);
        snprintf(p->mode_why, sizeof p->mode_why, "%s", err.message);
        p->mode = rc == SLUICE_ERR_LLAMA || rc == SLUICE_ERR_ARG ? PLAN_NONE : PLAN_UNKNOWN;
        return;
    }
    if (!p->dry.kv_known || !p->dry.compute_known) {
        snprintf(p->mode_why, sizeof p->mode_why, "llama.cpp did not say how much memory the context takes");
        return;
    }
    p->has_memory = true;
    if (p->info.expert_tensors) {
        judge_experts(p);
    } else {
        uint64_t budget;
        p->dry.demand.dense_mapped = true; /* nothing streams, so nothing is moved out of the page cache */
        plan_with(p, &p->dry, SLUICE_CACHE_OFF, 0, &p->memory, &budget, NULL);
        judge_dense(p);
    }
    const struct sluice_plan *m = &p->memory;
    p->resident_bytes = m->process_bytes + m->files_bytes + m->untouched_bytes + p->info.total_bytes;
    p->resident_fits = m->limit_bytes && p->resident_bytes + m->floor_bytes <= m->limit_bytes;
}

/* ---- disk and processor ----------------------------------------------------------------------- */

/* 1, 2, 4, 8 and what a run would use. */
static void list_threads(struct outlook *p) {
    static const uint32_t usual[] = {1, 2, 4, 8};
    const uint32_t used = (uint32_t)p->settings.io_threads;
    bool listed = false;
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++) {
        p->disk[p->n_disk++] = (struct outlook_disk){.threads = usual[i]};
        listed = listed || usual[i] == used;
    }
    if (!listed) {
        p->disk[p->n_disk++] = (struct outlook_disk){.threads = used};
    }
}

/* One sample. False, with the reason noted, when it is no measurement of the disk. */
static bool sample_disk(struct outlook *p, struct outlook_disk *l, double seconds, uint64_t seed) {
    const struct sluice_probe_params params = {
        .lanes = l->threads,
        .direct = true,
        .seconds = seconds,
        .max_bytes = 16ull << 30,
        .seed = seed,
        .interrupted = cli_interrupted_by,
    };
    struct sluice_probe got;
    struct sluice_error err;
    if (sluice_probe_disk(p->gguf, &params, &got, &err)) {
        snprintf(p->disk_why, sizeof p->disk_why, "%s", err.message);
        return false;
    }
    if (!got.direct) {
        snprintf(p->disk_why, sizeof p->disk_why,
                 "this file system has no direct reads: what could be measured is the page cache");
        return false;
    }
    l->rate[l->n++] = got.per_second;
    return true;
}

/* All numbers of threads in turn, so that a disk that changes meanwhile changes for all of them. */
static void probe_disk(struct outlook *p, struct cli_progress *progress) {
    const double seconds = p->config->plan.probe_seconds;
    bool ok = true;
    if (!p->info.expert_tensors) {
        snprintf(p->disk_why, sizeof p->disk_why, "it has no experts to read");
        return;
    }
    if (seconds <= 0) {
        snprintf(p->disk_why, sizeof p->disk_why, "not measured (--probe-seconds 0)");
        return;
    }
    list_threads(p);
    for (int round = 0; ok && round < PLAN_ROUNDS; round++) {
        for (size_t i = 0; ok && i < p->n_disk && !cli_interrupted(); i++) {
            cli_progress_seconds(progress, "reading random experts", 0);
            ok = sample_disk(p, &p->disk[i], seconds / PLAN_ROUNDS / (double)p->n_disk, (uint64_t)round * 16 + i + 1);
        }
    }
    /*
     * The disk as run reads: by as many threads, or by more, which say no less about it. Whatever else uses a disk
     * makes samples slower, never faster, and a virtual one is held back under steady load more than by a run that also
     * computes: expected is the mean of the fastest third. (18.5 GB model, 2026-11-30, GB/s: medians 0.99 to 1.2,
     * fastest thirds 1.33 to 1.53; runs that waited for the disk read 1.21 to 1.40.)
     */
    double rate[PLAN_DISK_MAX * PLAN_ROUNDS];
    size_t n = 0;
    for (size_t i = 0; ok && i < p->n_disk; i++) {
        struct outlook_disk *l = &p->disk[i];
        bench_sort(l->rate, l->n);
        for (size_t k = 0; l->threads >= (uint32_t)p->settings.io_threads && k < l->n; k++) {
            rate[n++] = l->rate[k];
        }
    }
    if (n) {
        bench_sort(rate, n);
        p->input.disk.low = rate[0] * PLAN_DISK_SLOW;
        const size_t third = (n + 2) / 3;
        for (size_t i = n - third; i < n; i++) {
            p->input.disk.mid += rate[i] / (double)third;
        }
        p->input.disk.high = rate[n - 1] * PLAN_DISK_FAST;
    }
    p->n_disk = ok ? p->n_disk : 0;
}

static void measure_speed(struct outlook *p, struct cli_progress *progress) {
    struct plan_limits limits;
    struct sluice_error err;
    plan_limits_read(&limits, "");
    const struct sluice_speed_params params = {
        .gguf = p->gguf,
        .info = &p->info,
        .nodes = p->dry.nodes,
        .n_threads = p->threads,
        .seconds = PLAN_SPEED_SECONDS,
        .max_bytes = limits.available && limits.available / 4 < PLAN_POOL ? limits.available / 4 : PLAN_POOL,
        .interrupted = cli_interrupted_by,
    };
    cli_progress_seconds(progress, "computing made-up tokens", 0);
    if (sluice_speed_measure(&params, &p->speed, &err)) {
        snprintf(p->speed_why, sizeof p->speed_why, "%s", err.message);
        return;
    }
    const double mid = p->speed.token_s;
    p->input.compute_s.mid = mid;
    p->input.compute_s.low = p->speed.slow_s > mid * PLAN_COMPUTE_SLOW ? p->speed.slow_s : mid * PLAN_COMPUTE_SLOW;
    p->input.compute_s.high =
        p->speed.fastest_s < mid * PLAN_COMPUTE_FAST ? p->speed.fastest_s : mid * PLAN_COMPUTE_FAST;
    p->input.graph_s = p->speed.graph_s;
}

/* ---- predictions ------------------------------------------------------------------------------ */

/* Add the row of a cache; one that is there already gets no second row. */
static void add_row(struct outlook *p, const char *name, enum sluice_cache_mode cache, uint64_t bytes, bool is_auto) {
    struct sluice_error err = {0};
    struct sluice_plan memory = {0};
    struct outlook_row row = {.is_auto = is_auto, .fits = true};
    uint64_t budget = bytes, cut = 0;
    snprintf(row.name, sizeof row.name, "%s", name);
    if (p->n_rows == PLAN_ROWS_MAX) {
        return;
    }
    if (p->has_memory) {
        const int rc = plan_with(p, &p->dry, cache, bytes, &memory, &budget, &err);
        row.fits = rc == 0;
        snprintf(row.why_not, sizeof row.why_not, "%s", rc ? err.message : "");
        row.total_bytes = memory.total_bytes;
        row.peak_bytes = memory.total_bytes ? outlook_peak(p, &memory) : 0;
        budget = rc ? bytes : budget;
    }
    if (budget && sluice_dry_cut(p->gguf, &p->info, budget, &cut, NULL) == 0) {
        row.cache_bytes = cut;
    }
    for (size_t i = 0; i < p->n_rows; i++) {
        if (p->rows[i].cache_bytes == row.cache_bytes) {
            p->rows[i].is_auto = p->rows[i].is_auto || is_auto;
            return;
        }
    }
    predict_cache(&p->input, row.cache_bytes, &row.speed);
    p->rows[p->n_rows++] = row;
}

static int by_cache(const void *a, const void *b) {
    const struct outlook_row *x = a, *y = b;
    return x->cache_bytes < y->cache_bytes ? -1 : x->cache_bytes > y->cache_bytes;
}

/* --budgets: is the list one? Adds its rows if `add`. */
static int list_rows(struct outlook *p, bool add) {
    const char *given = p->config->plan.budgets, *list = given;
    char item[256];
    for (int items = 1; cli_next_item(&list, item, sizeof item); items++) {
        uint64_t bytes = 0;
        if (items > PLAN_ROWS_MAX) {
            return cli_fail(CLI_EXIT_USAGE, p->config->command, "--budgets %s: more than %d caches", given,
                            PLAN_ROWS_MAX);
        }
        const bool all = strcmp(item, "all") == 0, is_auto = strcmp(item, "auto") == 0;
        if (!all && !is_auto && strcmp(item, "off") != 0 && !sluice_parse_size(item, &bytes)) {
            return cli_fail(CLI_EXIT_USAGE, p->config->command,
                            "--budgets %s: '%.31s' is neither a size such as 2000 (MiB) or 4GiB, nor 0, auto or all",
                            given, item);
        }
        bytes = all ? p->all_bytes : bytes;
        if (add && is_auto) {
            add_row(p, item, p->settings.cache, p->settings.cache_bytes, true);
        } else if (add) {
            add_row(p, item, bytes ? SLUICE_CACHE_FIXED : SLUICE_CACHE_OFF, bytes, false);
        }
    }
    return 0;
}

static void predict(struct outlook *p) {
    static const struct {
        const char *name; /* of the row */
        uint64_t part;    /* of all experts, one in so many */
    } shares[] = {{"1/16", 16}, {"1/8", 8}, {"1/4", 4}, {"1/2", 2}, {"all", 1}};
    p->input.layers = p->info.layers < SLUICE_GGUF_LAYERS_MAX ? (uint32_t)p->info.layers : SLUICE_GGUF_LAYERS_MAX;
    predict_resident(&p->input, &p->resident);
    if (p->info.expert_tensors == 0 || p->info.token_bytes == 0) {
        return;
    }
    if (p->all_bytes == 0) {
        sluice_dry_cut(p->gguf, &p->info, UINT64_MAX / 2, &p->all_bytes, NULL);
    }
    p->input.token_bytes = p->info.token_bytes;
    p->input.bank_bytes = p->all_bytes;
    p->input.experts = (double)p->info.experts;
    p->input.top_k = (double)p->info.top_k_max;
    p->input.moe_layers = (uint32_t)p->info.moe_layers;
    p->input.threads = p->threads;
    p->input.lookahead = p->settings.lookahead;
    if (p->config->plan.budgets) {
        list_rows(p, true);
        return;
    }
    add_row(p, "0", SLUICE_CACHE_OFF, 0, false);
    if (p->mode == PLAN_STREAMING || p->mode == PLAN_RESIDENT) {
        add_row(p, "auto", p->settings.cache, p->settings.cache_bytes, true);
    }
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        if (p->all_bytes / shares[i].part >= p->dry.demand.layer) { /* less cannot work at all */
            add_row(p, shares[i].name, SLUICE_CACHE_FIXED, p->all_bytes / shares[i].part, false);
        }
    }
    qsort(p->rows, p->n_rows, sizeof p->rows[0], by_cache);
}

/* ---- the command ------------------------------------------------------------------------------ */

/* From the header to the page. */
static int make(struct outlook *p, struct cli_progress *progress) {
    const struct cli_config *c = p->config;
    struct sluice_error err;
    if (sluice_gguf_check_header(c->args[0], &p->gguf, &err) || sluice_info_collect(p->gguf, &p->info, &err)) {
        return cli_fail(CLI_EXIT_FAILED, c->command, "%s", err.message);
    }
    int rc = cli_session_settings(c, &p->settings);
    rc = rc ? rc : list_rows(p, false);
    if (rc) {
        return rc;
    }
    p->settings.publish = false;  /* nothing streams here */
    p->settings.window[0] = '\0'; /* SLUICE_WINDOW is meant for the run, which may have that port at this moment */
    p->tokens = c->n_prompt ? (uint64_t)c->n_prompt : PLAN_PROMPT;
    p->threads = c->n_threads ? (int)c->n_threads : sluice_cpu_count();
    find_sizes(p);
    sluice_runner_setup(&p->log, c->command);
    if (sluice_register(&p->settings, &err)) {
        return cli_fail(err.status == SLUICE_ERR_ARG ? CLI_EXIT_USAGE : CLI_EXIT_FAILED, c->command, "%s", err.message);
    }
    find_memory(p);
    probe_disk(p, progress);
    measure_speed(p, progress);
    cli_progress_clear(progress);
    if (cli_interrupted()) {
        return CLI_EXIT_FAILED;
    }
    predict(p);
    return outlook_show(p);
}

static int plan_main(struct cli_config *config) {
    struct cli_progress progress = {0};
    if (config->n_args == 0) {
        return cli_fail(CLI_EXIT_USAGE, config->command, "no model: name a GGUF file (see sluice plan --help)");
    }
    struct outlook *p = calloc(1, sizeof *p);
    if (!p) {
        return cli_fail(CLI_EXIT_FAILED, config->command, "no memory");
    }
    p->config = config;
    cli_interrupt_install_all(); /* a stand-in for an unfinished file is to be removed */
    cli_progress_start(&progress, false);
    int rc = make(p, &progress);
    sluice_gguf_free(p->gguf);
    free(p);
    if (cli_interrupted()) {
        cli_interrupt_die();
    }
    return rc;
}

const struct cli_command cli_plan_command = {
    .name = "sluice plan",
    .summary = "will it fit, and how fast will it be: before anything is loaded",
    .usage = "sluice plan MODEL [--memory SIZE] [--ctx N] [options]",
    .about = "Says before anything is loaded whether a model will fit, how it will run and how fast: from\n"
             "the headers of its files (a download that has not ended is enough) and from measuring disk\n"
             "and processor for three seconds. Of a split model name the first shard.",
    .groups = {{"Options", "--memory --ctx --prompt-tokens --threads --budgets --probe-seconds --json"}},
    .notes = "Each number is measured (here and now), derived (from the header), or assumed; what is not\n"
             "known is said to be unknown, with the reason (null in JSON). Speeds have a range: routing is\n"
             "known when the model has run. `sluice run` and `chat` with no settings choose the cache and\n"
             "the micro-batch that are named here. Settings are also taken from the environment.\n\n"
             "Example: sluice plan model.gguf --memory 6GiB",
    .max_args = 1,
    .run = plan_main,
};
