/* window.h - the window into a running process: a page, numbers and settings by HTTP. docs/window.md is its text. */
#ifndef SLUICE_WINDOW_WINDOW_H
#define SLUICE_WINDOW_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "observe/counters.h"
#include "observe/facts.h"
#include "sluice.h"

enum {
    WINDOW_LAYERS_MAX = 512,   /* MoE layers in the map; more are not shown */
    WINDOW_EXPERTS_MAX = 4096, /* experts of one; likewise */
    WINDOW_MAP_MAX = 262144    /* experts of all layers; likewise */
};

/* Everything that is told, at one moment. */
struct window_numbers {
    struct sluice_stats stats;               /* counters, which move within a step as well */
    struct step_sums ended[COUNTERS_PHASES]; /* finished steps, by enum sluice_phase */

    /* The rest only when it was asked for. */
    struct facts facts;       /* of the model and the settings; the mode line without folders of files */
    bool lossy;               /* something in force changes the output */
    uint32_t experts;         /* of the largest layer; 0: no model streams */
    uint32_t experts_used;    /* experts per token; 0: not known */
    uint64_t anonymous_bytes; /* memory of the process that is there now */
    uint64_t file_bytes;      /* mapped file pages, likewise */
    uint64_t shared_bytes;    /* shared memory, likewise */
    char program[32];         /* name of the process */
    char model[256];          /* name of the model's first file, without folders; "": none */
    char error[512];          /* why the last read failed that did; "": none ever did */
};

/* One MoE layer of the map, by expert. */
struct window_layer {
    uint32_t experts;                  /* entries of the next two; more than WINDOW_EXPERTS_MAX are left out */
    uint32_t top_k;                    /* experts that a token uses, at least 1 */
    uint8_t state[WINDOW_EXPERTS_MAX]; /* enum engine_place */
    uint32_t
        uses[WINDOW_EXPERTS_MAX]; /* tokens that were routed to it so far; begins anew when all models were freed */
};

/*
 * Where the window gets its numbers from, and whom it tells of a changed setting: three functions (watch.c), and a test
 * with made-up ones. The window calls them from its own thread alone. They may wait for locks that computing takes for
 * a moment, and must themselves hold those for a moment only: a token is being computed meanwhile.
 */
struct window_source {
    void *ud; /* first argument of the functions */

    /* Fill *out; with `all` everything, else what is above the line in struct window_numbers. */
    void (*numbers)(void *ud, struct window_numbers *out, bool all);

    /* The i-th layer of the model, from 0. False: there are not so many. */
    bool (*layer)(void *ud, uint32_t i, struct window_layer *out);

    /*
     * Put one setting into force: "cache", "drop_cold_experts", "drop_renorm" or "lookahead", with the value that it
     * has in *to. May wait for blocks that are being computed. SLUICE_ERR_ARG, SLUICE_ERR_BUDGET or SLUICE_ERR_MEMORY,
     * with the reason; then all is as it was.
     */
    int (*set)(void *ud, const char *name, const struct sluice_settings *to, struct sluice_error *err);
};

struct window;

/* How it is wanted. The texts are not kept. */
struct window_params {
    const char *address; /* as in sluice_settings.window */
    bool allow_remote;   /* as in sluice_settings */
    const char *token;   /* what changing settings needs: 16..64 of A-Z a-z 0-9 - _; NULL: made here, of chance */
    const char *chat; /* "http://HOST:PORT" of a chat API beside it; HOST 0.0.0.0 or [::]: the page's own; NULL: none */
    const char *disk; /* MiB/s that the disk gave before the run, in digits; NULL: nobody measured */
};

/*
 * Listen, and serve from a thread of its own until window_stop. SLUICE_ERR_ARG: a value of *p has no meaning, or the
 * address is not of this machine alone and allow_remote is not set; SLUICE_ERR_IO: the address cannot be had;
 * SLUICE_ERR_MEMORY. *source is copied.
 */
int window_start(struct window **out, const struct window_params *p, const struct window_source *source,
                 struct sluice_error *err);

/* "http://127.0.0.1:8090/#token=...": for the user. Valid until window_stop. */
const char *window_url(const struct window *w);

/*
 * End it and free everything. Waits, at most wait_s seconds, for the thread, which may be waiting for a block to end
 * because of a changed setting; false: it still does, and everything is left as it is (the process is ending). In a
 * forked child, which has no such thread, it only says so. NULL is fine.
 */
bool window_stop(struct window *w, double wait_s);

#endif
