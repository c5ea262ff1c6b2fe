/*
 * seam.c - is this ggml the one that the design rests on?
 *
 * Sluice is a guest in programs that it was not built with: another ggml of the same library name, another
 * processor, a patched build. Much of what it does rests on how ggml behaves, not on what its headers
 * promise: that an expert's rows do not depend on the other experts, that nodes without a flag are skipped, that
 * a split's inputs are not copied. The gates show all of that for the pinned release, on the machine that ran
 * them. On a user's machine a broken assumption would be wrong text, and nobody would see it.
 *
 * So it is tried, once per process, before the first weight is accepted: a small MoE block is computed by stock
 * ggml and in our way, and must agree to the bit; ggml's scheduler is watched by a device that is like ours. It
 * takes a few milliseconds (docs/seam.md has the measurement), and nothing in programs that load no MoE model.
 * What was found broken has a name; every load is then refused with it, so that the program ends with an
 * error. It is not computed from memory instead: who runs a model that does not fit wants to know.
 *
 * What only llama.cpp does (offering weights, mapping files) cannot be tried before it does it; docs/seam.md
 * says for each assumption what checks it.
 */
#include "backend/seam.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backend/seam_impl.h"
#include "stream/error.h"

static const struct {
    const char *name, *sentence; /* see seam.h */
} seam_text[SEAM_COUNT] = {
    [SEAM_HOLDS] = {"none", "all assumptions hold"},
    [SEAM_API] = {"api", "ggml's backend interface has the version that sluice was compiled for"},
    [SEAM_LAYOUT] = {"layout", "the fields of a tensor are where the headers have them that sluice was compiled with"},
    [SEAM_NUMBERS] = {"numbers", "ggml's operations and types have the numbers that sluice was compiled with"},
    [SEAM_SERVICES] = {"services", "the CPU backend offers the functions that sluice looks up by name"},
    [SEAM_VTABLES] = {"vtables", "ggml calls a backend's functions by the places that sluice was compiled with"},
    [SEAM_FLAGS] = {"flags", "ggml computes the nodes that are flagged for it, and no others"},
    [SEAM_CUSTOM] = {"custom", "ggml calls a custom node once from each of its threads"},
    [SEAM_STRIDES] = {"strides", "the experts' numbers are read from where the router's view of them says"},
    [SEAM_CUT] = {"cut", "a graph that is computed in pieces gives the bytes of the whole"},
    [SEAM_ASKED] = {"asked", "ggml's scheduler asks a device about every weight, with its buffer and address"},
    [SEAM_SHOWN] = {"shown", "ggml's scheduler shows a backend its split before anything is computed"},
    [SEAM_SPLIT] = {"split", "ggml's scheduler gives a backend an MoE block in one piece"},
    [SEAM_OFFLOAD] = {"offload", "ggml's scheduler leaves each operation where its weights are"},
    [SEAM_HOST] = {"host", "ggml's scheduler passes tensors between host backends without copies"},
    [SEAM_ROWS] = {"rows", "an expert's rows do not depend on the other experts of a matmul"},
    [SEAM_KERNEL] = {"kernel", "a value of an expert matmul is ggml's vec_dot of its type"},
    [SEAM_FAILURE] = {"failure", "a backend that fails makes the computation fail"},
};

/* The verdict of this process. */
static struct {
    pthread_mutex_t lock;        /* guards the rest, and makes others wait while one checks */
    bool asked;                  /* it was checked */
    struct sluice_error refusal; /* why nothing streams; SLUICE_OK: all holds, or nobody asked */
} seam_verdict = {.lock = PTHREAD_MUTEX_INITIALIZER};

const char *seam_name(enum seam_assumption a) {
    return seam_text[a].name;
}

const char *seam_sentence(enum seam_assumption a) {
    return seam_text[a].sentence;
}

enum seam_assumption seam_broken(struct seam *s, enum seam_assumption a, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(s->detail, SEAM_DETAIL_MAX, fmt, args);
    va_end(args);
    return a;
}

enum seam_assumption seam_check(bool kernel, char detail[SEAM_DETAIL_MAX], struct sluice_error *err) {
    struct seam s = {.kernel = kernel, .detail = detail, .err = err};
    detail[0] = '\0';
    sluice_ok(err);
    s.cpu = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    if (!s.cpu) {
        sluice_fail(err, SLUICE_ERR_LLAMA, "this llama.cpp has no CPU backend");
        return SEAM_HOLDS;
    }
    /* What a look tells comes first: with other fields or numbers, the rest would not fail but crash. */
    enum seam_assumption a = seam_check_static(&s);
    if (a == SEAM_HOLDS && err->status == SLUICE_OK) {
        a = seam_check_vtables(&s);
    }
    if (a == SEAM_HOLDS && err->status == SLUICE_OK) {
        a = seam_check_blocks(&s);
    }
    ggml_backend_free(s.cpu);
    return a;
}

int seam_require(bool kernel, struct sluice_error *err) {
    pthread_mutex_lock(&seam_verdict.lock);
    if (!seam_verdict.asked) {
        char detail[SEAM_DETAIL_MAX];
        struct sluice_error why;
        const enum seam_assumption a = seam_check(kernel, detail, &why);
        if (a != SEAM_HOLDS) {
            sluice_fail(&seam_verdict.refusal, SLUICE_ERR_LLAMA,
                        "assumption '%s' does not hold here, so no expert is streamed: %s (%s). ggml %s %s, sluice was "
                        "compiled for llama.cpp %s; docs/seam.md%s",
                        seam_name(a), seam_sentence(a), detail, ggml_version(), ggml_commit(), SLUICE_LLAMA_VERSION,
                        a == SEAM_KERNEL ? "; SLUICE_KERNEL=reference does without it" : "");
        } else if (why.status) {
            sluice_fail(&seam_verdict.refusal, why.status, "ggml could not be checked: %s", why.message);
        }
        seam_verdict.asked = true;
    }
    if (err) {
        *err = seam_verdict.refusal;
    }
    const int rc = (int)seam_verdict.refusal.status;
    pthread_mutex_unlock(&seam_verdict.lock);
    return rc;
}

int seam_refused(struct sluice_error *err) {
    pthread_mutex_lock(&seam_verdict.lock);
    *err = seam_verdict.refusal;
    pthread_mutex_unlock(&seam_verdict.lock);
    return (int)err->status;
}
