/*
 * chat.c - `sluice chat`: a conversation on the terminal.
 *
 * Reads lines without an editing library: the terminal's own line editing is there, piped input
 * works the same, and one dependency less. Answers go to standard output, everything else to standard
 * error, so that `sluice chat < questions > answers` holds the answers only.
 *
 * Ctrl-C means "stop talking": the signal sets a flag that the compute threads poll, the answer so far
 * stays part of the conversation, and the next line is read. Ctrl-D or /exit ends. The flag is reset only by
 * what shows the user that the key was seen: the end of an answer that it stopped, or the note at the prompt.
 * A Ctrl-C between two of those is never lost: it stops the answer that was asked for, or is noted at the
 * prompt (lines.c).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/lines.h"
#include "cli/options.h"
#include "cli/session.h"
#include "cli/summary.h"
#include "cli/text.h"
#include "run/chat.h"

/* A conversation that is going on. */
struct talk {
    const struct cli_config *config; /* the command line */
    struct cli_session session;      /* the open model */
    struct sluice_chat *chat;        /* the messages */
    struct cli_text answer;          /* of this turn */
    struct cli_lines lines;          /* standard input */
    bool interactive;                /* standard input is a terminal */
    bool write_failed;               /* standard output is gone */
};

static bool on_text(void *user, const char *text, size_t n) {
    struct talk *t = user;
    t->write_failed = !cli_write(t->config->command, text, n) || !cli_text_add(&t->answer, text, n);
    return !t->write_failed && !t->session.csv_failed;
}

/* One line after an answer: what this turn cost. */
static void print_turn(const struct talk *t, const struct sluice_generated *made, uint64_t fed, double fed_s,
                       const struct sluice_stats *before) {
    struct sluice_stats now;
    sluice_get_stats(&now);
    const uint64_t computed = fed + made->steps;
    const uint64_t read =
        now.prompt.read_bytes + now.generation.read_bytes - before->prompt.read_bytes - before->generation.read_bytes;
    fprintf(stderr, "[%" PRIu64 " tokens read in %.2f s, %" PRIu64 " written, %.2f tok/s", fed, fed_s, made->tokens,
            made->steps_s > 0 ? (double)made->steps / made->steps_s : 0);
    if (!t->config->resident && now.tensors && computed) {
        fprintf(stderr, ", %.1f MiB read per token", (double)read / 1048576 / (double)computed);
    }
    fprintf(stderr, ", context %" PRIu32 "/%" PRIu32 "%s]\n", sluice_runner_n_used(t->session.runner),
            sluice_runner_n_ctx(t->session.runner),
            made->stop == SLUICE_STOP_INTERRUPTED ? ", interrupted"
            : made->stop == SLUICE_STOP_CONTEXT   ? ", context full"
                                                  : "");
}

/* The answer to a message that was computed. */
static int answer(struct talk *t, uint64_t fed, double fed_s, const struct sluice_stats *before) {
    struct sluice_generated made;
    struct sluice_error err;
    t->answer.n = 0;
    if (sluice_runner_generate(t->session.runner, t->config->n_predict, on_text, t, &made, &err)) {
        return cli_session_fail(&t->session, &err);
    }
    if (made.stop == SLUICE_STOP_INTERRUPTED) {
        cli_interrupt_reset();
    }
    if (t->session.csv_failed || t->write_failed || !cli_write(t->config->command, "\n", 1)) {
        return CLI_EXIT_FAILED;
    }
    if (!t->config->quiet) {
        print_turn(t, &made, fed, fed_s, before);
    }
    if (sluice_chat_answer(t->chat, t->answer.data ? t->answer.data : "", t->answer.n, &err)) {
        return cli_session_fail(&t->session, &err);
    }
    return 0;
}

/* One message. Returns an exit code only when the conversation cannot go on. */
static int turn(struct talk *t, const char *line, size_t n) {
    struct sluice_stats before;
    struct sluice_error err;
    enum sluice_stop stop;
    uint64_t fed;
    double start = sluice_clock();
    sluice_get_stats(&before);
    int rc = sluice_chat_ask(t->chat, line, n, &stop, &fed, &err);
    cli_progress_clear(&t->session.progress);
    if (rc == SLUICE_ERR_STATE) {
        cli_fail(0, t->config->command, "%s (/clear starts anew, -c gives a larger context)", err.message);
    } else if (rc) {
        return cli_session_fail(&t->session, &err);
    } else if (stop) {
        cli_interrupt_reset();
        fprintf(stderr, "[interrupted: this message is not part of the conversation]\n");
    } else {
        rc = answer(t, fed, sluice_clock() - start, &before);
    }
    return rc == SLUICE_ERR_STATE ? 0 : rc;
}

/* Lines until the end of input. */
static int converse(struct talk *t) {
    char *line;
    size_t n;
    int rc = 0;
    while (rc == 0) {
        if (t->interactive) {
            fputs("> ", stderr);
        }
        const enum cli_lines_got got = cli_lines_next(&t->lines, &line, &n);
        if (got == CLI_LINES_INTERRUPTED) { /* Ctrl-C while nothing is being said */
            cli_interrupt_reset();
            fputs("\n(Ctrl-D or /exit ends)\n", stderr);
            continue;
        }
        if (got == CLI_LINES_FAILED) {
            return cli_fail(CLI_EXIT_FAILED, t->config->command, "standard input: %s", strerror(errno));
        }
        if (got == CLI_LINES_END && t->interactive) {
            fputc('\n', stderr);
        }
        if (got == CLI_LINES_END || strcmp(line, "/exit") == 0) {
            return 0;
        }
        if (strcmp(line, "/clear") == 0) {
            sluice_chat_clear(t->chat);
            fputs("[the conversation starts anew]\n", stderr);
        } else if (n > 0) {
            rc = turn(t, line, n);
        }
    }
    return rc;
}

static int chat_main(struct cli_config *config) {
    struct talk t = {.config = config, .interactive = isatty(STDIN_FILENO)};
    struct sluice_error err;
    if (config->n_predict == CLI_NOT_GIVEN) {
        config->n_predict = -1;
    }
    int rc = cli_session_open(&t.session, config);
    rc = rc ? rc : cli_session_start(&t.session, 0);
    if (rc == 0 && sluice_chat_new(&t.chat, t.session.runner, config->chat_template, config->system, &err)) {
        rc = config->chat_template && err.status == SLUICE_ERR_ARG
                 ? cli_fail(CLI_EXIT_USAGE, config->command, "--chat-template %s: %s", config->chat_template,
                            err.message)
                 : cli_session_fail(&t.session, &err);
    }
    if (rc == 0 && !cli_lines_open(&t.lines, STDIN_FILENO)) {
        rc = cli_fail(CLI_EXIT_FAILED, config->command, "standard input: %s", strerror(errno));
    }
    if (rc == 0) {
        if (sluice_chat_notice(t.chat) && !config->quiet) {
            cli_fail(0, config->command, "%s", sluice_chat_notice(t.chat));
        }
        if (t.interactive && !config->quiet) {
            fputs("Ctrl-C stops an answer, Ctrl-D or /exit ends, /clear starts anew.\n", stderr);
        }
        rc = converse(&t);
    }
    const int ended = cli_session_end_csv(&t.session);
    rc = rc ? rc : ended;
    sluice_chat_free(t.chat);
    cli_lines_close(&t.lines);
    cli_text_free(&t.answer);
    cli_session_close(&t.session);
    return rc;
}

const struct cli_command cli_chat_command = {
    .name = "sluice chat",
    .summary = "talk to a model",
    .usage = "sluice chat -m MODEL [options]",
    .about = "Talks to a model with its own chat template. What was said stays in the context, so a turn\n"
             "only computes what is new. One line is one message.",
    .groups = {{"Conversation", "--system --chat-template --quiet"},
               {"Model", cli_model_options},
               {"Expert cache", cli_cache_options},
               {"Lossy", cli_lossy_options},
               {"Generation", cli_sampling_options},
               {"Measuring", cli_measure_options},
               {"Window", cli_window_options}},
    .notes = "  Ctrl-C   stops the answer, not the program\n"
             "  Ctrl-D   ends, like /exit\n"
             "  /clear   forgets the conversation",
    .run = chat_main,
};
