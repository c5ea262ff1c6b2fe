/*
 * stat_file.c - showing counters to `sluice top`: both ends of a file, and whose it is.
 *
 * Writing: a shared mapping and a sequence lock. The writer makes the sequence odd, stores the words, makes it
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
 * Reading: with pread and not through a mapping. A file that is cut short under a mapping kills who looks at it,
 * and the file belongs to another process. The sequence is read before and after the words, in reads
 * of their own; system calls keep that order. Nothing in the file is believed: it has exactly the size of the layout,
 * the right version, text that ends, numbers within their ranges. What passes can be divided by and printed; what it
 * says may still be wrong, which hurts nobody.
 *
 * Whose: a file outlives a process that was killed. `sluice top` removes those that it meets, but who never looks must
 * not find thousands after a year of crashes either: every process that makes a file removes the stale ones first
 * (62 killed processes had left 37 files in an endurance run before that; tests/endurance/). The name is a pid, and the
 * content says when that process started. Stale is what names a process that is not there, or one that started at
 * another time: a later one with the same number. A file from another pid namespace (a container that shares the
 * directory) names a process that cannot be seen from here; it is left alone. One that cannot be read may be another
 * version's, or one that is being made this moment in such a container: it is only removed when its process is not
 * there and it has been so for a minute.
 */
#include "observe/stat_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cache/error.h"

enum {
    READ_TRIES = 1000, /* of a file that is being written */
    UNREADABLE_S = 60  /* seconds for which a file of nobody must have been there, if it cannot be read */
};

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

/* ---- reading --------------------------------------------------------------------------------- */

static bool read_at(int fd, void *to, size_t n, size_t at) {
    ssize_t got;
    do {
        got = pread(fd, to, n, (off_t)at);
    } while (got < 0 && errno == EINTR);
    return got == (ssize_t)n;
}

static bool ends(const char *text, size_t n) {
    return memchr(text, '\0', n) != NULL;
}

/* Is it within its ranges? */
static bool data_ok(const struct stat_data *d) {
    bool ok = ends(d->version, sizeof d->version) && ends(d->program, sizeof d->program) &&
              ends(d->model, sizeof d->model) && ends(d->mode, sizeof d->mode) && d->pid > 0 && d->pid <= INT32_MAX &&
              d->n_layers <= STAT_LAYERS_MAX && d->stats.resident <= d->stats.slots && d->updated >= 0 &&
              d->updated <= 1e12;
    for (size_t i = 0; ok && i < COUNTERS_PHASES; i++) {
        ok = counters_sane(&d->ended[i]);
    }
    for (size_t i = 0; ok && i < STAT_STEPS; i++) {
        const struct step_sums one = {.sum = d->step[i]};
        ok = (unsigned)one.sum.phase <= SLUICE_PHASE_GENERATION && counters_sane(&one);
    }
    for (size_t i = 0; ok && i < d->n_layers; i++) {
        ok = d->layer[i].resident <= d->layer[i].experts;
    }
    return ok;
}

int stat_read(int fd, struct stat_data *out, struct sluice_error *err) {
    struct stat st;
    uint64_t head[3], before, after;
    if (fstat(fd, &st)) {
        return sluice_fail(err, SLUICE_ERR_IO, "%s", strerror(errno));
    }
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid()) {
        return sluice_fail(err, SLUICE_ERR_FORMAT, "not a file of this user's");
    }
    if (st.st_size != (off_t)sizeof(struct stat_layout) || !read_at(fd, head, sizeof head, 0) ||
        head[0] != STAT_MAGIC || head[2] != sizeof(struct stat_layout)) {
        return sluice_fail(err, SLUICE_ERR_FORMAT, "not counters of a sluice process");
    }
    if (head[1] != STAT_VERSION) {
        return sluice_fail(err, SLUICE_ERR_FORMAT, "counters of another version of sluice");
    }
    for (int i = 0; i < READ_TRIES; i++) {
        if (!read_at(fd, &before, sizeof before, offsetof(struct stat_layout, seq)) ||
            !read_at(fd, out, sizeof *out, offsetof(struct stat_layout, word)) ||
            !read_at(fd, &after, sizeof after, offsetof(struct stat_layout, seq))) {
            return sluice_fail(err, SLUICE_ERR_IO, "cannot be read");
        }
        if (before == after && before % 2 == 0) {
            return data_ok(out) ? sluice_ok(err) : sluice_fail(err, SLUICE_ERR_FORMAT, "damaged counters");
        }
        sched_yield();
    }
    return sluice_fail(err, SLUICE_ERR_STATE, "its writer stopped in the middle of writing");
}

/* ---- whose ----------------------------------------------------------------------------------- */

/* "123.stat" -> 123; 0: another name. */
static uint64_t stat_pid_of_name(const char *name) {
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
    const int rc = stat_read(fd, out, err);
    const bool old = fstat(fd, &st) == 0 && time(NULL) - st.st_mtime >= UNREADABLE_S;
    close(fd);
    const uint64_t started = stat_start_ticks((pid_t)pid);
    if (rc) {
        return started == 0 && old ? STAT_STALE : STAT_DAMAGED;
    }
    if (out->pid_namespace != stat_pid_namespace()) {
        return STAT_ELSEWHERE;
    }
    if (started == 0 || out->start_ticks != started) {
        return STAT_STALE;
    }
    if (out->pid != pid) {
        sluice_fail(err, SLUICE_ERR_FORMAT, "names another process inside");
        return STAT_DAMAGED;
    }
    return STAT_THERE;
}

void stat_sweep(int dir, stat_seen *seen, void *ud) {
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
        struct sluice_error err;
        const uint64_t pid = stat_pid_of_name(e->d_name);
        const enum stat_whose whose = pid ? stat_look(dir, e->d_name, &d, &err) : STAT_ELSEWHERE;
        if (whose == STAT_STALE) {
            unlinkat(dir, e->d_name, 0); /* that it cannot be removed changes nothing */
        } else if (whose != STAT_ELSEWHERE && seen) {
            seen(ud, pid, e->d_name, whose == STAT_THERE ? &d : NULL, &err);
        }
    }
    closedir(list);
}

/* ---- writing --------------------------------------------------------------------------------- */

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
        stat_sweep(f->dir, NULL, NULL);
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
