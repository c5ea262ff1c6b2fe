/*
 * session.h - what `run`, `chat` and `eval` share: from a parsed command line to an open model.
 */
#ifndef SLUICE_CLI_SESSION_H
#define SLUICE_CLI_SESSION_H

#include "cli/args.h"
#include "cli/progress.h"
#include "observe/counters.h"
#include "observe/csv.h"
#include "gguf/gguf_check.h"
#include "run/runner.h"

struct cli_session {
    const struct cli_config *config;    /* the command line */
    struct sluice_log log;              /* llama.cpp's */
    struct sluice_gguf *gguf;           /* the checked model, owned */
    struct sluice_runner_params params; /* how the model was opened */
    struct sluice_runner *runner;       /* owned */
    struct cli_progress progress;       /* the moving line */
    const char *feeding;                /* what the prompt hook calls the work: "prompt" */
    double begun_s;                     /* clock time at which that start was */
    uint64_t feed_blocks;               /* MoE blocks begun before the prompt that is being read */
    uint64_t feed_batches;              /* micro-batches of that prompt */
    double load_s;                      /* seconds from the start until the model was open */
    bool mode_shown;                    /* the mode line was printed, or is not wanted */
    struct sluice_settings settings;    /* as registered */
    struct csv *csv;                    /* --csv: a row per step goes there; NULL: not wanted, or it failed */
    bool csv_failed;                    /* it or a route trace failed, and a line was printed: the command must fail */
    struct step_sums steps[2];          /* steps so far, by enum sluice_phase */
};

/* Settings as a command has them: defaults, then the environment, then the options. Returns 0 or an exit code. */
int cli_session_settings(const struct cli_config *c, struct sluice_settings *settings);

/*
 * Check the model, apply defaults, environment and options, register sluice and open the model.
 * Returns 0 or an exit code after printing one line. cli_session_close in either case.
 */
int cli_session_open(struct cli_session *s, const struct cli_config *c);

/*
 * The same in two steps: between them `settings` is known and *s may be changed (n_outputs of params, feeding).
 */
int cli_session_prepare(struct cli_session *s, const struct cli_config *c);
int cli_session_load(struct cli_session *s);

/*
 * Make the context, for a first prompt of so many tokens (0: not known yet). Returns as cli_session_open. Afterwards
 * params.n_ubatch is what is in force.
 */
int cli_session_start(struct cli_session *s, uint64_t tokens);

/*
 * Nothing more will be computed: end the CSV file and the route trace. Returns an exit code, not 0 if any of it could
 * not be written; a line was printed then.
 */
int cli_session_end_csv(struct cli_session *s);

/* Free everything. */
void cli_session_close(struct cli_session *s);

/* Do the settings promise the resident run's output, and was nothing given up so far? Known after cli_session_prepare.
 */
bool cli_session_lossless(const struct cli_session *s);

/* Show mode and memory plan, once and if they are wanted. Happens by itself after the first batch of a prompt. */
void cli_session_show_mode(struct cli_session *s);

/* What runs, in one line without a newline. Final after the first batch. */
void cli_session_mode(const struct cli_session *s, char *buf, size_t cap);

/*
 * What the library or the plug-in says about the mode, completed by what they cannot know: that the model was told
 * to use another number of experts. cli_session_mode does it; this is for a line that another process printed.
 */
void cli_session_mode_amend(const struct cli_session *s, char *buf, size_t cap);

/* Print a failure of the runner; returns its exit code (2 for SLUICE_ERR_ARG, else 1). */
int cli_session_fail(struct cli_session *s, const struct sluice_error *err);

#endif
