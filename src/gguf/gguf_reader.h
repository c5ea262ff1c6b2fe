/*
 * gguf_reader.h - a bounded, buffered cursor over one file (gguf_check.c's only way to read).
 *
 * Every function checks the remaining bytes before it moves, so a length field that lies can at
 * most reach the end of the file. A failure is sticky: after the first one all reads return zeros,
 * so a caller may check once after a group of reads.
 */
#ifndef SLUICE_GGUF_READER_H
#define SLUICE_GGUF_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SLUICE_GGUF_READER_BUFFER = 64 * 1024 }; /* bytes read ahead */

struct sluice_gguf_reader {
    int fd;             /* open for reading, owned by the caller */
    int io_errno;       /* errno of the first failed read; 0: none */
    bool failed;        /* a read went past the end, or failed: see io_errno */
    uint64_t size;      /* bytes in the file when it was opened */
    uint64_t pos;       /* bytes consumed */
    uint64_t buf_pos;   /* file position of buf[0] */
    size_t buf_len;     /* valid bytes in buf */
    unsigned char *buf; /* SLUICE_GGUF_READER_BUFFER bytes, owned by the caller */
};

/* Copy the next n bytes. Returns false, with *dst zeroed, when they are not there. */
bool sluice_gguf_reader_bytes(struct sluice_gguf_reader *r, void *dst, size_t n);

/* Step over n bytes. Returns false when the file has fewer. */
bool sluice_gguf_reader_skip(struct sluice_gguf_reader *r, uint64_t n);

/* The next little-endian number of n bytes, at most 8; 0 after a failure. */
uint64_t sluice_gguf_reader_number(struct sluice_gguf_reader *r, size_t n);

/*
 * The next length-prefixed string into dst[cap], cut to fit and terminated; the whole string is
 * consumed. With cap 0 it is only stepped over. Returns its full length (0 after a failure).
 */
uint64_t sluice_gguf_reader_string(struct sluice_gguf_reader *r, char *dst, size_t cap);

#endif
