/*
 * serve.h - what the files of `sluice serve` share.
 */
#ifndef SLUICE_CLI_SERVE_H
#define SLUICE_CLI_SERVE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/address.h"
#include "cli/http.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/supervise.h"

/* How far the start has come: each one is a question to the server. */
enum serve_phase {
    SERVE_HEALTH, /* is the model loaded? */
    SERVE_FIRST,  /* one token: does it stream, within its memory? */
    SERVE_PAGE,   /* does it have a chat page? */
    SERVE_READY   /* all is said */
};

/* One `sluice serve`. */
struct serve {
    const struct cli_config *config; /* the command line, and what serve adds to its settings */
    struct cli_session session;      /* the checked model and the settings; never loaded in this process */
    struct cli_address api;          /* where llama-server listens */
    struct supervised child;         /* llama-server */
    struct cli_http http;            /* the question that is being asked */
    struct cli_progress progress;    /* the moving line, until it is ready */
    char program[PATH_MAX];          /* llama-server's file */
    char window[512];                /* where the window is, as the plug-in says; "": it said nothing */
    enum serve_phase phase;          /* see above */
    double begun_s;                  /* clock time of the child's start */
    double next_s;                   /* clock time before which the server is not asked again */
    uint32_t n_ubatch;               /* prompt tokens per micro-batch; 0: llama-server's default */
    bool page;                       /* it has a chat page */
};

/* Find llama-server. Returns 0 or an exit code after printing one line. */
int serve_find_program(struct serve *v);

/*
 * Choose the micro-batch as `sluice chat` does, with the model open, in a process that ends before the server begins.
 * Returns likewise. What is wrong with the model is found here.
 */
int serve_choose_ubatch(struct serve *v);

/* The environment of llama-server, window included. Returns likewise. */
int serve_environment(struct serve *v);

/* Start llama-server. Returns likewise. */
int serve_start(struct serve *v);

#endif
