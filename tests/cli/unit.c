/*
 * unit.c - the parts of command and runner that can be tested without a process around them: UTF-8, the
 * option parser, growing text, the choice of a micro-batch, what llama.cpp says of a context, the
 * moving line, the file of a prompt.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <semaphore.h>
#include <stdio.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/options.h"
#include "cli/progress.h"
#include "cli/text.h"
#include "run/log.h"
#include "run/prompt_file.h"
#include "run/runner.h"
#include "run/ubatch.h"
#include "run/utf8.h"

static void assert_ready(const char *text, size_t expected) {
    assert_int_equal(sluice_utf8_ready(text, strlen(text)), expected);
}

static void test_utf8_ready(void **state) {
    (void)state;
    assert_ready("", 0);
    assert_ready("plain", 5);
    assert_ready("\xC3\xA4", 2);          /* complete */
    assert_ready("a\xC3", 1);             /* half of two */
    assert_ready("a\xE2", 1);             /* a third of three */
    assert_ready("a\xE2\x82", 1);         /* two thirds of three */
    assert_ready("\xE2\x82\xAC", 3);      /* complete */
    assert_ready("\xF0\x9F\x98", 0);      /* three quarters of four */
    assert_ready("\xF0\x9F\x98\x80", 4);  /* complete */
    assert_ready("\xC3\xA4\xC3", 2);      /* complete, then half */
    assert_ready("a\xFF", 2);             /* never valid: not held back */
    assert_ready("a\xC0", 2);             /* never valid */
    assert_ready("a\x80\x80\x80\x80", 5); /* continuations of nothing */
    assert_ready("a\xE0\x80", 3);         /* overlong: nothing can complete it */
    assert_ready("a\xED\xA0", 3);         /* a surrogate: nothing can complete it */
    assert_ready("a\xF4\x90", 3);         /* above U+10FFFF */
    assert_ready("a\xF0\x9F\x98\xE2", 4); /* the first can not be completed any more, the last can */
}

static void assert_clean(const char *text, const char *expected) {
    size_t n;
    char *clean = sluice_utf8_clean(text, strlen(text), &n);
    assert_non_null(clean);
    assert_string_equal(clean, expected);
    assert_int_equal(n, strlen(expected));
    free(clean);
}

static void test_utf8_clean(void **state) {
    (void)state;
    assert_clean("", "");
    assert_clean("plain \xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80", "plain \xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80");
    assert_clean("\xFF", "\xEF\xBF\xBD");
    assert_clean("a\xC3", "a\xEF\xBF\xBD");
    assert_clean("\xC3(", "\xEF\xBF\xBD(");
    assert_clean("\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    assert_clean("\xC0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD");
}

/* Every text, cut into pieces at every place, comes out whole and in order. */
static void test_utf8_stream(void **state) {
    (void)state;
    static const char text[] = "a\xC3\xA4z\xE2\x82\xAC\xF0\x9F\x98\x80\xFF!";
    for (size_t cut = 0; cut < sizeof text - 1; cut++) {
        size_t ready = sluice_utf8_ready(text, cut);
        assert_true(ready <= cut && cut - ready <= 3);
        assert_true(((unsigned char)text[ready] & 0xC0) != 0x80); /* never between the bytes of one character */
    }
}

static const struct cli_command command = {.name = "sluice test",
                                           .groups = {{"Model", cli_model_options},
                                                      {"Cache", cli_cache_options},
                                                      {"Window", cli_window_options},
                                                      {"Sampling", cli_sampling_options}},
                                           .max_args = 2};
static struct cli_command wrapper; /* the same, of a program that may follow */

static int make_wrapper(void **state) {
    (void)state;
    wrapper = command;
    wrapper.max_args = 9;
    wrapper.stop_at_arg = true;
    return 0;
}

/* Parse words that are separated by blanks. */
static int parse(const struct cli_command *cmd, const char *line, struct cli_config *c, char *buffer, char **argv) {
    int argc = 1;
    argv[0] = "test";
    strcpy(buffer, line);
    for (char *word = strtok(buffer, " "); word; word = strtok(NULL, " ")) {
        argv[argc++] = word;
    }
    argv[argc] = NULL;
    return cli_parse(cmd, argc, argv, c);
}

static void test_args(void **state) {
    (void)state;
    struct cli_config c;
    char buffer[256];
    char *argv[32];
    assert_int_equal(parse(&command, "", &c, buffer, argv), 0);
    assert_int_equal(c.n_predict, CLI_NOT_GIVEN);
    assert_int_equal(c.n_ctx, 4096);
    assert_int_equal(c.n_ubatch, 0);
    assert_int_equal(c.n_settings, 0);
    assert_int_equal(parse(&command, "-m a -n 5 --temp=0.5 one --cache 2GiB -c 0 two", &c, buffer, argv), 0);
    assert_string_equal(c.model, "a");
    assert_int_equal(c.n_predict, 5);
    assert_true(c.temp == 0.5);
    assert_int_equal(c.n_ctx, 0);
    assert_int_equal(c.n_args, 2);
    assert_string_equal(c.args[1], "two");
    assert_int_equal(c.n_settings, 1);
    assert_string_equal(c.settings[0].value, "2GiB");
    /* The last one counts, and takes one row. */
    assert_int_equal(parse(&command, "--cache 1GiB --cache 0 --no-direct-io -n 1 -n 2", &c, buffer, argv), 0);
    assert_int_equal(c.n_settings, 2);
    assert_string_equal(c.settings[0].value, "0");
    assert_int_equal(c.n_predict, 2);
    /* What follows -- or, for a wrapper, the program, is not ours. */
    assert_int_equal(parse(&command, "-- -n -m", &c, buffer, argv), 0);
    assert_int_equal(c.n_args, 2);
    assert_int_equal(c.n_plain, 0);
    assert_null(c.model);
    assert_int_equal(parse(&command, "one -- two", &c, buffer, argv), 0);
    assert_int_equal(c.n_args, 2);
    assert_int_equal(c.n_plain, 1);
    assert_int_equal(parse(&command, "one two", &c, buffer, argv), 0);
    assert_int_equal(c.n_plain, 2);
    /* Two names for the same, whole ones. */
    assert_int_equal(parse(&command, "--ctx 7", &c, buffer, argv), 0);
    assert_int_equal(c.n_ctx, 7);
    assert_int_equal(parse(&command, "--ctx-size=8", &c, buffer, argv), 0);
    assert_int_equal(c.n_ctx, 8);
    assert_int_equal(parse(&command, "--ctx- 7", &c, buffer, argv), CLI_EXIT_USAGE);
    assert_int_equal(parse(&wrapper, "-n 3 program -n 4 -- -x", &c, buffer, argv), 0);
    assert_int_equal(c.n_predict, 3);
    assert_int_equal(c.n_args, 5);
    assert_string_equal(c.args[3], "--");
    /* Help wins over mistakes that come after it. */
    assert_int_equal(parse(&command, "--help --nonsense", &c, buffer, argv), 0);
    assert_true(c.help);
}

/* A value that may be left out: the next argument is it only if it looks like one. */
static void test_args_optional(void **state) {
    (void)state;
    static const struct {
        const char *line, *value; /* of the setting "window" */
        int n_args;
    } lines[] = {
        {"--window", "127.0.0.1:8090", 0},
        {"--window -n 5", "127.0.0.1:8090", 0},
        {"--window -- program", "127.0.0.1:8090", 1},
        {"--window program", "127.0.0.1:8090", 1},
        {"--window -", "127.0.0.1:8090", 1},
        {"--window 0 program", "0", 1},
        {"--window [::1]:80", "[::1]:80", 0},
        {"--window 127.0.0.1:0 -n 5", "127.0.0.1:0", 0},
        {"--window=localhost:80 program", "localhost:80", 1},
        {"--window=off", "off", 0},
    };
    struct cli_config c;
    char buffer[256];
    char *argv[32];
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        assert_int_equal(parse(&wrapper, lines[i].line, &c, buffer, argv), 0);
        assert_int_equal(c.n_settings, 1);
        assert_string_equal(c.settings[0].name, "window");
        assert_string_equal(c.settings[0].value, lines[i].value);
        assert_int_equal(c.n_args, lines[i].n_args);
    }
    static const char *const bad[] = {"--window=", "--window=on", "--window 127.0.0.1", "--window 99999",
                                      "--window [::1]"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(parse(&wrapper, bad[i], &c, buffer, argv), CLI_EXIT_USAGE);
    }
}

static void test_args_refused(void **state) {
    (void)state;
    static const char *const lines[] = {"--nonsense",   "-n",           "-n x",      "-n 1x",     "-n 1.0",
                                        "-n -3",        "-t 0",         "-t 513",    "--temp -1", "--temp 1e2",
                                        "--temp nan",   "--temp 0x1",   "-x",        "a b c",     "--cache 12x",
                                        "--cache",      "--io-threads", "--top-p 2", "--seed -1", "-c 1 2 3 4",
                                        "--resident=1", "-n --temp 1"};
    struct cli_config c;
    char buffer[256];
    char *argv[32];
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        assert_int_equal(parse(&command, lines[i], &c, buffer, argv), CLI_EXIT_USAGE);
    }
}

static void test_text(void **state) {
    (void)state;
    struct cli_text t = {0};
    assert_true(cli_text_add(&t, "", 0));
    for (int i = 0; i < 1000; i++) {
        assert_true(cli_text_add(&t, "abc", 3));
    }
    assert_int_equal(t.n, 3000);
    assert_memory_equal(t.data + 2997, "abc", 3);
    assert_false(cli_text_add(&t, "x", (size_t)1 << 31));
    assert_int_equal(t.n, 3000);
    cli_text_free(&t);
    assert_null(t.data);
}

/* The first try: the whole prompt, or as evenly as the largest size allows; never more than the context. */
static void test_ubatch_wish(void **state) {
    (void)state;
    assert_int_equal(sluice_ubatch_wish(1, 4096), 32);
    assert_int_equal(sluice_ubatch_wish(32, 4096), 32);
    assert_int_equal(sluice_ubatch_wish(33, 4096), 64);
    assert_int_equal(sluice_ubatch_wish(600, 4096), 608);
    assert_int_equal(sluice_ubatch_wish(600, 601), 601);
    assert_int_equal(sluice_ubatch_wish(8192, 65536), 8192);
    assert_int_equal(sluice_ubatch_wish(8193, 65536), 4128);
    assert_int_equal(sluice_ubatch_wish(20000, 65536), 6688);
    assert_int_equal(sluice_ubatch_wish(UINT64_MAX / 2, 65536), 8192);
    assert_int_equal(sluice_ubatch_wish(0, 4096), 2048);
    assert_int_equal(sluice_ubatch_wish(0, 1000), 1000);
    assert_int_equal(sluice_ubatch_wish(0, 0), 2048);
}

/* The whole search with buffers of `each` bytes per token, as context_choose does it. */
static uint32_t chosen(uint64_t tokens, uint32_t n_ctx, uint64_t each, uint64_t allowed, uint64_t most) {
    uint32_t size = sluice_ubatch_wish(tokens, n_ctx);
    for (int tries = 0; tries < 16; tries++) {
        const struct sluice_ubatch_cost cost = {
            .buffers = size * each, .allowed = allowed, .refused = size * each > most};
        const uint32_t next = sluice_ubatch_next(tokens, size, &cost);
        assert_true(next <= size && next > 0);
        if (next == size) {
            return size;
        }
        size = next;
    }
    fail_msg("no end");
    return 0;
}

static void test_ubatch_next(void **state) {
    (void)state;
    const uint64_t any = UINT64_MAX;
    assert_int_equal(chosen(600, 4096, 200, any, any), 608);
    assert_int_equal(chosen(2100, 4096, 200, 2048 * 200, any), 1056); /* two of 1056, not 2048 and 52 */
    assert_int_equal(chosen(2100, 4096, 200, 1000 * 200, any), 704);  /* three */
    assert_int_equal(chosen(4096, 4096, 200, 2047 * 200, any), 1376); /* three of 1366: 2047 are not enough for two */
    assert_int_equal(chosen(4096, 4096, 200, 1, any), 256);           /* not smaller for a share */
    assert_int_equal(chosen(100, 4096, 200, 1, any), 128);            /* the prompt is */
    assert_int_equal(chosen(4096, 4096, 200, any, 200 * 100), 64);    /* but for the plan */
    assert_int_equal(chosen(4096, 4096, 200, any, 200 * 3000), 2048);
    assert_int_equal(chosen(4096, 4096, 200, any, 0), 64); /* then the plan says no, with its numbers */
    assert_int_equal(chosen(0, 4096, 200, any, any), 2048);
    assert_int_equal(chosen(0, 4096, 200, 200 * 700, any), 672);
    assert_int_equal(chosen(0, 4096, 200, 1, any), 512); /* a chat gets llama.cpp's default */
    assert_int_equal(chosen(0, 4096, 200, 1, 200 * 300), 256);
}

/* The clock of progress.c, in the place of the runner's: every look at it is a second later. */
double sluice_clock(void) {
    static double now = 100;
    return now++;
}

/* Half of it is done. Tells that it was asked. */
static double half(void *user) {
    sem_post(user);
    return 0.5;
}

/* Standard error of what happens between the two, as text. */
static int caught_fd = -1, real_fd = -1;

static void catch_stderr(void) {
    FILE *f = tmpfile();
    assert_non_null(f);
    fflush(stderr);
    real_fd = dup(STDERR_FILENO);
    caught_fd = fileno(f);
    dup2(caught_fd, STDERR_FILENO);
}

static void caught(char *text, size_t cap) {
    fflush(stderr);
    const ssize_t n = pread(caught_fd, text, cap - 1, 0);
    dup2(real_fd, STDERR_FILENO);
    close(real_fd);
    assert_true(n >= 0);
    text[n] = '\0';
}

/* A prompt that is one call of llama.cpp moves all the same; other lines come between; the line goes away. */
static void test_progress_watch(void **state) {
    (void)state;
    struct cli_progress p = {0};
    char text[4096];
    sem_t asked;
    sem_init(&asked, 0, 0);
    cli_progress_init(&p, true);
    catch_stderr();
    cli_progress_watch(&p, "prompt", 600, half, &asked);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sem_wait(&asked), 0); /* before the third look, two were shown */
    }
    cli_progress_print(&p, "streaming");
    cli_progress_clear(&p);
    caught(text, sizeof text);
    assert_non_null(strstr(text, "\r\033[Kprompt 300/600 tokens, "));
    assert_non_null(strstr(text, " tok/s, "));
    assert_non_null(strstr(text, " s left"));
    assert_non_null(strstr(text, "\r\033[Kstreaming\n"));
    assert_false(p.watching);
    sem_destroy(&asked);
}

/* Nobody looks: nothing is asked, no thread, only the lines. */
static void test_progress_off(void **state) {
    (void)state;
    struct cli_progress p = {0};
    char text[4096];
    sem_t asked;
    sem_init(&asked, 0, 0);
    cli_progress_init(&p, false);
    catch_stderr();
    cli_progress_watch(&p, "prompt", 600, half, &asked);
    cli_progress_tokens(&p, "prompt", 1, 2);
    cli_progress_percent(&p, "loading", 0.5);
    assert_false(p.watching);
    cli_progress_print(&p, "streaming");
    cli_progress_clear(&p);
    caught(text, sizeof text);
    assert_string_equal(text, "streaming\n");
    assert_int_not_equal(sem_trywait(&asked), 0);
    sem_destroy(&asked);
}

/* The estimate, by the clock above. */
static void test_progress_tokens(void **state) {
    (void)state;
    struct cli_progress p = {.on = false};
    char text[4096];
    cli_progress_init(&p, true);
    catch_stderr();
    cli_progress_tokens(&p, "comparing", 100, 400); /* how fast is not known yet */
    cli_progress_tokens(&p, "comparing", 300, 400); /* four looks at the clock later */
    cli_progress_tokens(&p, "prompt", 7, 30);       /* other work */
    cli_progress_clear(&p);
    caught(text, sizeof text);
    assert_string_equal(text, "\r\033[Kcomparing 100/400 tokens"
                              "\r\033[Kcomparing 300/400 tokens, 50.0 tok/s, 2 s left"
                              "\r\033[Kprompt 7/30 tokens\r\033[K");
}

static const char prompt_path[] = "unit.prompt";

/* A small file with something in every part. */
static void make_prompt_file(void) {
    static const int32_t tokens[] = {5, 6, 7};
    static const float logits[] = {0.5f, -1, 2, 4, 8};
    struct sluice_prompt_parts parts = {.facts = "model=1\n",
                                        .tokens = tokens,
                                        .logits = logits,
                                        .n_facts = 8,
                                        .n_tokens = 3,
                                        .n_logits = 5,
                                        .n_state = 100};
    struct sluice_prompt_file *f;
    assert_int_equal(sluice_prompt_file_create(&f, prompt_path, &parts, NULL), 0);
    memset(parts.state, 0x5A, 100);
    assert_int_equal(sluice_prompt_file_commit(f, NULL), 0);
    sluice_prompt_file_close(f);
}

/* Is the file there believed? */
static bool prompt_file_good(struct sluice_error *err) {
    struct sluice_prompt_parts parts;
    struct sluice_prompt_file *f;
    bool absent;
    const int rc = sluice_prompt_file_open(&f, prompt_path, &parts, &absent, err);
    assert_true((rc == 0) == (f != NULL));
    assert_false(absent);
    sluice_prompt_file_close(f);
    return rc == 0;
}

static void test_prompt_file(void **state) {
    (void)state;
    struct sluice_prompt_parts parts;
    struct sluice_prompt_file *f;
    struct sluice_error err;
    bool absent;
    unlink(prompt_path);
    assert_int_equal(sluice_prompt_file_open(&f, prompt_path, &parts, &absent, &err), SLUICE_ERR_IO);
    assert_true(absent);
    make_prompt_file();
    assert_int_equal(sluice_prompt_file_open(&f, prompt_path, &parts, &absent, &err), 0);
    assert_int_equal(parts.n_facts, 8);
    assert_memory_equal(parts.facts, "model=1\n", 8);
    assert_int_equal(parts.n_tokens, 3);
    assert_int_equal(parts.tokens[2], 7);
    assert_int_equal(parts.n_logits, 5);
    assert_true(parts.logits[4] == 8);
    assert_int_equal(parts.n_state, 100);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(parts.state[i], 0x5A);
    }
    sluice_prompt_file_close(f);
    assert_int_equal(chmod(prompt_path, 0620), 0); /* others may write it */
    assert_false(prompt_file_good(&err));
    assert_non_null(strstr(err.message, "other users"));
}

/* Every byte matters, and so does every missing one. */
static void test_prompt_file_damaged(void **state) {
    (void)state;
    struct stat st;
    struct sluice_error err;
    make_prompt_file();
    assert_int_equal(stat(prompt_path, &st), 0);
    const int fd = open(prompt_path, O_RDWR);
    assert_true(fd >= 0 && st.st_size > 128);
    for (off_t at = 0; at < st.st_size; at++) {
        uint8_t byte, wrong;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        for (int bit = 0; bit < 8; bit += 7) {
            wrong = byte ^ (uint8_t)(1 << bit);
            assert_int_equal(pwrite(fd, &wrong, 1, at), 1);
            assert_false(prompt_file_good(&err));
            assert_int_equal(err.status, SLUICE_ERR_FORMAT);
        }
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    assert_true(prompt_file_good(&err));
    assert_int_equal(ftruncate(fd, st.st_size + 1), 0);
    assert_false(prompt_file_good(&err));
    for (off_t size = st.st_size - 1; size >= 0; size--) {
        assert_int_equal(ftruncate(fd, size), 0);
        assert_false(prompt_file_good(&err));
    }
    close(fd);
}

/* What was not committed leaves the old file alone and nothing beside it. */
static void test_prompt_file_abandoned(void **state) {
    (void)state;
    static const int32_t token = 1;
    static const float logit = 1;
    struct sluice_prompt_parts parts = {.facts = "", .tokens = &token, .logits = &logit, .n_tokens = 1, .n_logits = 1};
    struct sluice_prompt_file *f;
    struct sluice_error err;
    make_prompt_file();
    assert_int_equal(sluice_prompt_file_create(&f, prompt_path, &parts, &err), 0);
    sluice_prompt_file_close(f);
    assert_true(prompt_file_good(&err));
    assert_int_not_equal(system("ls unit.prompt.* >/dev/null 2>&1"), 0);
    parts.n_state = UINT64_MAX / 2;
    assert_int_equal(sluice_prompt_file_create(&f, prompt_path, &parts, &err), SLUICE_ERR_ARG);
    parts.n_state = 1;
    assert_int_equal(sluice_prompt_file_create(&f, "nothing/there", &parts, &err), SLUICE_ERR_IO);
    assert_int_equal(sluice_prompt_file_possible("nothing/there", &err), SLUICE_ERR_IO);
    assert_int_equal(sluice_prompt_file_possible(".", &err), SLUICE_ERR_IO);
    assert_int_equal(sluice_prompt_file_possible(prompt_path, &err), 0);
    unlink(prompt_path);
}

static void test_log_sizes(void **state) {
    (void)state;
    struct sluice_log_sizes h = {0};
    sluice_log_read_sizes(&h, "llama_kv_cache:        CPU KV buffer size =     0.00 MiB\n"); /* of a dummy: no size */
    assert_false(h.kv);
    sluice_log_read_sizes(
        &h, "llama_kv_cache: size =  384.00 MiB (  4096 cells,  48 layers,  1/1 seqs), K (f16):  192.00 MiB, V "
            "(f16):  192.00 MiB\n");
    assert_true(h.kv && h.kv_mib == 384 && h.allocated_mib == 0);
    sluice_log_read_sizes(&h, "llama_kv_cache_iswa: creating     SWA KV cache, size = 1024 cells\n"); /* no memory */
    sluice_log_read_sizes(&h,
                          "llama_kv_cache: size =   10.50 MiB (  1024 cells,  24 layers,  1/1 seqs), K (f16): 5 MiB\n");
    assert_true(h.kv_mib == 394.5);
    sluice_log_read_sizes(
        &h, "llama_memory_recurrent: size =    2.00 MiB (     1 cells,  24 layers,  1 seqs  0 rs_seq), R\n");
    sluice_log_read_sizes(
        &h, "llama_dsv4_comp_state: csa ratio = 4, state = 8 x 512, streams = 1, layers = 3, size =    1.00 MiB\n");
    assert_true(h.kv_mib == 397.5 && h.allocated_mib == 3);
    sluice_log_read_sizes(&h, "load_tensors:   CPU model buffer size =  958.00 MiB\n");
    sluice_log_read_sizes(&h, "print_info: file size   = 17.28 GiB (4.86 BPW)\n");
    sluice_log_read_sizes(&h, "model has unused tensor x (size = 4096 bytes) -- ignoring\n");
    assert_true(h.kv_mib == 397.5);
    assert_int_equal(sluice_log_compute(&h), 0);
    sluice_log_read_sizes(&h, "sched_reserve:     SLUICE compute buffer size =    68.00 MiB\n");
    sluice_log_read_sizes(&h, "sched_reserve:        CPU compute buffer size =    40.00 MiB\n");
    sluice_log_read_sizes(&h, "sched_reserve:        CPU compute buffer size =    32.25 MiB\n"); /* planned anew */
    assert_int_equal(h.n_compute, 2);
    assert_int_equal(sluice_log_compute(&h), 100 * 1048576 + 262144);
    sluice_log_read_sizes(&h,
                          "sched_reserve: graph: nodes = 1879, splits = 98, input objects = 5, input tensors = 9\n");
    assert_true(h.nodes == 1879 && h.splits == 98);
    sluice_log_read_sizes(
        &h, "sched_reserve: graph (pp bs=512, tg bs=1): nodes = 1879 / 1831, splits = 98 / 97, input objects = 5\n");
    assert_true(h.nodes == 1831 && h.splits == 97);
    /* Nonsense. */
    sluice_log_read_sizes(&h, "");
    sluice_log_read_sizes(&h, "compute buffer size =");
    sluice_log_read_sizes(&h, "sched_reserve: X compute buffer size = -5 MiB\n");
    sluice_log_read_sizes(&h, "sched_reserve: graph: nodes = , splits = many\n");
    assert_true(h.n_compute == 2 && h.nodes == 0);
    for (int i = 0; i < 20; i++) { /* more kinds than there is room for: the first ones stay */
        char line[80];
        snprintf(line, sizeof line, "sched_reserve: K%d compute buffer size = 1.00 MiB\n", i);
        sluice_log_read_sizes(&h, line);
    }
    assert_int_equal(h.n_compute, SLUICE_LOG_BUFFERS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8_ready),
        cmocka_unit_test(test_utf8_clean),
        cmocka_unit_test(test_utf8_stream),
        cmocka_unit_test(test_args),
        cmocka_unit_test(test_args_refused),
        cmocka_unit_test(test_args_optional),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_ubatch_wish),
        cmocka_unit_test(test_ubatch_next),
        cmocka_unit_test(test_progress_watch),
        cmocka_unit_test(test_prompt_file),
        cmocka_unit_test(test_prompt_file_damaged),
        cmocka_unit_test(test_prompt_file_abandoned),
        cmocka_unit_test(test_log_sizes),
        cmocka_unit_test(test_progress_off),
        cmocka_unit_test(test_progress_tokens),
    };
    return cmocka_run_group_tests(tests, make_wrapper, NULL);
}
