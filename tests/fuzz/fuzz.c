/*
 * fuzz.c - see fuzz.h.
 *
 * Readers take paths, so inputs go through files. Those are in memory (/dev/shm) when run.sh made the directory: a
 * disk would be the slowest part by far.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FUZZ_PATHS = 4 }; /* texts of fuzz_path that are valid at a time */

static char fuzz_own[64]; /* a directory of this process; "": none was made */

_Noreturn void fuzz_broken(const char *what, const char *file, int line) {
    char text[1024];
    const int n = snprintf(text, sizeof text, "%s:%d: does not hold: %s\n", file, line, what);
    const ssize_t w = write(STDERR_FILENO, text, n > 0 && n < (int)sizeof text ? (size_t)n : 0);
    (void)w; /* there is nobody else to tell */
    abort();
}

static void fuzz_remove(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", fuzz_own); /* its name is of our making */
    const int rc = system(command);
    (void)rc;
}

static const char *fuzz_dir(void) {
    const char *given = getenv("SLUICE_FUZZ_DIR");
    if (given && given[0]) {
        return given;
    }
    if (!fuzz_own[0]) {
        snprintf(fuzz_own, sizeof fuzz_own, "/tmp/sluice-fuzz-XXXXXX");
        if (!mkdtemp(fuzz_own)) {
            perror("fuzz: no directory for scratch files");
            exit(2);
        }
        atexit(fuzz_remove);
    }
    return fuzz_own;
}

const char *fuzz_path(const char *name) {
    static char paths[FUZZ_PATHS][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % FUZZ_PATHS];
    const int n = snprintf(path, PATH_MAX, "%s/%s", fuzz_dir(), name);
    FUZZ_CHECK(n > 0 && n < PATH_MAX);
    return path;
}

const char *fuzz_write(const char *name, const void *data, size_t size) {
    const char *path = fuzz_path(name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) {
        perror(path);
        _exit(2); /* no finding: the disk is full, or the directory is gone */
    }
    close(fd);
    return path;
}

uint64_t fuzz_hash(const uint8_t *data, size_t size) {
    uint64_t h = 0xcbf29ce484222325;
    for (size_t i = 0; i < size; i++) {
        h = (h ^ data[i]) * 0x100000001b3;
    }
    return h ^ h >> 29;
}

int fuzz_piece(const uint8_t *data, size_t size, const char *mark, size_t *at, const uint8_t **piece, size_t *n) {
    const size_t mark_n = strlen(mark);
    if (*at > size) {
        return 0;
    }
    const uint8_t *found = size - *at >= mark_n ? memmem(data + *at, size - *at, mark, mark_n) : NULL;
    *piece = data + *at;
    *n = found ? (size_t)(found - *piece) : size - *at;
    *at = found ? *at + *n + mark_n : size + 1;
    return 1;
}

void fuzz_quiet(void) {
    /* libFuzzer's -close_fd_mask would close what sanitizers write to as well. Streams are enough: ours are stdio's. */
    FUZZ_CHECK(freopen("/dev/null", "w", stdout) != NULL);
    FILE *nowhere = fopen("/dev/null", "w");
    FUZZ_CHECK(nowhere != NULL);
    stderr = nowhere; /* glibc lets programs set it */
}
