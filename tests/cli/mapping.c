/*
 * mapping.c - what the preload library does to mmap and posix_madvise, and that it does nothing else.
 * Run with libsluice-preload.so preloaded (or, as a check of this test, without: then argv[1] is "stock").
 *
 * Whether a mapping was populated is read from /proc/self/smaps (Rss), which tells mapped pages from pages
 * that merely lie in the page cache.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SIZE = 4 << 20, THREADS = 4, ROUNDS = 500 };

static int failures;

static void check(const char *what, bool good) {
    printf("%s %s\n", good ? "ok  " : "FAIL", what);
    failures += !good;
}

/* Resident KiB of the mapping that starts at `at`; -1: there is none. */
static long resident_kib(const void *at) {
    char line[512];
    long rss = -1;
    bool mine = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    while (f && fgets(line, sizeof line, f)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) {
            mine = from == (uintptr_t)at;
        } else if (mine && sscanf(line, "Rss: %ld kB", &rss) == 1) {
            break;
        }
    }
    if (f) {
        fclose(f);
    }
    return rss;
}

/* A file of SIZE bytes that starts with `magic`. */
static int make_file(const char *magic) {
    char path[] = "./mapping-XXXXXX";
    static char block[1 << 16];
    int fd = mkstemp(path);
    if (fd < 0) {
        perror(path);
        exit(1);
    }
    unlink(path);
    memset(block, 'x', sizeof block);
    for (int i = 0; i < SIZE / (int)sizeof block; i++) {
        if (write(fd, block, sizeof block) != (ssize_t)sizeof block) {
            perror(path);
            exit(1);
        }
    }
    if (pwrite(fd, magic, strlen(magic), 0) != (ssize_t)strlen(magic)) {
        perror(path);
        exit(1);
    }
    return fd;
}

static void check_populated(const char *what, int fd, int prot, int flags, bool expected) {
    errno = 0;
    char *at = mmap(NULL, SIZE, prot, flags, fd, 0);
    if (at == MAP_FAILED) {
        check(what, false);
        return;
    }
    long rss = resident_kib(at);
    check(what, expected ? rss >= SIZE / 1024 : rss == 0);
    check("  errno is untouched", errno == 0);
    munmap(at, SIZE);
}

static void check_advice(int model, int other) {
    char *m = mmap(NULL, SIZE, PROT_READ, MAP_SHARED | MAP_POPULATE, model, 0);
    char *o = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, other, 0);
    check("two mappings", m != MAP_FAILED && o != MAP_FAILED);
    errno = 0;
    check("WILLNEED inside a model succeeds", posix_madvise(m, SIZE, POSIX_MADV_WILLNEED) == 0);
    check("WILLNEED of a part succeeds", posix_madvise(m + 4096, 8192, POSIX_MADV_WILLNEED) == 0);
    check("RANDOM succeeds", posix_madvise(m, SIZE, POSIX_MADV_RANDOM) == 0);
    check("WILLNEED elsewhere succeeds", posix_madvise(o, SIZE, POSIX_MADV_WILLNEED) == 0);
    check("the content is right", memcmp(m, "GGUF", 4) == 0 && m[SIZE - 1] == 'x' && memcmp(o, "NOPE", 4) == 0);
    check("DONTNEED is no destruction", posix_madvise(o, SIZE, POSIX_MADV_DONTNEED) == 0);
    munmap(o, SIZE);
    check("errors are returned", posix_madvise(o, SIZE, POSIX_MADV_WILLNEED) == ENOMEM);
    check("and errno is untouched", errno == 0);
    munmap(m, SIZE);
}

static void check_errors(int model) {
    errno = 0;
    check("an odd offset is EINVAL",
          mmap(NULL, 4096, PROT_READ, MAP_SHARED, model, 1) == MAP_FAILED && errno == EINVAL);
    errno = 0;
    check("a bad descriptor is EBADF",
          mmap(NULL, 4096, PROT_READ, MAP_SHARED | MAP_POPULATE, 9999, 0) == MAP_FAILED && errno == EBADF);
    char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check("anonymous memory", at != MAP_FAILED);
    at[SIZE - 1] = 1;
    char *fixed = mmap(at + 4096, 4096, PROT_READ, MAP_SHARED | MAP_FIXED | MAP_POPULATE, model, 4096);
    check("MAP_FIXED and an offset", fixed == at + 4096 && fixed[0] == 'x');
    munmap(at, SIZE);
}

static void *hammer(void *arg) {
    int fd = *(int *)arg;
    for (int i = 0; i < ROUNDS; i++) {
        char *at = mmap(NULL, SIZE, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
        if (at == MAP_FAILED || posix_madvise(at, SIZE, POSIX_MADV_WILLNEED) != 0 || memcmp(at, "GGUF", 4) != 0) {
            return arg;
        }
        munmap(at, SIZE);
    }
    return NULL;
}

static void check_threads(int model) {
    pthread_t threads[THREADS];
    bool good = true;
    for (int i = 0; i < THREADS; i++) {
        good = pthread_create(&threads[i], NULL, hammer, &model) == 0 && good;
    }
    for (int i = 0; i < THREADS; i++) {
        void *result = &model;
        good = pthread_join(threads[i], &result) == 0 && result == NULL && good;
    }
    check("many mappings from several threads", good);
}

int main(int argc, char **argv) {
    bool stock = argc > 1 && strcmp(argv[1], "stock") == 0;
    int model = make_file("GGUF"), other = make_file("NOPE");
    check_populated("a populated model mapping", model, PROT_READ, MAP_SHARED | MAP_POPULATE, stock);
    check_populated("a model mapping", model, PROT_READ, MAP_SHARED, false);
    check_populated("a populated private mapping", model, PROT_READ, MAP_PRIVATE | MAP_POPULATE, true);
    check_populated("a populated writable mapping", model, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, true);
    check_populated("a populated mapping of another file", other, PROT_READ, MAP_SHARED | MAP_POPULATE, true);
    check_advice(model, other);
    check_errors(model);
    check_threads(model);
    return failures != 0;
}
