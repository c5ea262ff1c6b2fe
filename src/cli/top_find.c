/*
 * top_find.c - which processes show counters?
 *
 * The file of a process that was killed stays. It is removed here, when the process that it names is
 * not there or is a later one that got the same number. A file from another pid namespace (a
 * container that shares the directory) names a process that cannot be seen from here: it is passed over.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/top.h"

/* "123.stat" -> 123; 0: another name. */
static uint64_t pid_of_name(const char *name) {
    char *end;
    if (name[0] < '1' || name[0] > '9') {
        return 0;
    }
    errno = 0;
    const unsigned long long n = strtoull(name, &end, 10);
    return errno == 0 && n <= INT32_MAX && strcmp(end, ".stat") == 0 ? n : 0;
}

static uint64_t memory_of(uint64_t pid) {
    char path[64];
    unsigned long long size = 0, resident = 0;
    snprintf(path, sizeof path, "/proc/%llu/statm", (unsigned long long)pid);
    FILE *f = fopen(path, "re");
    if (f) {
        if (fscanf(f, "%llu %llu", &size, &resident) != 2) {
            resident = 0;
        }
        fclose(f);
    }
    return resident * (uint64_t)sysconf(_SC_PAGESIZE); /* the kernel's unit there */
}

static void complain(struct top_list *l, const char *dir, const char *name, const char *why) {
    l->damaged++;
    snprintf(l->complaint, sizeof l->complaint, "%.200s/%.40s: %.200s", dir, name, why);
}

/* One file. False: no memory. */
static bool look(struct top_list *l, int dir, const char *dir_name, const char *name, uint64_t pid) {
    struct top_process p;
    struct sluice_error err;
    const int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC); /* not a pipe to hang on */
    if (fd < 0) {
        if (errno != ENOENT) { /* it may have ended just now */
            complain(l, dir_name, name, strerror(errno));
        }
        return true;
    }
    int rc = stat_read(fd, &p.d, &err);
    close(fd);
    const uint64_t started = stat_start_ticks((pid_t)pid);
    if (rc == SLUICE_OK && p.d.pid_namespace != stat_pid_namespace()) {
        return true;
    }
    if (started == 0 || (rc == SLUICE_OK && p.d.start_ticks != started)) {
        unlinkat(dir, name, 0); /* of a dead process; that it cannot be removed changes nothing */
        return true;
    }
    if (rc == SLUICE_OK && p.d.pid != pid) {
        rc = SLUICE_ERR_FORMAT;
        snprintf(err.message, sizeof err.message, "names another process inside");
    }
    if (rc) {
        complain(l, dir_name, name, err.message);
        return true;
    }
    struct top_process *more = reallocarray(l->p, l->n + 1, sizeof *more);
    if (!more) {
        return false;
    }
    l->p = more;
    p.memory = memory_of(pid);
    l->p[l->n++] = p;
    return true;
}

static int by_pid(const void *a, const void *b) {
    const struct top_process *p = a, *q = b;
    return p->d.pid < q->d.pid ? -1 : p->d.pid > q->d.pid;
}

bool top_find(struct top_list *l, uint64_t pid) {
    char path[STAT_PATH_MAX];
    bool ok = true;
    memset(l, 0, sizeof *l);
    for (int i = 0; i < STAT_DIRS && ok; i++) {
        const int fd = stat_dir(i, path) ? stat_open_dir(path, NULL) : -1;
        DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
        if (!d) {
            if (fd >= 0) {
                close(fd);
            }
            continue; /* nothing has streamed there, or it is not ours to look into */
        }
        for (struct dirent *e; ok && (e = readdir(d)) != NULL;) {
            const uint64_t of = pid_of_name(e->d_name);
            if (of && (pid == 0 || of == pid) && l->n < TOP_PROCESSES) {
                ok = look(l, fd, path, e->d_name, of);
            }
        }
        closedir(d);
    }
    if (l->n) {
        qsort(l->p, l->n, sizeof *l->p, by_pid);
    }
    return ok;
}

void top_free(struct top_list *l) {
    free(l->p);
    memset(l, 0, sizeof *l);
}
