/*
 * selftest_impl.h - between the parts of the self-test: selftest.c (order, texts), selftest_static.c (what a look
 * tells), selftest_model.c (a small model, and the device that has it), selftest_block.c (its blocks, computed).
 */
#ifndef SLUICE_SELFTEST_IMPL_H
#define SLUICE_SELFTEST_IMPL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "ggml-backend.h"
#include "ggml.h"

#include "ggml/backend.h"
#include "selftest/assumption.h"
#include "sluice.h"

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
__attribute__((format(printf, 3, 4))) static inline enum selftest_assumption
selftest_broken(struct selftest *s, enum selftest_assumption a, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(s->detail, SELFTEST_DETAIL_MAX, fmt, args);
    va_end(args);
    return a;
}

/* ---- selftest_static.c: numbers, fields and nodes, without a model ---- */

enum selftest_assumption selftest_check_static(struct selftest *s);

/* ---- selftest_model.c: a few hundred KiB that both sides compute with ---- */

enum {
    SELFTEST_EXPERTS = 5,    /* experts */
    SELFTEST_TOP_K = 3,      /* experts of a token */
    SELFTEST_MATS = 3,       /* expert tensors: gate, up, down */
    SELFTEST_EMBD_MAX = 256, /* the largest of the inputs of selftest_shapes */
    SELFTEST_SHAPES = 3,     /* entries of selftest_shapes */
    SELFTEST_SIDES = 2,      /* stock ggml, our device */
};

/* A block of the model; each has another type of experts. */
struct selftest_shape {
    enum ggml_type type; /* of the experts */
    const char *name;    /* for messages */
    int64_t embd, ff;    /* inputs of the block, and of its inner matmul */
};
extern const struct selftest_shape selftest_shapes[SELFTEST_SHAPES];

struct selftest_model {
    int fd;                                      /* a memory file */
    char *map;                                   /* the same, mapped */
    size_t bytes;                                /* of it */
    uint32_t rng;                                /* of the made-up numbers */
    struct sluice_device *device;                /* ours, which reads the file */
    ggml_backend_t backend;                      /* of the device */
    ggml_backend_buffer_t side[SELFTEST_SIDES];  /* over the mapping: a buffer of the CPU, one of the device */
    struct ggml_context *ctx;                    /* holds the tensors */
    struct ggml_tensor *router[SELFTEST_SHAPES]; /* [embd, experts], in the CPU's buffer */
    struct ggml_tensor *weight[SELFTEST_SIDES][SELFTEST_SHAPES][SELFTEST_MATS]; /* the experts, in each buffer */
};

/*
 * Make the file, a device that sees through `spy`, and the tensors on both sides; on the way, call every function that
 * the device has through ggml. *m is zeroed, but for fd -1; on failure selftest_model_free frees what there is.
 */
enum selftest_assumption selftest_model_make(struct selftest_model *m, struct selftest *s,
                                             const struct backend_spy *spy);

/* Frees it. Broken when ggml does not tell the device that its buffer goes. */
enum selftest_assumption selftest_model_free(struct selftest_model *m, struct selftest *s);

/* The next made-up number, from -1 to 1. */
float selftest_model_number(struct selftest_model *m);

/* ---- selftest_block.c ---- */

/* A small MoE block of several types, by stock ggml and by our device, through ggml's scheduler. */
enum selftest_assumption selftest_check_blocks(struct selftest *s);

#endif
