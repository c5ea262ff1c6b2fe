/*
 * top_find.c - which processes show counters?
 *
 * The file of a process that was killed stays; it is removed here. Which is which: observe/stat_sweep.c.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/top.h"

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
    switch (stat_look(dir, name, &p.d, &err)) {
    case STAT_THERE:
        break;
    case STAT_STALE:
        unlinkat(dir, name, 0); /* that it cannot be removed changes nothing */
        return true;
    case STAT_ELSEWHERE:
        return true;
    case STAT_DAMAGED:
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
            const uint64_t of = stat_pid_of_name(e->d_name);
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
