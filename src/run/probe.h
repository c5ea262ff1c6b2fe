/*
 * probe.h - how fast the disk delivers this model's experts, without computing anything.
 */
#ifndef SLUICE_RUN_PROBE_H
#define SLUICE_RUN_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "gguf/gguf_check.h"

struct sluice_probe_params {
    uint32_t lanes;                  /* reads in flight, 1..64, as in the runs: one per thread */
    bool direct;                     /* around the page cache, where that works */
    double seconds;                  /* how long to read */
    uint64_t max_bytes;              /* or until this many bytes were read */
    uint64_t seed;                   /* of the choice of slices */
    bool (*interrupted)(void *user); /* polled from any thread; true ends the probe. May be NULL */
    void *user;                      /* its argument */
};

struct sluice_probe {
    uint64_t bytes;    /* read, rounding included */
    uint64_t slices;   /* expert slices asked for */
    double seconds;    /* from the first request to the last answer */
    double per_second; /* bytes per second */
    bool direct;       /* every file was read around the page cache */
};

/*
 * Read random expert slices of the model, in the same pieces as the engine does; of an incomplete file those that it
 * has. SLUICE_ERR_ARG when it has no experts, SLUICE_ERR_IO when a read fails, SLUICE_ERR_STATE with "interrupted",
 * SLUICE_ERR_MEMORY.
 */
int sluice_probe_disk(const struct sluice_gguf *g, const struct sluice_probe_params *p, struct sluice_probe *out,
                      struct sluice_error *err);

#endif
