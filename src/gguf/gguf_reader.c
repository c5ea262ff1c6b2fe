/*
 * gguf_reader.c - see gguf_reader.h.
 *
 * Uses pread and not stdio or mmap: a file that shrinks under a mapping kills the process with
 * SIGBUS, and this module exists so that a bad file never does that.
 */
#include "gguf/gguf_reader.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static bool reader_fail(struct sluice_gguf_reader *r, int error) {
    if (!r->failed) {
        r->failed = true;
        r->io_errno = error;
    }
    return false;
}

/* Make buf hold the byte at pos. The caller has checked that pos < size. */
static bool reader_fill(struct sluice_gguf_reader *r) {
    ssize_t n;
    do {
        n = pread(r->fd, r->buf, SLUICE_GGUF_READER_BUFFER, (off_t)r->pos);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return reader_fail(r, errno);
    }
    if (n == 0) {
        return reader_fail(r, 0); /* the file became shorter */
    }
    r->buf_pos = r->pos;
    r->buf_len = (size_t)n;
    return true;
}

bool sluice_gguf_reader_bytes(struct sluice_gguf_reader *r, void *dst, size_t n) {
    unsigned char *out = dst;
    size_t want = n;
    if (r->failed || n > r->size - r->pos) {
        memset(dst, 0, n);
        return reader_fail(r, 0);
    }
    while (want > 0) {
        if (r->pos < r->buf_pos || r->pos >= r->buf_pos + r->buf_len) {
            if (!reader_fill(r)) {
                memset(dst, 0, n);
                return false;
            }
        }
        size_t at = (size_t)(r->pos - r->buf_pos);
        size_t part = r->buf_len - at < want ? r->buf_len - at : want;
        memcpy(out, r->buf + at, part);
        out += part;
        want -= part;
        r->pos += part;
    }
    return true;
}

bool sluice_gguf_reader_skip(struct sluice_gguf_reader *r, uint64_t n) {
    if (r->failed || n > r->size - r->pos) {
        return reader_fail(r, 0);
    }
    r->pos += n;
    return true;
}

uint64_t sluice_gguf_reader_number(struct sluice_gguf_reader *r, size_t n) {
    unsigned char b[8] = {0};
    uint64_t v = 0;
    sluice_gguf_reader_bytes(r, b, n);
    while (n-- > 0) {
        v = v << 8 | b[n];
    }
    return v;
}

uint64_t sluice_gguf_reader_string(struct sluice_gguf_reader *r, char *dst, size_t cap) {
    const uint64_t len = sluice_gguf_reader_number(r, 8);
    const size_t keep = len < cap ? (size_t)len : cap > 0 ? cap - 1 : 0;
    bool ok =
        !r->failed && len <= r->size - r->pos; /* before dst is touched: dst is zeroed only as far as it reaches */
    ok = ok ? sluice_gguf_reader_bytes(r, dst, keep) && sluice_gguf_reader_skip(r, len - keep) : reader_fail(r, 0);
    if (cap > 0) {
        dst[ok ? keep : 0] = '\0';
    }
    return ok ? len : 0;
}
