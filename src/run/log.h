/*
 * log.h - llama.cpp's log, silenced except for what went wrong.
 */
#ifndef SLUICE_RUN_LOG_H
#define SLUICE_RUN_LOG_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* Collects error lines. One at a time is installed; ggml calls it from any thread. */
struct sluice_log {
    pthread_mutex_t lock; /* guards everything below */
    char first[400];      /* the first error line since the last take, "" when none */
    char line[400];       /* the error line being put together, llama.cpp may deliver it in parts */
    bool in_error;        /* the last part belonged to an error line */
    const char *program;  /* what an abort message starts with, e.g. "sluice run"; static */
    void (*heard)(void *user, const char *line); /* gets every line of level INFO; NULL: nobody listens */
    void *user;                                  /* its argument */
};

/*
 * Take over the log of llama.cpp and ggml, and their aborts: a failed assertion prints one line
 * "PROGRAM: llama.cpp stopped: ..." and ends the process with status 1 instead of a core dump.
 * *log must live until the process ends or another log is installed.
 */
void sluice_log_install(struct sluice_log *log, const char *program);

/*
 * From now on every line that llama.cpp logs for information goes to `heard` as well, with the log locked. NULL ends
 * that.
 */
void sluice_log_listen(struct sluice_log *log, void (*heard)(void *user, const char *line), void *user);

/* Copy the first error since the last call into buf, without a newline, and forget it. False when there was none. */
bool sluice_log_take(struct sluice_log *log, char *buf, size_t cap);

#endif
