/*
 * file.c - model files and the reads on them.
 *
 * Why direct I/O: a model bigger than memory turns the page cache over all the time. Buffered
 * reads then cost a copy and a kernel allocation per page, evict the dense weights, and keep every
 * expert twice (in the page cache and in our slot). Others measured direct reads about twice as
 * fast on memory-limited machines.
 *
 * Why verify: some file systems accept O_DIRECT and return wrong bytes (FUSE on phones), others
 * refuse at the first read, others only at the odd tail of a file. So at open a few blocks spread
 * over the file are read both ways and compared; any difference, and this file is read buffered,
 * which the mode line says. A wrong weight makes wrong text, the worst failure there is.
 *
 * All lanes share one descriptor: pread does not touch the file position, so it takes no lock there.
 *
 * What a result means (go on, go on through the page cache, failed) is decided in one place, a step
 * function, because one reader waits for its results inside a call and the other gets them from an
 * io_uring.
 */
#include "stream/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stream/error.h"

enum {
    FILE_ALIGN_DEFAULT = 4096, /* when the kernel does not tell; also what most disks want */
    FILE_ALIGN_MAX = 1 << 20,  /* a larger claim is not believed */
    FILE_VERIFY_BLOCKS = 9,    /* blocks compared at open, spread evenly, first and last included */
};

/* The alignment that direct reads need here, by statx where the kernel tells (Linux 6.1). */
static uint32_t file_alignment(int fd) {
    uint32_t align = FILE_ALIGN_DEFAULT;
#ifdef STATX_DIOALIGN
    struct statx sx;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) == 0 && (sx.stx_mask & STATX_DIOALIGN)) {
        uint32_t a = sx.stx_dio_offset_align > sx.stx_dio_mem_align ? sx.stx_dio_offset_align : sx.stx_dio_mem_align;
        if (a > align && a <= FILE_ALIGN_MAX && (a & (a - 1)) == 0) {
            align = a;
        }
    }
#else
    (void)fd;
#endif
    return align;
}

int64_t stream_file_pread(int fd, void *dst, uint64_t offset, size_t len) {
    char *p = dst;
    size_t got = 0;
    while (got < len) {
        ssize_t n = pread(fd, p + got, len - got, (off_t)(offset + got));
        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            return -1;
        }
        if (n == 0) {
            break;
        }
        got += (size_t)n;
    }
    return (int64_t)got;
}

/* Compare direct and buffered reads on blocks spread over the file. True when all agree. */
static bool file_verify_direct(struct stream_file *f) {
    const size_t block = f->align;
    void *direct = NULL, *plain = NULL;
    bool ok = false;
    if (posix_memalign(&direct, block, block) || posix_memalign(&plain, block, block)) {
        snprintf(f->why_buffered, sizeof f->why_buffered, "no memory to verify direct reads");
        goto done;
    }
    const uint64_t n_blocks = f->size / block + (f->size % block != 0);
    for (uint64_t i = 0; i < FILE_VERIFY_BLOCKS; i++) {
        const uint64_t index = n_blocks ? (n_blocks - 1) / (FILE_VERIFY_BLOCKS - 1) * i : 0;
        const uint64_t last = n_blocks ? n_blocks - 1 : 0;
        const uint64_t offset = (i == FILE_VERIFY_BLOCKS - 1 ? last : index) * block;
        const int64_t want = stream_file_pread(f->fd, plain, offset, block);
        /* One request only: the odd tail may come short here and is finished buffered later. */
        ssize_t got;
        do {
            got = pread(f->fd_direct, direct, block, (off_t)offset);
        } while (got < 0 && errno == EINTR);
        if (want < 0 || got < 0 || (got < want && offset + block <= f->size)) {
            snprintf(f->why_buffered, sizeof f->why_buffered, "direct reads fail (%s)",
                     got < 0 ? strerror(errno) : "short");
            goto done;
        }
        if (got > want || memcmp(direct, plain, (size_t)got) != 0) {
            snprintf(f->why_buffered, sizeof f->why_buffered, "direct reads return wrong bytes at offset %llu",
                     (unsigned long long)offset);
            goto done;
        }
    }
    ok = true;
done:
    free(direct);
    free(plain);
    return ok;
}

/* Take over fd (already open for reading) as the buffered descriptor. */
static int file_init(struct stream_file *f, int fd, const char *path, bool want_direct, struct sluice_error *err) {
    struct stat st;
    memset(f, 0, sizeof *f);
    f->fd = fd;
    f->fd_direct = -1;
    f->align = FILE_ALIGN_DEFAULT;
    if (fstat(fd, &st)) {
        int e = errno;
        stream_file_close(f);
        return sluice_fail(err, SLUICE_ERR_IO, "%s: %s", path, strerror(e));
    }
    if (!S_ISREG(st.st_mode)) {
        stream_file_close(f);
        return sluice_fail(err, SLUICE_ERR_IO, "%s: not a regular file", path);
    }
    f->path = strdup(path);
    if (!f->path) {
        stream_file_close(f);
        return sluice_fail(err, SLUICE_ERR_MEMORY, "%s: out of memory", path);
    }
    f->size = (uint64_t)st.st_size;
    f->dev = st.st_dev;
    f->ino = st.st_ino;
    if (!want_direct) {
        snprintf(f->why_buffered, sizeof f->why_buffered, "asked for");
        return sluice_ok(err);
    }
    /* /proc/self/fd reopens this very file, even if its path was unlinked or replaced meanwhile. */
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    f->fd_direct = open(self, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (f->fd_direct < 0) {
        snprintf(f->why_buffered, sizeof f->why_buffered, "the file system refuses direct I/O (%s)", strerror(errno));
        return sluice_ok(err);
    }
    f->align = file_alignment(f->fd_direct);
    if (!file_verify_direct(f)) {
        close(f->fd_direct);
        f->fd_direct = -1;
    }
    return sluice_ok(err);
}

int stream_file_open(struct stream_file *f, const char *path, bool want_direct, struct sluice_error *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        memset(f, 0, sizeof *f);
        f->fd = f->fd_direct = -1;
        return sluice_fail(err, SLUICE_ERR_IO, "%s: %s", path, strerror(errno));
    }
    return file_init(f, fd, path, want_direct, err);
}

int stream_file_open_fd(struct stream_file *f, int fd, const char *path, bool want_direct, struct sluice_error *err) {
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0) {
        memset(f, 0, sizeof *f);
        f->fd = f->fd_direct = -1;
        return sluice_fail(err, SLUICE_ERR_IO, "%s: %s", path, strerror(errno));
    }
    return file_init(f, own, path, want_direct, err);
}

void stream_file_close(struct stream_file *f) {
    if (f->path || f->fd > 0) {
        if (f->fd >= 0) {
            close(f->fd);
        }
        if (f->fd_direct >= 0) {
            close(f->fd_direct);
        }
        free(f->path);
    }
    memset(f, 0, sizeof *f);
    f->fd = f->fd_direct = -1;
}

enum file_step stream_file_read_begin(struct file_read *r, const struct stream_file *f, void *dst, uint64_t offset,
                                      size_t len, size_t need) {
    *r = (struct file_read){
        .file = f,
        .dst = dst,
        .offset = offset,
        .len = len,
        .need = need,
        .fd = f->fd_direct >= 0 ? f->fd_direct : f->fd,
    };
    return need ? FILE_MORE : FILE_DONE;
}

enum file_step stream_file_read_step(struct file_read *r, int64_t n) {
    const struct stream_file *f = r->file;
    if (n > 0) {
        r->got += (size_t)n;
        /* A direct read can only go on at an aligned place; the rest comes through the page cache. */
        if (r->got % f->align) {
            r->fd = f->fd;
        }
        return r->got < r->need ? FILE_MORE : FILE_DONE;
    }
    if (n == -EINTR) {
        return FILE_MORE;
    }
    if ((n == -EINVAL || n == 0) && r->fd == f->fd_direct) {
        /* Refused, or ended before an odd tail, as some file systems do: ask the other way once. */
        r->fd = f->fd;
        return FILE_MORE;
    }
    r->error = n ? (int)-n : ENODATA;
    return FILE_FAILED;
}

int64_t stream_file_read(const struct stream_file *f, void *dst, uint64_t offset, size_t len, size_t need) {
    struct file_read r;
    enum file_step step = stream_file_read_begin(&r, f, dst, offset, len, need);
    while (step == FILE_MORE) {
        const ssize_t n = pread(r.fd, r.dst + r.got, r.len - r.got, (off_t)(r.offset + r.got));
        step = stream_file_read_step(&r, n < 0 ? -(int64_t)errno : n);
    }
    if (step == FILE_FAILED) {
        errno = r.error;
        return -1;
    }
    return (int64_t)r.got;
}
