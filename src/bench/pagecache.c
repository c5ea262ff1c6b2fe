/*
 * pagecache.c - see pagecache.h.
 *
 * A run after a run finds the dense weights, and with buffered reads the experts, in the page cache. That
 * is a fine thing for users and a wrong one for a comparison: who comes second looks better. Dropping
 * everything needs root; what a user may do is ask the kernel to forget the file, which it does for pages
 * that are clean and that nobody maps. The report says which of the two it was.
 */
#include "bench/pagecache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/error.h"

enum { WARM_PIECE = 4 << 20 }; /* bytes per read */

bool bench_drop_all(void) {
    sync(); /* dirty pages are not dropped */
    const int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    const bool ok = write(fd, "3", 1) == 1;
    close(fd);
    return ok;
}

bool bench_drop_file(const char *path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    fdatasync(fd); /* fails on some read-only file systems, where nothing is dirty */
    const int error = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    errno = error;
    return error == 0;
}

int bench_warm_file(const char *path, bool (*stop)(void *user), void *user, struct sluice_error *err) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint8_t *piece = malloc(WARM_PIECE);
    ssize_t n = 0;
    if (fd < 0 || !piece) {
        const int error = fd < 0 ? errno : ENOMEM;
        free(piece);
        if (fd >= 0) {
            close(fd);
        }
        return sluice_fail(err, SLUICE_ERR_IO, "%s: %s", path, strerror(error));
    }
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    while (!(stop && stop(user)) && ((n = read(fd, piece, WARM_PIECE)) > 0 || (n < 0 && errno == EINTR))) {
    }
    const int error = errno;
    free(piece);
    close(fd);
    return n < 0 && error != EINTR ? sluice_fail(err, SLUICE_ERR_IO, "%s: %s", path, strerror(error)) : sluice_ok(err);
}

const char *bench_dropped_name(enum bench_dropped d) {
    switch (d) {
    case BENCH_DROPPED_NOTHING:
        return "nothing";
    case BENCH_DROPPED_FILE:
        return "the model's pages";
    case BENCH_DROPPED_ALL:
        return "the machine's page cache";
    }
    return "nothing";
}
