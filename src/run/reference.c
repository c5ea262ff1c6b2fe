/*
 * reference.c - see reference.h.
 *
 * The header is written last, over zeros: a run that is interrupted leaves a file that says so, and a full disk never
 * leaves one that looks whole. Reading trusts nothing: counts are bounded before anything is multiplied,
 * the size must be exactly what they come to, and each row must hold what a row can (a finite nll, the likeliest token
 * inside the vocabulary and with code 0). The tokens themselves are in the file instead of a hash of the text: they
 * are what the rows belong to, they cost under 1 % of the rows, and fewer chunks than were saved can be compared.
 */
#include "run/reference.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cache/error.h"

enum {
    VERSION = 1,
    VOCAB_MAX = 1 << 24, /* tokens; bounds that keep sizes far from overflow */
    CTX_MAX = 1 << 24,
    CHUNKS_MAX = 1 << 24,
    PART = 4096 /* tokens compared at a time */
};

static const char MAGIC[8] = {'s', 'l', 'u', 'i', 'c', 'e', 'K', 'L'};

_Static_assert(sizeof(struct sluice_reference_head) == 64, "the header's layout is the file's");
_Static_assert(sizeof(struct sluice_reference_row) == 16, "a row's layout is the file's");
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "reference files are little-endian"
#endif

struct sluice_reference {
    FILE *file;                        /* owned */
    char *path;                        /* for messages; owned */
    struct sluice_reference_head head; /* as read, or as it will be written */
};

uint32_t sluice_scored_per_chunk(uint32_t n_ctx) {
    return n_ctx < 3 ? 0 : n_ctx - 1 - n_ctx / 2;
}

static uint64_t row_bytes(const struct sluice_reference_head *h) {
    return sizeof(struct sluice_reference_row) + 2 * (uint64_t)h->n_vocab;
}

/* Bytes of the whole file. False: more than a file can have. */
static bool file_bytes(const struct sluice_reference_head *h, uint64_t *out) {
    uint64_t rows = (uint64_t)h->n_chunks * sluice_scored_per_chunk(h->n_ctx); /* < 2^48 */
    return !__builtin_mul_overflow(rows, row_bytes(h), &rows) && rows <= INT64_MAX / 2 &&
           (*out = sizeof *h + 4 * (uint64_t)h->n_chunks * h->n_ctx + rows, true);
}

static int failed(const struct sluice_reference *r, const char *what, struct sluice_error *err) {
    return sluice_fail(err, SLUICE_ERR_IO, "%s: %s: %s", r->path, what, errno ? strerror(errno) : "it ended early");
}

static int put(struct sluice_reference *r, const void *data, size_t size, size_t n, struct sluice_error *err) {
    errno = 0;
    return fwrite(data, size, n, r->file) == n ? SLUICE_OK : failed(r, "cannot write", err);
}

static int get(struct sluice_reference *r, void *data, size_t size, size_t n, struct sluice_error *err) {
    errno = 0;
    return fread(data, size, n, r->file) == n ? SLUICE_OK : failed(r, "cannot read", err);
}

static int open_file(struct sluice_reference **out, const char *path, const char *mode, struct sluice_error *err) {
    struct sluice_reference *r = calloc(1, sizeof *r);
    *out = r;
    if (!r || !(r->path = strdup(path))) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory for a reference");
    }
    r->file = fopen(path, mode);
    return r->file ? SLUICE_OK : sluice_fail(err, SLUICE_ERR_IO, "%s: %s", path, strerror(errno));
}

void sluice_reference_close(struct sluice_reference *r) {
    if (r) {
        if (r->file) {
            fclose(r->file);
        }
        free(r->path);
        free(r);
    }
}

/* Hand out what was opened, or nothing. */
static int opened(struct sluice_reference **out, int rc) {
    if (rc) {
        sluice_reference_close(*out);
        *out = NULL;
    }
    return rc;
}

int sluice_reference_create(struct sluice_reference **out, const char *path, const struct sluice_reference_head *head,
                            const int32_t *tokens, struct sluice_error *err) {
    const struct sluice_reference_head blank = {0};
    int rc = open_file(out, path, "wbe", err);
    if (rc == 0) {
        struct sluice_reference *r = *out;
        r->head = *head;
        r->head.version = VERSION;
        memset(r->head.spare, 0, sizeof r->head.spare);
        memcpy(r->head.magic, MAGIC, sizeof MAGIC);
        rc = put(r, &blank, sizeof blank, 1, err);
        rc = rc ? rc : put(r, tokens, sizeof *tokens, (size_t)head->n_chunks * head->n_ctx, err);
    }
    return opened(out, rc);
}

int sluice_reference_write(struct sluice_reference *r, const struct sluice_reference_row *row, const uint16_t *codes,
                           struct sluice_error *err) {
    int rc = put(r, row, sizeof *row, 1, err);
    return rc ? rc : put(r, codes, sizeof *codes, r->head.n_vocab, err);
}

int sluice_reference_finish(struct sluice_reference *r, struct sluice_error *err) {
    errno = 0;
    if (fseeko(r->file, 0, SEEK_SET)) {
        return failed(r, "cannot write", err);
    }
    int rc = put(r, &r->head, sizeof r->head, 1, err);
    errno = 0;
    FILE *file = r->file;
    r->file = NULL;
    if (fclose(file) && rc == 0) { /* what was buffered may only now find the disk full */
        rc = failed(r, "cannot write", err);
    }
    return rc;
}

static int check_head(const struct sluice_reference *r, struct sluice_error *err) {
    const struct sluice_reference_head *h = &r->head;
    struct stat st;
    uint64_t bytes;
    static const char zeros[8];
    if (memcmp(h->magic, zeros, sizeof zeros) == 0) {
        return sluice_fail(err, SLUICE_ERR_FORMAT, "%s: not complete: the run that saved it did not end", r->path);
    }
    if (memcmp(h->magic, MAGIC, sizeof MAGIC) != 0) {
        return sluice_fail(err, SLUICE_ERR_FORMAT, "%s: not a reference of sluice eval --ref-save", r->path);
    }
    if (h->version != VERSION) {
        return sluice_fail(err, SLUICE_ERR_FORMAT, "%s: version %" PRIu32 " of a reference, this program reads %d",
                           r->path, h->version, VERSION);
    }
    if (h->n_vocab == 0 || h->n_vocab > VOCAB_MAX || h->n_ctx > CTX_MAX || sluice_scored_per_chunk(h->n_ctx) == 0 ||
        h->n_chunks == 0 || h->n_chunks > CHUNKS_MAX || h->batch == 0 || !file_bytes(h, &bytes)) {
        return sluice_fail(err, SLUICE_ERR_FORMAT, "%s: damaged: its header has impossible numbers", r->path);
    }
    if (fstat(fileno(r->file), &st)) {
        return sluice_fail(err, SLUICE_ERR_IO, "%s: %s", r->path, strerror(errno));
    }
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != bytes) {
        return sluice_fail(err, SLUICE_ERR_FORMAT, "%s: damaged: it has %" PRId64 " bytes, its header says %" PRIu64,
                           r->path, (int64_t)st.st_size, bytes);
    }
    return SLUICE_OK;
}

int sluice_reference_open(struct sluice_reference **out, const char *path, struct sluice_error *err) {
    int rc = open_file(out, path, "rbe", err);
    if (rc == 0) {
        errno = 0;
        if (fread(&(*out)->head, sizeof(*out)->head, 1, (*out)->file) == 1) {
            rc = check_head(*out, err);
        } else if (errno) {
            rc = failed(*out, "cannot read", err);
        } else {
            rc = sluice_fail(err, SLUICE_ERR_FORMAT, "%s: not a reference of sluice eval --ref-save", path);
        }
    }
    return opened(out, rc);
}

const struct sluice_reference_head *sluice_reference_get_head(const struct sluice_reference *r) {
    return &r->head;
}

int sluice_reference_match(struct sluice_reference *r, uint32_t n_vocab, const int32_t *tokens, uint64_t n,
                           struct sluice_error *err) {
    const struct sluice_reference_head *h = &r->head;
    const uint64_t all = (uint64_t)h->n_chunks * h->n_ctx;
    int32_t part[PART];
    if (h->n_vocab != n_vocab) {
        return sluice_fail(err, SLUICE_ERR_ARG,
                           "%s: of a model with %" PRIu32 " tokens in its vocabulary, this one has %" PRIu32, r->path,
                           h->n_vocab, n_vocab);
    }
    if (n > all) {
        return sluice_fail(err, SLUICE_ERR_ARG, "%s: has %" PRIu32 " chunks of %" PRIu32 " tokens, not %" PRIu64,
                           r->path, h->n_chunks, h->n_ctx, n / h->n_ctx);
    }
    for (uint64_t done = 0; done < n;) {
        const size_t some = n - done < PART ? (size_t)(n - done) : PART;
        int rc = get(r, part, sizeof *part, some, err);
        if (rc) {
            return rc;
        }
        if (memcmp(part, tokens + done, some * sizeof *part) != 0) {
            return sluice_fail(err, SLUICE_ERR_ARG, "%s: of another text, or of another tokenizer", r->path);
        }
        done += some;
    }
    errno = 0;
    return fseeko(r->file, (off_t)(sizeof *h + 4 * all), SEEK_SET) ? failed(r, "cannot read", err) : SLUICE_OK;
}

int sluice_reference_read(struct sluice_reference *r, struct sluice_reference_row *row, uint16_t *codes,
                          struct sluice_error *err) {
    int rc = get(r, row, sizeof *row, 1, err);
    rc = rc ? rc : get(r, codes, sizeof *codes, r->head.n_vocab, err);
    if (rc == 0 && (!isfinite(row->nll) || row->top >= r->head.n_vocab || codes[row->top] != 0)) {
        rc = sluice_fail(err, SLUICE_ERR_FORMAT, "%s: damaged: a row that no run can have written", r->path);
    }
    return rc;
}
