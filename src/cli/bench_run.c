/*
 * bench_run.c - one run of `sluice bench`: prepare the machine, start `sluice run`, read what it left.
 *
 * The child is this very program (/proc/self/exe), so that what is measured is what was asked. All
 * that it does is written to files of a temporary directory; its own summary (JSON) has what a process
 * knows about itself, the rows of --csv have each step, and the cgroup has the kernel's count of the memory.
 *
 * One more token is generated than is measured: the first one comes from the prompt's last batch.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/text.h"

enum { ARGV_MAX = 48 + BENCH_WORDS_MAX };

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

static bool stopped(void *user) {
    (void)user;
    return cli_interrupted();
}

static int path_in(const struct bench *b, char path[BENCH_PATH_MAX], const char *name) {
    const int n = snprintf(path, BENCH_PATH_MAX, "%s/%s", b->dir, name);
    return n > 0 && n < BENCH_PATH_MAX ? 0 : cli_fail(CLI_EXIT_FAILED, b->config->command, "%s: too long", b->dir);
}

/* The prompt as one text that is long enough for any tokenizer: a token of English is seldom over 8 bytes. */
static int make_prompt(const struct bench *b, struct cli_text *text) {
    const struct cli_config *c = b->config;
    if (c->prompt_file) {
        return cli_text_read(text, c->prompt_file, c->command);
    }
    do {
        if (!cli_text_add(text, prompt_text, sizeof prompt_text - 1)) {
            return cli_fail(CLI_EXIT_FAILED, c->command, "no memory for the prompt");
        }
    } while (text->n < 16 * (size_t)c->bench.prompt);
    return 0;
}

static int write_prompt(const struct bench *b) {
    char path[BENCH_PATH_MAX];
    struct cli_text text = {0};
    int rc = path_in(b, path, "prompt.txt");
    rc = rc ? rc : make_prompt(b, &text);
    FILE *f = rc ? NULL : fopen(path, "we");
    const bool ok = f && fwrite(text.data, 1, text.n, f) == text.n;
    if ((f && fclose(f) != 0) || (!rc && !ok)) {
        rc = cli_fail(CLI_EXIT_FAILED, b->config->command, "%s: %s", path, strerror(errno));
    }
    cli_text_free(&text);
    return rc;
}

int bench_prepare(struct bench *b) {
    const char *command = b->config->command, *keep = b->config->bench.keep, *tmp = getenv("TMPDIR");
    if (keep) {
        if (mkdir(keep, 0777) != 0 && errno != EEXIST) {
            return cli_fail(CLI_EXIT_FAILED, command, "%s: %s", keep, strerror(errno));
        }
        snprintf(b->dir, sizeof b->dir, "%s", strlen(keep) < sizeof b->dir - 64 ? keep : "");
    } else {
        char dir[BENCH_PATH_MAX];
        const int n = snprintf(dir, sizeof dir, "%s/sluice-bench-XXXXXX", tmp && tmp[0] ? tmp : "/tmp");
        if (n < 0 || n >= (int)sizeof dir - 64 || !mkdtemp(dir)) {
            return cli_fail(CLI_EXIT_FAILED, command, "%s: %s", dir, strerror(errno));
        }
        snprintf(b->dir, sizeof b->dir, "%s", dir);
    }
    return b->dir[0] ? write_prompt(b) : cli_fail(CLI_EXIT_FAILED, command, "--keep %s: too long", keep);
}

void bench_clean(struct bench *b) {
    static const char *const names[] = {"prompt.txt", "out.json", "err.txt", "steps.csv"};
    char path[BENCH_PATH_MAX];
    if (!b->dir[0] || b->config->bench.keep) {
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%.480s/%s", b->dir, names[i]);
        unlink(path);
    }
    rmdir(b->dir);
    b->dir[0] = '\0';
}

/* Cold, as far as this process may make it so; warm for the resident baseline. */
static int prepare_cache(const struct bench *b, const struct bench_entry *e, struct bench_run *run) {
    const char *wish = b->config->bench.drop;
    struct sluice_error err;
    if (e->kind == BENCH_RESIDENT) {
        for (uint32_t i = 0; i < b->gguf->n_shards && !cli_interrupted(); i++) {
            if (bench_warm_file(b->gguf->shards[i].path, stopped, NULL, &err)) {
                return cli_fail(CLI_EXIT_FAILED, b->config->command, "%s", err.message);
            }
        }
        run->warmed = true;
        return 0;
    }
    if (wish && strcmp(wish, "no") == 0) {
        return 0;
    }
    if ((!wish || strcmp(wish, "machine") == 0) && bench_drop_all()) {
        run->dropped = BENCH_DROPPED_ALL;
        return 0;
    }
    run->dropped = BENCH_DROPPED_FILE;
    for (uint32_t i = 0; i < b->gguf->n_shards; i++) {
        if (!bench_drop_file(b->gguf->shards[i].path)) {
            run->dropped = BENCH_DROPPED_NOTHING;
        }
    }
    return 0;
}

/* Texts of the command line that are made here. */
struct words {
    char *argv[ARGV_MAX]; /* what the child gets; points into this struct and into the config */
    int n;                /* of them */
    char prompt[BENCH_PATH_MAX], csv[BENCH_PATH_MAX];   /* files */
    char n_prompt[24], n_gen[24], ctx[24], threads[24]; /* numbers */
};

static void add(struct words *w, const char *word) {
    w->argv[w->n++] = (char *)(uintptr_t)word; /* execv promises not to write to them */
    w->argv[w->n] = NULL;
}

static void build_argv(const struct bench *b, const struct bench_entry *e, struct words *w) {
    const struct cli_config *c = b->config;
    const int64_t tokens = c->bench.prompt + c->bench.gen + 1;
    w->n = 0;
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
    if (e->kind == BENCH_STREAM) {
        add(w, "--cache");
        add(w, e->cache);
    } else {
        add(w, "--resident");
    }
    if (b->memory && b->ceiling && e->kind == BENCH_STREAM) {
        add(w, "--memory");
        add(w, c->bench.memory);
    }
    for (int i = 0; e->variant && i < e->variant->n_words; i++) {
        add(w, e->variant->words[i]);
    }
}

/* The last line that is not empty of a file, without control characters. */
static void last_line(const char *path, char *out, size_t cap) {
    char line[512];
    FILE *f = fopen(path, "re");
    out[0] = '\0';
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0]) {
            snprintf(out, cap, "%s", line);
        }
    }
    if (f) {
        fclose(f);
    }
    for (char *p = out; *p; p++) {
        *p = (unsigned char)*p < ' ' || *p == 127 ? ' ' : *p;
    }
}

static double number_at(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : 0;
}

static uint64_t count_at(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    return json_is_integer(v) && json_integer_value(v) > 0 ? (uint64_t)json_integer_value(v) : 0;
}

/* The child's own summary. False when there is none; an interrupted load leaves none. */
static bool read_summary(struct bench_run *run, const char *path) {
    json_error_t error;
    json_t *o = json_load_file(path, 0, &error);
    if (!json_is_object(o)) {
        json_decref(o);
        return false;
    }
    const char *mode = json_string_value(json_object_get(o, "mode"));
    snprintf(run->mode, sizeof run->mode, "%s", mode ? mode : "");
    run->load_s = number_at(o, "load_seconds");
    run->first_token_s = number_at(o, "first_token_seconds");
    run->prompt_tokens = count_at(json_object_get(o, "prompt"), "tokens");
    run->cache_bytes = count_at(json_object_get(o, "cache"), "bytes");
    if (!run->peak_of_cgroup) {
        run->peak = count_at(o, "peak_memory_bytes");
    }
    json_decref(o);
    return true;
}

/* After the child's end: was it a success, and what did it leave? */
static int read_results(const struct bench *b, struct bench_run *run, const char *out, const char *err_path,
                        const char *csv) {
    struct sluice_error err;
    const bool done = run->ended.code == 0; /* it may have ended by itself just when it was asked to */
    const bool asked = !done && (run->ended.timed_out || run->ended.interrupted);
    run->stopped = asked && run->ended.timed_out;
    run->interrupted = asked && run->ended.interrupted;
    if (!asked && !done) {
        run->failed = true;
        last_line(err_path, run->message, sizeof run->message);
        if (run->kills) {
            snprintf(run->message, sizeof run->message, "the kernel ended it: it needed more than the limit of memory");
        } else if (!run->message[0]) {
            snprintf(run->message, sizeof run->message, "it said nothing");
        }
        return 0;
    }
    const bool summary = read_summary(run, out);
    if (!summary && !asked) {
        run->failed = true;
        snprintf(run->message, sizeof run->message, "its summary is no JSON object");
        return 0;
    }
    const int rc = asked && access(csv, F_OK) != 0 ? 0 : bench_csv_read(csv, asked, &run->csv, &err);
    if (rc && rc != SLUICE_ERR_MEMORY) {
        run->failed = true;
        snprintf(run->message, sizeof run->message, "%s", err.message);
        return 0;
    }
    return !rc && bench_run_sums(run) ? 0 : cli_fail(CLI_EXIT_FAILED, b->config->command, "no memory for the steps");
}

/* Names of this run's files. With --keep each run has its own, else they are used again. */
static int run_paths(const struct bench *b, const struct bench_run *run, char out[BENCH_PATH_MAX],
                     char err[BENCH_PATH_MAX], char csv[BENCH_PATH_MAX]) {
    char name[64] = "";
    const bool keep = b->config->bench.keep != NULL;
    snprintf(name, sizeof name, keep ? "run-%d.json" : "out.json", run->order);
    int rc = path_in(b, out, name);
    snprintf(name, sizeof name, keep ? "run-%d.txt" : "err.txt", run->order);
    rc = rc ? rc : path_in(b, err, name);
    snprintf(name, sizeof name, keep ? "run-%d.csv" : "steps.csv", run->order);
    rc = rc ? rc : path_in(b, csv, name);
    unlink(out); /* what an earlier run left must not be taken for this one's */
    unlink(csv);
    return rc;
}

/* The moving line while the child runs. */
struct ticker {
    struct bench *bench; /* has the line */
    char what[160];      /* "round 1/3, 2000 MiB" */
};

static void on_tick(void *user, double elapsed_s) {
    struct ticker *t = user;
    cli_progress_seconds(&t->bench->progress, t->what, elapsed_s);
}

int bench_run(struct bench *b, const struct bench_entry *e, struct bench_run *run) {
    char out[BENCH_PATH_MAX], err_path[BENCH_PATH_MAX], name[64];
    struct words words;
    struct bench_cgroup group = {.dir = ""};
    struct sluice_error err;
    struct ticker ticker = {.bench = b};
    int rc = path_in(b, words.prompt, "prompt.txt");
    rc = rc ? rc : run_paths(b, run, out, err_path, words.csv);
    rc = rc ? rc : prepare_cache(b, e, run);
    if (rc || cli_interrupted()) {
        return rc;
    }
    build_argv(b, e, &words);
    if (b->memory && b->cgroup && e->kind != BENCH_RESIDENT) {
        snprintf(name, sizeof name, "sluice-bench-%ld-%d", (long)getpid(), run->order);
        if (bench_cgroup_create(&group, name, b->memory, "", &err)) {
            return cli_fail(CLI_EXIT_FAILED, b->config->command, "%s", err.message);
        }
    }
    snprintf(ticker.what, sizeof ticker.what, "round %d/%" PRId64 ", %s", run->round, b->config->bench.runs, e->name);
    const struct bench_child child = {
        .argv = words.argv,
        .program = "/proc/self/exe",
        .out = out,
        .err = err_path,
        .group = group.dir[0] ? &group : NULL,
        .max_s = b->config->bench.max_seconds,
        .interrupted = stopped,
        .tick = on_tick,
        .user = &ticker,
    };
    bench_state_read(&run->before, "");
    rc = bench_child_run(&child, &run->ended, &err);
    bench_state_read(&run->after, "");
    cli_progress_clear(&b->progress);
    run->started = rc == 0;
    run->peak = bench_cgroup_peak(&group);
    run->peak_of_cgroup = run->peak > 0;
    run->kills = bench_cgroup_kills(&group);
    char dir[sizeof group.dir];
    snprintf(dir, sizeof dir, "%s", group.dir);
    if (!bench_cgroup_remove(&group)) {
        cli_fail(0, b->config->command, "%s could not be removed", dir);
    }
    return rc ? cli_fail(CLI_EXIT_FAILED, b->config->command, "%s", err.message)
              : read_results(b, run, out, err_path, words.csv);
}
