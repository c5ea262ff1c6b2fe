/*
 * fuzz_words.c - what a user types: command lines, settings, the environment, addresses.
 *
 * An input is lines. The first is a command line for `sluice run`, of words parted by blanks; the second one for
 * `sluice replay`, whose lists of budgets and thresholds are then taken apart; the third has the lists of `sluice
 * bench`, parted by bars. All others are settings, NAME=VALUE, or SLUICE_NAME=VALUE for the environment, and each value
 * is also read as everything else that comes as a text: a size, an address, the headers that guard the window.
 *
 * The options are the tables of src/cli. `sluice run` itself is not linked (it needs llama.cpp), so its table here has
 * the groups that it shares with other commands.
 *
 * What must hold: a setting that is refused changes nothing and says why; what a command line took, the settings take;
 * an address is the same when it is read again as it was spelled; nobody gets past the guard without the window's own
 * name and token.
 */
#include "fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/bench_impl.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/replay.c" /* its table, and how it reads lists */
#include "memory/address.h"
#include "memory/settings.h"
#include "window/guard.h"

enum { WORDS = 64 }; /* of a command line */

#define TOKEN "fuzzfuzzfuzzfuzz"

const struct cli_command cli_run_command = {.name = "fuzz",
                                            .usage = "",
                                            .about = "",
                                            .max_args = 1,
                                            .groups = {
                                                {"Model", cli_model_options},
                                                {"Expert cache", cli_cache_options},
                                                {"Lossy", cli_lossy_options},
                                                {"Generation", cli_sampling_options},
                                                {"Measuring", cli_measure_options},
                                                {"Window", cli_window_options},
                                            }};

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    fuzz_quiet();
    return 0;
}

/* ---- command lines --------------------------------------------------------------------------- */

/* Cut a line into words in place. Returns how many; argv[0] is a name. */
static int words_of(char *line, char *argv[WORDS + 1]) {
    static char name[] = "fuzz";
    char *rest = NULL;
    int n = 1;
    argv[0] = name;
    for (char *w = strtok_r(line, " ", &rest); w && n < WORDS; w = strtok_r(NULL, " ", &rest)) {
        argv[n++] = w;
    }
    argv[n] = NULL;
    return n;
}

static void check_run(char *line) {
    struct cli_config c;
    char *argv[WORDS + 1];
    const int n = words_of(line, argv);
    if (cli_parse(&cli_run_command, n, argv, &c)) {
        return;
    }
    FUZZ_CHECK(c.help || (c.n_args >= 0 && c.n_args <= 1 && c.n_plain <= c.n_args));
    struct sluice_settings s;
    struct sluice_error err;
    sluice_settings_default(&s);
    for (size_t i = 0; i < c.n_settings; i++) {
        FUZZ_CHECK(sluice_settings_set(&s, c.settings[i].name, c.settings[i].value, &err) == 0);
    }
    FUZZ_CHECK(isfinite(c.temp) && isfinite(c.top_p) && isfinite(c.min_p));
}

static void check_replay(char *line) {
    struct cli_config c;
    struct replay_plan plan = {.config = &c};
    char *argv[WORDS + 1];
    const int n = words_of(line, argv);
    if (cli_parse(&cli_replay_command, n, argv, &c) || c.help) {
        return;
    }
    if (plan_policies(&plan) == 0 && plan_budgets(&plan) == 0 && plan_lossy(&plan) == 0 && plan_rest(&plan) == 0) {
        FUZZ_CHECK(plan.n_budgets <= REPLAY_BUDGETS_MAX && plan.n_lossy <= REPLAY_DROPS_MAX);
        for (size_t i = 1; i < plan.n_budgets; i++) {
            FUZZ_CHECK(plan.budgets[i - 1] < plan.budgets[i]);
        }
        for (size_t i = 0; i < plan.n_lossy; i++) {
            FUZZ_CHECK(plan.lossy[i].drop >= 0 && plan.lossy[i].drop <= 1);
        }
        FUZZ_CHECK(isfinite(plan.disk) && isfinite(plan.resident));
    }
}

/* "budgets|baselines|memory|variant|variant..." */
static void check_bench(char *line) {
    struct cli_config c = {.command = "fuzz", .bench = {.runs = 2, .budgets = "auto"}};
    static struct bench b;
    b = (struct bench){.config = &c, .info = {.total_bytes = 1 << 20, .expert_bytes = 1 << 19}};
    char *part[3 + CLI_VARIANTS_MAX] = {NULL};
    size_t n = 0;
    for (char *at = line; at && n < sizeof part / sizeof *part; n++) {
        part[n] = strsep(&at, "|");
    }
    c.bench.budgets = n > 0 && part[0][0] ? part[0] : c.bench.budgets;
    c.bench.baselines = n > 1 && part[1][0] ? part[1] : NULL;
    c.bench.memory = n > 2 && part[2][0] ? part[2] : NULL;
    for (size_t i = 3; i < n; i++) {
        c.bench.variants[c.bench.n_variants++] = part[i];
    }
    if (bench_plan(&b) == 0) {
        FUZZ_CHECK(b.n_entries <= BENCH_ENTRIES_MAX);
        for (size_t i = 0; i < b.n_entries; i++) {
            FUZZ_CHECK(b.entries[i].plain < (int)i);
        }
    }
    for (size_t i = 0; i < b.n_entries; i++) {
        free(b.entries[i].runs);
    }
    free(b.entries);
}

/* ---- single texts ---------------------------------------------------------------------------- */

static void check_address(const char *text) {
    struct plan_address a, again;
    memset(&a, 0x5a, sizeof a);
    const struct plan_address before = a;
    if (!plan_address_parse(text, &a)) {
        FUZZ_CHECK(memcmp(&a, &before, sizeof a) == 0);
        return;
    }
    char spelled[96];
    snprintf(spelled, sizeof spelled, "%s%s%s:%u", a.v6 ? "[" : "", a.host, a.v6 ? "]" : "", (unsigned)a.port);
    FUZZ_CHECK(plan_address_parse(spelled, &again));
    FUZZ_CHECK(again.v6 == a.v6 && again.port == a.port && again.loopback == a.loopback && again.any == a.any);
    FUZZ_CHECK(memcmp(a.ip, again.ip, a.v6 ? 16 : 4) == 0 && strcmp(a.host, again.host) == 0);
    FUZZ_CHECK(!(a.loopback && a.any));
}

static void check_guard(const char *text) {
    struct guard g = {.token = TOKEN}, other;
    struct sluice_error err;
    FUZZ_CHECK(plan_address_parse("127.0.0.1:8090", &g.address));
    if (guard_host(&g, text)) {
        FUZZ_CHECK(strcasecmp(text, "127.0.0.1:8090") == 0 || strcasecmp(text, "localhost:8090") == 0);
    }
    if (guard_origin(text, "127.0.0.1:8090")) {
        FUZZ_CHECK(strcasecmp(text, "http://127.0.0.1:8090") == 0);
    }
    if (guard_judge(&g, text, NULL) == GUARD_RIGHT) {
        FUZZ_CHECK(strcmp(text, TOKEN) == 0);
    }
    if (guard_judge(&g, NULL, text) == GUARD_RIGHT) {
        FUZZ_CHECK(strstr(text, TOKEN) && strncasecmp(text, "Bearer ", 7) == 0);
    }
    if (guard_token(&other, text, &err) == 0) {
        FUZZ_CHECK(strcmp(other.token, text) == 0 && strlen(text) >= GUARD_TOKEN_MIN);
    }
    FUZZ_CHECK(plan_address_parse("[::]:80", &g.address));
    g.allow_remote = true;
    (void)guard_host(&g, text);
}

static void check_settings(const struct sluice_settings *s) {
    struct sluice_error err;
    FUZZ_CHECK(s->cache_bytes <= INT64_MAX && s->memory_bytes <= INT64_MAX && s->staging_bytes <= INT64_MAX);
    FUZZ_CHECK(s->drop_cold_experts >= 0 && s->drop_cold_experts <= 1);
    FUZZ_CHECK(s->io_threads >= 1 && s->io_threads <= 64);
    FUZZ_CHECK(memchr(s->window, 0, sizeof s->window) && memchr(s->cold_model, 0, sizeof s->cold_model));
    if (settings_check(s, &err)) {
        FUZZ_CHECK(err.message[0]);
    }
}

/* NAME=VALUE. */
static void check_setting(char *line, struct sluice_settings *s) {
    char *value = strchr(line, '=');
    struct sluice_error err;
    uint64_t bytes;
    if (!value || value == line) {
        return;
    }
    *value++ = '\0';
    if (sluice_parse_size(value, &bytes)) {
        FUZZ_CHECK(bytes <= INT64_MAX);
    }
    check_address(value);
    check_guard(value);
    if (strncmp(line, "SLUICE_", 7) == 0) {
        struct sluice_settings e = *s;
        FUZZ_CHECK(setenv(line, value, 1) == 0);
        if (sluice_settings_from_env(&e, &err)) {
            FUZZ_CHECK(err.message[0] && memcmp(&e, s, sizeof e) == 0);
        }
        unsetenv(line);
        check_settings(&e);
        return;
    }
    const struct sluice_settings before = *s;
    if (sluice_settings_set(s, line, value, &err)) {
        FUZZ_CHECK(err.message[0] && memcmp(s, &before, sizeof before) == 0);
    }
    check_settings(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sluice_settings s;
    const uint8_t *piece;
    size_t at = 0, n;
    sluice_settings_default(&s);
    for (int i = 0; i < 64 && fuzz_piece(data, size, "\n", &at, &piece, &n); i++) {
        char *line = malloc(n + 1);
        FUZZ_CHECK(line != NULL);
        memcpy(line, piece, n);
        line[n] = '\0'; /* a zero byte before that ends it: arguments and the environment hold none */
        if (i == 0) {
            check_run(line);
        } else if (i == 1) {
            check_replay(line);
        } else if (i == 2) {
            check_bench(line);
        } else {
            check_setting(line, &s);
        }
        free(line);
    }
    return 0;
}
