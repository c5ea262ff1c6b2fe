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

uint32_t sluice_gguf_reader_u32(struct sluice_gguf_reader *r) {
    unsigned char b[4];
    sluice_gguf_reader_bytes(r, b, sizeof b);
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

uint64_t sluice_gguf_reader_u64(struct sluice_gguf_reader *r) {
    uint64_t low = sluice_gguf_reader_u32(r);
    return low | (uint64_t)sluice_gguf_reader_u32(r) << 32;
}

uint64_t sluice_gguf_reader_string(struct sluice_gguf_reader *r, char *dst, size_t cap) {
    uint64_t len = sluice_gguf_reader_u64(r);
    size_t keep = len < cap ? (size_t)len : cap - 1;
    dst[0] = '\0';
    if (r->failed || len > r->size - r->pos) {
        reader_fail(r, 0);
        return 0;
    }
    if (!sluice_gguf_reader_bytes(r, dst, keep) || !sluice_gguf_reader_skip(r, len - keep)) {
        dst[0] = '\0';
        return 0;
    }
    dst[keep] = '\0';
    return len;
}
