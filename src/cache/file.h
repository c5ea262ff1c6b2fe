/* file.h - a model file opened for reading slices: direct where that is verified, else buffered. */
#ifndef SLUICE_CACHE_FILE_H
#define SLUICE_CACHE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sluice.h"

/* Bytes that direct reads are aligned to when the kernel does not say more; what most disks want. Not the page size. */
enum { STREAM_FILE_ALIGN = 4096 };

struct stream_file {
    char *path;            /* as opened, for messages; owned */
    int fd;                /* buffered descriptor, always open */
    int fd_direct;         /* O_DIRECT descriptor, or -1: read through the page cache */
    uint64_t size;         /* bytes at open */
    uint32_t align;        /* bytes; offsets, lengths and memory of direct reads are multiples; a power of two >= 512 */
    dev_t dev;             /* identity of the file, so that two mappings of it share one entry */
    ino_t ino;             /* the same */
    char why_buffered[96]; /* why fd_direct is -1, for the mode line; "" when it is not */
};

/*
 * Open path for reading. With want_direct, also open it for direct I/O and compare direct with
 * buffered reads at several places spread over the file (some megabytes at most, milliseconds); any
 * difference or error means buffered reads, with the reason in why_buffered. So does a file system whose
 * direct reads cannot be trusted (FUSE). Fails with SLUICE_ERR_IO when the file cannot be opened
 * or is not a regular file. The caller owns *f and ends it with stream_file_close.
 */
int stream_file_open(struct stream_file *f, const char *path, bool want_direct, struct sluice_error *err);

/* The same from a descriptor that stays the caller's (it is duplicated); path is for messages. */
int stream_file_open_fd(struct stream_file *f, int fd, const char *path, bool want_direct, struct sluice_error *err);

/* Close the descriptors and free the path. Accepts a zeroed or closed struct. */
void stream_file_close(struct stream_file *f);

/*
 * Read so that bytes [offset, offset + need) of the file are in memory. offset, len and dst are
 * multiples of f->align; len >= need and may reach past the end of the file, need may not. Retries
 * EINTR and short reads, and finishes through the buffered descriptor what the direct one refuses
 * (the odd tail of a file). Returns the bytes read (at least need), or -1 with errno (ENODATA when
 * the file ended early). Safe from any number of threads at once.
 */
int64_t stream_file_read(const struct stream_file *f, void *dst, uint64_t offset, size_t len, size_t need);

/*
 * pread until len bytes are there or the file ends, whatever the kernel splits it into. For any
 * descriptor. Returns the bytes read, or -1 with errno.
 */
int64_t stream_file_pread(int fd, void *dst, uint64_t offset, size_t len);

#endif
