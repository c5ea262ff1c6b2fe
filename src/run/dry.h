/*
 * dry.h - what running a model would allocate, without loading it.
 */
#ifndef SLUICE_RUN_DRY_H
#define SLUICE_RUN_DRY_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/ledger.h"
#include "run/info.h"
#include "run/log.h"
#include "sluice.h"

struct sluice_dry_params {
    const struct sluice_gguf *gguf;         /* by sluice_gguf_check or sluice_gguf_check_header */
    const struct sluice_info *info;         /* of it */
    const struct sluice_settings *settings; /* as registered: sluice_register comes first */
    struct sluice_log *log;                 /* installed */
    uint64_t tokens;                        /* of the prompt; 0: not known, as for a chat */
    uint32_t n_ctx;                         /* context, tokens; 0: what the model was trained for */
    int n_threads;                          /* compute threads */
};

/* A number of llama.cpp's that it only tells in its log may be missing; the flag beside it says so then. */
struct sluice_dry {
    uint32_t n_ctx;            /* context, tokens, as llama.cpp rounds it */
    uint32_t n_ubatch;         /* micro-batch that a run would choose */
    uint64_t kv_bytes;         /* KV cache and recurrent states */
    uint64_t compute_bytes;    /* compute buffers */
    uint32_t nodes;            /* of the graph of one token, those that compute nothing included; 0: not known */
    uint32_t splits;           /* parts into which llama.cpp cuts it; 0: not known */
    bool kv_known;             /* kv_bytes was told */
    bool compute_known;        /* compute_bytes was told */
    struct plan_facts facts;   /* machine, and this process as a run would be at its first token */
    struct plan_demand demand; /* what the expert cache and the dense weights ask for */
};

/*
 * Go through loading and making a context as sluice_runner_open and sluice_runner_start do, with llama.cpp allocating
 * nothing (but small recurrent states). Sparse copies of their headers in TMPDIR stand in for incomplete files;
 * they are removed. SLUICE_ERR_LLAMA: llama.cpp cannot run this model, with its reason; SLUICE_ERR_IO,
 * SLUICE_ERR_MEMORY; SLUICE_ERR_ARG: as sluice_runner_open.
 */
int sluice_dry_run(const struct sluice_dry_params *p, struct sluice_dry *out, struct sluice_error *err);

/* The slot memory that the engine would cut from that cache budget, bytes. SLUICE_ERR_MEMORY, SLUICE_ERR_IO. */
int sluice_dry_cut(const struct sluice_gguf *g, const struct sluice_info *info, uint64_t budget, uint64_t *bytes,
                   struct sluice_error *err);

#endif
