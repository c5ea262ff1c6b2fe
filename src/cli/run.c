/*
 * run.c - `sluice run`: one prompt, one answer, a summary.
 *
 * Standard output carries the generated text and nothing else, as it is produced, so that it can be
 * piped; with --json it carries one object at the end instead. Everything else is for people and goes
 * to standard error.
 *
 * Text is only written after the step that it came from was computed without an error: a failed read
 * ends the command with exit 1 and no further text, never with wrong text.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/session.h"
#include "cli/summary.h"
#include "cli/text.h"
#include "run/prompt_cache.h"
#include "run/prompt_file.h"

/* One run. */
struct run {
    const struct cli_config *config;   /* the command line */
    struct cli_session session;        /* the open model */
    struct sluice_prompt_cache *cache; /* --prompt-cache; else NULL */
    struct sluice_record *record;      /* for --compare-resident; else NULL */
    struct cli_report report;          /* filled as things happen */
    struct cli_text text;              /* what was generated; with --json it is printed at the end */
    char last;                         /* last byte written to standard output */
    bool write_failed;                 /* standard output is gone */
};

/* The prompt from where the user said, exactly one place. */
static int read_prompt(const struct cli_config *c, struct cli_text *prompt) {
    bool standard = c->n_args == 1 && strcmp(c->args[0], "-") == 0;
    if (c->n_args == 1 && !standard) {
        return cli_fail(CLI_EXIT_USAGE, c->command, "unexpected argument %s (a prompt is given with -p)", c->args[0]);
    }
    int given = (c->prompt != NULL) + (c->prompt_file != NULL) + standard;
    if (given != 1) {
        return cli_fail(CLI_EXIT_USAGE, c->command,
                        given ? "more than one prompt: choose one of -p, -f and -"
                              : "no prompt: give one with -p TEXT, -f FILE, or - for standard input");
    }
    int rc = 0;
    if (c->prompt) {
        rc =
            cli_text_add(prompt, c->prompt, strlen(c->prompt)) ? 0 : cli_fail(CLI_EXIT_FAILED, c->command, "no memory");
    } else {
        rc = cli_text_read(prompt, standard ? "-" : c->prompt_file, c->command);
    }
    if (rc == 0 && prompt->n == 0) {
        rc = cli_fail(CLI_EXIT_USAGE, c->command, "the prompt is empty");
    }
    return rc;
}

/* Generated text arrives. */
static bool on_text(void *user, const char *text, size_t n) {
    struct run *run = user;
    if (run->config->json) {
        if (!cli_text_add(&run->text, text, n)) {
            cli_fail(0, run->config->command, "no memory for the text");
            run->write_failed = true;
        }
    } else {
        run->write_failed = !cli_write(run->config->command, text, n);
        run->last = text[n - 1];
    }
    return !run->write_failed && !run->session.csv_failed;
}

/* --prompt-cache: how many tokens need not be computed. What is wrong with the file is said, once. */
static int look_up(struct run *run, const int32_t *tokens, size_t n, uint64_t *known) {
    struct cli_session *s = &run->session;
    struct sluice_error err;
    *known = 0;
    if (!s->config->prompt_cache) {
        return 0;
    }
    if (sluice_prompt_cache_open(&run->cache, s->runner, s->config->prompt_cache, &err)) {
        return cli_session_fail(s, &err);
    }
    if (sluice_prompt_cache_refused(run->cache)) {
        cli_fail(0, s->config->command, "%s", sluice_prompt_cache_refused(run->cache));
    }
    *known = sluice_prompt_cache_match(run->cache, tokens, n);
    return 0;
}

/* Those tokens into the context. */
static void restore(struct run *run, uint64_t known) {
    run->report.restored = known ? sluice_prompt_cache_restore(run->cache, known) : 0;
    if (known && run->report.restored == 0 && sluice_prompt_cache_refused(run->cache)) {
        cli_fail(0, run->config->command, "%s", sluice_prompt_cache_refused(run->cache));
    }
}

/* Keep the prompt. The text is right without it, so that a failure is told and no more. */
static void keep_prompt(struct run *run) {
    struct sluice_error err;
    if (run->cache && sluice_prompt_cache_save(run->cache, &err)) {
        cli_fail(0, run->config->command, "the prompt is not kept: %s", err.message);
    }
}

/* Tokens of the prompt, and a context that suits them. */
static int tokenize(struct run *run, const struct cli_text *prompt, int32_t **tokens, size_t *n) {
    struct sluice_error err;
    struct cli_session *s = &run->session;
    if (sluice_runner_tokenize(s->runner, prompt->data, prompt->n, true, true, tokens, n, &err)) {
        return cli_session_fail(s, &err);
    }
    if (*n == 0) {
        return cli_fail(CLI_EXIT_USAGE, s->config->command, "the prompt has no tokens");
    }
    if (s->config->n_prompt && *n > (size_t)s->config->n_prompt) {
        *n = (size_t)s->config->n_prompt;
    }
    uint64_t known;
    int rc = look_up(run, *tokens, *n, &known);
    rc = rc ? rc : cli_session_start(s, known < *n ? *n - known : 1);
    if (rc) {
        return rc;
    }
    restore(run, known);
    if (*n > sluice_runner_n_ctx(s->runner)) {
        return cli_fail(CLI_EXIT_USAGE, s->config->command,
                        "the prompt has %zu tokens, the context %" PRIu32 ": raise it with -c", *n,
                        sluice_runner_n_ctx(s->runner));
    }
    return 0;
}

/* Prompt and generation. Fills the report. */
static int generate(struct run *run, const int32_t *tokens, size_t n) {
    struct cli_session *s = &run->session;
    struct cli_report *r = &run->report;
    struct sluice_error err;
    enum sluice_stop stop = SLUICE_STOP_NONE;
    double start = sluice_clock();
    if (r->restored < n) {
        if (sluice_runner_feed(s->runner, tokens + r->restored, n - r->restored, &stop, &err)) {
            return cli_session_fail(s, &err);
        }
    } else {
        cli_session_show_mode(s); /* there is no batch after which it would be shown */
    }
    cli_progress_clear(&s->progress);
    if (!stop) {
        keep_prompt(run);
    }
    r->prompt = (struct cli_phase){.tokens = sluice_runner_n_used(s->runner) - r->restored,
                                   .seconds = sluice_clock() - start,
                                   .steps = s->steps[SLUICE_PHASE_PROMPT]};
    r->made.stop = stop ? stop : SLUICE_STOP_LENGTH;
    if (!stop && s->config->n_predict != 0) {
        if (sluice_runner_generate(s->runner, s->config->n_predict, on_text, run, &r->made, &err)) {
            return cli_session_fail(s, &err);
        }
        r->first_token_s = r->made.first_at > 0 ? r->made.first_at - start : 0;
    }
    r->generation = (struct cli_phase){
        .tokens = r->made.steps, .seconds = r->made.steps_s, .steps = s->steps[SLUICE_PHASE_GENERATION]};
    cli_end_read(&r->end, s); /* before a comparison loads the model resident */
    if (run->last && run->last != '\n' && isatty(STDOUT_FILENO)) {
        cli_write(s->config->command, "\n", 1);
    }
    const int rc = cli_session_end_csv(s);
    return run->write_failed ? CLI_EXIT_FAILED : rc;
}

/* --compare-resident: the streaming runner is freed first, both do not fit in memory. */
static int compare(struct run *run) {
    struct cli_session *s = &run->session;
    struct cli_report *r = &run->report;
    struct sluice_error err;
    sluice_runner_free(s->runner);
    s->runner = NULL;
    s->mode_shown = true;
    s->feeding = "comparing";
    int rc = sluice_record_compare(run->record, &s->params, &r->comparison, &err);
    cli_progress_clear(&s->progress);
    if (rc) {
        return cli_session_fail(s, &err);
    }
    if (r->comparison.interrupted) {
        fprintf(stderr, "identical to resident: unknown (interrupted after %" PRIu64 " of its steps)\n",
                r->comparison.steps);
        return CLI_EXIT_FAILED;
    }
    r->compared = true;
    if (!r->comparison.identical) {
        fprintf(stderr,
                "identical to resident: no\n"
                "  step %" PRIu64 ", token %" PRIu64 ": %.9g streamed, %.9g resident\n",
                r->comparison.first_step, r->comparison.first_token, (double)r->comparison.streamed,
                (double)r->comparison.resident);
        return CLI_EXIT_FAILED;
    }
    if (!s->config->quiet) {
        fprintf(stderr, "  %-12s%" PRIu64 " batches, %" PRIu64 " logits, byte by byte\n", "compared",
                r->comparison.steps, r->comparison.values);
    }
    fprintf(stderr, "identical to resident: yes\n");
    return CLI_EXIT_OK;
}

/* Everything after the command line and the prompt are known. */
static int run_all(struct run *run, const struct cli_text *prompt) {
    struct sluice_error err;
    int32_t *tokens = NULL;
    size_t n = 0;
    int rc = cli_session_open(&run->session, run->config);
    rc = rc ? rc : tokenize(run, prompt, &tokens, &n);
    if (rc == 0 && run->config->compare) {
        if (sluice_record_new(&run->record, &err)) {
            rc = cli_session_fail(&run->session, &err);
        } else {
            sluice_runner_record(run->session.runner, run->record);
        }
    }
    rc = rc ? rc : generate(run, tokens, n);
    free(tokens);
    if (rc) {
        return rc;
    }
    if (!run->config->quiet) {
        cli_summary_print(&run->report, stderr);
    }
    if (run->config->compare && run->report.made.stop != SLUICE_STOP_INTERRUPTED) {
        rc = compare(run);
    }
    if (run->config->json && (rc == 0 || run->report.compared)) {
        int printed = cli_summary_json(&run->report, run->text.data ? run->text.data : "", run->text.n);
        rc = rc ? rc : printed;
    }
    return rc;
}

static int run_main(struct cli_config *config) {
    struct run run = {.config = config};
    struct cli_text prompt = {0};
    if (config->compare && config->resident) {
        return cli_fail(CLI_EXIT_USAGE, config->command, "--resident and --compare-resident contradict each other");
    }
    if (config->compare && config->prompt_cache) {
        return cli_fail(CLI_EXIT_USAGE, config->command,
                        "--compare-resident computes the whole prompt: it cannot be combined with --prompt-cache");
    }
    struct sluice_error err;
    if (config->prompt_cache && sluice_prompt_file_possible(config->prompt_cache, &err)) {
        return cli_fail(CLI_EXIT_FAILED, config->command, "%s", err.message);
    }
    if (config->n_predict == CLI_NOT_GIVEN) {
        config->n_predict = 256;
    }
    run.report.session = &run.session;
    int rc = read_prompt(config, &prompt);
    rc = rc ? rc : run_all(&run, &prompt);
    bool interrupted = run.report.made.stop == SLUICE_STOP_INTERRUPTED || run.report.comparison.interrupted;
    sluice_record_free(run.record);
    sluice_prompt_cache_free(run.cache);
    cli_session_close(&run.session);
    cli_text_free(&prompt);
    cli_text_free(&run.text);
    if (interrupted) {
        cli_interrupt_die();
    }
    return rc;
}

const struct cli_command cli_run_command = {
    .name = "sluice run",
    .summary = "generate text from a prompt",
    .usage = "sluice run -m MODEL (-p TEXT | -f FILE | -) [options]",
    .about = "Generates text from a prompt given with -p, in a file, or on standard input (-).\n"
             "The text goes to standard output as it is produced; mode line, progress and summary\n"
             "go to standard error. Defaults are in parentheses.",
    .groups = {{"Input", "--prompt --file --prompt-cache"},
               {"Model", cli_model_options},
               {"Expert cache", cli_cache_options},
               {"Lossy", cli_lossy_options},
               {"Generation", cli_sampling_options},
               {"Fixed length", "--prompt-tokens --ignore-eos"},
               {"Measuring", cli_measure_options},
               {"Window", cli_window_options},
               {"Output", "--json --quiet --compare-resident"}},
    .notes = "The options of the expert cache can also be given by the environment (SLUICE_CACHE,\n"
             "SLUICE_CACHE_FLOOR, SLUICE_MEMORY, SLUICE_DENSE, SLUICE_CACHE_POLICY, SLUICE_FORCE_CACHE,\n"
             "SLUICE_LOOKAHEAD, SLUICE_IO, SLUICE_IO_THREADS, SLUICE_DIRECT_IO), and so can those that\n"
             "change the output (SLUICE_DROP_COLD_EXPERTS and so on); an option wins.\n"
             "Ctrl-C ends the generation and prints the summary.\n\n"
             "Example: sluice run -m model.gguf --cache 4GiB -p \"Once upon a time\" -n 64",
    .max_args = 1,
    .run = run_main,
};
