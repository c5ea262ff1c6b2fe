/*
 * selftest_impl.h - between the parts of the self-test: seam.c (order, texts), selftest_static.c (what a look tells),
 * selftest_probe.c (a device that only watches), selftest_model.c (weights), selftest_block.c (an MoE block,
 * computed in several ways).
 */
#ifndef SLUICE_GGML_SELFTEST_IMPL_H
#define SLUICE_GGML_SELFTEST_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml.h"

#include "selftest/selftest.h"

/*
 * Threads of the CPU backends. Two where nodes of threads are looked at, in one small graph. One for the rest: which
 * thread computes a value changes no byte, and threads of a team that spin at barriers took 30 to 1000 ms on a
 * machine that was busy with other programs, where one takes 6.
 */
enum { SELFTEST_THREADS = 2, SELFTEST_THREADS_BLOCK = 1 };

/* One run of the check. */
struct selftest {
    ggml_backend_t cpu;       /* computes the stock side; owned */
    bool kernel;              /* the kernel is to be used */
    char *detail;             /* SELFTEST_DETAIL_MAX bytes: what was found wrong; the caller's */
    struct sluice_error *err; /* why the check could not be made; the caller's */
};

/* Note what was found, and return the assumption: `return selftest_broken(s, SELFTEST_X, "...")`. */
enum selftest_assumption selftest_broken(struct selftest *s, enum selftest_assumption a, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- selftest_static.c: numbers, fields and nodes, without a model ---- */

enum selftest_assumption selftest_check_static(struct selftest *s);

/* ---- selftest_probe.c: a device that watches what ggml asks of it ---- */

/* Calls that the probe counts. */
enum selftest_call {
    SELFTEST_CALL_BUFT_NAME,
    SELFTEST_CALL_BUFT_ALLOC,
    SELFTEST_CALL_BUFT_ALIGNMENT,
    SELFTEST_CALL_BUFT_HOST,
    SELFTEST_CALL_BUFFER_FREE,
    SELFTEST_CALL_BUFFER_BASE,
    SELFTEST_CALL_BUFFER_INIT,
    SELFTEST_CALL_BUFFER_MEMSET,
    SELFTEST_CALL_BUFFER_SET,
    SELFTEST_CALL_BUFFER_GET,
    SELFTEST_CALL_BUFFER_CLEAR,
    SELFTEST_CALL_DEV_NAME,
    SELFTEST_CALL_DEV_DESCRIPTION,
    SELFTEST_CALL_DEV_MEMORY,
    SELFTEST_CALL_DEV_TYPE,
    SELFTEST_CALL_DEV_PROPS,
    SELFTEST_CALL_DEV_INIT,
    SELFTEST_CALL_DEV_BUFT,
    SELFTEST_CALL_DEV_HOST_PTR,
    SELFTEST_CALL_DEV_OP,
    SELFTEST_CALL_DEV_SUPPORTS_BUFT,
    SELFTEST_CALL_NAME,
    SELFTEST_CALL_FREE,
    SELFTEST_CALL_COMPUTE,
    SELFTEST_CALL_SHOWN,
    SELFTEST_CALLS
};

/*
 * A device like ours, that is not registered: same type, same answers, same kinds of buffers. What it computes
 * is its user's. Not to be moved while ggml knows it.
 */
struct selftest_probe {
    struct ggml_backend_reg reg;          /* what ggml sees */
    struct ggml_backend_device dev;       /* the same */
    struct ggml_backend_buffer_type buft; /* the same */
    struct ggml_backend backend;          /* the same */
    uint32_t calls[SELFTEST_CALLS];       /* how often each function was called */
    const struct ggml_tensor *dense;      /* a weight that is not ours, with its buffer: is it asked about? */
    bool asked_dense;                     /* it was, with buffer, usage and address as they are */
    enum ggml_status (*compute)(void *ud, struct ggml_cgraph *graph); /* what the backend computes */
    void (*shown)(void *ud, struct ggml_cgraph *graph);               /* what graph_optimize is for */
    void *ud;                                                         /* of the two */
};

/* Fill it in. */
void selftest_probe_init(struct selftest_probe *p);

/* A weights buffer of the probe over [ptr, ptr + size). NULL: no memory. */
ggml_backend_buffer_t selftest_probe_buffer(struct selftest_probe *p, void *ptr, size_t size);

/* Call every function that we implement through ggml. */
enum selftest_assumption selftest_check_vtables(struct selftest *s);

/* ---- selftest_block.c ---- */

/* A small MoE block of several types, by stock ggml and in our way, through ggml's scheduler. */
enum selftest_assumption selftest_check_blocks(struct selftest *s);

#endif
