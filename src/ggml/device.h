/* device.h - a device: what its parts share, and what they tell the user through it. */
#ifndef SLUICE_GGML_DEVICE_H
#define SLUICE_GGML_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml.h"

#include "ggml/cold.h"
#include "observe/facts.h"
#include "observe/route_trace.h"
#include "observe/step.h"
#include "window/watch.h"
#include "sluice.h"
#include "cache/check.h"
#include "cache/engine.h"

/* What the mode line says is not as it should be. */
enum device_note {
    DEVICE_NOT_STREAMED, /* some expert weights are computed from memory */
    DEVICE_NOT_HELD,     /* dense weights stay in the page cache */
    DEVICE_NOT_LOSSY,    /* lossy settings change nothing in some block */
    DEVICE_NOTES
};

struct backend_spy;

/* Is this ggml the one that the design rests on? The self-test, for a device that accepts models of others. */
struct device_selftest {
    int (*require)(bool kernel, struct sluice_error *err); /* check it, once; NULL: it is not asked */
    int (*refused)(struct sluice_error *err);              /* the refusal, if there was one; checks nothing */
};

/*
 * A device and all that belongs to it. One is registered with ggml, which keeps pointers to it for good (api.c); the
 * self-test makes another. ggml_backend_dev_t and buffer types have it as their context.
 */
struct sluice_device {
    struct sluice_settings settings;  /* as registered */
    struct sluice_error bad_settings; /* the environment did not parse: every model load fails with this */
    bool csv_wanted;                  /* SLUICE_CSV is set and could be opened */
    bool plugin;                      /* loaded by a host program: errors go to stderr, nobody else reads them */
    _Atomic bool ready;               /* set up: the engine is there */
    struct engine *engine;            /* all models, all contexts */
    struct cold cold;                 /* the cold model, if there is one; has a lock of its own */
    struct ggml_backend_reg reg;      /* what ggml sees */
    struct ggml_backend_device dev;
    struct ggml_backend_buffer_type buft;

    _Atomic uint32_t collecting; /* mapped buffers whose dense weights are being noted; 0: none, ask no further */
    pthread_mutex_t dense_lock;  /* guards struct dense of all buffers; taken before `lock`, never under the engine's */

    pthread_mutex_t resize_lock;     /* one change of the budget at a time; taken before lock */
    pthread_mutex_t lock;            /* guards the rest, and of settings what a change of the budget changes */
    struct sluice_error last_error;  /* for sluice_take_error */
    char note[DEVICE_NOTES][256];    /* what is not as it should be, for the mode line; "": all is */
    struct sluice_plan plan;         /* the last plan; in force while the engine's arena is cut */
    _Atomic bool mode_printed;       /* the plug-in prints its mode line once; needs no lock */
    size_t rows_bytes;               /* memory for gathered rows of a backend; 0: the usual */
    struct sluice_buffer *buffers;   /* weights over mapped files, a list */
    struct sluice_stats last_stats;  /* counters when models were last there */
    struct device_selftest selftest; /* asked before weights are taken */
    const struct backend_spy *spy;   /* sees what ggml hands to backends; NULL: nobody. The self-test's device */
    char architecture[64];           /* of the file `described`, when a CSV file or the window asks for it; else "" */
    uint32_t expert_used;            /* experts per token that this file says, when it was read; 0: not known */
    _Atomic double drop_below;       /* drop_cold_experts of settings, for blocks */
    _Atomic bool drop_renorm;        /* drop_renorm of settings, likewise */
    _Atomic uint32_t top_k;          /* experts per token of the last block computed; 0: none was */
    _Atomic int threads;             /* compute threads, as the last context was told; 0: it was not */

    char described[SLUICE_PATH_MAX]; /* the model file that was read for the window or a CSV file; "": none yet */

    struct facts_source source; /* what the next three are told of; written once */
    struct route_trace tracing; /* the route trace; has a lock of its own */
    struct watch watch;         /* the window; has a lock of its own */
    struct step_log steps;      /* what is told about steps; has a lock of its own */
};

/* The value of a device that is none yet: zero, with locks. */
#define DEVICE_EMPTY                                                                                                   \
    {                                                                                                                  \
        .cold = {.lock = PTHREAD_MUTEX_INITIALIZER, .memory_lock = PTHREAD_MUTEX_INITIALIZER},                         \
        .dense_lock = PTHREAD_MUTEX_INITIALIZER, .resize_lock = PTHREAD_MUTEX_INITIALIZER,                             \
        .lock = PTHREAD_MUTEX_INITIALIZER, .tracing = {.lock = CHECK_MUTEX}, .steps = {.lock = CHECK_MUTEX},           \
        .watch = {.lock = CHECK_MUTEX},                                                                                \
    }

/* Keep a failure for sluice_take_error; the plug-in prints it as well. */
void device_report(struct sluice_device *d, const struct sluice_error *err);

/* Must every load and context be refused, because of the settings or of this ggml? Reports it, if so. */
bool device_refuses(struct sluice_device *d);

/* Note that something is not as it should be, and why. The first reason of each kind stays. */
void device_note(struct sluice_device *d, enum device_note what, const char *why);

/* A copy of the settings in force. */
struct sluice_settings device_settings(struct sluice_device *d);

/* The counters: of the engine, and what was read from the cold model. */
void device_stats(struct sluice_device *d, struct sluice_stats *out);

/* Keep the counters as they are now. Called before contexts and models go. */
void device_keep_stats(struct sluice_device *d);

/* The counters, with sizes as they were when the most models were there. */
void device_last_stats(struct sluice_device *d, struct sluice_stats *out);

#endif
