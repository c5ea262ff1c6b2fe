/*
 * serve.c - `sluice serve`: a stock llama-server that streams, and what a person needs around it.
 *
 * llama-server answers all requests; nothing of its API passes through here. This process finds out what suits the
 * model (serve_start.c), starts the server with the plug-in, waits until it is ready, says where, and stays: its end is
 * the server's and the server's is its own.
 *
 * The server's log is long and not for people, so only errors and what the plug-in says are passed on (--verbose: all);
 * the last lines are kept, since they explain an unexpected end. Standard output gets where to go and "ready", for
 * scripts that wait for it; everything else goes to standard error.
 *
 * Before it says ready it has the server generate one token. What is left of memory for the cache is only known at the
 * first token, and a plan that does not fit fails it. llama-server v0.5.0 does compute two tokens while it loads (to
 * see whether its context can forget some), but it only logs when that fails, and says that it is healthy.
 */
#include "cli/serve.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "cli/commands.h"
#include "cli/options.h"
#include "memory/address.h"

/* For the server's end, seconds. In the middle of a long prompt it needs longer, and is killed. */
static const double GRACE_S = 10;

/* Does llama-server's log say that this is an error? "0.01.234.567 E srv ...". */
static bool is_error(const char *line) {
    const size_t n = strspn(line, "0123456789.");
    return n && strncmp(line + n, " E ", 3) == 0;
}

/* A line of the child. */
static void on_line(void *user, const char *line) {
    static const char ours[] = "sluice: ", window[] = "sluice: window: ";
    struct serve *v = user;
    char text[SUPERVISE_LINE + 128];
    if (strncmp(line, window, sizeof window - 1) == 0) {
        snprintf(v->window, sizeof v->window, "%s", line + sizeof window - 1);
    } else if (strncmp(line, ours, sizeof ours - 1) == 0) {
        snprintf(text, sizeof text, "%s", line);
        if (strncmp(line + sizeof ours - 1, "streaming ", 10) == 0) {
            cli_session_mode_amend(&v->session, text, sizeof text);
        }
        cli_progress_print(&v->progress, text);
    } else if (v->config->serve.verbose || is_error(line)) {
        cli_progress_print(&v->progress, line);
    }
}

/* What after -- contradicts serve's own options: those that it must know itself. */
static int check_words(const struct cli_config *c) {
    static const char *const own[] = {"-m", "--model", "--host", "--port"};
    if (c->n_plain) {
        return cli_fail(CLI_EXIT_USAGE, c->command, "unexpected argument %s (options of llama-server come after --)",
                        c->args[0]);
    }
    for (int i = 0; i < c->n_args; i++) {
        for (size_t k = 0; k < sizeof own / sizeof own[0]; k++) {
            if (strcmp(c->args[i], own[k]) == 0) {
                return cli_fail(CLI_EXIT_USAGE, c->command, "%s belongs before the --: serve must know it, too",
                                own[k]);
            }
        }
    }
    return 0;
}

/* Will llama-server ask its clients for a key, by what follows -- or by the environment? */
static bool has_key(const struct cli_config *c) {
    bool found = getenv("LLAMA_API_KEY") != NULL;
    for (int i = 0; i < c->n_args; i++) {
        found = found || strcmp(c->args[i], "--api-key") == 0 || strcmp(c->args[i], "--api-key-file") == 0;
    }
    return found;
}

/* The window is there unless it is not wanted: what the command line says of it becomes a setting like any other. */
static int settle_window(struct cli_config *c) {
    const bool given = cli_given(c, "window");
    if (given && c->serve.no_window) {
        return cli_fail(CLI_EXIT_USAGE, c->command, "--window and --no-window contradict each other");
    }
    if (given || c->resident || (!c->serve.no_window && getenv("SLUICE_WINDOW"))) {
        return 0; /* with --resident nothing streams: cli_session_prepare refuses --window */
    }
    const struct cli_option row = {.setting = "window", .fixed = c->serve.no_window ? "off" : "127.0.0.1:8090"};
    return cli_set_setting(&row, NULL, c) ? 0 : cli_fail(CLI_EXIT_FAILED, c->command, "too many settings");
}

/* Can both addresses be listened at? */
static int take_addresses(struct serve *v) {
    const struct cli_config *c = v->config;
    const char *wanted = v->session.settings.window;
    struct cli_address window;
    struct plan_address where;
    int rc = cli_address_take(&v->api, c->serve.host, (uint16_t)c->serve.port, c->command, "--host", "--port");
    if (rc == 0 && !v->api.loopback && !has_key(c)) {
        cli_fail(0, c->command, "other machines can reach %s, and llama-server asks nobody for a key: -- --api-key KEY",
                 c->serve.host);
    }
    if (rc || c->resident || !plan_address_parse(wanted, &where) || where.port == 0) {
        return rc;
    }
    if (where.port == v->api.port) {
        return cli_fail(CLI_EXIT_USAGE, c->command,
                        "llama-server and the window cannot both have port %d: see --port and --window", where.port);
    }
    return cli_address_take(&window, where.host, where.port, c->command, "--window", "--window (or --no-window)");
}

/* Everything before the server is started. */
static int prepare(struct serve *v) {
    const struct cli_config *c = v->config;
    int rc = check_words(c);
    rc = rc ? rc : cli_session_prepare(&v->session, c);
    rc = rc ? rc : serve_find_program(v);
    rc = rc ? rc : take_addresses(v);
    v->n_ubatch = (uint32_t)c->n_ubatch;
    if (rc == 0 && !v->n_ubatch && !c->resident) {
        rc = serve_choose_ubatch(v);
    }
    return rc ? rc : serve_environment(v);
}

/* How it ended, and why, as far as it said. */
static int report_end(struct serve *v) {
    const int status = v->child.status;
    const char *when = v->phase == SERVE_READY ? "" : " before it was ready";
    char how[96];
    const char *hint = "";
    cli_progress_clear(&v->progress);
    if (WIFSIGNALED(status)) {
        snprintf(how, sizeof how, "was ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
        hint = WTERMSIG(status) == SIGKILL ? "; if the kernel did it for want of memory, give it less (--memory, --ctx)"
                                           : "";
    } else {
        snprintf(how, sizeof how, "ended with exit code %d", WEXITSTATUS(status));
    }
    const bool tail = !v->config->serve.verbose && v->child.n_lines;
    cli_fail(0, v->config->command, "llama-server %s%s%s%s", how, when, hint, tail ? "; its last lines:" : "");
    const char *line;
    for (size_t i = 0; tail && (line = supervise_tail(&v->child, i)); i++) {
        fprintf(stderr, "  %s\n", line);
    }
    return CLI_EXIT_FAILED;
}

/* End the child. Returns `code`, unless it had to be killed or ended badly. */
static int stop(struct serve *v, int sig, int code) {
    const int passed = sig == SIGINT ? SIGINT : SIGTERM; /* llama-server has no answer to SIGHUP */
    cli_progress_clear(&v->progress);
    if (!supervise_stop(&v->child, passed, GRACE_S)) {
        return cli_fail(CLI_EXIT_FAILED, v->config->command, "llama-server did not end in time and was killed");
    }
    const int status = v->child.status; /* while it loads the signal itself ends it */
    const bool well = WIFSIGNALED(status) ? WTERMSIG(status) == passed : WEXITSTATUS(status) == 0;
    return well ? code : report_end(v);
}

static int say_ready(struct serve *v) {
    char text[2 * CLI_HOST_MAX + sizeof v->window + 256];
    cli_progress_clear(&v->progress);
    if (v->config->resident) {
        char mode[512];
        cli_session_mode(&v->session, mode, sizeof mode);
        cli_progress_print(&v->progress, mode);
    }
    int n = snprintf(text, sizeof text, "api     %s/v1\n", v->api.url);
    if (v->page) {
        n += snprintf(text + n, sizeof text - (size_t)n, "chat    %s/\n", v->api.url);
    }
    if (v->window[0]) {
        n += snprintf(text + n, sizeof text - (size_t)n, "window  %s\n", v->window);
    }
    n += snprintf(text + n, sizeof text - (size_t)n, "ready\n");
    return cli_write(v->config->command, text, (size_t)n) ? 0 : CLI_EXIT_FAILED;
}

/* The question of this phase. */
static int ask(struct serve *v) {
    switch (v->phase) {
    case SERVE_HEALTH:
        return cli_http_begin(&v->http, &v->api, "/health", NULL);
    case SERVE_FIRST: /* a prompt of one token, since each one reads experts; every vocabulary has the first */
        return cli_http_begin(&v->http, &v->api, "/completion",
                              "{\"prompt\":[0],\"n_predict\":1,\"temperature\":0,\"cache_prompt\":false}");
    default:
        return cli_http_begin(&v->http, &v->api, "/", NULL);
    }
}

/* Its answer. Returns an exit code when the start has failed. */
static int hear(struct serve *v, int status) {
    switch (v->phase) {
    case SERVE_HEALTH:
        if (status == CLI_HTTP_FAILED || status == 503) {
            v->next_s = sluice_clock() + 0.1; /* it listens before the model is loaded, or not yet */
        } else {
            v->phase = v->config->resident ? SERVE_PAGE : SERVE_FIRST;
        }
        return 0;
    case SERVE_FIRST:
        /* 401: it wants a key that we do not know; 501: the model does not generate. Then the first request settles
         * all. */
        if (status == 500) {
            return cli_fail(CLI_EXIT_FAILED, v->config->command,
                            "llama-server could not compute the first token: see above");
        }
        v->phase = SERVE_PAGE;
        return 0;
    default:
        v->page = status == 200;
        v->phase = SERVE_READY;
        return say_ready(v);
    }
}

/* A step towards SERVE_READY. Returns an exit code when the start has failed. */
static int advance(struct serve *v) {
    int status;
    if (v->http.fd < 0) {
        if (sluice_clock() < v->next_s) {
            return 0;
        }
        status = ask(v);
    } else {
        status = cli_http_step(&v->http);
    }
    return status == CLI_HTTP_PENDING ? 0 : hear(v, status);
}

static int look_after(struct serve *v) {
    for (;;) {
        const bool ready = v->phase == SERVE_READY;
        if (!ready) {
            cli_progress_seconds(&v->progress, "starting llama-server", sluice_clock() - v->begun_s);
        }
        switch (supervise_wait(&v->child, v->http.fd, cli_http_events(&v->http), ready ? -1 : 100)) {
        case SUPERVISE_ENDED:
            return v->child.asked && v->child.status == 0 ? CLI_EXIT_OK : report_end(v);
        case SUPERVISE_ASKED:
            return stop(v, v->child.asked, CLI_EXIT_OK);
        default:
            break;
        }
        const int rc = v->phase == SERVE_READY ? 0 : advance(v);
        if (rc) {
            return stop(v, SIGTERM, rc);
        }
    }
}

static int serve_main(struct cli_config *config) {
    struct serve *v = calloc(1, sizeof *v);
    if (!v) {
        return cli_fail(CLI_EXIT_FAILED, config->command, "no memory");
    }
    v->config = config;
    v->http.fd = -1;
    v->child.line = on_line;
    v->child.user = v;
    int rc = settle_window(config);
    rc = rc ? rc : prepare(v);
    if (rc == 0) {
        cli_progress_start(&v->progress, false);
        v->begun_s = sluice_clock();
        rc = serve_start(v);
        if (rc == 0) {
            rc = look_after(v);
            cli_http_end(&v->http);
            cli_progress_clear(&v->progress);
            supervise_free(&v->child);
        }
    }
    cli_session_close(&v->session);
    free(v);
    return rc;
}

const struct cli_command cli_serve_command = {
    .name = "sluice serve",
    .summary = "serve a model: llama-server with streaming, and a page to watch it",
    .usage = "sluice serve -m MODEL [options] [-- options of llama-server]",
    .about = "Serves a model by llama-server, unmodified: its OpenAI-compatible API and its own page stay\n"
             "what they are. Prints where they are, and where the window is, and \"ready\" on standard output;\n"
             "messages go to standard error. Ctrl-C and SIGTERM end both; so does llama-server's own end.",
    .groups = {{"Server", "--host --port --parallel --server --no-window --verbose"},
               {"Model", cli_model_options},
               {"Expert cache", cli_cache_options},
               {"Lossy", cli_lossy_options},
               {"Window", cli_window_options}},
    .notes = "llama-server gets -m, --host, --port, -c, -np, --kv-unified, -t, -b, -ub, --no-warmup,\n"
             "--no-repack, --cache-ram 0, --ctx-checkpoints 4 and --fit off; what comes after -- comes last\n"
             "and wins. Exit codes: 0 when it was asked to end and did, 1 when llama-server ended by itself or\n"
             "had to be killed, 2 for a wrong command line.\n\n"
             "Example: sluice serve -m model.gguf --cache 4GiB --ctx 16384 -- --api-key secret",
    .max_args = INT_MAX,
    .run = serve_main,
};
