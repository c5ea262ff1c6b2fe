/*
 * log.c - see log.h.
 *
 * llama.cpp prints some hundred lines while it loads. A user of `sluice run` wants none of them, unless the load
 * fails: then the first error line is the reason, and the ones after it only say that the callers failed as well. So
 * only the first is kept, and it becomes part of the one line that the command prints.
 *
 * llama.h has no function for the sizes of a context's buffers; the log has. The lines are those of the pinned release
 * (docs/ggml.md, 27), and as little of their text as tells them apart is compared. What is not recognised stays
 * unknown and never becomes wrong; tests/cli/plan.sh compares the sums with what a run then takes.
 *
 * ggml's abort callback has no user pointer, hence the one static pointer below. It is written once before any other
 * thread exists.
 */
#include "run/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ggml.h"

static struct sluice_log *abort_log; /* whose program name an abort message carries */

/* ---- sizes -------------------------------------------------------------------------------------- */

/* The number after `key`, or false. */
static bool number_after(const char *line, const char *key, double *out) {
    const char *at = strstr(line, key);
    char *end;
    if (!at) {
        return false;
    }
    at += strlen(key);
    const double x = strtod(at, &end);
    if (end == at || !(x >= 0) || x > 1e12) {
        return false;
    }
    *out = x;
    return true;
}

/* "sched_reserve:        CPU compute buffer size =    32.01 MiB": `at` is where "compute" begins. */
static void read_compute(struct sluice_log_sizes *s, const char *line, const char *at) {
    double mib;
    char name[sizeof s->compute[0].name];
    const char *from = strstr(line, ": ");
    from = from && from < at ? from + 2 : line;
    from += strspn(from, " ");
    const char *to = at;
    while (to > from && to[-1] == ' ') {
        to--;
    }
    snprintf(name, sizeof name, "%.*s", (int)(to - from), from);
    uint32_t i = 0;
    while (i < s->n_compute && strcmp(s->compute[i].name, name) != 0) {
        i++;
    }
    if (i == SLUICE_LOG_BUFFERS || !number_after(at, "compute buffer size =", &mib)) {
        return;
    }
    s->n_compute += i == s->n_compute;
    memcpy(s->compute[i].name, name, sizeof name);
    s->compute[i].mib = mib; /* a context may be planned twice: the last time counts */
}

/* "nodes = 1879 / 1879": the graph of one token is the second, where there are two. */
static uint32_t read_count(const char *line, const char *key) {
    double n;
    const char *at = strstr(line, key);
    if (!at || !number_after(at, key, &n)) {
        return 0;
    }
    const char *slash = at + strcspn(at, "/,\n");
    if (*slash == '/') {
        number_after(slash, "/", &n);
    }
    return n < UINT32_MAX ? (uint32_t)n : 0;
}

void sluice_log_read_sizes(struct sluice_log_sizes *s, const char *line) {
    const char *compute = strstr(line, "compute buffer size =");
    double mib;
    if (compute) {
        read_compute(s, line, compute);
    } else if (strstr(line, ": graph") && strstr(line, "nodes = ")) {
        s->nodes = read_count(line, "nodes = ");
        s->splits = read_count(line, "splits = ");
    } else if (!strstr(line, "buffer size") && number_after(line, "size = ", &mib) && strstr(line, " MiB")) {
        char function[64];
        const size_t n = strcspn(line, ":");
        snprintf(function, sizeof function, "%.*s", (int)(n < sizeof function ? n : sizeof function - 1), line);
        const bool allocated = strstr(function, "memory_recurrent") || strstr(function, "comp_state");
        if (allocated || strstr(function, "kv_cache")) {
            s->kv = true;
            s->kv_mib += mib;
            s->allocated_mib += allocated ? mib : 0;
        }
    }
}

uint64_t sluice_log_compute(const struct sluice_log_sizes *s) {
    double mib = 0;
    for (uint32_t i = 0; i < s->n_compute; i++) {
        mib += s->compute[i].mib;
    }
    return (uint64_t)(mib * 1024 * 1024);
}

/* ---- lines -------------------------------------------------------------------------------------- */

/* "llama_model_load: error loading model: ..." -> "error loading model: ..." */
static const char *without_function(const char *text) {
    const char *colon = strstr(text, ": ");
    size_t name = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:~");
    return colon && text + name > colon ? colon + 2 : text;
}

void sluice_log_line(struct sluice_log *log, int level, const char *text) {
    pthread_mutex_lock(&log->lock);
    if (level == GGML_LOG_LEVEL_ERROR) {
        log->line[0] = '\0';
        log->in_error = true;
    } else if (level != GGML_LOG_LEVEL_CONT) {
        log->in_error = false;
    }
    if (level == GGML_LOG_LEVEL_INFO && log->sizes) {
        sluice_log_read_sizes(log->sizes, text);
    }
    if (log->in_error && log->first[0] == '\0') {
        size_t have = strlen(log->line);
        snprintf(log->line + have, sizeof log->line - have, "%s", text);
        char *newline = strchr(log->line, '\n');
        if (newline) {
            *newline = '\0';
            log->in_error = false;
            snprintf(log->first, sizeof log->first, "%s", without_function(log->line));
        }
    }
    pthread_mutex_unlock(&log->lock);
}

/* ggml aborts right after this returns. Nothing may be flushed: text on its way could be wrong. */
static void on_abort(const char *message) {
    fprintf(stderr, "%s: llama.cpp stopped: %.*s\n", abort_log->program, (int)strcspn(message, "\n"), message);
    _exit(1);
}

void sluice_log_install(struct sluice_log *log, const char *program) {
    memset(log, 0, sizeof *log);
    pthread_mutex_init(&log->lock, NULL);
    log->program = program;
    abort_log = log;
    ggml_set_abort_callback(on_abort);
}

void sluice_log_collect(struct sluice_log *log, struct sluice_log_sizes *sizes) {
    pthread_mutex_lock(&log->lock);
    log->sizes = sizes;
    pthread_mutex_unlock(&log->lock);
}

bool sluice_log_take(struct sluice_log *log, char *buf, size_t cap) {
    pthread_mutex_lock(&log->lock);
    const bool any = log->first[0] != '\0';
    if (buf) {
        snprintf(buf, cap, "%s", log->first);
    }
    log->first[0] = '\0';
    pthread_mutex_unlock(&log->lock);
    return any;
}
