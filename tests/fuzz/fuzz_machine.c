/*
 * fuzz_machine.c - what the kernel and other programs say: /proc, /sys, llama.cpp's log, a server's answer, a
 * terminal's lines.
 *
 * Some of it is a stranger's: a container sees the control groups and mounts that its host gave names, paths in
 * /proc/self/maps are whatever a file was called, log lines hold names from the model's file, and generated text is cut
 * where tokens end.
 *
 * An input has SECTIONS with lines of @@ between them: files of a made-up root, in the order of `sources`, and then, in
 * this order, lines of llama.cpp's log, text for a terminal, a server's answer, lines that a user types. Parts of the
 * last three arrive one by one where a byte is 0xff.
 *
 * What must hold: texts end, numbers are finite, limits are at most what the machine has, what is shown of a text and
 * what is held back are together the text, clean text is UTF-8, an answer's status is one, and lines come out as they
 * went in.
 */
#include "fuzz.h"

#include <math.h>
#include <sys/eventfd.h>

#include "ggml/maps.c" /* how a line of it is taken apart */
#include "bench/machine.h"
#include "cli/http.h"
#include "cli/json.h"
#include "cli/lines.c" /* with a Ctrl-C that never comes */
#include "memory/cgroup.h"
#include "memory/limits.h"
#include "memory/process.h"
#include "run/log.h"
#include "run/utf8.h"

static const char *const sources[] = {
    "proc/meminfo", "proc/self/cgroup", "proc/self/mountinfo", "proc/self/status", "proc/self/maps",
    "memory.max",   "memory.stat",      "proc/cpuinfo",        "proc/loadavg",     "proc/stat",
};

enum { FILES = sizeof sources / sizeof *sources, LOG = FILES, TEXT, SERVER, TYPED, SECTIONS };

static char root[3000]; /* where /proc and /sys are */
static int silent = -1; /* never readable */

int cli_interrupt_fd(void) {
    return silent;
}

bool cli_interrupted(void) {
    return false;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    const char *const dirs[] = {"",        "/proc",          "/proc/self",           "/sys",
                                "/sys/fs", "/sys/fs/cgroup", "/sys/fs/cgroup/memory"};
    snprintf(root, sizeof root, "%s", fuzz_path("root"));
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s%s", root, dirs[i]);
        FUZZ_CHECK(mkdir(path, 0700) == 0 || errno == EEXIST);
    }
    silent = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    FUZZ_CHECK(silent >= 0);
    fuzz_quiet();
    return 0;
}

/* ---- /proc and /sys -------------------------------------------------------------------------- */

static void put_file(const char *name, const uint8_t *data, size_t n) {
    char path[256];
    snprintf(path, sizeof path, "root/%s", name);
    fuzz_write(path, data, n);
}

/* Limit and use of a control group, of both versions: the mount's root is always looked at. */
static void put_group(size_t file, const uint8_t *data, size_t n) {
    static const char *const names[2][4] = {
        {"sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current", "sys/fs/cgroup/memory/memory.limit_in_bytes",
         "sys/fs/cgroup/memory/memory.usage_in_bytes"},
        {"sys/fs/cgroup/memory.stat", "sys/fs/cgroup/memory/memory.stat", "sys/fs/cgroup/memory.peak",
         "sys/fs/cgroup/memory/memory.max_usage_in_bytes"},
    };
    for (int i = 0; i < 4; i++) {
        put_file(names[file][i], data, n);
    }
}

static void check_root(void) {
    struct plan_limits l;
    struct plan_process p;
    struct bench_machine m;
    struct bench_state s;
    struct plan_mount mount;
    plan_limits_read(&l, root);
    FUZZ_CHECK(l.available <= l.total || l.total == 0 || l.available > 0);
    (void)plan_cgroup_peak(root);
    plan_process_read(&p, root);
    bench_machine_read(&m, root, root);
    FUZZ_CHECK(memchr(m.processor, 0, sizeof m.processor) && memchr(m.disk, 0, sizeof m.disk));
    FUZZ_CHECK(memchr(m.kernel, 0, sizeof m.kernel) && memchr(m.file_system, 0, sizeof m.file_system));
    bench_state_read(&s, root);
    FUZZ_CHECK(isfinite(s.load) && isfinite(s.mhz) && isfinite(s.steal_s));
    const char *const types[] = {"cgroup", "cgroup2", NULL};
    for (size_t i = 0; i < 3; i++) {
        if (plan_mount_find(root, NULL, types[i], i == 0 ? "memory" : NULL, &mount)) {
            FUZZ_CHECK(memchr(mount.point, 0, sizeof mount.point) && memchr(mount.type, 0, sizeof mount.type));
        }
    }
}

static void check_maps(const uint8_t *data, size_t n) {
    const uint8_t *piece;
    size_t at = 0, length;
    for (int i = 0; i < 16 && fuzz_piece(data, n, "\n", &at, &piece, &length); i++) {
        static struct maps_line m;
        char *line = malloc(length + 2);
        FUZZ_CHECK(line != NULL);
        memcpy(line, piece, length);
        line[length] = '\n';
        line[length + 1] = '\0';
        if (maps_parse(line, &m)) {
            FUZZ_CHECK(memchr(m.path, 0, sizeof m.path) && memchr(m.id.device, 0, sizeof m.id.device));
        }
        free(line);
    }
}

/* ---- texts ----------------------------------------------------------------------------------- */

static void check_log(const uint8_t *data, size_t n) {
    struct sluice_log_sizes h = {0};
    const uint8_t *piece;
    size_t at = 0, length;
    while (fuzz_piece(data, n, "\n", &at, &piece, &length)) {
        char *line = malloc(length + 1);
        FUZZ_CHECK(line != NULL);
        memcpy(line, piece, length);
        line[length] = '\0';
        sluice_log_read_sizes(&h, line);
        free(line);
    }
    FUZZ_CHECK(h.n_compute <= SLUICE_LOG_BUFFERS && isfinite(h.kv_mib) && h.kv_mib >= h.allocated_mib);
    for (uint32_t i = 0; i < h.n_compute; i++) {
        FUZZ_CHECK(memchr(h.compute[i].name, 0, sizeof h.compute[i].name) && h.compute[i].mib >= 0);
    }
    (void)sluice_log_compute(&h);
}

/* Text as tokens bring it: each piece with what was held back before. */
static void check_text(const uint8_t *data, size_t n) {
    char *text = malloc(n + 1);
    size_t shown = 0, at = 0, have = 0, length, clean_n = 0;
    const uint8_t *piece;
    FUZZ_CHECK(text != NULL);
    while (fuzz_piece(data, n, "\xff", &at, &piece, &length)) {
        memcpy(text + have, piece, length);
        have += length;
        const size_t ready = sluice_utf8_ready(text + shown, have - shown);
        FUZZ_CHECK(ready <= have - shown && have - shown - ready <= 3);
        shown += ready;
    }
    char *clean = sluice_utf8_clean(text, have, &clean_n);
    FUZZ_CHECK(clean && clean_n <= 3 * have && clean[clean_n] == '\0');
    json_t *s = json_stringn(clean, clean_n); /* which checks that it is UTF-8 */
    FUZZ_CHECK(s != NULL);
    json_decref(s);
    text[have] = '\0';
    s = cli_json_text(text);
    FUZZ_CHECK(s != NULL);
    json_decref(s);
    free(clean);
    free(text);
}

static void check_answer(const uint8_t *data, size_t n) {
    struct cli_http h = {.n_request = 0};
    int pair[2], status = CLI_HTTP_PENDING;
    const uint8_t *piece;
    size_t at = 0, length;
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    h.fd = pair[0];
    while (status == CLI_HTTP_PENDING && fuzz_piece(data, n, "\xff", &at, &piece, &length)) {
        const ssize_t sent = send(pair[1], piece, length, MSG_NOSIGNAL);
        FUZZ_CHECK(sent == (ssize_t)length);
        status = cli_http_step(&h);
        FUZZ_CHECK(status == CLI_HTTP_PENDING); /* the other end is open */
    }
    close(pair[1]);
    status = cli_http_step(&h);
    FUZZ_CHECK(status == CLI_HTTP_FAILED || (status >= 100 && status <= 599));
    FUZZ_CHECK(h.fd == -1);
}

static void check_typed(const uint8_t *data, size_t n) {
    struct cli_lines l;
    int ends[2];
    char *line;
    size_t length, sum = 0, lines = 0;
    if (n > 4096) {
        return; /* more than a pipe surely takes at once */
    }
    FUZZ_CHECK(pipe2(ends, O_CLOEXEC) == 0);
    FUZZ_CHECK(write(ends[1], data, n) == (ssize_t)n);
    close(ends[1]);
    FUZZ_CHECK(cli_lines_open(&l, ends[0]));
    while (cli_lines_next(&l, &line, &length) == CLI_LINES_LINE) {
        FUZZ_CHECK(line[length] == '\0' && !memchr(line, '\n', length));
        sum += length;
        lines++;
    }
    size_t breaks = 0, returns = 0;
    for (size_t i = 0; i < n; i++) {
        breaks += data[i] == '\n';
        returns += data[i] == '\r';
    }
    FUZZ_CHECK(lines == breaks + (n && data[n - 1] != '\n'));
    FUZZ_CHECK(sum <= n - breaks && sum + breaks + returns >= n);
    cli_lines_close(&l);
    close(ends[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *piece;
    size_t at = 0, n;
    data = data ? data : (const uint8_t *)""; /* libFuzzer's first input is empty */
    for (size_t i = 0; i < SECTIONS; i++) {
        if (!fuzz_piece(data, size, "@@\n", &at, &piece, &n)) {
            piece = data + size; /* empty */
            n = 0;
        }
        if (i < FILES && strncmp(sources[i], "memory", 6) == 0) {
            put_group(strcmp(sources[i], "memory.stat") == 0, piece, n);
        } else if (i < FILES) {
            put_file(sources[i], piece, n);
        } else if (i == LOG) {
            check_log(piece, n);
        } else if (i == TEXT) {
            check_text(piece, n);
        } else if (i == SERVER) {
            check_answer(piece, n);
        } else {
            check_typed(piece, n);
        }
        if (strcmp(i < FILES ? sources[i] : "", "proc/self/maps") == 0) {
            check_maps(piece, n);
        }
    }
    check_root();
    return 0;
}
