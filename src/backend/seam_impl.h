/*
 * seam_impl.h - between the parts of the self-test: seam.c (order, texts), seam_static.c (what a look tells),
 * seam_probe.c (a device that only watches), seam_model.c (weights), seam_block.c (an MoE block,
 * computed in several ways).
 */
#ifndef SLUICE_BACKEND_SEAM_IMPL_H
#define SLUICE_BACKEND_SEAM_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml.h"

#include "backend/seam.h"

/*
 * Threads of the CPU backends. Two where nodes of threads are looked at, in one small graph. One for the rest: which
 * thread computes a value changes no byte, and threads of a team that spin at barriers took 30 to 1000 ms on a
 * machine that was busy with other programs, where one takes 6.
 */
enum { SEAM_THREADS = 2, SEAM_THREADS_BLOCK = 1 };

/* One run of the check. */
struct seam {
    ggml_backend_t cpu;       /* computes the stock side; owned */
    bool kernel;              /* the kernel is to be used */
    char *detail;             /* SEAM_DETAIL_MAX bytes: what was found wrong; the caller's */
    struct sluice_error *err; /* why the check could not be made; the caller's */
};

/* Note what was found, and return the assumption: `return seam_broken(s, SEAM_X, "...")`. */
enum seam_assumption seam_broken(struct seam *s, enum seam_assumption a, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- seam_static.c: numbers, fields and nodes, without a model ---- */

enum seam_assumption seam_check_static(struct seam *s);

/* ---- seam_probe.c: a device that watches what ggml asks of it ---- */

/* Calls that the probe counts. */
enum seam_call {
    SEAM_CALL_BUFT_NAME,
    SEAM_CALL_BUFT_ALLOC,
    SEAM_CALL_BUFT_ALIGNMENT,
    SEAM_CALL_BUFT_HOST,
    SEAM_CALL_BUFFER_FREE,
    SEAM_CALL_BUFFER_BASE,
    SEAM_CALL_BUFFER_INIT,
    SEAM_CALL_BUFFER_MEMSET,
    SEAM_CALL_BUFFER_SET,
    SEAM_CALL_BUFFER_GET,
    SEAM_CALL_BUFFER_CLEAR,
    SEAM_CALL_DEV_NAME,
    SEAM_CALL_DEV_DESCRIPTION,
    SEAM_CALL_DEV_MEMORY,
    SEAM_CALL_DEV_TYPE,
    SEAM_CALL_DEV_PROPS,
    SEAM_CALL_DEV_INIT,
    SEAM_CALL_DEV_BUFT,
    SEAM_CALL_DEV_HOST_PTR,
    SEAM_CALL_DEV_OP,
    SEAM_CALL_DEV_SUPPORTS_BUFT,
    SEAM_CALL_NAME,
    SEAM_CALL_FREE,
    SEAM_CALL_COMPUTE,
    SEAM_CALL_SHOWN,
    SEAM_CALLS
};

/*
 * A device like ours, that is not registered: same type, same answers, same kinds of buffers. What it computes
 * is its user's. Not to be moved while ggml knows it.
 */
struct seam_probe {
    struct ggml_backend_reg reg;          /* what ggml sees */
    struct ggml_backend_device dev;       /* the same */
    struct ggml_backend_buffer_type buft; /* the same */
    struct ggml_backend backend;          /* the same */
    uint32_t calls[SEAM_CALLS];           /* how often each function was called */
    const struct ggml_tensor *dense;      /* a weight that is not ours, with its buffer: is it asked about? */
    bool asked_dense;                     /* it was, with buffer, usage and address as they are */
    enum ggml_status (*compute)(void *ud, struct ggml_cgraph *graph); /* what the backend computes */
    void (*shown)(void *ud, struct ggml_cgraph *graph);               /* what graph_optimize is for */
    void *ud;                                                         /* of the two */
};

/* Fill it in. */
void seam_probe_init(struct seam_probe *p);

/* A weights buffer of the probe over [ptr, ptr + size). NULL: no memory. */
ggml_backend_buffer_t seam_probe_buffer(struct seam_probe *p, void *ptr, size_t size);

/* Call every function that we implement through ggml. */
enum seam_assumption seam_check_vtables(struct seam *s);

/* ---- seam_block.c ---- */

/* A small MoE block of several types, by stock ggml and in our way, through ggml's scheduler. */
enum seam_assumption seam_check_blocks(struct seam *s);

#endif
