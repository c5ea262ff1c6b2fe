/*
 * backend.h - shared inside src/ggml/: the one registered device and its parts.
 *
 * Only this folder includes ggml's backend interface.
 */
#ifndef SLUICE_GGML_BACKEND_H
#define SLUICE_GGML_BACKEND_H

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
#include "cache/engine.h"

/* Everything that is registered with ggml. One per process: ggml keeps pointers to it for good. */
struct sluice_device {
    struct sluice_settings settings;  /* as registered */
    struct sluice_error bad_settings; /* the environment did not parse: every model load fails with this */
    bool csv_wanted;                  /* SLUICE_CSV is set and could be opened */
    bool plugin;                      /* loaded by a host program: errors go to stderr, nobody else reads them */
    struct engine *engine;            /* all models, all contexts */
    struct cold cold;                 /* the cold model, if there is one; has a lock of its own */
    struct ggml_backend_reg reg;      /* what ggml sees */
    struct ggml_backend_device dev;
    struct ggml_backend_buffer_type buft;

    _Atomic uint32_t collecting; /* mapped buffers whose dense weights are being noted; 0: none, ask no further */
    pthread_mutex_t dense_lock;  /* guards struct dense of all buffers; taken before `lock`, never under the engine's */

    pthread_mutex_t resize_lock;    /* one change of the budget at a time; taken before lock */
    pthread_mutex_t lock;           /* guards the rest, and of settings what a change of the budget changes */
    struct sluice_error last_error; /* for sluice_take_error */
    char plain_reason[256];         /* why some expert weights do not stream, for the mode line; "" if all do */
    char lossy_reason[256];         /* why blocks lose nothing although they should, for the mode line; "" if none */
    char dense_reason[256];         /* why dense weights are in the page cache although they should not; "" if not */
    struct sluice_plan plan;        /* the last plan; in force while the engine's arena is cut */
    _Atomic bool mode_printed;      /* the plug-in prints its mode line once; needs no lock */
    struct sluice_buffer *buffers;  /* weights over mapped files, a list */
    struct sluice_stats last_stats; /* counters when models were last there */
    char architecture[64];          /* of the file `described`, when a CSV file or the window asks for it; else "" */
    uint32_t expert_used;           /* experts per token that this file says, when it was read; 0: not known */
    _Atomic double drop_below;      /* drop_cold_experts of settings, for blocks */
    _Atomic bool drop_renorm;       /* drop_renorm of settings, likewise */
    _Atomic uint32_t top_k;         /* experts per token of the last block computed; 0: none was */
    _Atomic int threads;            /* compute threads, as the last context was told; 0: it was not */

    char described[SLUICE_PATH_MAX]; /* the model file that was read for the window or a CSV file; "": none yet */

    struct facts_source source; /* what the next three are told of; written once */
    struct route_trace tracing; /* the route trace; has a lock of its own */
    struct watch watch;         /* the window; has a lock of its own */
    struct step_log steps;      /* what is told about steps; has a lock of its own */
};

/* The device; its fields are set by device_setup. */
extern struct sluice_device sluice_device;

/* What a streamed weight's tensor->extra points to. Owned by its buffer. */
struct stream_weight {
    uint32_t tensor;          /* id in the engine */
    uint32_t group;           /* its group */
    uint32_t part;            /* its part in the group's bundles */
    uint32_t n_expert;        /* experts */
    char name[GGML_MAX_NAME]; /* as in the file */
    enum ggml_type type;      /* of its values */
    int64_t ne[2];            /* values of a row, rows of an expert */
    uint64_t offset;          /* where in its file it begins, bytes */
    struct cold_weight *cold; /* its copy in the cold model; NULL: none. Owned */
};

/* Fill sluice_device for these settings. Called once. */
int device_setup(const struct sluice_settings *s, bool plugin, struct sluice_error *err);

/* Keep a failure for sluice_take_error; the plug-in prints it as well. */
void device_report(const struct sluice_error *err);

/* Must every load and context be refused, because of the settings or of this ggml (seam.c)? Reports it, if so. */
bool device_refuses(void);

/* Note, for the mode line, that some expert weights are computed from memory, and why. First reason stays. */
void device_note_plain(const char *why);

/* Note, for the mode line, that dense weights could not be moved, and why. First reason stays. */
void device_note_dense(const char *why);

/* Note, for the mode line, that lossy settings change nothing in some block, and why. First reason stays. */
void device_note_lossy(const char *why);

/* engine_budget_fn: the memory plan (budget.c). */
int device_budget(void *ud, const struct expert_index *b, uint64_t held, uint64_t *budget, struct sluice_error *err);

/* The counters: of the engine, and what was read from the cold model. */
void device_stats(struct sluice_stats *out);

/* Keep the counters as they are now. Called before contexts and models go. */
void device_keep_stats(void);

/* The counters, with sizes as they were when the most models were there. */
void device_last_stats(struct sluice_stats *out);

/* facts.c: those who watch are told where to ask. Called once, with an engine. */
void facts_setup(struct sluice_device *d);

/* A context is being made: from now on there is something to show. Fails when the window was asked for and cannot open.
 */
int facts_context(struct sluice_device *d, struct sluice_error *err);

/* Print the mode line once, for host programs that asked for no silence. */
void device_print_mode(void);

/* ---- buffer.c: where tensors live ---- */

/* Fill the buffer type's vtable. */
void buffer_type_init(struct ggml_backend_buffer_type *t, ggml_backend_dev_t dev);

/* A weights buffer over [ptr, ptr + size), which should lie in a mapped model file. */
ggml_backend_buffer_t buffer_from_host_ptr(ggml_backend_dev_t dev, void *ptr, size_t size, size_t max_tensor_size);

/*
 * After loading, once per file: give back what was read of the experts, and have the dense weights
 * read ahead if they are to stay in the page cache.
 */
void buffer_advise_pages(void);

/* A graph with this operation is being planned: note which dense weights of mapped models it reads. */
void buffer_note_dense(const struct ggml_tensor *op);

/* Somebody else than us is going to compute on this streamed weight where it lies: keep it readable there. */
void buffer_leave_in_place(const struct ggml_tensor *w);

/*
 * Before the first block of a model is computed: its dense weights go where the settings say. `w` is
 * one of its streamed weights. Later calls cost one load. Fails when locking is not allowed, and
 * when the mapping was lost.
 */
int buffer_settle_dense(const struct ggml_tensor *w, struct sluice_error *err);

/* Dense weights of all models that stream, for the plan. */
struct buffer_dense {
    uint64_t bytes;  /* of them */
    uint64_t held;   /* of those, in anonymous memory */
    bool guessed;    /* of some model no graph is known yet: bytes is all of its files but the experts */
    bool in_mapping; /* some stay in the page cache */
};
void buffer_dense_sum(struct buffer_dense *sum);

/*
 * Call `visit` for every streamed weight of every mapped file, until it fails; returns what it returned.
 * Weights stay while it runs. It may call engines, but nothing that waits for dense weights.
 */
int buffer_each_weight(int (*visit)(void *ud, struct stream_weight *w, const struct cold_origin *from), void *ud);

/* The streamed weight behind a MUL_MAT_ID's src[0], or NULL: its data is in memory. */
const struct stream_weight *buffer_weight(const struct ggml_tensor *w);

/* Is it a weight that was to stream and could not be registered? llama.cpp goes on as if nothing had been said. */
bool buffer_refused(const struct ggml_tensor *w);

/* ---- match.c: what belongs to an MoE block ---- */

/* ggml's supports_op for our device. */
bool match_supports_op(const struct ggml_tensor *op);

/* Does this operation belong to an MoE block whose expert weights lie in buffers of that type? */
bool match_block_op(const struct ggml_tensor *op, ggml_backend_buffer_type_t buft);

/* Models that this thread loads from now on stream (or not). */
void match_set_streaming(bool on);

/* The load in progress on this thread: its owner number, and the top-k that its tensors announced. */
uint64_t match_load_owner(uint32_t *top_k);

#endif
