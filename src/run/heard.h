/* heard.h - how much memory llama.cpp says in its log that a context takes. */
#ifndef SLUICE_RUN_HEARD_H
#define SLUICE_RUN_HEARD_H

#include <stdbool.h>
#include <stdint.h>

enum { SLUICE_HEARD_MAX = 8 }; /* kinds of compute buffers told apart; llama.cpp has one per backend */

/* Buffers of one kind. */
struct sluice_heard_buffer {
    char name[32]; /* of the kind of memory, "CPU" */
    double mib;    /* what was told last */
};

/* What was said. Zeroed: nothing. */
struct sluice_heard {
    struct sluice_heard_buffer compute[SLUICE_HEARD_MAX]; /* compute buffers */
    uint32_t n_compute;                                   /* entries */
    double kv_mib;                                        /* KV caches and recurrent states, sum */
    double held_mib;                                      /* of that, what llama.cpp allocates even with no_alloc */
    uint32_t nodes;                                       /* of the graph of one token; 0: was not said */
    uint32_t splits;                                      /* parts into which it is cut; 0: was not said */
    bool kv;                                              /* kv_mib was said */
};

/* A line of the log, of level INFO. Lines about other things are no matter. */
void sluice_hear(struct sluice_heard *h, const char *line);

/* The compute buffers together, bytes. */
uint64_t sluice_heard_compute(const struct sluice_heard *h);

#endif
