/* engine_fixture.h - an engine over a file with known content, for the tests of the engine. */
#ifndef SLUICE_TESTS_ENGINE_FIXTURE_H
#define SLUICE_TESTS_ENGINE_FIXTURE_H

#include "unit.h"

#include "cache/engine.h"

enum {
    LAYERS = 3,
    EXPERTS = 16,
    PARTS = 2,
    SLICE = 5000, /* bytes: no multiple of a page */
    TOP_K = 4,
    START = 4096 + 32, /* where the first tensor begins */
    SIZE = START + LAYERS * PARTS * EXPERTS * SLICE,
};

/* Whose demand this thread's blocks are; NULL: the fixture's own context. */
extern _Thread_local struct engine_prefetcher *fixture_context;

struct fixture {
    struct engine *e;
    struct engine_prefetcher prefetcher; /* of its own context */
    struct sluice_settings settings;     /* of it */
    _Atomic uint64_t budget;             /* what the budget function answers, bytes */
    _Atomic bool refuse;                 /* it refuses */
    _Atomic int n_budget;                /* calls of it */
    int fd;                              /* of the file, to write to it */
    char path[64];                       /* its name */
    uint32_t file;                       /* its index in the engine */
    uint32_t tensor[LAYERS][PARTS];      /* ids */
    uint32_t group[LAYERS];              /* ids */
    struct sluice_error err;             /* scratch */
};

/* An engine with LRU and `lanes` reads in flight (fixture_begin: 3); the tensors are known, nothing is cut. */
void fixture_begin(struct fixture *f, uint64_t budget);
void fixture_begin_lanes(struct fixture *f, uint64_t budget, int lanes);

/* The same with another policy. */
void fixture_begin_policy(struct fixture *f, uint64_t budget, enum sluice_policy policy);

/* The same with so many bytes that a block may bring in at a time; 0: the default. */
void fixture_begin_staging(struct fixture *f, uint64_t budget, int lanes, uint64_t staging);
void fixture_end(struct fixture *f);

/* Where in the file an expert's part lies. */
uint64_t fixture_offset(int layer, int part, int expert);

/* A budget in which exactly n slots are cut. */
uint64_t fixture_budget(uint32_t n);

/* All parts of n experts, all or nothing, waiting. */
struct engine_want fixture_want(struct fixture *f, int layer, const int32_t *expert, uint32_t n);

/* Wait for a part; its final state. */
enum part_state fixture_settle(struct engine *e, uint32_t slot, uint32_t part);

/* Wait for all parts; are their bytes those of the file? */
bool fixture_right(struct engine *e, uint32_t slot, int layer, int expert);

/* n distinct experts. */
void fixture_choose(uint64_t *seed, int32_t *expert, uint32_t n);

/* One token that is routed to these experts. */
struct engine_routing fixture_routing(const int32_t *expert, uint32_t n);

/* A block of such a token begins. */
int fixture_begin_block(struct fixture *f, uint32_t group, const int32_t *expert, uint32_t n, struct sluice_error *err);

/* A whole block, from its beginning to its release, of which every byte is checked. False: something was wrong. */
bool fixture_block(struct fixture *f, int layer, const int32_t *expert, uint32_t n);

/*
 * Reads can be held up, so that a test decides what happens while they are under way: while the gate is
 * closed, whoever is about to read waits in pread.
 */
void fixture_gate_close(void);
void fixture_gate_open(void);

/* Wait until n reads wait at the gate. */
void fixture_gate_wait(uint32_t n);

/* Until it is taken back, the process may allocate that many bytes more (RLIMIT_DATA). */
void fixture_limit_memory(uint64_t more);
void fixture_unlimit_memory(void);

/* A thread that runs blocks, with a context of its own, and checks every byte of what it gets. */
struct fixture_worker {
    struct fixture *f; /* whose engine */
    uint64_t seed;     /* of the experts that it wants */
    int turns;         /* blocks; 0: 400 */
    bool rolling;      /* several acquires without waiting, as a prompt in a small cache does */
    bool foresee;      /* guess the next block's experts, sometimes rightly */
    bool ok;           /* out: all was right */
};
void *fixture_worker(void *worker);

#endif
