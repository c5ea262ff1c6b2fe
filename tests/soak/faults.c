/*
 * faults.c - a disk that fails now and then, inside the process: pread is defined here, so it wins over the
 * C library's. A preloaded library, as tests/faults/ has it, would
 * have to come after the sanitizers'.
 *
 * Which read fails is a function of the seed and of how many reads there were before it. A read that
 * fails leaves wrong bytes where it should have read to, so nobody who uses them all the same goes unseen.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "soak.h"

enum {
    FAIL_EVERY = 250, /* reads, on the average */
    SHORT_EVERY = 50, /* the same */
};

static struct {
    _Atomic uint64_t seed;            /* of the choice; what was read ahead may still come in when it changes */
    _Atomic bool on;                  /* reads may fail */
    _Atomic uint64_t reads;           /* while on */
    _Atomic uint32_t failed, shorted; /* of those */
    _Atomic uint64_t bytes, filled;   /* bytes that reads brought, and reads that brought any; always counted */
} faults;

uint32_t soak_random(uint64_t *seed) {
    uint64_t x = *seed += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((x ^ (x >> 31)) >> 32);
}

void soak_faults(uint64_t seed, bool on) {
    atomic_store(&faults.seed, seed);
    atomic_store(&faults.on, on);
}

uint32_t soak_faults_failed(void) {
    return atomic_load(&faults.failed);
}

uint32_t soak_faults_short(void) {
    return atomic_load(&faults.shorted);
}

uint64_t soak_read_bytes(void) {
    return atomic_load(&faults.bytes);
}

uint64_t soak_reads(void) {
    return atomic_load(&faults.filled);
}

/* A read's result as the program gets it. */
static int64_t note(int64_t n) {
    if (n > 0) {
        atomic_fetch_add(&faults.bytes, (uint64_t)n);
        atomic_fetch_add(&faults.filled, 1);
    }
    return n;
}

/* What a read that returned n (or -errno) shall have returned. */
static int64_t spoil(void *buf, int64_t n) {
    if (!atomic_load(&faults.on) || n <= 0) {
        return n;
    }
    uint64_t s = atomic_load(&faults.seed) + atomic_fetch_add(&faults.reads, 1);
    const uint32_t r = soak_random(&s);
    if (r % FAIL_EVERY == 0) {
        atomic_fetch_add(&faults.failed, 1);
        memset(buf, 0xee, (size_t)n);
        return -EIO;
    }
    if (r % SHORT_EVERY == 1 && n > 1) {
        atomic_fetch_add(&faults.shorted, 1);
        memset((char *)buf + n / 2, 0xee, (size_t)(n - n / 2));
        return n / 2;
    }
    return n;
}

static void *real(const char *name) {
    void *p = dlsym(RTLD_NEXT, name);
    if (!p) {
        abort();
    }
    return p;
}

/* Under the name that a 64-bit off_t gives it. */
ssize_t faulty_pread(int fd, void *buf, size_t len, off_t offset) __asm__("pread64");

ssize_t faulty_pread(int fd, void *buf, size_t len, off_t offset) {
    ssize_t (*fn)(int, void *, size_t, off_t);
    void *p = real("pread64");
    memcpy(&fn, &p, sizeof fn);
    const ssize_t n = fn(fd, buf, len, offset);
    const int64_t got = note(spoil(buf, n < 0 ? -(int64_t)errno : n));
    if (got < 0) {
        errno = (int)-got;
        return -1;
    }
    return (ssize_t)got;
}
