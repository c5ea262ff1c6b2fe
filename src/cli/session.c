/*
 * session.c - see session.h.
 *
 * Order matters: the file is checked first, because a mistyped path is the most common mistake and
 * needs nothing else; settings come before the registration, which takes them; the registration
 * comes before the load, in which llama.cpp offers the weights to the registered devices.
 */
#include "cli/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "preload/mapping.h"
#include "run/info.h"
#include "sluice.h"

static void hook_loading(void *user, double fraction) {
    struct cli_session *s = user;
    cli_progress_percent(&s->progress, "loading the model", fraction);
}

void cli_session_show_mode(struct cli_session *s) {
    char line[1024];
    if (s->mode_shown) {
        return;
    }
    s->mode_shown = true;
    cli_session_mode(s, line, sizeof line);
    cli_progress_print(&s->progress, line);
    if (!s->config->resident && sluice_warning_line(line, sizeof line) > 0) {
        char warning[1100];
        snprintf(warning, sizeof warning, "%s: warning: %s", s->config->command, line);
        cli_progress_print(&s->progress, warning);
    }
    if (!s->config->resident && sluice_plan_line(line, sizeof line) > 0) {
        cli_progress_print(&s->progress, line);
    }
}

/* Of the MoE blocks that the prompt will take, how many have begun. */
static double fed_fraction(void *user) {
    const struct cli_session *s = user;
    struct sluice_stats now;
    sluice_get_stats(&now);
    const uint64_t all = now.layers * s->feed_batches;
    const uint64_t begun = now.prompt.blocks + now.generation.blocks - s->feed_blocks;
    return all && begun ? ((double)begun - 1) / (double)all : 0; /* the last one is being computed */
}

/* Before the first batch and after each. The first one settles what the cache will be, hence the mode line here. */
static void hook_prompt(void *user, uint64_t done, uint64_t total) {
    struct cli_session *s = user;
    if (done == 0) {
        struct sluice_stats now;
        sluice_get_stats(&now);
        s->feed_blocks = now.prompt.blocks + now.generation.blocks;
        s->feed_batches = (total + s->params.n_ubatch - 1) / s->params.n_ubatch;
        cli_progress_watch(&s->progress, s->feeding, total, fed_fraction, s);
        return;
    }
    cli_session_show_mode(s);
    if (done < total) {
        cli_progress_tokens(&s->progress, s->feeding, done, total);
    }
}

/* --csv failed: say so, once. The command goes on to its next possible end and fails there. */
static void csv_failed(struct cli_session *s, const struct sluice_error *err) {
    cli_progress_clear(&s->progress);
    cli_fail(0, s->config->command, "%s", err->message);
    csv_close(s->csv, NULL);
    s->csv = NULL;
    s->csv_failed = true;
}

/* What is in force, before the first row: what auto decided is only known after the first step. */
static void csv_facts(struct cli_session *s) {
    const bool streaming = !s->config->resident;
    struct sluice_stats st;
    char mode[512];
    sluice_get_stats(&st);
    cli_session_mode(s, mode, sizeof mode);
    csv_fact(s->csv, "model", "%s", s->config->model);
    csv_fact(s->csv, "architecture", "%s", s->gguf->architecture);
    csv_fact(s->csv, "mode", "%s", mode);
    csv_settings(s->csv, &s->settings, &st, streaming && st.tensors > 0);
    csv_fact(s->csv, "threads", "%d", s->params.n_threads);
    csv_fact(s->csv, "ubatch", "%" PRIu32, s->params.n_ubatch);
    csv_fact(s->csv, "ctx", "%" PRIu32, sluice_runner_n_ctx(s->runner));
    csv_fact(s->csv, "n_expert_used", "%" PRIu32, s->params.n_expert_used);
    csv_fact(s->csv, "steps", "whole llama_decode calls");
}

static void hook_step(void *user, const struct sluice_step *step) {
    struct cli_session *s = user;
    struct sluice_error err;
    counters_add_step(&s->steps[step->phase], step);
    if (s->csv && csv_rows(s->csv) == 0) {
        csv_facts(s);
    }
    if (s->csv && csv_row(s->csv, step, &err)) {
        csv_failed(s, &err);
    }
}

int cli_session_end_csv(struct cli_session *s) {
    struct sluice_error err;
    if (s->csv && csv_rows(s->csv) == 0 && s->runner) {
        csv_facts(s);
    }
    if (csv_close(s->csv, &err)) {
        cli_fail(0, s->config->command, "%s", err.message);
        s->csv_failed = true;
    }
    s->csv = NULL;
    if (sluice_route_trace_close(&err)) {
        cli_fail(0, s->config->command, "%s", err.message);
        s->csv_failed = true;
    }
    s->params.hooks.step = NULL;
    return s->csv_failed ? CLI_EXIT_FAILED : CLI_EXIT_OK;
}

/* A seed for a user who gave none. Told in the summary, so that the run can be repeated. */
static uint32_t random_seed(void) {
    uint32_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) {
        seed = (uint32_t)time(NULL);
    }
    return seed == UINT32_MAX ? 0 : seed; /* llama.cpp takes that value for "choose one" */
}

int cli_session_settings(const struct cli_config *c, struct sluice_settings *settings) {
    struct sluice_error err;
    sluice_settings_default(settings);
    if (sluice_settings_from_env(settings, &err)) {
        return cli_fail(CLI_EXIT_USAGE, c->command, "%s", err.message);
    }
    for (size_t i = 0; i < c->n_settings; i++) {
        if (sluice_settings_set(settings, c->settings[i].name, c->settings[i].value, &err)) {
            return cli_fail(CLI_EXIT_USAGE, c->command, "%s", err.message);
        }
    }
    settings->quiet = true; /* the command prints the mode line itself */
    return 0;
}

static void session_params(struct cli_session *s) {
    const struct cli_config *c = s->config;
    s->params = (struct sluice_runner_params){
        .gguf = s->gguf,
        .settings = &s->settings,
        .log = &s->log,
        .sampling = {.temp = (float)c->temp,
                     .top_p = (float)c->top_p,
                     .min_p = (float)c->min_p,
                     .top_k = (int32_t)c->top_k,
                     .no_end = c->ignore_eos,
                     .seed = c->seed >= 0 ? (uint32_t)c->seed : random_seed()},
        .hooks = {.interrupted = cli_interrupted_by,
                  .loading = hook_loading,
                  .prompt = hook_prompt,
                  .step = hook_step,
                  .user = s},
        .n_ctx = (uint32_t)c->n_ctx,
        .n_ubatch = (uint32_t)c->n_ubatch,
        .n_threads = c->n_threads ? (int)c->n_threads : sluice_cpu_count(),
        .n_expert_used = (uint32_t)c->n_expert_used,
        .streaming = !c->resident,
    };
}

int cli_session_prepare(struct cli_session *s, const struct cli_config *c) {
    struct sluice_error err;
    memset(s, 0, sizeof *s);
    s->begun_s = sluice_clock();
    s->config = c;
    s->feeding = "prompt";
    s->mode_shown = c->quiet;
    if (!c->model) {
        return cli_fail(CLI_EXIT_USAGE, c->command, "no model: give one with -m (see %s --help)", c->command);
    }
    if (sluice_gguf_check(c->model, &s->gguf, &err)) {
        return cli_fail(CLI_EXIT_FAILED, c->command, "%s", err.message);
    }
    if (c->n_expert_used && sluice_info_check_top_k(s->gguf, (uint64_t)c->n_expert_used, &err)) {
        return cli_fail(CLI_EXIT_USAGE, c->command, "--n-expert-used %d: %s", (int)c->n_expert_used, err.message);
    }
    int rc = cli_session_settings(c, &s->settings);
    if (rc) {
        return rc;
    }
    if (c->resident && cli_given(c, "window")) {
        return cli_fail(CLI_EXIT_USAGE, c->command,
                        "--resident: nothing streams, there is nothing for --window to show");
    }
    if (c->resident && s->settings.drop_cold_experts > 0 && cli_given(c, "drop_cold_experts")) {
        return cli_fail(CLI_EXIT_USAGE, c->command,
                        "--resident: nothing is read, so --drop-cold-experts drops nothing");
    }
    session_params(s);
    return 0;
}

int cli_session_load(struct cli_session *s) {
    const struct cli_config *c = s->config;
    struct sluice_error err;
    if (c->csv && csv_open(&s->csv, c->csv, &err)) {
        return cli_fail(CLI_EXIT_FAILED, c->command, "%s", err.message);
    }
    if (c->resident && (c->route_trace || c->route_probs)) {
        return cli_fail(CLI_EXIT_USAGE, c->command, "--resident: nothing streams, there is no route to trace");
    }
    if ((c->route_trace || c->route_probs) && sluice_route_trace_open(c->route_trace, c->route_probs, &err)) {
        return cli_fail(CLI_EXIT_FAILED, c->command, "%s", err.message);
    }
    cli_interrupt_install();
    cli_progress_start(&s->progress, c->quiet);
    sluice_runner_setup(&s->log, c->command);
    if (!c->resident && sluice_register(&s->settings, &err)) {
        return cli_fail(err.status == SLUICE_ERR_ARG ? CLI_EXIT_USAGE : CLI_EXIT_FAILED, c->command, "%s", err.message);
    }
    sluice_mapping_set_lazy(!c->resident);
    if (sluice_runner_open(&s->runner, &s->params, &err)) {
        cli_progress_clear(&s->progress);
        if (cli_interrupted()) {
            cli_interrupt_die();
        }
        return cli_session_fail(s, &err);
    }
    cli_progress_clear(&s->progress);
    s->load_s = sluice_clock() - s->begun_s;
    return 0;
}

int cli_session_open(struct cli_session *s, const struct cli_config *c) {
    const int rc = cli_session_prepare(s, c);
    return rc ? rc : cli_session_load(s);
}

int cli_session_start(struct cli_session *s, uint64_t tokens) {
    const struct cli_config *c = s->config;
    struct sluice_error err;
    const double start = sluice_clock();
    if (sluice_runner_start(s->runner, tokens, &err)) {
        return cli_session_fail(s, &err);
    }
    s->params.n_ubatch = sluice_runner_n_ubatch(s->runner); /* a comparison takes the same */
    char line[512];
    if (!c->resident &&
        sluice_window_line(line, sizeof line) > 0) { /* with --quiet too: it was asked for, and is needed */
        cli_progress_print(&s->progress, line);
    }
    s->load_s += sluice_clock() - start;
    return 0;
}

void cli_session_close(struct cli_session *s) {
    cli_progress_clear(&s->progress);
    csv_close(s->csv, NULL); /* only after a failure: else cli_session_end_csv did it */
    s->csv = NULL;
    sluice_route_trace_close(NULL); /* likewise */
    sluice_runner_free(s->runner);
    sluice_gguf_free(s->gguf);
    s->runner = NULL;
    s->gguf = NULL;
}

/* Experts per token, where the user wants another number than the model's own; else 0. */
static int64_t session_other_top_k(const struct cli_session *s) {
    const struct sluice_gguf_number *own = &s->gguf->expert_used;
    const int64_t k = s->config->n_expert_used;
    return own->n && !own->array && own->value[0] == (uint64_t)k ? 0 : k;
}

bool cli_session_lossless(const struct cli_session *s) {
    const bool may = s->settings.drop_cold_experts > 0 || sluice_runner_given_up() > 0;
    return !session_other_top_k(s) && (s->config->resident || !may);
}

static const char lossless[] = ", lossless"; /* in a mode line */

void cli_session_mode(const struct cli_session *s, char *buf, size_t cap) {
    if (s->config->resident) {
        snprintf(buf, cap, "resident: plain llama.cpp, nothing streams%s", session_other_top_k(s) ? "" : lossless);
    } else {
        sluice_mode_line(buf, cap);
    }
    cli_session_mode_amend(s, buf, cap);
}

void cli_session_mode_amend(const struct cli_session *s, char *buf, size_t cap) {
    const int64_t k = session_other_top_k(s);
    if (k) {
        char *word = strstr(buf, lossless);
        if (word) {
            memmove(word, word + sizeof lossless - 1, strlen(word + sizeof lossless - 1) + 1);
        }
        const size_t n = strlen(buf);
        snprintf(buf + n, cap - n, ", lossy: %d experts per token (--n-expert-used)", (int)k);
    }
}

int cli_session_fail(struct cli_session *s, const struct sluice_error *err) {
    cli_progress_clear(&s->progress);
    return cli_fail(err->status == SLUICE_ERR_ARG ? CLI_EXIT_USAGE : CLI_EXIT_FAILED, s->config->command, "%s",
                    err->message);
}
