/*
 * log.c - see log.h.
 *
 * llama.cpp prints some hundred lines while it loads. A user of `sluice run` wants none of them,
 * unless the load fails: then the first error line is the reason, and the ones after it only say
 * that the callers failed as well. So only the first is kept, and it becomes part of the one line
 * that the command prints.
 *
 * ggml's abort callback has no user pointer, hence the one static pointer below. It is written once
 * before any other thread exists.
 */
#include "run/log.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "llama.h"

static struct sluice_log *abort_log; /* whose program name an abort message carries */

/* "llama_model_load: error loading model: ..." -> "error loading model: ..." */
static const char *without_function(const char *text) {
    const char *colon = strstr(text, ": ");
    size_t name = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:~");
    return colon && text + name > colon ? colon + 2 : text;
}

static void on_log(enum ggml_log_level level, const char *text, void *user) {
    struct sluice_log *log = user;
    pthread_mutex_lock(&log->lock);
    if (level == GGML_LOG_LEVEL_ERROR) {
        log->line[0] = '\0';
        log->in_error = true;
    } else if (level != GGML_LOG_LEVEL_CONT) {
        log->in_error = false;
    }
    if (level == GGML_LOG_LEVEL_INFO && log->heard) {
        log->heard(log->user, text);
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
    fprintf(stderr, "%s: llama.cpp stopped: %.*s\n", abort_log ? abort_log->program : "sluice",
            (int)strcspn(message, "\n"), message);
    _exit(1);
}

void sluice_log_install(struct sluice_log *log, const char *program) {
    memset(log, 0, sizeof *log);
    pthread_mutex_init(&log->lock, NULL);
    log->program = program;
    abort_log = log;
    llama_log_set(on_log, log);
    ggml_set_abort_callback(on_abort);
}

void sluice_log_listen(struct sluice_log *log, void (*heard)(void *user, const char *line), void *user) {
    pthread_mutex_lock(&log->lock);
    log->heard = heard;
    log->user = user;
    pthread_mutex_unlock(&log->lock);
}

bool sluice_log_take(struct sluice_log *log, char *buf, size_t cap) {
    pthread_mutex_lock(&log->lock);
    bool any = log->first[0] != '\0';
    snprintf(buf, cap, "%s", log->first);
    log->first[0] = '\0';
    pthread_mutex_unlock(&log->lock);
    return any;
}
