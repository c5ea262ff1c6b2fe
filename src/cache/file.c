/*
 * file.c - model files and the reads on them.
 *
 * Why direct I/O: a model bigger than memory turns the page cache over all the time. Buffered
 * reads then cost a copy and a kernel allocation per page, evict the dense weights, and keep every
 * expert twice (in the page cache and in our slot). Others measured direct reads about twice as
 * fast on memory-limited machines.
 *
 * Why verify: some file systems accept O_DIRECT and return wrong bytes (FUSE on phones), others
 * refuse at the first read, others only at the odd tail of a file. So at open blocks and longer pieces
 * spread over the file are read both ways and compared; any difference, and this file is read buffered,
 * which the mode line says. A wrong weight makes wrong text, the worst failure there is.
 *
 * A comparison is a sample. Where files are served by a process (FUSE: a phone's shared storage, sshfs, also
 * virtiofs) or by the layer that phones had before it (sdcardfs), what direct reads return is up to that process,
 * at open and later, and wrong weights were seen there. These are read buffered whatever the comparison would say:
 * the bytes pass through another process anyway, so little is lost.
 *
 * All I/O threads share one descriptor: pread does not touch the file position, so it takes no lock there.
 */
#include "cache/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "cache/error.h"

enum {
    FILE_ALIGN_MAX = 1 << 20,        /* bytes; a larger claim is not believed */
    FILE_ALIGN_GUESS_MAX = 64 << 10, /* bytes; the same, where the file system only names its block size */
    FILE_VERIFY_PLACES = 9,          /* compared at open, spread evenly, first and last block included */
    FILE_VERIFY_LONG = 256 << 10,    /* bytes; every third of them is so long, the others are one block */
    FILE_FUSE_MAGIC = 0x65735546,    /* what statfs calls FUSE, virtiofs and fuseblk included */
    FILE_SDCARDFS_MAGIC = 0x5dca2df5,
};

/*
 * The alignment that direct reads need here: by statx where the kernel tells (Linux 6.1). Where it does not, a file
 * system with larger blocks than usual wants whole ones (F2FS with pages of 16 KiB). Older Android has no statx, and
 * a program that makes the system call all the same is killed there.
 */
static uint32_t file_alignment(int fd, const struct stat *st) {
    uint32_t told = 0, most = FILE_ALIGN_MAX;
#if defined(STATX_DIOALIGN) && (!defined(__ANDROID__) || __ANDROID_API__ >= 30)
    struct statx sx;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) == 0 && (sx.stx_mask & STATX_DIOALIGN)) {
        told = sx.stx_dio_offset_align > sx.stx_dio_mem_align ? sx.stx_dio_offset_align : sx.stx_dio_mem_align;
    }
#else
    (void)fd;
#endif
    if (told == 0) {
        told = st->st_blksize > 0 && st->st_blksize <= FILE_ALIGN_GUESS_MAX ? (uint32_t)st->st_blksize : 0;
        most = FILE_ALIGN_GUESS_MAX;
    }
    return told > STREAM_FILE_ALIGN && told <= most && (told & (told - 1)) == 0 ? told : STREAM_FILE_ALIGN;
}

/* Is this a file system whose direct reads are not to be trusted? Its name, or NULL. */
static const char *file_untrusted(int fd) {
    struct statfs fs;
    if (fstatfs(fd, &fs)) {
        return NULL;
    }
    switch ((uint32_t)fs.f_type) {
    case FILE_FUSE_MAGIC:
        return "FUSE";
    case FILE_SDCARDFS_MAGIC:
        return "sdcardfs";
    default:
        return NULL;
    }
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

/* Read len bytes directly; at the odd tail of a file fewer may come. Bytes, or -1 with errno. */
static int64_t file_read_direct(const struct stream_file *f, char *dst, uint64_t offset, size_t len) {
    size_t got = 0;
    while (got < len) {
        const ssize_t n = pread(f->fd_direct, dst + got, len - got, (off_t)(offset + got));
        if (n < 0 && errno != EINTR) {
            return -1;
        }
        got += n > 0 ? (size_t)n : 0;
        if (n == 0 || got % f->align) {
            break;
        }
    }
    return (int64_t)got;
}

/* Compare direct and buffered reads of one piece. */
static bool file_verify_piece(struct stream_file *f, char *direct, char *plain, uint64_t offset, size_t len) {
    memset(direct, 0xa5, len); /* what a read leaves untouched must not be right by chance */
    const int64_t want = stream_file_pread(f->fd, plain, offset, len);
    const int64_t got = file_read_direct(f, direct, offset, len);
    /* The odd tail may come short here, and is finished buffered later; whole blocks may not. */
    if (want < 0 || got < 0 || got < want / f->align * f->align) {
        snprintf(f->why_buffered, sizeof f->why_buffered, "direct reads fail (%s)",
                 want >= 0 && got >= 0 ? "short" : strerror(errno));
        return false;
    }
    if (got > want || memcmp(direct, plain, (size_t)got) != 0) {
        snprintf(f->why_buffered, sizeof f->why_buffered, "direct reads return wrong bytes at offset %llu",
                 (unsigned long long)offset);
        return false;
    }
    return true;
}

/* Compare direct and buffered reads at places spread over the file. True when all agree. */
static bool file_verify_direct(struct stream_file *f) {
    const uint64_t block = f->align, n_blocks = f->size / block + (f->size % block != 0);
    const size_t most = FILE_VERIFY_LONG > block ? FILE_VERIFY_LONG : block;
    void *direct = NULL, *plain = NULL;
    bool ok = false;
    if (posix_memalign(&direct, block, most) || posix_memalign(&plain, block, most)) {
        snprintf(f->why_buffered, sizeof f->why_buffered, "no memory to verify direct reads");
    } else {
        ok = true;
        for (uint64_t i = 0; i < FILE_VERIFY_PLACES && n_blocks && ok; i++) {
            const uint64_t last = n_blocks - 1, even = last / (FILE_VERIFY_PLACES - 1) * i;
            const uint64_t index = i == FILE_VERIFY_PLACES - 1 ? last : even;
            const uint64_t rest = (n_blocks - index) * block, len = i % 3 == 1 ? most : block;
            ok = file_verify_piece(f, direct, plain, index * block, len < rest ? len : rest);
        }
    }
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
    f->align = STREAM_FILE_ALIGN;
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
    const char *untrusted = file_untrusted(fd);
    if (untrusted) {
        snprintf(f->why_buffered, sizeof f->why_buffered, "direct reads of %s can be wrong", untrusted);
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
    f->align = file_alignment(f->fd_direct, &st);
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

int64_t stream_file_read(const struct stream_file *f, void *dst, uint64_t offset, size_t len, size_t need) {
    int fd = f->fd_direct >= 0 ? f->fd_direct : f->fd;
    size_t got = 0;
    while (got < need) {
        const ssize_t n = pread(fd, (char *)dst + got, len - got, (off_t)(offset + got));
        if (n > 0) {
            got += (size_t)n;
            /* A direct read can only go on at an aligned place; the rest comes through the page cache. */
            fd = got % f->align ? f->fd : fd;
        } else if (fd != f->fd && (n == 0 || errno == EINVAL)) {
            fd = f->fd; /* refused, or ended before an odd tail, as some file systems do: ask the other way once */
        } else if (n == 0 || errno != EINTR) {
            errno = n ? errno : ENODATA;
            return -1;
        }
    }
    return (int64_t)got;
}
