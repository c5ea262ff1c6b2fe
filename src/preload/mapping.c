/*
 * mapping.c - model files are mapped without being read.
 *
 * llama.cpp maps a model with MAP_POPULATE and then advises MADV_WILLNEED: the kernel reads the whole
 * file before the load continues. For a model that fits in memory that is a good idea. For one that
 * does not, it reads 18 GB through a 6 GiB page cache, evicts at the end what it read at the start
 * (12-26 s measured), and all of it for experts that are then read by other means. Without the two
 * flags the same load takes under a second, and the dense weights come in when they are touched.
 *
 * There is no setting for this in llama.cpp, and its source stays unmodified, so the two functions are
 * overridden by symbol: this file is linked into the `sluice` program, whose exports come before libc's
 * for every library, and into libsluice-preload.so for other programs.
 *
 * What is changed is as little as possible: a read-only, shared, populated mapping of a regular file
 * that starts with the GGUF magic loses MAP_POPULATE, and POSIX_MADV_WILLNEED inside such a mapping is
 * answered with success and not passed on (it is advice). Everything else goes to the kernel as it came.
 * A program that is not llama.cpp practically never takes even the first branch.
 *
 * Rules that mmap imposes: it may be called before this library is initialised, from allocators, from
 * any thread and between fork and exec. So there is no lock, no allocation and no dlsym here; the
 * kernel is called directly, and the table of mappings is an array of atomics that is only added to.
 * Entries are not removed at munmap: a stale one can at worst swallow an advice.
 */

/*
 * With 64-bit offsets chosen, the C library's header renames mmap to mmap64 behind the macro's back,
 * and this file would define mmap64 twice and mmap not at all.
 */
#undef _FILE_OFFSET_BITS

#include "preload/mapping.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * SYS_mmap takes its offset in bytes on the 64-bit ports named here. 32-bit ports have SYS_mmap2 with
 * an offset in pages, and s390x passes the arguments in a struct: models bigger than memory do not fit
 * a 32-bit address space anyway, so neither is supported rather than untested.
 */
#if !defined(__linux__) || !defined(SYS_mmap) || defined(__s390x__) || defined(__ILP32__) || UINTPTR_MAX < UINT64_MAX
#error "sluice needs 64-bit Linux: src/preload/mapping.c passes mmap's offset to the kernel in bytes"
#endif

#define EXPORT __attribute__((visibility("default")))

enum { MAPPINGS = 2048 }; /* more shards than any model has */

/* A mapping that lost MAP_POPULATE. start is written last: an entry with start != 0 is complete. */
struct mapping {
    _Atomic uintptr_t start; /* address; 0: free or being written */
    _Atomic uintptr_t end;   /* address after the last byte */
};

/*
 * Global because the functions that use it have no other way to share anything, and because every
 * copy of this file (program, preload library) interposes the whole process.
 */
static struct mapping mappings[MAPPINGS];
static atomic_uint n_mappings;      /* entries handed out, may exceed MAPPINGS */
static atomic_bool populate_models; /* sluice_mapping_set_lazy(false) was called */

void sluice_mapping_set_lazy(bool lazy) {
    atomic_store(&populate_models, !lazy);
}

/* Does this descriptor lead to a regular file that starts with the GGUF magic? Leaves errno alone. */
static bool is_model(int fd) {
    struct stat st;
    char magic[4];
    int saved = errno;
    bool yes = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
               syscall(SYS_pread64, fd, magic, sizeof magic, 0L) == (long)sizeof magic &&
               memcmp(magic, "GGUF", sizeof magic) == 0;
    errno = saved;
    return yes;
}

/* Remember a mapping. An old entry for the same address is reused: its mapping cannot exist any more. */
static void remember(uintptr_t start, uintptr_t end) {
    unsigned used = atomic_load(&n_mappings);
    for (unsigned i = 0; i < used && i < MAPPINGS; i++) {
        if (atomic_load(&mappings[i].start) == start) {
            atomic_store(&mappings[i].end, end);
            return;
        }
    }
    unsigned i = atomic_fetch_add(&n_mappings, 1);
    if (i < MAPPINGS) { /* else: only the advice will be passed on */
        atomic_store(&mappings[i].end, end);
        atomic_store(&mappings[i].start, start);
    } else {
        atomic_store(&n_mappings, MAPPINGS);
    }
}

static bool inside_remembered(uintptr_t start, size_t len) {
    unsigned used = atomic_load(&n_mappings);
    for (unsigned i = 0; i < used && i < MAPPINGS; i++) {
        uintptr_t from = atomic_load(&mappings[i].start), to = atomic_load(&mappings[i].end);
        if (from && start >= from && start < to && len <= to - start) {
            return true;
        }
    }
    return false;
}

static void *map(void *addr, size_t len, int prot, int flags, int fd, int64_t offset) {
    bool model = (flags & MAP_POPULATE) && (flags & MAP_TYPE) == MAP_SHARED && !(flags & MAP_ANONYMOUS) &&
                 prot == PROT_READ && fd >= 0 && !atomic_load(&populate_models) && is_model(fd);
    if (model) {
        flags &= ~MAP_POPULATE;
    }
    /* syscall() sets errno and returns -1, which is MAP_FAILED. */
    void *at = (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, offset);
    if (model && at != MAP_FAILED) {
        remember((uintptr_t)at, (uintptr_t)at + len);
    }
    return at;
}

EXPORT void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset) {
    return map(addr, len, prot, flags, fd, offset);
}

#ifdef __GLIBC__ /* elsewhere mmap64 is a macro for mmap, or absent */
EXPORT void *mmap64(void *addr, size_t len, int prot, int flags, int fd, off64_t offset) {
    return map(addr, len, prot, flags, fd, offset);
}
#endif

/* As libc's: returns the error number, leaves errno alone, and takes DONTNEED as the no-op that POSIX means. */
EXPORT int posix_madvise(void *addr, size_t len, int advice) {
    if (advice == POSIX_MADV_DONTNEED || (advice == POSIX_MADV_WILLNEED && inside_remembered((uintptr_t)addr, len))) {
        return 0;
    }
    int saved = errno;
    int rc = syscall(SYS_madvise, addr, len, advice) == 0 ? 0 : errno;
    errno = saved;
    return rc;
}
