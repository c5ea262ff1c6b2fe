/*
 * stat_file.c - showing counters to `sluice top`: the writer's end.
 *
 * A shared mapping and a sequence lock: the writer makes the sequence odd, stores the words, makes it
 * even. It never waits and makes no system call, so showing costs a token less than a microsecond per
 * kilobyte, whether anyone looks or not. Readers that meet an odd or changed sequence try again. Every word
 * is atomic, stored with release and loaded with acquire order: a reader that saw one new word also
 * sees that the sequence is odd. (Fences would do the same for less on some processors, but
 * ThreadSanitizer does not understand them, and on x86 it is plain moves either way.)
 *
 * The directory is the user's own and closed to others, and is checked, not trusted: in /tmp anybody
 * may have made one of that name first, or a symbolic link. Then nothing is shown. The file's blocks are
 * allocated at once: storing into a mapped hole of a full file system would kill the host program.
 *
 * A file outlives a process that was killed. Its name is a pid and its content says when that process
 * started, so that it is known to be stale and is removed by the next process that makes one (stat_sweep.c).
 */
#include "observe/stat_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/error.h"

_Static_assert(sizeof(struct stat_data) % 8 == 0, "words");
_Static_assert(sizeof(struct stat_layout) == 32 + sizeof(struct stat_data), "the same layout everywhere");

struct stat_file {
    struct stat_layout *map; /* shared */
    int dir;                 /* the directory, for removal */
    char name[32];           /* PID.stat */
    pid_t pid;               /* who made it: a forked child must leave it alone */
    uint64_t start_ticks;    /* of that process */
    uint64_t namespace;      /* of that process */
};

bool stat_dir(int i, char buf[STAT_PATH_MAX]) {
    const char *only = getenv("SLUICE_PUBLISH_DIR");
    if (only && only[0]) {
        const int n = i == 0 && only[0] == '/' ? snprintf(buf, STAT_PATH_MAX, "%s", only) : 0;
        return n > 0 && n < STAT_PATH_MAX;
    }
    const char *base = i == 0 ? getenv("XDG_RUNTIME_DIR") : "/tmp";
    if (!base || base[0] != '/') {
        return false; /* the specification wants relative ones ignored */
    }
    const int n = snprintf(buf, STAT_PATH_MAX, "%s/sluice-%u", base, (unsigned)geteuid());
    return n > 0 && n < STAT_PATH_MAX;
}

int stat_open_dir(const char *path, struct sluice_error *err) {
    struct stat st;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        sluice_fail(err, SLUICE_ERR_IO, "%s: %s", path, strerror(errno));
        return -1;
    }
    if (fstat(fd, &st) || st.st_uid != geteuid() || (st.st_mode & 077)) {
        close(fd);
        sluice_fail(err, SLUICE_ERR_STATE, "%s: not this user's alone (owner and mode 0700 are wanted)", path);
        return -1;
    }
    return fd;
}

uint64_t stat_start_ticks(pid_t pid) {
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, line, sizeof line - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    if (n <= 0) {
        return 0;
    }
    line[n] = '\0';
    /* Field 22; the second one, a program's name in parentheses, may hold blanks and parentheses. */
    char *p = strrchr(line, ')');
    if (p && p[1] == ' ' && (p[2] == 'Z' || p[2] == 'X')) {
        return 0; /* dead, only its parent has not asked yet */
    }
    for (int field = 2; p && field < 22; field++) {
        p = strchr(p + 1, ' ');
    }
    return p ? strtoull(p + 1, NULL, 10) : 0;
}

uint64_t stat_pid_namespace(void) {
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

/* The first directory whose parent is there, made if it is not. -1 with *err set. */
static int stat_make_dir(struct sluice_error *err) {
    char path[STAT_PATH_MAX];
    int fd = -1;
    sluice_fail(err, SLUICE_ERR_IO, "no directory for counters");
    for (int i = 0; i < STAT_DIRS && fd < 0; i++) {
        if (stat_dir(i, path) && (mkdir(path, 0700) == 0 || errno == EEXIST)) {
            fd = stat_open_dir(path, err);
        }
    }
    return fd;
}

/* Make the file and map it. The name may be left from a dead process that had this pid. */
static int stat_map(struct stat_file *f, struct sluice_error *err) {
    int fd = -1;
    for (int i = 0; i < 2 && fd < 0; i++) {
        fd = openat(f->dir, f->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0 && (errno != EEXIST || unlinkat(f->dir, f->name, 0))) {
            break;
        }
    }
    if (fd < 0) {
        return sluice_fail(err, SLUICE_ERR_IO, "%s: %s", f->name, strerror(errno));
    }
    const int rc = posix_fallocate(fd, 0, sizeof *f->map);
    void *p = rc ? MAP_FAILED : mmap(NULL, sizeof *f->map, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    const int why = rc ? rc : errno;
    close(fd);
    if (p == MAP_FAILED) {
        unlinkat(f->dir, f->name, 0);
        return sluice_fail(err, SLUICE_ERR_IO, "%s: %s", f->name, strerror(why));
    }
    f->map = p;
    f->map->magic = STAT_MAGIC;
    f->map->version = STAT_VERSION;
    f->map->size = sizeof *f->map;
    return SLUICE_OK;
}

int stat_create(struct stat_file **out, struct sluice_error *err) {
    *out = NULL;
    struct stat_file *f = calloc(1, sizeof *f);
    if (!f) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "out of memory");
    }
    f->pid = getpid();
    f->start_ticks = stat_start_ticks(f->pid);
    f->namespace = stat_pid_namespace();
    f->dir = stat_make_dir(err);
    snprintf(f->name, sizeof f->name, "%ld.stat", (long)f->pid);
    if (f->dir >= 0) {
        stat_sweep(f->dir);
    }
    int rc = f->dir < 0 ? SLUICE_ERR_IO : stat_map(f, err);
    if (rc) {
        if (f->dir >= 0) {
            close(f->dir);
        }
        free(f);
        return rc;
    }
    const struct stat_data nothing = {0};
    stat_write(f, &nothing);
    *out = f;
    return sluice_ok(err);
}

void stat_write(struct stat_file *f, const struct stat_data *d) {
    struct stat_layout *m = f->map;
    /* Layers that are not there are not copied: they are most of the size. */
    const size_t head = offsetof(struct stat_data, layer) / 8, n = head + (size_t)d->n_layers;
    const uint64_t seq = atomic_load_explicit(&m->seq, memory_order_relaxed);
    const uint64_t own[] = {(uint64_t)f->pid, f->namespace, f->start_ticks}; /* the first three fields */
    atomic_store_explicit(&m->seq, seq + 1, memory_order_relaxed);
    for (size_t i = 0; i < n && i < STAT_WORDS; i++) {
        uint64_t w;
        memcpy(&w, i < 3 ? (const char *)&own[i] : (const char *)d + i * 8, sizeof w);
        atomic_store_explicit(&m->word[i], w, memory_order_release);
    }
    atomic_store_explicit(&m->seq, seq + 2, memory_order_release);
}

void stat_remove(struct stat_file *f) {
    if (!f) {
        return;
    }
    if (f->pid == getpid()) {
        unlinkat(f->dir, f->name, 0);
    }
    munmap(f->map, sizeof *f->map);
    close(f->dir);
    free(f);
}
