/*
 * record.c - keep what a run computed, and check it against the resident run.
 *
 * The comparison is of logits and not of text: two runs can choose the same words from different
 * numbers, and the promise is about the numbers. It is of bytes and not of floats: -0 and 0, or two
 * NaNs, are not the same result. The same batches are replayed, because a batch of other size runs
 * other kernels, which round differently in any llama.cpp run.
 *
 * Only the logits of the last token of a batch exist (see runner_context), so a prompt batch of 512
 * tokens is compared by one row. Every value of that row depends on all 512 tokens in every layer but
 * the last, and the next batches read all of them through the KV cache.
 */
#include "run/record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "llama.h"
#include "run/internal.h"

struct sluice_record {
    int fd;            /* the temporary file: rows of n_vocab floats, one per step */
    uint32_t n_vocab;  /* floats per row; 0 before the first step */
    uint32_t *sizes;   /* tokens of each step, n_steps used */
    size_t n_steps;    /* steps recorded */
    size_t cap_steps;  /* entries allocated in sizes */
    int32_t *tokens;   /* the tokens of all steps, one after the other */
    size_t n_tokens;   /* tokens recorded */
    size_t cap_tokens; /* entries allocated in tokens */
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
    struct sluice_record *rec = calloc(1, sizeof *rec);
    if (!rec) {
        return sluice_error_set(err, SLUICE_ERR_MEMORY, "no memory for a record");
    }
    const char *wish = getenv("TMPDIR");
    const char *dir = wish && wish[0] ? wish : "/var/tmp";
    rec->fd = unlinked_file(dir);
    if (rec->fd < 0 && dir != wish) {
        dir = "/tmp";
        rec->fd = unlinked_file(dir);
    }
    if (rec->fd < 0) {
        int rc = sluice_error_set(err, SLUICE_ERR_IO, "%s: no temporary file for the logits: %s", dir, strerror(errno));
        free(rec);
        return rc;
    }
    *out = rec;
    return 0;
}

void sluice_record_free(struct sluice_record *rec) {
    if (rec) {
        close(rec->fd);
        free(rec->sizes);
        free(rec->tokens);
        free(rec);
    }
}

/* Make room for `more` entries of `size` bytes in a doubling array. */
static bool grow(void **array, size_t used, size_t *cap, size_t more, size_t size) {
    if (used + more <= *cap) {
        return true;
    }
    size_t wish = 2 * (used + more) + 64;
    void *bigger = wish <= SIZE_MAX / size ? realloc(*array, wish * size) : NULL;
    if (!bigger) {
        return false;
    }
    *array = bigger;
    *cap = wish;
    return true;
}

static int write_row(int fd, const float *row, size_t bytes, off_t at, struct sluice_error *err) {
    const char *p = (const char *)row;
    while (bytes > 0) {
        ssize_t n = pwrite(fd, p, bytes, at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return sluice_error_set(err, SLUICE_ERR_IO, "the temporary file for the logits: %s",
                                    n < 0 ? strerror(errno) : "nothing was written");
        }
        p += n;
        at += n;
        bytes -= (size_t)n;
    }
    return 0;
}

static int read_row(int fd, float *row, size_t bytes, off_t at, struct sluice_error *err) {
    char *p = (char *)row;
    while (bytes > 0) {
        ssize_t n = pread(fd, p, bytes, at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return sluice_error_set(err, SLUICE_ERR_IO, "the temporary file for the logits: %s",
                                    n < 0 ? strerror(errno) : "it is too short");
        }
        p += n;
        at += n;
        bytes -= (size_t)n;
    }
    return 0;
}

static off_t row_at(const struct sluice_record *rec, size_t step) {
    return (off_t)step * (off_t)(rec->n_vocab * sizeof(float));
}

int sluice_record_add(struct sluice_record *rec, const int32_t *tokens, uint32_t n, const float *logits,
                      uint32_t n_vocab, struct sluice_error *err) {
    void *sizes = rec->sizes, *all = rec->tokens;
    bool ok = grow(&sizes, rec->n_steps, &rec->cap_steps, 1, sizeof *rec->sizes);
    rec->sizes = sizes;
    ok = ok && grow(&all, rec->n_tokens, &rec->cap_tokens, n, sizeof *rec->tokens);
    rec->tokens = all;
    if (!ok) {
        return sluice_error_set(err, SLUICE_ERR_MEMORY, "no memory to record a step");
    }
    rec->n_vocab = n_vocab;
    int rc = write_row(rec->fd, logits, n_vocab * sizeof *logits, row_at(rec, rec->n_steps), err);
    if (rc) {
        return rc;
    }
    memcpy(rec->tokens + rec->n_tokens, tokens, n * sizeof *tokens);
    rec->n_tokens += n;
    rec->sizes[rec->n_steps++] = n;
    return 0;
}

/* Compare one row; notes the first difference. */
static void compare_row(const float *streamed, const float *resident, uint32_t n_vocab, uint64_t step,
                        struct sluice_comparison *out) {
    out->steps++;
    out->values += n_vocab;
    if (memcmp(streamed, resident, n_vocab * sizeof *streamed) == 0 || !out->identical) {
        return;
    }
    uint32_t i = 0;
    while (memcmp(&streamed[i], &resident[i], sizeof *streamed) == 0) {
        i++;
    }
    out->identical = false;
    out->first_step = step;
    out->first_token = i;
    out->streamed = streamed[i];
    out->resident = resident[i];
}

/* All steps, on an open resident runner. Stops at the first difference: what follows adds nothing. */
static int replay(const struct sluice_record *rec, struct sluice_runner *r, float *row, struct sluice_comparison *out,
                  struct sluice_error *err) {
    const struct sluice_hooks *hooks = &r->params.hooks;
    size_t at = 0;
    for (size_t step = 0; step < rec->n_steps && out->identical; step++) {
        enum sluice_stop stop;
        int rc = sluice_runner_decode(r, SLUICE_PHASE_PROMPT, rec->tokens + at, rec->sizes[step], &stop, err);
        if (rc) {
            return rc;
        }
        if (stop || (hooks->interrupted && hooks->interrupted(hooks->user))) {
            out->interrupted = true;
            return 0;
        }
        const float *logits = llama_get_logits_ith(r->ctx, -1);
        if (!logits) {
            return sluice_error_set(err, SLUICE_ERR_LLAMA, "llama.cpp gave no logits");
        }
        rc = read_row(rec->fd, row, rec->n_vocab * sizeof *row, row_at(rec, step), err);
        if (rc) {
            return rc;
        }
        compare_row(row, logits, rec->n_vocab, step, out);
        at += rec->sizes[step];
        if (hooks->prompt) {
            hooks->prompt(hooks->user, at, rec->n_tokens);
        }
    }
    return 0;
}

int sluice_record_compare(const struct sluice_record *rec, const struct sluice_runner_params *params,
                          struct sluice_comparison *out, struct sluice_error *err) {
    struct sluice_runner_params resident = *params;
    struct sluice_runner *r;
    memset(out, 0, sizeof *out);
    out->identical = true;
    resident.streaming = false;
    int rc = sluice_runner_open(&r, &resident, err);
    rc = rc ? rc : sluice_runner_start(r, 0, err);
    if (rc) {
        sluice_runner_free(r);
        return rc;
    }
    float *row = malloc(((size_t)rec->n_vocab + 1) * sizeof *row);
    if (!row) {
        rc = sluice_error_set(err, SLUICE_ERR_MEMORY, "no memory for a row of logits");
    } else if (rec->n_steps && rec->n_vocab != sluice_runner_n_vocab(r)) {
        rc = sluice_error_set(err, SLUICE_ERR_FORMAT, "the model changed while it was compared");
    } else {
        rc = replay(rec, r, row, out, err);
    }
    free(row);
    sluice_runner_free(r);
    return rc;
}
