/*
 * log.h - llama.cpp's log: silenced, but for the first error and the sizes of a context's buffers.
 */
#ifndef SLUICE_RUN_LOG_H
#define SLUICE_RUN_LOG_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SLUICE_LOG_BUFFERS = 8 }; /* kinds of compute buffers told apart; llama.cpp has one per backend */

/* What the log said about a context. Zeroed: nothing. */
struct sluice_log_sizes {
    struct {
        char name[32]; /* kind of memory, such as "CPU" */
        double mib;    /* as logged last */
    } compute[SLUICE_LOG_BUFFERS];
    uint32_t n_compute;   /* entries of compute */
    double kv_mib;        /* KV caches and recurrent states together */
    double allocated_mib; /* of that, what llama.cpp allocates even with no_alloc */
    uint32_t nodes;       /* of the graph of one token; 0: not logged */
    uint32_t splits;      /* parts into which that graph is cut; 0: not logged */
    bool kv;              /* kv_mib was logged */
};

/* One log at a time is installed. */
struct sluice_log {
    pthread_mutex_t lock;           /* guards everything below */
    char first[400];                /* the first error line since the last take, "" when none */
    char line[400];                 /* an error line that is incomplete: llama.cpp may deliver it in parts */
    bool in_error;                  /* the last part belonged to an error line */
    const char *program;            /* what an abort message starts with, e.g. "sluice run"; static */
    struct sluice_log_sizes *sizes; /* filled from lines of level INFO; NULL: they are ignored */
};

/*
 * Prepare *log. `program` begins the message of an abort: a failed assertion of ggml prints one line
 * "PROGRAM: llama.cpp stopped: ..." and ends the process with status 1 instead of a core dump. *log must live until
 * the process ends or another log is installed.
 */
void sluice_log_install(struct sluice_log *log, const char *program);

/* Take a line, or a part of one, that llama.cpp logged. `level` is an enum ggml_log_level. Any thread. */
void sluice_log_line(struct sluice_log *log, int level, const char *text);

/* From now on enter the sizes that are logged into *sizes. NULL ends that. */
void sluice_log_collect(struct sluice_log *log, struct sluice_log_sizes *sizes);

/* Enter what one line says into *sizes. Lines about other things change nothing. */
void sluice_log_read_sizes(struct sluice_log_sizes *sizes, const char *line);

/* All compute buffers together, bytes. */
uint64_t sluice_log_compute(const struct sluice_log_sizes *sizes);

/*
 * Forget the first error since the last call, and copy it into buf (NULL: into nothing) without a newline. False when
 * there was none.
 */
bool sluice_log_take(struct sluice_log *log, char *buf, size_t cap);

#endif
