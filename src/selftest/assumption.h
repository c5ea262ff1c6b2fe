/* assumption.h - what the design assumes about ggml. */
#ifndef SLUICE_SELFTEST_ASSUMPTION_H
#define SLUICE_SELFTEST_ASSUMPTION_H

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

#endif
