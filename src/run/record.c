/*
 * record.c - keep what a run computed, and check it against the resident run.
 *
 * The comparison is of logits and not of text: two runs can choose the same words from different
 * numbers, and the promise is about the numbers. It is of bytes and not of floats: -0 and 0, or two
 * NaNs, are not the same result. The same batches are replayed, because a batch of other size runs
 * other kernels, which round differently in any llama.cpp run.
 *
 * Only the logits of the last token of a batch exist (context.c), so a prompt batch of 512
 * tokens is compared by one row. Every value of that row depends on all 512 tokens in every layer but
 * the last, and the next batches read all of them through the KV cache.
 */
#include "run/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/error.h"
#include "run/internal.h"

struct sluice_record {
    FILE *file;        /* the temporary file: for each step the number of its tokens, the tokens, n_vocab logits */
    uint32_t n_vocab;  /* logits of a step; 0 before the first one */
    uint32_t n_most;   /* tokens of the largest step */
    uint64_t n_steps;  /* steps recorded */
    uint64_t n_tokens; /* tokens of all of them */
};

/* An open file in dir that no name leads to; -1 with errno. */
static int unlinked_file(const char *dir) {
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0) {
        return fd;
    }
    char path[4096]; /* file systems without O_TMPFILE: a name for a moment */
    int n = snprintf(path, sizeof path, "%s/sluice-XXXXXX", dir);
    if (n < 0 || (size_t)n >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) {
        unlink(path);
    }
    return fd;
}

int sluice_record_new(struct sluice_record **out, struct sluice_error *err) {
    *out = NULL;
    const char *wish = getenv("TMPDIR");
    const char *dir = wish && wish[0] ? wish : "/var/tmp";
    int fd = unlinked_file(dir);
    if (fd < 0 && dir != wish) {
        dir = "/tmp";
        fd = unlinked_file(dir);
    }
    if (fd < 0) {
        return sluice_fail(err, SLUICE_ERR_IO, "%s: no temporary file for the logits: %s", dir, strerror(errno));
    }
    struct sluice_record *rec = calloc(1, sizeof *rec);
    FILE *file = rec ? fdopen(fd, "w+") : NULL;
    if (!file) {
        close(fd);
        free(rec);
        return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory for a record");
    }
    rec->file = file;
    *out = rec;
    return 0;
}

void sluice_record_free(struct sluice_record *rec) {
    if (rec) {
        fclose(rec->file);
        free(rec);
    }
}

/* The temporary file could not be written or read. */
static int failed(struct sluice_error *err) {
    return sluice_fail(err, SLUICE_ERR_IO, "the temporary file for the logits: %s",
                       errno ? strerror(errno) : "it is too short");
}

int sluice_record_add(struct sluice_record *rec, const int32_t *tokens, uint32_t n, const float *logits,
                      uint32_t n_vocab, struct sluice_error *err) {
    if (!logits) {
        return sluice_fail(err, SLUICE_ERR_LLAMA, "llama.cpp gave no logits");
    }
    errno = 0;
    if (fwrite(&n, sizeof n, 1, rec->file) != 1 || fwrite(tokens, sizeof *tokens, n, rec->file) != n ||
        fwrite(logits, sizeof *logits, n_vocab, rec->file) != n_vocab) {
        return failed(err);
    }
    rec->n_vocab = n_vocab;
    rec->n_most = n > rec->n_most ? n : rec->n_most;
    rec->n_tokens += n;
    rec->n_steps++;
    return 0;
}

/* Compare one row; notes the first difference. */
static void compare_row(const float *streamed, const float *resident, uint32_t n_vocab, struct sluice_comparison *out) {
    if (memcmp(streamed, resident, n_vocab * sizeof *streamed) != 0) {
        uint32_t i = 0;
        while (memcmp(&streamed[i], &resident[i], sizeof *streamed) == 0) {
            i++;
        }
        out->identical = false;
        out->first_step = out->steps;
        out->first_token = i;
        out->streamed = streamed[i];
        out->resident = resident[i];
    }
    out->steps++;
    out->values += n_vocab;
}

/* All steps, on an open resident runner. Stops at the first difference: what follows adds nothing. */
static int replay(struct sluice_record *rec, struct sluice_runner *r, int32_t *tokens, float *row,
                  struct sluice_comparison *out, struct sluice_error *err) {
    uint64_t done = 0;
    errno = 0;
    if (fseeko(rec->file, 0, SEEK_SET)) { /* which writes what is buffered */
        return failed(err);
    }
    for (uint64_t step = 0; step < rec->n_steps && out->identical; step++) {
        enum sluice_stop stop;
        uint32_t n;
        errno = 0;
        if (fread(&n, sizeof n, 1, rec->file) != 1 || fread(tokens, sizeof *tokens, n, rec->file) != n ||
            fread(row, sizeof *row, rec->n_vocab, rec->file) != rec->n_vocab) {
            return failed(err);
        }
        int rc = sluice_runner_decode(r, SLUICE_PHASE_PROMPT, tokens, n, &stop, err);
        if (rc) {
            return rc;
        }
        if (stop) {
            out->interrupted = true;
            return 0;
        }
        const float *logits = llama_get_logits_ith(r->ctx, -1);
        if (!logits) {
            return sluice_fail(err, SLUICE_ERR_LLAMA, "llama.cpp gave no logits");
        }
        compare_row(row, logits, rec->n_vocab, out);
        done += n;
        if (sluice_runner_progress(r, done, rec->n_tokens)) {
            out->interrupted = true;
            return 0;
        }
    }
    return 0;
}

int sluice_record_compare(struct sluice_record *rec, const struct sluice_runner_params *params,
                          struct sluice_comparison *out, struct sluice_error *err) {
    struct sluice_runner_params resident = *params;
    struct sluice_runner *r;
    *out = (struct sluice_comparison){.identical = true};
    resident.streaming = false;
    resident.hooks.step = NULL; /* these steps are none of the run's */
    int rc = sluice_runner_open(&r, &resident, err);
    rc = rc ? rc : sluice_runner_start(r, 0, err);
    int32_t *tokens = malloc((rec->n_most + (size_t)1) * sizeof *tokens);
    float *row = malloc((rec->n_vocab + (size_t)1) * sizeof *row);
    if (rc == 0 && (!tokens || !row)) {
        rc = sluice_fail(err, SLUICE_ERR_MEMORY, "no memory for a row of logits");
    } else if (rc == 0 && rec->n_steps && rec->n_vocab != sluice_runner_n_vocab(r)) {
        rc = sluice_fail(err, SLUICE_ERR_FORMAT, "the model changed while it was compared");
    }
    rc = rc ? rc : replay(rec, r, tokens, row, out, err);
    free(tokens);
    free(row);
    sluice_runner_free(r);
    return rc;
}
