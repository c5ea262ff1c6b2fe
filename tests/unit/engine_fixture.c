/*
 * engine_fixture.c - an engine over a file with known content, for the tests of the engine.
 *
 * pread is defined here, so it wins over the C library's: that is how reads can be held up
 * (fixture_gate_close) without a clock or a slow disk.
 */
#include "engine_fixture.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cache/event.h"

_Thread_local struct engine_prefetcher *fixture_context;

/* ---- the gate -------------------------------------------------------------------------------- */

static struct {
    _Atomic bool closed;      /* reads wait */
    _Atomic uint32_t waiting; /* of them, so many */
    struct event changed;     /* either */
} gate;

static void gate_pass(void) {
    uint32_t seen = event_read(&gate.changed);
    if (!atomic_load(&gate.closed)) {
        return;
    }
    atomic_fetch_add(&gate.waiting, 1);
    event_bump(&gate.changed);
    while (seen = event_read(&gate.changed), atomic_load(&gate.closed)) {
        event_wait(&gate.changed, seen);
    }
    atomic_fetch_sub(&gate.waiting, 1);
}

void fixture_gate_close(void) {
    atomic_store(&gate.closed, true);
}

void fixture_gate_open(void) {
    atomic_store(&gate.closed, false);
    event_bump(&gate.changed);
}

void fixture_gate_wait(uint32_t n) {
    uint32_t seen;
    while (seen = event_read(&gate.changed), atomic_load(&gate.waiting) < n) {
        event_wait(&gate.changed, seen);
    }
}

/* The library's function of that name. */
static void *real(const char *name) {
    void *p = dlsym(RTLD_NEXT, name);
    assert_non_null(p);
    return p;
}

/* Under the name that a 64-bit off_t gives it. */
ssize_t gated_pread(int fd, void *buf, size_t len, off_t offset) __asm__("pread64");

ssize_t gated_pread(int fd, void *buf, size_t len, off_t offset) {
    ssize_t (*fn)(int, void *, size_t, off_t);
    void *p = real("pread64");
    memcpy(&fn, &p, sizeof fn);
    gate_pass();
    return fn(fd, buf, len, offset);
}

/* ---- little memory --------------------------------------------------------------------------- */

static struct rlimit memory_before;

void fixture_limit_memory(uint64_t more) {
    char line[256];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) && sscanf(line, "VmData: %llu kB", &kib) != 1) {
    }
    fclose(f);
    assert_true(kib > 0);
    assert_int_equal(getrlimit(RLIMIT_DATA, &memory_before), 0);
    const struct rlimit now = {.rlim_cur = kib * 1024 + more, .rlim_max = memory_before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_DATA, &now), 0);
}

void fixture_unlimit_memory(void) {
    assert_int_equal(setrlimit(RLIMIT_DATA, &memory_before), 0);
}

/* ---- the engine ------------------------------------------------------------------------------ */

static int on_budget(void *ud, const struct expert_index *b, uint64_t held, uint64_t *budget,
                     struct sluice_error *err) {
    (void)held;
    struct fixture *f = ud;
    assert_true(b->live_tensors > 0);
    atomic_fetch_add(&f->n_budget, 1);
    *budget = f->budget;
    if (f->refuse) {
        err->status = SLUICE_ERR_BUDGET;
        strcpy(err->message, "the test says no");
        return SLUICE_ERR_BUDGET;
    }
    err->status = SLUICE_OK;
    err->message[0] = 0;
    return SLUICE_OK;
}

uint64_t fixture_offset(int layer, int part, int expert) {
    return START + ((uint64_t)(layer * PARTS + part) * EXPERTS + (uint64_t)expert) * SLICE;
}

static void begin_with(struct fixture *f, uint64_t budget, int lanes, uint64_t staging, enum sluice_policy policy) {
    memset(f, 0, sizeof *f);
    sluice_settings_default(&f->settings);
    f->settings.policy = policy;
    f->settings.io_threads = lanes;
    f->settings.staging_bytes = staging ? staging : f->settings.staging_bytes;
    f->budget = budget;
    f->fd = unit_file(f->path, SIZE);
    f->e = engine_create(&f->settings, on_budget, f, &f->err);
    assert_non_null(f->e);
    engine_prefetcher_begin(f->e, &f->prefetcher);
    assert_int_equal(engine_add_file(f->e, f->fd, f->path, &f->file, &f->err), SLUICE_OK);
    for (int l = 0; l < LAYERS; l++) {
        for (int p = 0; p < PARTS; p++) {
            char name[INDEX_NAME_MAX];
            snprintf(name, sizeof name, "blk.%d.part%d.weight", l, p);
            assert_int_equal(engine_add_tensor(f->e, f->file, 1, name, fixture_offset(l, p, 0), SLICE, EXPERTS, TOP_K,
                                               &f->tensor[l][p], &f->err),
                             SLUICE_OK);
        }
        f->group[l] = engine_tensor(f->e, f->tensor[l][0]).group;
    }
}

void fixture_begin_staging(struct fixture *f, uint64_t budget, int lanes, uint64_t staging) {
    begin_with(f, budget, lanes, staging, SLUICE_POLICY_LRU); /* the counts are compared with a naive LRU */
}

void fixture_begin_policy(struct fixture *f, uint64_t budget, enum sluice_policy policy) {
    begin_with(f, budget, 3, 0, policy);
}

void fixture_begin_lanes(struct fixture *f, uint64_t budget, int lanes) {
    fixture_begin_staging(f, budget, lanes, 0);
}

void fixture_begin(struct fixture *f, uint64_t budget) {
    fixture_begin_lanes(f, budget, 3);
}

void fixture_end(struct fixture *f) {
    engine_prefetcher_end(f->e, &f->prefetcher);
    engine_remove_tensors(f->e, &f->tensor[0][0], LAYERS * PARTS);
    engine_destroy(f->e);
    close(f->fd);
    unlink(f->path);
}

uint64_t fixture_budget(uint32_t n) {
    const uint64_t window = (SLICE + 4095) / 4096 * 4096 + 4096;
    return n * PARTS * window;
}

struct engine_want fixture_want(struct fixture *f, int layer, const int32_t *expert, uint32_t n) {
    return (struct engine_want){.prefetcher = fixture_context ? fixture_context : &f->prefetcher,
                                .group = f->group[layer],
                                .parts = (1u << PARTS) - 1,
                                .expert = expert,
                                .n = n,
                                .phase = ENGINE_GENERATION,
                                .first = true,
                                .all = true,
                                .wait = true};
}

enum part_state fixture_settle(struct engine *e, uint32_t slot, uint32_t part) {
    for (;;) {
        const uint32_t seen = engine_seen(e);
        const enum part_state s = engine_part_state(e, slot, part);
        if (s == PART_READY || s == PART_FAILED) {
            return s;
        }
        engine_wait(e, seen);
    }
}

bool fixture_right(struct engine *e, uint32_t slot, int layer, int expert) {
    for (int p = 0; p < PARTS; p++) {
        if (fixture_settle(e, slot, (uint32_t)p) != PART_READY ||
            !unit_same(engine_part_data(e, slot, (uint32_t)p), fixture_offset(layer, p, expert), SLICE)) {
            return false;
        }
    }
    return true;
}

void fixture_choose(uint64_t *seed, int32_t *expert, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        bool again;
        do {
            expert[i] = (int32_t)(unit_random(seed) % EXPERTS);
            again = false;
            for (uint32_t k = 0; k < i; k++) {
                again = again || expert[k] == expert[i];
            }
        } while (again);
    }
}

struct engine_routing fixture_routing(const int32_t *expert, uint32_t n) {
    enum { MOST = 256 };
    static _Thread_local int32_t count[MOST + 1]; /* 0, 1, 2 ...: always the same */
    assert_true(n <= MOST);
    for (int32_t i = 0; i <= MOST; i++) {
        count[i] = i;
    }
    return (struct engine_routing){.tokens = 1, .top_k = n, .n = n, .expert = expert, .first = count, .list = count};
}

int fixture_begin_block(struct fixture *f, uint32_t group, const int32_t *expert, uint32_t n,
                        struct sluice_error *err) {
    const struct engine_routing r = fixture_routing(expert, n);
    return engine_begin_block(f->e, group, ENGINE_GENERATION, &r, err);
}

bool fixture_block(struct fixture *f, int layer, const int32_t *expert, uint32_t n) {
    uint32_t slot[EXPERTS], granted = 0;
    struct sluice_error err;
    const struct engine_want w = fixture_want(f, layer, expert, n);
    if (fixture_begin_block(f, w.group, expert, n, &err) || engine_acquire(f->e, &w, slot, &granted, &err) ||
        granted != n) {
        return false;
    }
    bool ok = true;
    for (uint32_t i = 0; i < n; i++) {
        ok = fixture_right(f->e, slot[i], layer, expert[i]) && ok;
    }
    engine_release(f->e, slot, n);
    return ok;
}

/* ---- threads --------------------------------------------------------------------------------- */

/* A block with as many as can be had, waiting only when nothing is held. */
static bool worker_rolling(struct fixture_worker *w, int layer, const int32_t *expert, uint32_t n) {
    uint32_t slot[EXPERTS], granted = 0;
    bool done[EXPERTS] = {false}, ok = true;
    uint32_t left = n;
    struct sluice_error err;
    while (left && ok) {
        int32_t waiting[EXPERTS];
        uint32_t k = 0;
        for (uint32_t i = 0; i < n; i++) {
            if (!done[i]) {
                waiting[k++] = expert[i];
            }
        }
        struct engine_want some = fixture_want(w->f, layer, waiting, k);
        some.all = false;
        if (engine_acquire(w->f->e, &some, slot, &granted, &err) || granted == 0) {
            return false;
        }
        /* One more try while pins are held: it may give nothing, and must not wait. */
        uint32_t extra[EXPERTS], more = 0;
        some.wait = some.first = false;
        if (engine_acquire(w->f->e, &some, extra, &more, &err)) {
            ok = false;
        }
        for (uint32_t i = 0, at = 0; i < n; i++) {
            if (done[i]) {
                continue;
            }
            if (slot[at] != UINT32_MAX) {
                ok = fixture_right(w->f->e, slot[at], layer, expert[i]) && ok;
                done[i] = true;
                left--;
            }
            at++;
        }
        engine_release(w->f->e, slot, k);
        engine_release(w->f->e, extra, more ? k : 0);
    }
    return ok;
}

void *fixture_worker(void *worker) {
    struct fixture_worker *w = worker;
    w->ok = true;
    struct engine_prefetcher prefetcher;
    engine_prefetcher_begin(w->f->e, &prefetcher);
    fixture_context = &prefetcher;
    int32_t expert[EXPERTS], next[EXPERTS];
    uint32_t n_next = 0;
    for (int turn = 0; turn < (w->turns ? w->turns : 400) && w->ok; turn++) {
        uint32_t n = 1 + unit_random(&w->seed) % (w->rolling ? EXPERTS : TOP_K);
        if (n_next) {
            n = n_next; /* as guessed */
            memcpy(expert, next, sizeof expert);
        } else {
            fixture_choose(&w->seed, expert, n);
        }
        n_next = 0;
        if (w->rolling) {
            w->ok = worker_rolling(w, turn % LAYERS, expert, n);
            continue;
        }
        w->ok = fixture_block(w->f, turn % LAYERS, expert, n);
        if (w->foresee && engine_prefetches(w->f->e, &prefetcher)) {
            const uint32_t guess = 1 + unit_random(&w->seed) % TOP_K;
            fixture_choose(&w->seed, next, guess);
            engine_prefetch(w->f->e, &prefetcher, w->f->group[(turn + 1) % LAYERS], next, guess, false);
            n_next = unit_random(&w->seed) % 4 ? guess : 0; /* three of four guesses are right */
        }
    }
    engine_prefetcher_end(w->f->e, &prefetcher);
    return NULL;
}
