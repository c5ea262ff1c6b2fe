/*
 * faulty.c - a disk that misbehaves: preloaded into a program, it spoils reads of model files.
 *
 * It stands in for pread, and only where the descriptor's file is called *.gguf: what llama.cpp itself
 * reads (through stdio and the mapping) stays as it is. The kernel is asked at every read whether the
 * descriptor is a direct one, so descriptors that were duplicated or reopened through /proc are seen too.
 *
 *   FAULTY_MODE      none      count only
 *                    short     return a part of what was read; the rest of the buffer is made wrong
 *                    eintr     fail with EINTR
 *                    eio       fail with EIO
 *                    end       return 0, as at the end of the file
 *                    wrong     flip a bit of what was read
 *                    truncate  cut the file to FAULTY_SIZE bytes for real, once, and then read
 *                    refuse    opening for direct I/O fails with EINVAL; reads are left alone
 *   FAULTY_AFTER=N   leave the first N reads alone (0)
 *   FAULTY_COUNT=N   spoil at most N reads (no limit)
 *   FAULTY_EVERY=N   of the others spoil every Nth (1)
 *   FAULTY_DIRECT=1  spoil direct reads only
 *   FAULTY_FILE=TEXT see only reads of files whose path ends so (any *.gguf)
 *   FAULTY_AT=A,B-C  of those that FAULTY_AFTER leaves, spoil only reads of byte A or of bytes from B up to C.
 *                    What a run reads there does not depend on time; the number of a read does, when experts
 *                    are prefetched
 *   FAULTY_PAST=N    and of these leave the first N alone (0)
 *   FAULTY_LOG=FILE  append "reads N direct N faults N" at the end, so that a test can see that there were faults
 *
 * A test that injects nothing passes too easily, hence the log.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { PLACES = 64 }; /* of FAULTY_AT at most */

struct place {
    off_t from, end; /* bytes of the file; the last one is end - 1 */
};

static struct {
    const char *mode;                             /* FAULTY_MODE, "none" when unset */
    const char *file;                             /* FAULTY_FILE, ".gguf" when unset */
    unsigned long after, count, every, past;      /* see above */
    struct place at[PLACES];                      /* FAULTY_AT, bytes */
    int n_at;                                     /* of those; 0: anywhere */
    unsigned long long size;                      /* FAULTY_SIZE */
    bool direct_only;                             /* FAULTY_DIRECT */
    ssize_t (*pread)(int, void *, size_t, off_t); /* the C library's */
    int (*open)(const char *, int, ...);          /* the same */
} faulty;
static _Atomic unsigned long faulty_reads, faulty_direct, faulty_faults, faulty_seen, faulty_there;

static unsigned long number(const char *name, unsigned long otherwise) {
    const char *text = getenv(name);
    return text ? strtoul(text, NULL, 10) : otherwise;
}

/* Read FAULTY_AT. */
static void places(const char *text) {
    for (char *end; text && *text && faulty.n_at < PLACES; text = *end == ',' ? end + 1 : end) {
        const off_t from = (off_t)strtoull(text, &end, 10);
        faulty.at[faulty.n_at].from = from;
        faulty.at[faulty.n_at++].end = *end == '-' ? (off_t)strtoull(end + 1, &end, 10) : from + 1;
        if (*end && *end != ',') {
            fprintf(stderr, "faulty: FAULTY_AT: %s\n", text);
            abort();
        }
    }
}

/* Does a read of these bytes count for FAULTY_AT and FAULTY_PAST? */
static bool is_place(off_t offset, size_t len) {
    bool there = faulty.n_at == 0;
    for (int i = 0; i < faulty.n_at && !there; i++) {
        there = offset < faulty.at[i].end && faulty.at[i].from < offset + (off_t)len;
    }
    return there && atomic_fetch_add(&faulty_there, 1) >= faulty.past;
}

__attribute__((constructor)) static void faulty_start(void) {
    const char *mode = getenv("FAULTY_MODE"), *size = getenv("FAULTY_SIZE"), *file = getenv("FAULTY_FILE");
    faulty.mode = mode ? mode : "none";
    faulty.file = file ? file : ".gguf";
    faulty.after = number("FAULTY_AFTER", 0);
    faulty.count = number("FAULTY_COUNT", ULONG_MAX);
    faulty.every = number("FAULTY_EVERY", 1);
    faulty.past = number("FAULTY_PAST", 0);
    places(getenv("FAULTY_AT"));
    faulty.size = size ? strtoull(size, NULL, 10) : 0;
    faulty.direct_only = number("FAULTY_DIRECT", 0);
    void *p = dlsym(RTLD_NEXT, "pread64");
    void *o = dlsym(RTLD_NEXT, "open64");
    memcpy(&faulty.pread, &p, sizeof p);
    memcpy(&faulty.open, &o, sizeof o);
}

__attribute__((destructor)) static void faulty_end(void) {
    const char *path = getenv("FAULTY_LOG");
    FILE *f = path ? fopen(path, "ae") : NULL;
    if (f) {
        fprintf(f, "reads %lu direct %lu faults %lu\n", atomic_load(&faulty_reads), atomic_load(&faulty_direct),
                atomic_load(&faulty_faults));
        fclose(f);
    }
}

/* Is it a model file? Its path comes back, and whether the descriptor is a direct one. */
static bool is_model(int fd, char path[PATH_MAX], bool *direct) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, PATH_MAX - 1), tail = (ssize_t)strlen(faulty.file);
    if (n < tail) {
        return false;
    }
    path[n] = 0;
    const int flags = fcntl(fd, F_GETFL);
    *direct = flags >= 0 && (flags & O_DIRECT);
    return strcmp(path + n - tail, faulty.file) == 0;
}

static bool mode_is(const char *mode) {
    return strcmp(faulty.mode, mode) == 0;
}

/* Take one of the permitted faults, if any is left. */
static bool take_fault(void) {
    unsigned long n = atomic_load(&faulty_faults);
    while (n < faulty.count) {
        if (atomic_compare_exchange_weak(&faulty_faults, &n, n + 1)) {
            return true;
        }
    }
    return false;
}

/* Count a read of a model that is about to happen. True: spoil it; a file that is to be cut is cut now. */
static bool choose(bool direct, const char *path, size_t len, off_t offset) {
    const unsigned long read = atomic_fetch_add(&faulty_reads, 1) + 1;
    atomic_fetch_add(&faulty_direct, direct);
    if (mode_is("none") || mode_is("refuse") || (faulty.direct_only && !direct) || read <= faulty.after ||
        !is_place(offset, len) || atomic_fetch_add(&faulty_seen, 1) % faulty.every || !take_fault()) {
        return false;
    }
    if (mode_is("truncate") && truncate(path, (off_t)faulty.size)) {
        perror("faulty: truncate");
        abort();
    }
    return true;
}

/* Spoil a read that happened: n bytes of buf, or -errno. Returns what it shall have returned. */
static int64_t spoil(void *buf, int64_t n, off_t offset, bool direct) {
    unsigned char *bytes = buf;
    if (mode_is("eintr") || mode_is("eio") || mode_is("end")) {
        memset(bytes, 0xee, n > 0 ? (size_t)n : 0); /* nothing was read, and nothing right may be found there */
        return mode_is("eintr") ? -EINTR : mode_is("eio") ? -EIO : 0;
    }
    if (mode_is("wrong") && n > 0) {
        bytes[n / 2] ^= 0x10;
    } else if (mode_is("short") && n > 1) {
        /* Anywhere; of direct reads every other one at a block's end, from where direct reading can go on. */
        const unsigned long seen = atomic_load(&faulty_seen);
        size_t part = 1 + ((size_t)offset * 2654435761u + 40503u * (size_t)seen) % ((size_t)n - 1);
        if (direct && seen % 2 && part > 4096) {
            part = part / 4096 * 4096;
        }
        memset(bytes + part, 0xee, (size_t)n - part);
        n = (int64_t)part;
    }
    return n;
}

static ssize_t faulty_pread(int fd, void *buf, size_t len, off_t offset) {
    char path[PATH_MAX];
    bool direct;
    if (!is_model(fd, path, &direct) || !choose(direct, path, len, offset)) {
        return faulty.pread(fd, buf, len, offset);
    }
    const ssize_t n = faulty.pread(fd, buf, len, offset);
    const int64_t spoilt = spoil(buf, n < 0 ? -(int64_t)errno : n, offset, direct);
    if (spoilt < 0) {
        errno = (int)-spoilt;
        return -1;
    }
    return (ssize_t)spoilt;
}

/* Both names of each: a 64-bit off_t makes them the same function under two symbols. */
EXPORT ssize_t faulty_read32(int fd, void *buf, size_t len, off_t offset) __asm__("pread");
EXPORT ssize_t faulty_read64(int fd, void *buf, size_t len, off_t offset) __asm__("pread64");
EXPORT int faulty_open32(const char *path, int flags, ...) __asm__("open");
EXPORT int faulty_open64(const char *path, int flags, ...) __asm__("open64");

ssize_t faulty_read32(int fd, void *buf, size_t len, off_t offset) {
    return faulty_pread(fd, buf, len, offset);
}

ssize_t faulty_read64(int fd, void *buf, size_t len, off_t offset) {
    return faulty_pread(fd, buf, len, offset);
}

static int faulty_open(const char *path, int flags, mode_t mode) {
    const int fd = faulty.open(path, flags, mode);
    char target[PATH_MAX];
    bool direct;
    if (fd >= 0 && (flags & O_DIRECT) && mode_is("refuse") && is_model(fd, target, &direct)) {
        close(fd);
        atomic_fetch_add(&faulty_faults, 1);
        errno = EINVAL;
        return -1;
    }
    return fd;
}

/* The third argument, where there is one. */
static mode_t open_mode(int flags, va_list ap) {
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, mode_t) : 0;
}

int faulty_open32(const char *path, int flags, ...) {
    va_list ap;
    va_start(ap, flags);
    const mode_t mode = open_mode(flags, ap);
    va_end(ap);
    return faulty_open(path, flags, mode);
}

int faulty_open64(const char *path, int flags, ...) {
    va_list ap;
    va_start(ap, flags);
    const mode_t mode = open_mode(flags, ap);
    va_end(ap);
    return faulty_open(path, flags | O_LARGEFILE, mode);
}
