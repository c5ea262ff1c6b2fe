/*
 * facts.h - what runs, as those who watch it need to know: steps, CSV files, traces, the window.
 *
 * They know neither ggml nor the device that is registered with it. Whoever has the models fills in a source.
 */
#ifndef SLUICE_OBSERVE_FACTS_H
#define SLUICE_OBSERVE_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/engine.h"
#include "sluice.h"

/* What is said about the model and the settings at one moment. Counters are not in it. */
struct facts {
    struct sluice_settings settings; /* in force now */
    struct sluice_plan plan;         /* the memory plan, if `planned` */
    bool planned;                    /* there is one */
    int threads;                     /* compute threads; 0: not known */
    uint32_t experts_own;            /* experts per token, as the model's file says; 0: not known */
    char model[SLUICE_PATH_MAX];     /* path of the model's first file; "": none */
    char architecture[64];           /* of that model; "": not known */
    char mode[1024];                 /* the mode line */
    char warning[512];               /* what the user should know; "": nothing */
};

/* Where they come from. Functions are called from any thread and may take locks, but not one that a caller holds. */
struct facts_source {
    void *ud;              /* first argument of the functions */
    struct engine *engine; /* all models; NULL: none is registered */

    void (*stats)(void *ud, struct sluice_stats *out); /* the counters now */
    void (*facts)(void *ud, struct facts *out);        /* costs some microseconds */
    uint64_t (*version)(void *ud); /* another number when settings changed that the mode line tells */
};

#endif
