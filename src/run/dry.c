/*
 * dry.c - see dry.h.
 *
 * How much memory a context takes depends on the architecture: sliding windows, compressed caches, recurrent states,
 * and compute buffers that follow from the graph. A table of formulas would copy llama.cpp's knowledge, and be wrong
 * for the next model. llama.cpp has a mode in which it computes all sizes and allocates nothing (no_alloc, which
 * llama-server's --fit uses). Our device is registered, so the graph is cut as it will be when it streams, and
 * context.c chooses the micro-batch as in a run. This takes some 50 milliseconds per context.
 *
 * llama.h has no function for the results; they are in the log (log.c).
 *
 * llama.cpp refuses an incomplete file. Only its header matters here, so a sparse file of the right size with that
 * header stands in for it; nobody reads its data.
 *
 * Afterwards this process has in memory what a run has (program, libraries, vocabulary, the model's description);
 * context.c adds the KV cache, which a run writes to, and the buffers, which it has not touched yet.
 */
#include "run/dry.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "cache/error.h"
#include "cache/expert_index.h"
#include "cache/slots.h"
#include "ggml/demand.h"
#include "run/internal.h"

enum { DRY_PATH = 4096 }; /* bytes of a path */

/* ---- stand-ins for incomplete files ----------------------------------------------------------- */

/* The model as llama.cpp gets to see it: the files themselves, or sparse ones with their headers. */
struct standin {
    struct sluice_gguf gguf;          /* as the caller's, with other shards */
    struct sluice_gguf_shard *shards; /* owned; with paths of the stand-ins, owned */
    char dir[DRY_PATH];               /* where they are; "": there are none */
};

static bool is_partial(const struct sluice_gguf *g) {
    for (uint32_t i = 0; i < g->n_shards; i++) {
        if (g->shards[i].bytes < g->shards[i].whole) {
            return true;
        }
    }
    return false;
}

/* The header of `from` into the new file `to`, which then seems as long as the whole. */
static int copy_header(const struct sluice_gguf_shard *from, const char *to, struct sluice_error *err) {
    const int in = open(from->path, O_RDONLY | O_CLOEXEC),
              out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool ok = in >= 0 && out >= 0;
    for (uint64_t left = from->header; ok && left > 0;) {
        const ssize_t n = sendfile(out, in, NULL, left);
        errno = n == 0 ? EPROTO : errno; /* it ends early */
        ok = n > 0;
        left -= ok ? (uint64_t)n : 0;
    }
    ok = ok && ftruncate(out, (off_t)from->whole) == 0;
    const int error = errno;
    if (in >= 0) {
        close(in);
    }
    if (out >= 0) {
        close(out);
    }
    return ok ? 0
              : sluice_fail(err, SLUICE_ERR_IO, "%s: the header of %s cannot be copied there: %s", to, from->path,
                            strerror(error));
}

static void standin_remove(struct standin *s) {
    for (uint32_t i = 0; s->shards && i < s->gguf.n_shards; i++) {
        if (s->shards[i].path) {
            unlink(s->shards[i].path);
            free(s->shards[i].path);
        }
    }
    free(s->shards);
    if (s->dir[0]) {
        rmdir(s->dir);
    }
}

static int standin_make(struct standin *s, const struct sluice_gguf *g, struct sluice_error *err) {
    const char *tmp = getenv("TMPDIR");
    s->gguf = *g;
    if (!is_partial(g)) {
        return 0;
    }
    const int n = snprintf(s->dir, sizeof s->dir, "%s/sluice-plan-XXXXXX", tmp && tmp[0] ? tmp : "/tmp");
    if (n < 0 || n >= (int)sizeof s->dir || !mkdtemp(s->dir)) {
        const int rc = sluice_fail(err, SLUICE_ERR_IO, "%s: %s", s->dir, strerror(errno));
        s->dir[0] = '\0';
        return rc;
    }
    s->shards = calloc(g->n_shards, sizeof *s->shards);
    if (!s->shards) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory");
    }
    s->gguf.shards = s->shards;
    for (uint32_t i = 0; i < g->n_shards; i++) {
        char path[DRY_PATH + 256];
        const char *slash = strrchr(g->shards[i].path, '/'); /* llama.cpp finds the others by the name of the first */
        snprintf(path, sizeof path, "%s/%s", s->dir, slash ? slash + 1 : g->shards[i].path);
        s->shards[i] = g->shards[i];
        s->shards[i].path = strdup(path);
        const int rc = s->shards[i].path ? copy_header(&g->shards[i], path, err)
                                         : sluice_fail(err, SLUICE_ERR_MEMORY, "no memory");
        if (rc) {
            return rc;
        }
    }
    return 0;
}

/* ---- the expert index, from headers ------------------------------------------------------------------- */

int sluice_dry_cut(const struct sluice_gguf *g, const struct sluice_info *info, uint64_t budget, uint64_t *bytes,
                   struct sluice_error *err) {
    struct expert_index index;
    index_init(&index);
    int rc = sluice_info_index(&index, g, info, err);
    rc = rc ? rc : slots_measure(&index, budget, bytes, err);
    index_free(&index);
    return rc;
}

static int demand_of(struct plan_demand *d, const struct sluice_dry_params *p, struct sluice_error *err) {
    struct expert_index index;
    index_init(&index);
    *d = (struct plan_demand){.dense = p->info->dense_bytes, .dense_mapped = p->settings->dense == SLUICE_DENSE_MMAP};
    int rc = 0;
    if (p->info->expert_tensors) {
        rc = sluice_info_index(&index, p->gguf, p->info, err);
        rc = rc ? rc : demand_of_index(&index, d, err);
    }
    index_free(&index);
    return rc;
}

/* ---- the run ---------------------------------------------------------------------------------- */

int sluice_dry_run(const struct sluice_dry_params *p, struct sluice_dry *out, struct sluice_error *err) {
    struct standin standin = {.dir = ""};
    struct sluice_runner *r = NULL;
    memset(out, 0, sizeof *out);
    int rc = demand_of(&out->demand, p, err);
    rc = rc ? rc : standin_make(&standin, p->gguf, err);
    const struct sluice_runner_params params = {
        .gguf = &standin.gguf,
        .settings = p->settings,
        .log = p->log,
        .n_ctx = p->n_ctx,
        .n_threads = p->n_threads,
        .streaming = p->info->expert_tensors > 0,
        .dry = true,
    };
    rc = rc ? rc : sluice_runner_open(&r, &params, err);
    rc = rc ? rc : sluice_runner_start(r, p->tokens, err);
    if (rc == 0) {
        out->n_ctx = r->n_ctx;
        out->n_ubatch = r->n_ubatch;
        out->facts = r->facts;
        out->kv_known = r->sizes.kv;
        out->kv_bytes = (uint64_t)(r->sizes.kv_mib * 1024 * 1024);
        out->compute_known = r->sizes.n_compute > 0;
        out->compute_bytes = sluice_log_compute(&r->sizes);
        out->nodes = r->sizes.nodes;
        out->splits = r->sizes.splits;
    }
    sluice_runner_free(r);
    standin_remove(&standin);
    return rc;
}
