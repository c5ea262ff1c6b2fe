/*
 * bench_run.c - one run of `sluice bench`: prepare the machine, start `sluice run`, read what it left.
 *
 * The child is this very program (/proc/self/exe), so that what is measured is what was asked, and each run is a
 * child of its own, because nothing else makes runs independent: slots, page tables, the allocator and the settings
 * of ggml live as long as their process. Its own summary (JSON) has what a process knows about itself, the rows of
 * --csv have each step, and the cgroup has the kernel's count of the memory.
 *
 * A run after a run finds the dense weights, and with buffered reads the experts, in the page cache. That is a fine
 * thing for users and a wrong one for a comparison: who comes second looks better. Dropping everything needs root; what
 * a user may do is ask the kernel to forget the file, which it does for pages that are clean and that nobody maps.
 *
 * One more token is generated than is measured: the first one comes from the prompt's last batch.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/cgroup.h"
#include "cli/bench_impl.h"
#include "cli/commands.h"
#include "cli/supervise.h"
#include "cli/text.h"

enum {
    BENCH_PATH_MAX = BENCH_DIR_MAX + 64, /* bytes of a path in the directory */
    ARGV_MAX = 48 + BENCH_WORDS_MAX,     /* words of a child's command line */
    GRACE_S = 60, /* for the end after SIGINT: a thrashing run needs long to reach its next look */
    TICK_MS = 250 /* between two looks at a child */
};

/* The prompt, if none is given. Written for this purpose; ordinary English, which every tokenizer knows. */
static const char prompt_text[] =
    "The lighthouse keeper had counted the ships for so many years that he no longer needed the book. He knew "
    "the fishing boats by the sound of their engines and the freighters by the order of their lamps, and when a "
    "stranger came through the strait he put down his cup and went up to the gallery to look. That evening it was "
    "a small white yacht, too far to the north, with its sails still up although the wind had turned. Somebody on "
    "board was either very brave or had never seen a chart of these waters. He reached for the telephone, but the "
    "line had been dead since the storm, so he lit the old signal lamp and began to send, slowly, the way he had "
    "been taught as a boy: danger, turn south, follow the light. For a long time nothing happened. Then the yacht "
    "lowered its sails one after the other, and a tiny light answered from the deck. It took them two hours to "
    "reach the harbour. The woman who climbed the stairs to thank him was a geologist who had come to measure how "
    "fast the cliffs were falling into the sea. Four centimetres in a year, she said, on average; but averages mean "
    "little here, because for ten years nothing moves and then a whole field is gone in one night. He told her that "
    "it was the same with ships. They drank tea, and she showed him her maps, and he showed her the book in which "
    "his father, and the keeper before his father, had written down every vessel that passed since the lamp was "
    "first lit. She asked if she might copy the pages about the cliffs. ";

/* ---- the directory ---------------------------------------------------------------------------- */

/* A file of the directory: the prompt, or one that a run writes. */
static void prompt_path(const struct bench *b, char path[BENCH_PATH_MAX]) {
    snprintf(path, BENCH_PATH_MAX, "%s/prompt.txt", b->dir);
}

static void run_path(const struct bench *b, int order, const char *suffix, char path[BENCH_PATH_MAX]) {
    snprintf(path, BENCH_PATH_MAX, "%s/run-%d.%s", b->dir, order, suffix);
}

/* What an earlier bench left in a kept directory must not be taken for this run's; what nobody keeps goes after it. */
static void unlink_run(const struct bench *b, int order) {
    static const char *const suffixes[] = {"json", "csv", "txt"};
    char path[BENCH_PATH_MAX];
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        run_path(b, order, suffixes[i], path);
        unlink(path);
    }
}

/* The prompt as one text that is long enough for any tokenizer: a token of English is seldom over 8 bytes. */
static int write_prompt(const struct bench *b) {
    const struct cli_config *c = b->config;
    char path[BENCH_PATH_MAX];
    struct cli_text text = {0};
    int rc = c->prompt_file ? cli_text_read(&text, c->prompt_file, c->command) : 0;
    while (rc == 0 && !c->prompt_file && text.n < 16 * (size_t)c->bench.prompt) {
        if (!cli_text_add(&text, prompt_text, sizeof prompt_text - 1)) {
            rc = cli_fail(CLI_EXIT_FAILED, c->command, "no memory for the prompt");
        }
    }
    prompt_path(b, path);
    FILE *f = rc ? NULL : fopen(path, "we");
    const bool ok = f && fwrite(text.data, 1, text.n, f) == text.n;
    if ((f && fclose(f) != 0) || (!rc && !ok)) {
        rc = cli_fail(CLI_EXIT_FAILED, c->command, "%s: %s", path, strerror(errno));
    }
    cli_text_free(&text);
    return rc;
}

static int make_directory(struct bench *b) {
    const char *command = b->config->command, *keep = b->config->bench.keep, *tmp = getenv("TMPDIR");
    char dir[BENCH_DIR_MAX];
    const int n = keep ? snprintf(dir, sizeof dir, "%s", keep)
                       : snprintf(dir, sizeof dir, "%s/sluice-bench-XXXXXX", tmp && tmp[0] ? tmp : "/tmp");
    if (n < 0 || n >= (int)sizeof dir) {
        return cli_fail(CLI_EXIT_FAILED, command, "%s: too long", dir);
    }
    if (keep ? mkdir(dir, 0777) != 0 && errno != EEXIST : !mkdtemp(dir)) {
        return cli_fail(CLI_EXIT_FAILED, command, "%s: %s", dir, strerror(errno));
    }
    memcpy(b->dir, dir, sizeof dir);
    return write_prompt(b);
}

void bench_clean(struct bench *b) {
    char path[BENCH_PATH_MAX];
    if (b->dir[0] && !b->config->bench.keep) {
        prompt_path(b, path);
        unlink(path);
        rmdir(b->dir);
    }
}

/* ---- the process ------------------------------------------------------------------------------ */

/* A line of the child's standard error: kept, if the user wants that; the last that is not empty may be why it failed.
 */
struct listener {
    FILE *kept;          /* NULL: nowhere */
    char *message;       /* of the run; NULL: not wanted */
    size_t message_size; /* bytes of it */
};

static void hear(void *user, const char *line) {
    const struct listener *l = user;
    if (l->kept) {
        fprintf(l->kept, "%s\n", line);
    }
    if (l->message && line[0]) {
        snprintf(l->message, l->message_size, "%s", line);
        for (char *p = l->message; *p; p++) {
            *p = (unsigned char)*p < ' ' || *p == 127 ? ' ' : *p;
        }
    }
}

/* What to start, and how it ended. */
struct child {
    struct supervised process; /* with `out`, `entry` and `line` set */
    const char *what;          /* for the moving line */
    double seconds;            /* from start to end */
    bool timed_out;            /* it was asked to stop after --max-seconds */
    int asked;                 /* the signal with which the user stopped the bench; 0: none */
};

/*
 * Run this program with argv to its end. Asking it to stop is SIGINT, on which `sluice run` prints what it has. Returns
 * 0, or an errno value when it cannot be started.
 */
static int run_child(struct bench *b, char **argv, struct child *c) {
    const double begin = sluice_clock();
    const int error = supervise_start(&c->process, "/proc/self/exe", argv);
    if (error) {
        return error;
    }
    for (;;) {
        const enum supervise_event event = supervise_wait(&c->process, -1, 0, TICK_MS);
        c->seconds = sluice_clock() - begin;
        if (event == SUPERVISE_ENDED) {
            break;
        }
        c->asked = event == SUPERVISE_ASKED ? c->process.asked : 0;
        c->timed_out = !c->asked && c->seconds > b->config->bench.max_seconds;
        if (c->asked || c->timed_out) {
            supervise_stop(&c->process, SIGINT, GRACE_S);
            c->seconds = sluice_clock() - begin;
            break;
        }
        cli_progress_seconds(&b->progress, c->what, c->seconds);
    }
    supervise_free(&c->process);
    if (c->asked) {
        raise(c->asked); /* it was taken from our own handler: cli_interrupted is true from here on */
    }
    return 0;
}

static bool make_group(const struct bench *b, int order, struct bench_cgroup *group, struct sluice_error *err) {
    char name[64];
    snprintf(name, sizeof name, "sluice-bench-%ld-%d", (long)getpid(), order);
    return bench_cgroup_create(group, name, b->memory, "", err) == 0;
}

/* Can a process be run in a cgroup of that limit? That one may be made does not say that it may be entered. */
static bool try_cgroup(struct bench *b, struct sluice_error *err) {
    char program[] = "sluice", version[] = "--version";
    char *argv[] = {program, version, NULL};
    struct bench_cgroup group;
    if (!make_group(b, 0, &group, err)) {
        return false;
    }
    struct child c = {.process = {.entry = group.entry}, .what = "trying a cgroup"};
    const int error = run_child(b, argv, &c); /* how it ended does not matter: the limit may be tiny */
    snprintf(err->message, sizeof err->message, "%s", error ? strerror(error) : "a group could not be removed again");
    return bench_cgroup_remove(&group) && error == 0;
}

int bench_prepare(struct bench *b) {
    struct sluice_error err = {.message = ""};
    b->cgroup = b->memory && try_cgroup(b, &err);
    b->ceiling = b->memory && !b->cgroup && cli_has_option(&cli_run_command, "--memory");
    snprintf(b->no_cgroup, sizeof b->no_cgroup, "%s", b->cgroup ? "" : err.message);
    for (size_t i = 0; b->memory && !b->cgroup && i < b->n_entries; i++) {
        struct bench_entry *e = &b->entries[i];
        if (e->kind == BENCH_MMAP && !e->skipped[0]) {
            snprintf(e->skipped, sizeof e->skipped, "needs a limit that the kernel keeps: %.200s", err.message);
        }
    }
    return make_directory(b);
}

/* ---- a run ------------------------------------------------------------------------------------ */

/* All clean pages, directory entries and inodes of the machine. False where this process may not. */
static bool drop_all(void) {
    sync(); /* dirty pages are not dropped */
    const int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
    const bool ok = fd >= 0 && write(fd, "3", 1) == 1;
    if (fd >= 0) {
        close(fd);
    }
    return ok;
}

static bool drop_file(const char *path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    fdatasync(fd); /* fails on some read-only file systems, where nothing is dirty */
    const bool ok = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0;
    close(fd);
    return ok;
}

/* Read the whole file through the page cache. False with errno; Ctrl-C ends it early, which is no failure. */
static bool warm_file(const char *path) {
    static uint8_t piece[1 << 20];
    ssize_t n = -1;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        do {
            n = read(fd, piece, sizeof piece);
        } while (!cli_interrupted() && n > 0);
        close(fd);
    }
    return n >= 0 || cli_interrupted();
}

/* Cold, as far as this process may make it so; warm for the resident baseline. */
static int prepare_cache(const struct bench *b, const struct bench_entry *e, struct bench_run *run) {
    const char *wish = b->config->bench.drop;
    const bool machine = !wish || strcmp(wish, "machine") == 0, none = wish && strcmp(wish, "no") == 0;
    run->warmed = e->kind == BENCH_RESIDENT;
    if (!run->warmed && machine && drop_all()) {
        run->dropped = BENCH_DROPPED_ALL;
        return 0;
    }
    run->dropped = run->warmed || none ? BENCH_DROPPED_NOTHING : BENCH_DROPPED_FILE;
    for (uint32_t i = 0; i < b->gguf->n_shards; i++) {
        const char *path = b->gguf->shards[i].path;
        if (run->warmed && !warm_file(path)) {
            return cli_fail(CLI_EXIT_FAILED, b->config->command, "%s: %s", path, strerror(errno));
        }
        if (run->dropped == BENCH_DROPPED_FILE && !drop_file(path)) {
            run->dropped = BENCH_DROPPED_NOTHING;
        }
    }
    return 0;
}

/* A child's command line. */
struct words {
    char *argv[ARGV_MAX];                             /* points into this struct and into the config, ends with NULL */
    int n;                                            /* of them */
    char prompt[BENCH_PATH_MAX], csv[BENCH_PATH_MAX]; /* files */
    char n_prompt[24], n_gen[24], ctx[24], threads[24]; /* numbers */
};

static void add(struct words *w, const char *word) {
    w->argv[w->n++] = (char *)(uintptr_t)word; /* execv promises not to write to them */
}

static void build_argv(const struct bench *b, const struct bench_entry *e, int order, struct words *w) {
    const struct cli_config *c = b->config;
    const int64_t tokens = c->bench.prompt + c->bench.gen + 1;
    *w = (struct words){.n = 0};
    prompt_path(b, w->prompt);
    run_path(b, order, "csv", w->csv);
    snprintf(w->n_prompt, sizeof w->n_prompt, "%" PRId64, c->bench.prompt);
    snprintf(w->n_gen, sizeof w->n_gen, "%" PRId64, c->bench.gen + 1);
    snprintf(w->ctx, sizeof w->ctx, "%" PRId64, tokens <= 4096 ? 4096 : (tokens + 255) / 256 * 256);
    snprintf(w->threads, sizeof w->threads, "%" PRId64, c->n_threads);
    const char *const fixed[] = {"sluice",    "run", "-m",           c->model, "-f",      w->prompt, "--prompt-tokens",
                                 w->n_prompt, "-n",  w->n_gen,       "-c",     w->ctx,    "--temp",  "0",
                                 "--seed",    "1",   "--ignore-eos", "--json", "--quiet", "--csv",   w->csv};
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) {
        add(w, fixed[i]);
    }
    if (c->n_threads) {
        add(w, "-t");
        add(w, w->threads);
    }
    add(w, e->kind == BENCH_STREAM ? "--cache" : "--resident");
    if (e->kind == BENCH_STREAM) {
        add(w, e->cache);
    }
    if (b->ceiling && e->kind == BENCH_STREAM) {
        add(w, "--memory");
        add(w, c->bench.memory);
    }
    for (int i = 0; e->variant && i < e->variant->n_words; i++) {
        add(w, e->variant->words[i]);
    }
}

/* The child's own summary. False when there is none; an interrupted load leaves none. */
static bool read_summary(struct bench_run *run, const char *path) {
    json_t *o = json_load_file(path, 0, NULL); /* what is missing in it, or of another type, counts as 0 */
    const char *mode = json_string_value(json_object_get(o, "mode"));
    snprintf(run->mode, sizeof run->mode, "%s", mode ? mode : "");
    run->csv.total[BENCH_LOAD_S] = json_number_value(json_object_get(o, "load_seconds"));
    run->csv.total[BENCH_FIRST_TOKEN_S] = json_number_value(json_object_get(o, "first_token_seconds"));
    run->csv.total[BENCH_CACHE_BYTES] = json_number_value(json_object_get(json_object_get(o, "cache"), "bytes"));
    if (!run->peak_of_cgroup) {
        run->peak = (uint64_t)json_integer_value(json_object_get(o, "peak_memory_bytes"));
    }
    const bool there = json_is_object(o);
    json_decref(o);
    return there;
}

/* After the child's end: was it a success, and what did it leave? */
static int read_results(const struct bench *b, const struct child *c, struct bench_run *run) {
    char path[BENCH_PATH_MAX];
    struct sluice_error err = {.message = ""};
    const int status = c->process.status;
    run->seconds = c->seconds;
    run->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    run->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    run->end = run->code == 0 ? BENCH_COMPLETE /* it may have ended by itself just when it was asked to */
               : c->timed_out ? BENCH_STOPPED
               : c->asked     ? BENCH_INTERRUPTED
                              : BENCH_FAILED;
    if (run->end == BENCH_FAILED && run->kills) {
        snprintf(run->message, sizeof run->message, "the kernel ended it: it needed more than the limit of memory");
    } else if (run->end == BENCH_FAILED && !run->message[0]) {
        snprintf(run->message, sizeof run->message, "it said nothing");
    }
    if (run->end == BENCH_FAILED) {
        return 0;
    }
    const bool asked = run->end != BENCH_COMPLETE;
    run_path(b, run->order, "csv", path);
    const int rc = asked && access(path, F_OK) != 0 ? 0 : bench_csv_read(path, asked, &run->csv, &err);
    if (rc == SLUICE_ERR_MEMORY) {
        return cli_fail(CLI_EXIT_FAILED, b->config->command, "%s", err.message);
    }
    run_path(b, run->order, "json", path);
    if (rc == 0 && !read_summary(run, path) && !asked) {
        snprintf(err.message, sizeof err.message, "its summary is no JSON object");
    }
    if (err.message[0]) {
        run->end = BENCH_FAILED;
        snprintf(run->message, sizeof run->message, "%s", err.message);
    }
    return 0;
}

int bench_run(struct bench *b, const struct bench_entry *e, struct bench_run *run) {
    char path[BENCH_PATH_MAX], what[160];
    struct words words;
    struct bench_cgroup group = {.dir = ""};
    struct sluice_error err;
    struct listener listener = {.message = run->message, .message_size = sizeof run->message};
    struct child child = {.process = {.line = hear, .user = &listener}, .what = what};
    const struct cli_bench *c = &b->config->bench;
    int rc = prepare_cache(b, e, run);
    if (rc || cli_interrupted()) {
        return rc;
    }
    unlink_run(b, run->order);
    build_argv(b, e, run->order, &words);
    snprintf(what, sizeof what, "round %d/%" PRId64 ", %s", run->round, c->runs, e->name);
    if (b->cgroup && e->kind != BENCH_RESIDENT && !make_group(b, run->order, &group, &err)) {
        return cli_fail(CLI_EXIT_FAILED, b->config->command, "%s", err.message);
    }
    run_path(b, run->order, "txt", path);
    listener.kept = c->keep ? fopen(path, "we") : NULL;
    run_path(b, run->order, "json", path);
    child.process.entry = group.entry;
    child.process.out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bench_state_read(&run->before, "");
    int error = child.process.out < 0 || (c->keep && !listener.kept) ? errno : run_child(b, words.argv, &child);
    bench_state_read(&run->after, "");
    cli_progress_clear(&b->progress);
    if (child.process.out >= 0) {
        close(child.process.out);
    }
    if (listener.kept) {
        fclose(listener.kept);
    }
    bench_cgroup_counts(&group, &run->peak, &run->kills);
    run->peak_of_cgroup = run->peak > 0;
    if (!bench_cgroup_remove(&group)) {
        cli_fail(0, b->config->command, "%s could not be removed", group.dir);
    }
    rc = error ? cli_fail(CLI_EXIT_FAILED, b->config->command, "a run cannot be started: %s", strerror(error))
               : read_results(b, &child, run);
    if (!c->keep) {
        unlink_run(b, run->order);
    }
    return rc;
}
