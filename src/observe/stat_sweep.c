/*
 * stat_sweep.c - whose file is it, and which ones killed processes left.
 *
 * A process that is killed cannot remove its file. `sluice top` removes those that it meets, but who never looks must
 * not find thousands after a year of crashes either: every process that makes a file removes the stale ones first
 * (62 killed processes had left 37 files in an endurance run before that; tests/endurance/).
 *
 * Stale is what names a process that is not there, or one that started at another time: a later one with the same
 * number. A file from another pid namespace (a container that shares the directory) names a process that cannot be
 * seen from here; it is left alone. One that cannot be read may be another version's, or one that is being made this
 * moment in such a container: it is only removed when its process is not there and it has been so for a minute.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "observe/stat_file.h"
#include "cache/error.h"

enum { UNREADABLE_S = 60 }; /* seconds for which a file of nobody must have been there, if it cannot be read */

uint64_t stat_pid_of_name(const char *name) {
    char *end;
    if (name[0] < '1' || name[0] > '9') {
        return 0;
    }
    errno = 0;
    const unsigned long long n = strtoull(name, &end, 10);
    return errno == 0 && n <= INT32_MAX && strcmp(end, ".stat") == 0 ? n : 0;
}

enum stat_whose stat_look(int dir, const char *name, struct stat_data *out, struct sluice_error *err) {
    const uint64_t pid = stat_pid_of_name(name);
    struct stat st;
    const int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC); /* not a pipe to hang on */
    if (fd < 0) {
        const bool gone = errno == ENOENT; /* it may have ended just now */
        sluice_fail(err, SLUICE_ERR_IO, "%s", strerror(errno));
        return gone ? STAT_ELSEWHERE : STAT_DAMAGED;
    }
    struct sluice_error why = {.status = SLUICE_OK};
    const int rc = stat_read(fd, out, &why);
    const bool old = fstat(fd, &st) == 0 && time(NULL) - st.st_mtime >= UNREADABLE_S;
    close(fd);
    const uint64_t started = stat_start_ticks((pid_t)pid);
    if (rc == SLUICE_OK && out->pid_namespace != stat_pid_namespace()) {
        sluice_ok(err);
        return STAT_ELSEWHERE;
    }
    if (rc == SLUICE_OK ? started == 0 || out->start_ticks != started : started == 0 && old) {
        sluice_ok(err);
        return STAT_STALE;
    }
    if (rc == SLUICE_OK && out->pid != pid) {
        sluice_fail(err, SLUICE_ERR_FORMAT, "names another process inside");
        return STAT_DAMAGED;
    }
    if (rc) {
        sluice_fail(err, why.status, "%s", why.message);
        return STAT_DAMAGED;
    }
    sluice_ok(err);
    return STAT_THERE;
}

void stat_sweep(int dir) {
    struct stat_data d;
    const int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* closedir closes it */
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    if (!list) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    for (struct dirent *e; (e = readdir(list)) != NULL;) {
        if (stat_pid_of_name(e->d_name) && stat_look(dir, e->d_name, &d, NULL) == STAT_STALE) {
            unlinkat(dir, e->d_name, 0); /* that it cannot be removed changes nothing */
        }
    }
    closedir(list);
}
