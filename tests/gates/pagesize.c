/*
 * pagesize.c - a kernel with larger pages, as far as a process can be made to believe it.
 *
 * Machines whose kernel has pages of 16 or 64 KiB are rare where tests run. What differs for a program there: sysconf
 * says so, mmap gives addresses that are multiples of it and maps to the end of a page, and mprotect, madvise, munmap
 * and mremap refuse other addresses, and round lengths up: over what a neighbour owns, if the program believed in
 * smaller pages. Here sysconf and mmap behave like that over a kernel with small pages, and the other calls are judged:
 *
 *   addresses must be multiples (any call, and those that mmap is told to map at); so must the lengths of what takes
 *   something away or replaces it (MADV_DONTNEED, MAP_FIXED, mprotect, mremap)
 *
 * A wrong call is named on standard error, with the library that made it, and counted. The C library's own calls do not
 * come this way, everything else of the process does. Real calls are made by system call: mmap is used before dlsym may
 * be.
 *
 * Preloaded into a program, or linked into a test:
 *   SLUICE_TEST_PAGE=N       bytes of a page (a power of two); unset: until pagesize_set, nothing is changed
 *   SLUICE_TEST_PAGE_LOG=F   append "calls N wrong N plugin N" at the end; plugin: calls out of libggml-sluice.so
 */
#include "pagesize.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static _Atomic size_t pagesize; /* bytes; 0: the kernel's */
static _Atomic unsigned long calls, wrong, plugin;
EXPORT void (*pagesize_advised)(uintptr_t at, size_t len, int advice);

EXPORT void pagesize_set(size_t bytes) {
    atomic_store(&pagesize, bytes);
    atomic_store(&calls, 0);
    atomic_store(&wrong, 0);
}

EXPORT unsigned long pagesize_calls(void) {
    return atomic_load(&calls);
}

EXPORT unsigned long pagesize_wrong(void) {
    return atomic_load(&wrong);
}

__attribute__((constructor)) static void pagesize_start(void) {
    const char *text = getenv("SLUICE_TEST_PAGE");
    if (text) {
        atomic_store(&pagesize, strtoul(text, NULL, 10));
    }
}

__attribute__((destructor)) static void pagesize_end(void) {
    const char *path = getenv("SLUICE_TEST_PAGE_LOG");
    FILE *f = path ? fopen(path, "ae") : NULL;
    if (f) {
        fprintf(f, "calls %lu wrong %lu plugin %lu\n", atomic_load(&calls), atomic_load(&wrong), atomic_load(&plugin));
        fclose(f);
    }
}

/* Judge a call: its address, and its length where that matters. */
static void judge(const char *what, const void *caller, uintptr_t at, size_t len, bool whole) {
    const size_t page = atomic_load(&pagesize);
    if (!page) {
        return;
    }
    Dl_info info;
    const char *name = dladdr(caller, &info) && info.dli_fname ? info.dli_fname : "?";
    atomic_fetch_add(&calls, 1);
    if (strstr(name, "libggml-sluice.so")) {
        atomic_fetch_add(&plugin, 1);
    }
    if (at % page || (whole && len % page)) {
        atomic_fetch_add(&wrong, 1);
        fprintf(stderr, "pagesize: %s(%#lx, %#zx) by %s: no multiple of %zu\n", what, (unsigned long)at, len, name,
                page);
    }
}

static size_t rounded(size_t len) {
    const size_t page = atomic_load(&pagesize);
    return page ? (len + page - 1) / page * page : len;
}

EXPORT long sysconf(int name) {
    static long (*real)(int);
    const size_t page = atomic_load(&pagesize);
    if (page && name == _SC_PAGESIZE) {
        return (long)page;
    }
    if (!real) {
        void *p = dlsym(RTLD_NEXT, "sysconf");
        memcpy(&real, &p, sizeof real);
    }
    return real(name);
}

EXPORT int getpagesize(void) {
    return (int)sysconf(_SC_PAGESIZE);
}

static void *sys_mmap(void *at, size_t len, int prot, int flags, int fd, int64_t offset) {
    return (void *)syscall(SYS_mmap, at, len, prot, flags, fd, offset);
}

static void *map(const void *caller, void *at, size_t len, int prot, int flags, int fd, int64_t offset) {
    const size_t page = atomic_load(&pagesize);
    if (!page || len == 0) {
        return sys_mmap(at, len, prot, flags, fd, offset);
    }
    if (!(flags & MAP_ANONYMOUS) && (uint64_t)offset % page) {
        judge("mmap offset", caller, (uintptr_t)offset, 0, false);
        errno = EINVAL;
        return MAP_FAILED;
    }
    if (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) {
        judge("mmap MAP_FIXED", caller, (uintptr_t)at, len, true);
        return sys_mmap(at, len, prot, flags, fd, offset);
    }
    /* Somewhere, at such an address: take more, map into it, give the rest back. */
    const size_t size = rounded(len);
    char *room = sys_mmap(NULL, size + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) {
        return room;
    }
    const size_t lead = (page - (uintptr_t)room % page) % page;
    void *got = sys_mmap(room + lead, size, prot, flags | MAP_FIXED, fd, offset);
    const int error = errno;
    if (got == MAP_FAILED) {
        syscall(SYS_munmap, room, size + page);
        errno = error;
        return got;
    }
    if (lead) {
        syscall(SYS_munmap, room, lead);
    }
    syscall(SYS_munmap, room + lead + size, page - lead); /* lead < page */
    return got;
}

/* Both names of it: a 64-bit off_t makes them the same function under two symbols. */
EXPORT void *pagesize_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset) __asm__("mmap");
EXPORT void *pagesize_mmap64(void *at, size_t len, int prot, int flags, int fd, off_t offset) __asm__("mmap64");

void *pagesize_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset) {
    return map(__builtin_return_address(0), at, len, prot, flags, fd, offset);
}

void *pagesize_mmap64(void *at, size_t len, int prot, int flags, int fd, off_t offset) {
    return map(__builtin_return_address(0), at, len, prot, flags, fd, offset);
}

EXPORT int munmap(void *at, size_t len) {
    judge("munmap", __builtin_return_address(0), (uintptr_t)at, len, false);
    return (int)syscall(SYS_munmap, at, rounded(len));
}

EXPORT int mprotect(void *at, size_t len, int prot) {
    judge("mprotect", __builtin_return_address(0), (uintptr_t)at, len, true);
    return (int)syscall(SYS_mprotect, at, rounded(len), prot);
}

EXPORT int madvise(void *at, size_t len, int advice) {
    judge("madvise", __builtin_return_address(0), (uintptr_t)at, len, advice == MADV_DONTNEED);
    if (pagesize_advised) {
        pagesize_advised((uintptr_t)at, rounded(len), advice);
    }
    return (int)syscall(SYS_madvise, at, rounded(len), advice);
}

EXPORT void *mremap(void *at, size_t len, size_t want, int flags, ...) {
    void *to = NULL;
    if (flags & MREMAP_FIXED) {
        va_list ap;
        va_start(ap, flags);
        to = va_arg(ap, void *);
        va_end(ap);
        judge("mremap to", __builtin_return_address(0), (uintptr_t)to, want, true);
    }
    judge("mremap", __builtin_return_address(0), (uintptr_t)at, len, true);
    return (void *)syscall(SYS_mremap, at, len, want, flags, to);
}
