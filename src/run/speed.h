/*
 * speed.h - how fast this machine would compute a model's token, with all weights in memory.
 */
#ifndef SLUICE_RUN_SPEED_H
#define SLUICE_RUN_SPEED_H

#include <stdbool.h>
#include <stdint.h>

#include "run/info.h"

struct sluice_speed_params {
    const struct sluice_gguf *gguf;  /* the model's header */
    const struct sluice_info *info;  /* of it */
    uint32_t nodes;                  /* of llama.cpp's graph of one token; 0: not known */
    int n_threads;                   /* compute threads */
    double seconds;                  /* how long to measure; up to four times that for three tokens */
    uint64_t max_bytes;              /* memory that the made-up weights may take, at least 64 MiB of it are used */
    bool (*interrupted)(void *user); /* polled between tokens; true ends the measurement. May be NULL */
    void *user;                      /* its argument */
};

struct sluice_speed {
    double token_s;        /* seconds of a token, median */
    double fastest_s;      /* the fastest */
    double slow_s;         /* nine of ten are as fast as this, or faster */
    double graph_s;        /* starting and ending one small computation, as each streamed block does, median seconds */
    uint64_t weight_bytes; /* weights that a token multiplies with */
    uint32_t matmuls;      /* of a token */
    uint32_t others;       /* small operations that were computed beside them, in place of the real graph's */
    uint32_t tokens;       /* measured */
};

/*
 * Compute made-up tokens: every matmul of a token with the model's shapes and types, on ggml's CPU backend, with
 * weights that lie in memory as far apart as the model's would. SLUICE_ERR_MEMORY; SLUICE_ERR_LLAMA: there is no CPU
 * backend, or it cannot multiply any of the model's types; SLUICE_ERR_STATE: "interrupted".
 */
int sluice_speed_measure(const struct sluice_speed_params *p, struct sluice_speed *out, struct sluice_error *err);

#endif
