/*
 * selftest.c - is this ggml the one that the design rests on?
 *
 * Sluice is a guest in programs that it was not built with: another ggml of the same library name, another
 * processor, a patched build. Much of what it does rests on how ggml behaves, not on what its headers
 * promise: that an expert's rows do not depend on the other experts, that nodes without a flag are skipped, that
 * a split's inputs are not copied. The gates show all of that for the pinned release, on the machine that ran
 * them. On a user's machine a broken assumption would be wrong text, and nobody would see it.
 *
 * So it is tried, once per process, before the first weight is accepted: a small MoE block is computed by stock
 * ggml and in our way, and must agree to the bit; ggml's scheduler is watched by a device that is like ours. It
 * takes a few milliseconds (docs/ggml.md has the measurement), and nothing in programs that load no MoE model.
 * What was found broken has a name; every load is then refused with it, so that the program ends with an
 * error. It is not computed from memory instead: who runs a model that does not fit wants to know.
 *
 * What only llama.cpp does (offering weights, mapping files) cannot be tried before it does it; docs/ggml.md
 * says for each assumption what checks it.
 */
#include "selftest/selftest.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "selftest/selftest_impl.h"
#include "cache/error.h"

static const struct {
    const char *name, *sentence; /* see selftest.h */
} selftest_text[SELFTEST_COUNT] = {
    [SELFTEST_HOLDS] = {"none", "all assumptions hold"},
    [SELFTEST_API] = {"api", "ggml's backend interface has the version that sluice was compiled for"},
    [SELFTEST_LAYOUT] = {"layout",
                         "the fields of a tensor are where the headers have them that sluice was compiled with"},
    [SELFTEST_NUMBERS] = {"numbers", "ggml's operations and types have the numbers that sluice was compiled with"},
    [SELFTEST_SERVICES] = {"services", "the CPU backend offers the functions that sluice looks up by name"},
    [SELFTEST_VTABLES] = {"vtables", "ggml calls a backend's functions by the places that sluice was compiled with"},
    [SELFTEST_FLAGS] = {"flags", "ggml computes the nodes that are flagged for it, and no others"},
    [SELFTEST_CUSTOM] = {"custom", "ggml calls a custom node once from each of its threads"},
    [SELFTEST_STRIDES] = {"strides", "the experts' numbers are read from where the router's view of them says"},
    [SELFTEST_CUT] = {"cut", "a graph that is computed in pieces gives the bytes of the whole"},
    [SELFTEST_ASKED] = {"asked", "ggml's scheduler asks a device about every weight, with its buffer and address"},
    [SELFTEST_SHOWN] = {"shown", "ggml's scheduler shows a backend its split before anything is computed"},
    [SELFTEST_SPLIT] = {"split", "ggml's scheduler gives a backend an MoE block in one piece"},
    [SELFTEST_OFFLOAD] = {"offload", "ggml's scheduler leaves each operation where its weights are"},
    [SELFTEST_HOST] = {"host", "ggml's scheduler passes tensors between host backends without copies"},
    [SELFTEST_ROWS] = {"rows", "an expert's rows do not depend on the other experts of a matmul"},
    [SELFTEST_KERNEL] = {"kernel", "a value of an expert matmul is ggml's vec_dot of its type"},
    [SELFTEST_FAILURE] = {"failure", "a backend that fails makes the computation fail"},
};

/* The verdict of this process. */
static struct {
    pthread_mutex_t lock;        /* guards the rest, and makes others wait while one checks */
    bool asked;                  /* it was checked */
    struct sluice_error refusal; /* why nothing streams; SLUICE_OK: all holds, or nobody asked */
} selftest_verdict = {.lock = PTHREAD_MUTEX_INITIALIZER};

const char *selftest_name(enum selftest_assumption a) {
    return selftest_text[a].name;
}

const char *selftest_sentence(enum selftest_assumption a) {
    return selftest_text[a].sentence;
}

enum selftest_assumption selftest_check(bool kernel, char detail[SELFTEST_DETAIL_MAX], struct sluice_error *err) {
    struct selftest s = {.kernel = kernel, .detail = detail, .err = err};
    detail[0] = '\0';
    sluice_ok(err);
    s.cpu = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    if (!s.cpu) {
        sluice_fail(err, SLUICE_ERR_LLAMA, "this llama.cpp has no CPU backend");
        return SELFTEST_HOLDS;
    }
    /* What a look tells comes first: with other fields or numbers, the rest would not fail but crash. */
    enum selftest_assumption a = selftest_check_static(&s);
    if (a == SELFTEST_HOLDS && err->status == SLUICE_OK) {
        a = selftest_check_blocks(&s);
    }
    ggml_backend_free(s.cpu);
    return a;
}

int selftest_require(bool kernel, struct sluice_error *err) {
    pthread_mutex_lock(&selftest_verdict.lock);
    if (!selftest_verdict.asked) {
        char detail[SELFTEST_DETAIL_MAX];
        struct sluice_error why;
        const enum selftest_assumption a = selftest_check(kernel, detail, &why);
        if (a != SELFTEST_HOLDS) {
            sluice_fail(&selftest_verdict.refusal, SLUICE_ERR_LLAMA,
                        "assumption '%s' does not hold here, so no expert is streamed: %s (%s). ggml %s %s, sluice was "
                        "compiled for llama.cpp %s; docs/ggml.md%s",
                        selftest_name(a), selftest_sentence(a), detail, ggml_version(), ggml_commit(),
                        SLUICE_LLAMA_VERSION, a == SELFTEST_KERNEL ? "; SLUICE_KERNEL=reference does without it" : "");
        } else if (why.status) {
            sluice_fail(&selftest_verdict.refusal, why.status, "ggml could not be checked: %s", why.message);
        }
        selftest_verdict.asked = true;
    }
    if (err) {
        *err = selftest_verdict.refusal;
    }
    const int rc = (int)selftest_verdict.refusal.status;
    pthread_mutex_unlock(&selftest_verdict.lock);
    return rc;
}

int selftest_refused(struct sluice_error *err) {
    pthread_mutex_lock(&selftest_verdict.lock);
    *err = selftest_verdict.refusal;
    pthread_mutex_unlock(&selftest_verdict.lock);
    return (int)err->status;
}
