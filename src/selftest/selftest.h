/* seam.h - is this ggml the one that the design rests on? Asked once, before the first model streams. */
#ifndef SLUICE_GGML_SELFTEST_H
#define SLUICE_GGML_SELFTEST_H

#include <stdbool.h>
#include <stddef.h>

#include "sluice.h"

/* What streaming rests on and a few milliseconds can check. docs/ggml.md says where the code relies on each. */
enum selftest_assumption {
    SELFTEST_HOLDS,    /* all of them hold */
    SELFTEST_API,      /* the interface version is the one that we are compiled for */
    SELFTEST_LAYOUT,   /* a tensor's fields are where our headers have them */
    SELFTEST_NUMBERS,  /* operations and types have the numbers of our headers */
    SELFTEST_SERVICES, /* the CPU backend has the functions that are looked up by name */
    SELFTEST_VTABLES,  /* ggml finds a device's, a buffer's and a backend's functions in their places */
    SELFTEST_FLAGS,    /* nodes with the compute flag are computed, nodes without are not */
    SELFTEST_CUSTOM,   /* a custom node is called once by each thread, with its number and their count */
    SELFTEST_STRIDES,  /* expert ids are read with their strides */
    SELFTEST_CUT,      /* a graph that is computed in pieces gives the bytes of the whole */
    SELFTEST_ASKED,    /* the scheduler asks about every weight with its buffer, before it decides */
    SELFTEST_SHOWN,    /* the scheduler shows a backend its split before anything is computed */
    SELFTEST_SPLIT,    /* a block between two expert matmuls is one split */
    SELFTEST_OFFLOAD,  /* weights that are not ours stay with the CPU, ours with us, with op_offload as well */
    SELFTEST_HOST,     /* inputs and outputs of a split are used in place, without copies */
    SELFTEST_ROWS,     /* an expert's rows do not depend on the other experts of the matmul */
    SELFTEST_KERNEL,   /* a value is vec_dot of its type on the converted row */
    SELFTEST_FAILURE,  /* a backend that fails makes the whole computation fail */
    SELFTEST_COUNT
};

/* Room for what was found wrong, in words. */
enum { SELFTEST_DETAIL_MAX = 160 };

/* The name that messages, docs and tests use, e.g. "kernel"; and what it means, in one sentence. */
const char *selftest_name(enum selftest_assumption a);
const char *selftest_sentence(enum selftest_assumption a);

/*
 * Check them all, now. kernel: the decode kernel is to be used, so it is checked too. The first that is
 * broken comes back, with what was found in detail. SELFTEST_HOLDS with *err set: the check itself could not be
 * made (no memory, no file). Touches nothing of the registered device. Any thread.
 */
enum selftest_assumption selftest_check(bool kernel, char detail[SELFTEST_DETAIL_MAX], struct sluice_error *err);

/*
 * The same once in a process, for the registered device: later calls cost a lock. SLUICE_OK, or the refusal with
 * the assumption's name.
 */
int selftest_require(bool kernel, struct sluice_error *err);

/* The refusal, if one was made; SLUICE_OK when it was not, or nobody has asked yet. Checks nothing. */
int selftest_refused(struct sluice_error *err);

#endif
