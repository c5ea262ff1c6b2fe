/*
 * serve_start.c - how `sluice serve` starts llama-server: which file, which options.
 *
 * llama-server's defaults suit a model that lies in memory. What serve gives it instead, and why:
 *
 *   -t N            every processor that this process may use; llama-server counts cores, half of two threads.
 *   -c, -np, -kvu   4096 tokens, as the other commands, in one KV cache that 4 requests share: more slots cost no
 *                   memory, and one request may use all of it. llama-server would take the model's whole training
 *                   context. Requests that generate together share what is read (docs/benchmarks.md, "Several
 *                   sequences").
 *   -b, -ub N       the micro-batch that `sluice chat` would choose: each one reads nearly the whole index, so that
 *                   llama-server's 512 read a long prompt's experts up to four times as often as 2048; but its
 *                   buffers take from the cache. -b is the same, or a batch of 2048 would be cut into a whole and a
 *                   part.
 *   --no-warmup     llama-server's warm-up routes a token to all experts: it would read the whole model for nothing.
 *   --no-repack     as `sluice run`: the same bytes as it gives, and dense weights are not in memory twice.
 *   --cache-ram 0   llama-server keeps prompts that leave the KV cache in up to 8 GiB of memory, of which the memory
 *                   plan cannot know. Slots keep theirs in the KV cache anyway.
 *   -ctxcp 4        checkpoints of models with recurrent state or sliding windows: llama-server makes up to 32 for
 *                   each slot, memory of the same kind.
 *   --fit off       it would look for devices' free memory to adjust what is settled here.
 *
 * What the user gives after -- comes last, and llama-server takes the last of two. Only what serve must know
 * itself (model, host, port) is refused there.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/launch.h"
#include "cli/serve.h"

enum { OWN_WORDS = 40 /* at most so many words of argv are serve's own */ };

/* A file that can be executed? Its absolute path is not needed: the child starts in the same directory. */
static bool executable(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* The first llama-server of $PATH. */
static bool in_path(char out[PATH_MAX]) {
    const char *p = getenv("PATH");
    while (p && *p) {
        const size_t n = strcspn(p, ":");
        const int len = snprintf(out, PATH_MAX, "%.*s%sllama-server", (int)n, p, n ? "/" : "./");
        if (n < PATH_MAX && len > 0 && len < PATH_MAX && executable(out)) {
            return true;
        }
        p += n;
        p += *p == ':';
    }
    return false;
}

int serve_find_program(struct serve *v) {
    const struct cli_config *c = v->config;
    const char *wish = c->serve.server;
    const char *who = "--server";
    if (!wish) {
        wish = getenv("SLUICE_LLAMA_SERVER");
        who = "SLUICE_LLAMA_SERVER";
    }
    if (wish && wish[0]) {
        const int n = snprintf(v->program, sizeof v->program, "%s", wish);
        if (n < 0 || (size_t)n >= sizeof v->program || !executable(v->program)) {
            return cli_fail(CLI_EXIT_USAGE, c->command, "%s %s: not a program that can be started", who, wish);
        }
        return 0;
    }
    static const char *const places[] = {"/llama-server", "/../lib/sluice/llama-server"}; /* built, installed */
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (cli_launch_beside(places[i], v->program) && executable(v->program)) {
            return 0;
        }
    }
    if (in_path(v->program)) {
        return 0;
    }
    return cli_fail(
        CLI_EXIT_FAILED, c->command,
        "llama-server is not there: `make server` in sluice's source builds it (some minutes), or name one of "
        "llama.cpp %s with --server PATH",
        SLUICE_LLAMA_VERSION);
}

/* In a process of its own: open the model and make the context, as for a chat. Ends with an exit code. */
__attribute__((noreturn)) static void choose_and_exit(struct serve *v, int told, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(CLI_EXIT_FAILED);
    }
    v->session.settings.window[0] = '\0'; /* llama-server's process will have it */
    v->session.settings.publish = false;  /* likewise; and _exit would leave the file behind */
    int rc = cli_session_load(&v->session);
    rc = rc ? rc : cli_session_start(&v->session, 0);
    cli_progress_clear(&v->session.progress);
    if (rc == 0) {
        const uint32_t chosen = v->session.params.n_ubatch;
        if (write(told, &chosen, sizeof chosen) != (ssize_t)sizeof chosen) {
            rc = CLI_EXIT_FAILED;
        }
    }
    fflush(NULL);
    _exit(rc); /* no destructors: the memory goes all at once */
}

int serve_choose_ubatch(struct serve *v) {
    const char *command = v->config->command;
    int told[2], status = 0;
    uint32_t chosen = 0;
    if (pipe(told) != 0) {
        return cli_fail(CLI_EXIT_FAILED, command, "%s", strerror(errno));
    }
    fflush(NULL);
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        close(told[0]);
        choose_and_exit(v, told[1], parent);
    }
    const int error = errno;
    close(told[1]);
    ssize_t n = -1;
    if (pid > 0) {
        do {
            n = read(told[0], &chosen, sizeof chosen);
        } while (n < 0 && errno == EINTR);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    }
    close(told[0]);
    if (pid < 0) {
        return cli_fail(CLI_EXIT_FAILED, command, "%s", strerror(error));
    }
    if (WIFSIGNALED(status)) {
        return cli_fail(CLI_EXIT_FAILED, command, "opening the model was ended by signal %d (%s)", WTERMSIG(status),
                        strsignal(WTERMSIG(status)));
    }
    if (WEXITSTATUS(status) || n != (ssize_t)sizeof chosen) {
        return WEXITSTATUS(status) ? WEXITSTATUS(status) : CLI_EXIT_FAILED; /* it said why */
    }
    v->n_ubatch = chosen;
    return 0;
}

int serve_environment(struct serve *v) {
    const struct cli_config *c = v->config;
    char chat[64];
    const char *url = v->api.url;
    if (c->resident) {
        return 0;
    }
    if (v->api.any) { /* the window then takes the name by which its reader calls this machine */
        snprintf(chat, sizeof chat, "http://%s:%d", v->api.at.ss_family == AF_INET6 ? "[::]" : "0.0.0.0", v->api.port);
        url = chat;
    }
    const int rc = cli_launch_streaming(c);
    return rc ? rc : cli_launch_set(c->command, "SLUICE_WINDOW_CHAT", url);
}

/* The command line of llama-server while it is put together. */
struct words {
    char **argv;        /* ends with NULL; the words are not owned */
    size_t n;           /* so far */
    char numbers[256];  /* room for those that are made here */
    size_t n_numbers;   /* bytes of it that are used */
    char override[128]; /* of --override-kv */
};

static void add(struct words *w, const char *name, const char *value) {
    w->argv[w->n++] = (char *)(uintptr_t)name; /* execv's type; nobody writes there */
    if (value) {
        w->argv[w->n++] = (char *)(uintptr_t)value;
    }
}

static void add_number(struct words *w, const char *name, int64_t value) {
    char *text = w->numbers + w->n_numbers;
    w->n_numbers += (size_t)snprintf(text, sizeof w->numbers - w->n_numbers, "%lld", (long long)value) + 1;
    add(w, name, text);
}

static void own_words(struct serve *v, struct words *w) {
    const struct cli_config *c = v->config;
    add(w, v->program, NULL);
    add(w, "--model", c->model);
    add(w, "--host", c->serve.host);
    add_number(w, "--port", v->api.port);
    add_number(w, "--ctx-size", c->n_ctx);
    add_number(w, "--parallel", c->serve.parallel);
    add(w, "--kv-unified", NULL);
    add_number(w, "--threads", v->session.params.n_threads);
    if (v->n_ubatch) {
        add_number(w, "--batch-size", v->n_ubatch);
        add_number(w, "--ubatch-size", v->n_ubatch);
    }
    add(w, "--no-warmup", NULL);
    add(w, "--no-repack", NULL);
    add(w, "--cache-ram", "0");
    add(w, "--ctx-checkpoints", "4");
    add(w, "--fit", "off");
    if (c->n_expert_used) {
        snprintf(w->override, sizeof w->override, "%s.expert_used_count=int:%d", v->session.gguf->architecture,
                 (int)c->n_expert_used);
        add(w, "--override-kv", w->override);
    }
}

int serve_start(struct serve *v) {
    const struct cli_config *c = v->config;
    struct words w = {.argv = calloc(OWN_WORDS + (size_t)c->n_args + 1, sizeof *w.argv)};
    if (!w.argv) {
        return cli_fail(CLI_EXIT_FAILED, c->command, "no memory");
    }
    own_words(v, &w);
    for (int i = 0; i < c->n_args; i++) {
        add(&w, c->args[i], NULL);
    }
    const int error = supervise_start(&v->child, v->program, w.argv);
    free(w.argv);
    return error ? cli_fail(CLI_EXIT_FAILED, c->command, "%s cannot be started: %s", v->program, strerror(error)) : 0;
}
