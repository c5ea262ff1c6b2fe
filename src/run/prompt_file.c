/*
 * prompt_file.c - see prompt_file.h.
 *
 *   0    magic "SLUICEPC", version (4), byte order (4), then of 8 bytes each: length of the file, n_facts, n_tokens,
 *        n_logits, n_state; zero up to 64
 *   64   XXH3 with 128 bits of everything else, in its canonical form
 *   128  facts, tokens, logits, state, each from a multiple of 64 on; zero between them
 *
 * llama.cpp's loader of states trusts what it reads: lengths in it become allocations and copies. So all of the file is
 * checked before llama.cpp sees any of it: lengths against the size of the file, then the checksum. That finds damage,
 * not malice: who can make a checksum can make a state. Hence a file that belongs to another user, or that others may
 * write, is refused as well.
 *
 * The state of a long prompt is as large as its KV cache, memory that the plan has no row for. So it is written to and
 * restored from a mapping of the file, whose pages the kernel can write out and take away. Space is allocated first: a
 * full disk is an error then, and not a SIGBUS. The checksum is taken by reading and not by the mapping, for the same
 * reason.
 */
#include "run/prompt_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "cache/error.h"
#include "gguf/gguf_check.h"

enum {
    FILE_VERSION = 1,
    FILE_ORDER = 0x01020304,
    FILE_HEAD = 128,     /* bytes before the first part */
    FILE_DIGEST_AT = 64, /* where the checksum is */
    FILE_ALIGN = 64,     /* where parts begin */
    FILE_BUFFER = 1 << 20
};
#define FILE_MAX ((uint64_t)1 << 46) /* bytes: no length is near it, and sums of four stay far from overflowing */

static const char file_magic[8] = {'S', 'L', 'U', 'I', 'C', 'E', 'P', 'C'};

struct file_head {
    char magic[8];     /* file_magic */
    uint32_t version;  /* FILE_VERSION */
    uint32_t order;    /* FILE_ORDER, as this machine writes it */
    uint64_t total;    /* bytes of the file */
    uint64_t n_facts;  /* as in sluice_prompt_parts, and the next three */
    uint64_t n_tokens; /* tokens */
    uint64_t n_logits; /* floats */
    uint64_t n_state;  /* bytes */
    uint64_t zero;     /* 0 */
};
_Static_assert(sizeof(struct file_head) == FILE_DIGEST_AT, "the head has no holes");

struct sluice_prompt_file {
    int fd;              /* the file, or the temporary one */
    uint8_t *map;        /* all of it */
    uint64_t total;      /* its bytes */
    char path[PATH_MAX]; /* where a new file will be; "": it is one that was read */
    char temp[PATH_MAX]; /* where it is until then; "": nowhere any more */
};

static uint64_t aligned(uint64_t at) {
    return (at + FILE_ALIGN - 1) / FILE_ALIGN * FILE_ALIGN;
}

/*
 * Where the parts of these lengths lie in a file that is mapped at `map`: enters the pointers and returns its length.
 * 0 when a length is impossible. Without a map the pointers are of no use.
 */
static uint64_t lay_out(struct sluice_prompt_parts *p, uint8_t *map) {
    if (p->n_facts > FILE_MAX || p->n_tokens > FILE_MAX / 4 || p->n_logits > FILE_MAX / 4 || p->n_state > FILE_MAX) {
        return 0;
    }
    const uint64_t tokens = aligned(FILE_HEAD + p->n_facts);
    const uint64_t logits = aligned(tokens + p->n_tokens * sizeof *p->tokens);
    const uint64_t state = aligned(logits + p->n_logits * sizeof *p->logits);
    if (map) {
        p->facts = (const char *)map + FILE_HEAD;
        p->tokens = (const int32_t *)(map + tokens);
        p->logits = (const float *)(map + logits);
        p->state = map + state;
    }
    return state + p->n_state;
}

/* The checksum of the file, its own place left out. errno is EPROTO when it ends early. */
static bool digest_of(int fd, uint64_t total, uint8_t digest[sizeof(XXH128_canonical_t)]) {
    XXH3_state_t *x = XXH3_createState();
    char *buffer = malloc(FILE_BUFFER);
    bool ok = x && buffer && XXH3_128bits_reset(x) == XXH_OK;
    errno = ok ? 0 : ENOMEM;
    for (uint64_t at = 0; ok && at < total;) {
        const uint64_t stop = at < FILE_DIGEST_AT ? FILE_DIGEST_AT : total, left = stop - at;
        const ssize_t n = pread(fd, buffer, left < FILE_BUFFER ? left : FILE_BUFFER, (off_t)at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        errno = n == 0 ? EPROTO : errno;
        ok = n > 0 && XXH3_128bits_update(x, buffer, (size_t)n) == XXH_OK;
        at += n > 0 ? (uint64_t)n : 0;
        at += at == FILE_DIGEST_AT ? sizeof(XXH128_canonical_t) : 0;
    }
    if (ok) {
        XXH128_canonicalFromHash((XXH128_canonical_t *)digest, XXH3_128bits_digest(x));
    }
    XXH3_freeState(x);
    free(buffer);
    return ok;
}

/* Everything about an open file that can be said before it is mapped; its lengths are in *parts then. */
static int verify(int fd, const char *path, struct sluice_prompt_parts *parts, uint64_t *total,
                  struct sluice_error *err) {
    struct file_head h;
    uint8_t stored[sizeof(XXH128_canonical_t)], found[sizeof stored];
    struct stat st;
    if (fstat(fd, &st)) {
        return sluice_fail(err, SLUICE_ERR_IO, "%s: %s", path, strerror(errno));
    }
    if (!S_ISREG(st.st_mode)) {
        return sluice_fail(err, SLUICE_ERR_FORMAT, "%s: not a regular file", path);
    }
    if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH))) {
        return sluice_fail(err, SLUICE_ERR_FORMAT, "%s: other users may have written it", path);
    }
    if (st.st_size < FILE_HEAD || pread(fd, &h, sizeof h, 0) != (ssize_t)sizeof h ||
        pread(fd, stored, sizeof stored, FILE_DIGEST_AT) != (ssize_t)sizeof stored ||
        memcmp(h.magic, file_magic, sizeof file_magic) != 0) {
        return sluice_fail(err, SLUICE_ERR_FORMAT, "%s: not a prompt cache", path);
    }
    if (h.version != FILE_VERSION || h.order != FILE_ORDER) {
        return sluice_fail(err, SLUICE_ERR_FORMAT, "%s: a prompt cache of another version", path);
    }
    *parts = (struct sluice_prompt_parts){
        .n_facts = h.n_facts, .n_tokens = h.n_tokens, .n_logits = h.n_logits, .n_state = h.n_state};
    *total = lay_out(parts, NULL);
    if (*total == 0 || h.total != *total) {
        return sluice_fail(err, SLUICE_ERR_FORMAT, "%s: damaged (its lengths disagree)", path);
    }
    if ((uint64_t)st.st_size != *total) {
        return sluice_fail(err, SLUICE_ERR_FORMAT, "%s: damaged (%" PRIu64 " bytes instead of %" PRIu64 ")", path,
                           (uint64_t)st.st_size, *total);
    }
    if (!digest_of(fd, *total, found)) {
        return sluice_fail(err, SLUICE_ERR_IO, "%s: %s", path, strerror(errno));
    }
    if (memcmp(found, stored, sizeof stored) != 0) {
        return sluice_fail(err, SLUICE_ERR_FORMAT, "%s: damaged (its checksum is wrong)", path);
    }
    return 0;
}

int sluice_prompt_file_open(struct sluice_prompt_file **out, const char *path, struct sluice_prompt_parts *parts,
                            bool *absent, struct sluice_error *err) {
    *out = NULL;
    *absent = false;
    struct sluice_prompt_file *f = calloc(1, sizeof *f);
    if (!f) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory");
    }
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not make us wait */
    *absent = f->fd < 0 && errno == ENOENT;
    int rc = f->fd < 0 ? sluice_fail(err, SLUICE_ERR_IO, "%s: %s", path, strerror(errno))
                       : verify(f->fd, path, parts, &f->total, err);
    if (rc == 0) {
        void *map = mmap(NULL, f->total, PROT_READ, MAP_PRIVATE, f->fd, 0);
        f->map = map == MAP_FAILED ? NULL : map;
        rc = f->map ? 0 : sluice_fail(err, SLUICE_ERR_MEMORY, "%s: %s", path, strerror(errno));
    }
    if (rc) {
        sluice_prompt_file_close(f);
        return rc;
    }
    lay_out(parts, f->map);
    *out = f;
    return 0;
}

int sluice_prompt_file_create(struct sluice_prompt_file **out, const char *path, struct sluice_prompt_parts *parts,
                              struct sluice_error *err) {
    struct file_head h = {.version = FILE_VERSION,
                          .order = FILE_ORDER,
                          .n_facts = parts->n_facts,
                          .n_tokens = parts->n_tokens,
                          .n_logits = parts->n_logits,
                          .n_state = parts->n_state};
    const struct sluice_prompt_parts given = *parts;
    *out = NULL;
    memcpy(h.magic, file_magic, sizeof file_magic);
    h.total = lay_out(parts, NULL);
    if (h.total == 0) {
        return sluice_fail(err, SLUICE_ERR_ARG, "%s: too large", path);
    }
    struct sluice_prompt_file *f = calloc(1, sizeof *f);
    if (!f) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory");
    }
    const int n = snprintf(f->path, sizeof f->path, "%s", path);
    const int m = snprintf(f->temp, sizeof f->temp, "%s.XXXXXX", path);
    if (n < 0 || m < 0 || (size_t)m >= sizeof f->temp) {
        free(f);
        return sluice_fail(err, SLUICE_ERR_ARG, "%s: too long a path", path);
    }
    f->fd = mkostemp(f->temp, O_CLOEXEC); /* mode 0600 */
    int error = f->fd < 0 ? errno : posix_fallocate(f->fd, 0, (off_t)h.total);
    if (f->fd < 0) {
        f->temp[0] = '\0';
    }
    void *map = error ? MAP_FAILED : mmap(NULL, h.total, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
    if (map == MAP_FAILED) {
        error = error ? error : errno;
        sluice_prompt_file_close(f);
        return sluice_fail(err, SLUICE_ERR_IO, "%s: %s", path, strerror(error));
    }
    f->map = map;
    f->total = h.total;
    lay_out(parts, f->map);
    memcpy(f->map, &h, sizeof h);
    memcpy(f->map + FILE_HEAD, given.facts, given.n_facts);
    memcpy((void *)parts->tokens, given.tokens, given.n_tokens * sizeof *given.tokens);
    memcpy((void *)parts->logits, given.logits, given.n_logits * sizeof *given.logits);
    *out = f;
    return 0;
}

/* The name in its directory, on the disk. Best effort: the file itself is there and whole. */
static void sync_directory(const char *path) {
    char copy[PATH_MAX];
    snprintf(copy, sizeof copy, "%s", path);
    const int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
}

int sluice_prompt_file_commit(struct sluice_prompt_file *f, struct sluice_error *err) {
    bool ok = digest_of(f->fd, f->total, f->map + FILE_DIGEST_AT); /* pages of a shared mapping are the file's */
    ok = ok && msync(f->map, f->total, MS_SYNC) == 0 && fsync(f->fd) == 0 && rename(f->temp, f->path) == 0;
    if (!ok) {
        return sluice_fail(err, SLUICE_ERR_IO, "%s: %s", f->path, strerror(errno));
    }
    f->temp[0] = '\0';
    sync_directory(f->path);
    return 0;
}

void sluice_prompt_file_close(struct sluice_prompt_file *f) {
    if (!f) {
        return;
    }
    if (f->map) {
        munmap(f->map, f->total);
    }
    if (f->fd >= 0) {
        close(f->fd);
    }
    if (f->temp[0]) {
        unlink(f->temp);
    }
    free(f);
}

/* ---- can a run use it? -------------------------------------------------------------------------- */

bool sluice_prompt_parts_fit(const struct sluice_prompt_parts *parts, const char *facts, size_t n_facts,
                             uint64_t n_logits, const char *path, char *why, size_t cap) {
    if (parts->n_facts != n_facts || memcmp(parts->facts, facts, n_facts) != 0) {
        /* The first line that is not the same: the run's own, whose key says what differs. */
        const size_t n = n_facts < parts->n_facts ? n_facts : (size_t)parts->n_facts;
        size_t line = 0;
        for (size_t i = 0; i < n && facts[i] == parts->facts[i]; i++) {
            line = facts[i] == '\n' ? i + 1 : line;
        }
        snprintf(why, cap, "%s: not used, it was made with another %.*s", path, (int)strcspn(facts + line, "="),
                 facts + line);
        return false;
    }
    if (parts->n_tokens == 0 || parts->n_logits != n_logits) {
        snprintf(why, cap, "%s: not used, it holds no prompt of this model", path);
        return false;
    }
    return true;
}

uint64_t sluice_prompt_parts_same(const struct sluice_prompt_parts *parts, const int32_t *tokens, size_t n) {
    uint64_t i = 0;
    while (i < n && i < parts->n_tokens && tokens[i] == parts->tokens[i]) {
        i++;
    }
    return i;
}

int sluice_prompt_file_possible(const char *path, struct sluice_error *err) {
    char copy[PATH_MAX];
    struct stat st;
    const int n = snprintf(copy, sizeof copy, "%s", path);
    if (n < 0 || (size_t)n + sizeof ".XXXXXX" > sizeof copy) {
        return sluice_fail(err, SLUICE_ERR_IO, "%s: too long a path", path);
    }
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        return sluice_fail(err, SLUICE_ERR_IO, "%s: not a regular file", path);
    }
    if (access(dirname(copy), W_OK | X_OK)) {
        return sluice_fail(err, SLUICE_ERR_IO, "%s: no file can be written there: %s", path, strerror(errno));
    }
    return 0;
}
