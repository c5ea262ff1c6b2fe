/*
 * maps.c - which file, and where in it, is behind an address.
 *
 * ggml hands a device the address of the mapped weights and nothing else. The kernel knows the
 * rest: /proc/self/maps gives path and offset. So no GGUF needs parsing, and no table of tensor
 * positions can disagree with what llama.cpp read.
 *
 * A path is only a hint: the file may have been deleted, replaced, or be named differently in this
 * mount namespace. Whatever is opened is compared with the mapping at several places before it is
 * believed; a wrong file would make wrong text.
 */
#include "ggml/maps.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/error.h"
#include "cache/file.h"

/* The line of /proc/self/maps that covers an address. */
struct maps_line {
    uint64_t start, end; /* addresses */
    uint64_t offset;     /* file offset of start */
    struct maps_id id;   /* inode 0: no file */
    char path[4096];     /* "" when there is none */
};

/* Take a line apart. */
static bool maps_parse(char *line, struct maps_line *m) {
    int at = 0;
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %15s %" SCNu64 " %n", &m->start, &m->end, &m->offset,
               m->id.device, &m->id.inode, &at) < 5) {
        return false;
    }
    line[strcspn(line, "\n")] = 0;
    snprintf(m->path, sizeof m->path, "%s", at > 0 ? line + at : "");
    return true;
}

static bool maps_lookup(uintptr_t addr, struct maps_line *m) {
    FILE *f = fopen("/proc/self/maps", "re");
    if (!f) {
        return false;
    }
    char *line = NULL;
    size_t cap = 0;
    bool found = false;
    while (!found && getline(&line, &cap, f) > 0) {
        found = maps_parse(line, m) && addr >= m->start && addr < m->end;
    }
    free(line);
    fclose(f);
    return found;
}

/* Does the file behind fd hold, from offset on, what is mapped at addr? */
static bool maps_verify(int fd, const char *addr, size_t size, uint64_t offset) {
    enum { SAMPLES = 5, BYTES = 64 };
    struct stat st;
    char got[BYTES];
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || (uint64_t)st.st_size < size || offset > (uint64_t)st.st_size - size ||
        stream_file_pread(fd, got, 0, 4) != 4 || memcmp(got, "GGUF", 4) != 0) {
        return false;
    }
    const size_t n = size < BYTES ? size : BYTES;
    for (size_t i = 0; i < SAMPLES; i++) {
        const size_t at = (size - n) / (SAMPLES - 1) * i;
        if (stream_file_pread(fd, got, offset + at, n) != (int64_t)n || memcmp(got, addr + at, n) != 0) {
            return false;
        }
    }
    return true;
}

/* Look for the mapped file among the open descriptors of the process. -1: none. */
static int maps_open_descriptor(const struct maps_line *m, const char *addr, size_t size, uint64_t offset) {
    DIR *d = opendir("/proc/self/fd");
    if (!d) {
        return -1;
    }
    int found = -1;
    struct dirent *ent;
    while (found < 0 && (ent = readdir(d))) {
        struct stat st;
        const int fd = atoi(ent->d_name);
        if (ent->d_name[0] < '0' || ent->d_name[0] > '9' || fd == dirfd(d) || fstat(fd, &st) || !S_ISREG(st.st_mode) ||
            st.st_ino != m->id.inode) {
            continue;
        }
        char self[64];
        snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
        const int own = open(self, O_RDONLY | O_CLOEXEC);
        if (own >= 0 && maps_verify(own, addr, size, offset)) {
            found = own;
        } else if (own >= 0) {
            close(own);
        }
    }
    closedir(d);
    return found;
}

int maps_find(const void *addr, size_t size, struct maps_file *out, struct sluice_error *err) {
    struct maps_line m, end;
    out->fd = -1;
    errno = 0;
    const bool known = size && maps_lookup((uintptr_t)addr, &m);
    if (!known && (errno == EMFILE || errno == ENFILE)) { /* not a matter of the mapping */
        return sluice_fail(err, SLUICE_ERR_IO, "/proc/self/maps: %s", strerror(errno));
    }
    if (!known || m.id.inode == 0) {
        return sluice_fail(err, SLUICE_ERR_IO, "the weights are not in a mapped file");
    }
    out->offset = m.offset + ((uintptr_t)addr - m.start);
    /* One mapping may show as several lines; its end must belong to the same file, in the same order. */
    const uintptr_t last = (uintptr_t)addr + size - 1;
    if (!maps_lookup(last, &end) || end.id.inode != m.id.inode ||
        end.offset + (last - end.start) != out->offset + size - 1) {
        return sluice_fail(err, SLUICE_ERR_IO, "the weights are not in one mapping of %s", m.path);
    }
    snprintf(out->path, sizeof out->path, "%s", m.path);
    out->fd = open(m.path, O_RDONLY | O_CLOEXEC);
    if (out->fd >= 0 && !maps_verify(out->fd, addr, size, out->offset)) {
        close(out->fd);
        out->fd = -1;
    }
    if (out->fd < 0) {
        out->fd = maps_open_descriptor(&m, addr, size, out->offset);
    }
    if (out->fd < 0) {
        return sluice_fail(err, SLUICE_ERR_IO, "%s: cannot be opened again, or is no longer the file that is mapped",
                           m.path);
    }
    struct stat st;
    if (fstat(out->fd, &st)) {
        close(out->fd);
        out->fd = -1;
        return sluice_fail(err, SLUICE_ERR_IO, "%s: %s", m.path, strerror(errno));
    }
    out->size = (uint64_t)st.st_size;
    out->id = m.id;
    return sluice_ok(err);
}

bool maps_parts(const struct maps_id *id, char *start, uint64_t size, struct pages_range **out, size_t *n) {
    struct maps_line m;
    char *line = NULL;
    size_t line_cap = 0, cap = 0;
    *out = NULL;
    *n = 0;
    FILE *f = fopen("/proc/self/maps", "re");
    bool ok = f != NULL;
    const uintptr_t from = (uintptr_t)start, to = from + size;
    while (ok && getline(&line, &line_cap, f) > 0) {
        if (!maps_parse(line, &m) || m.end <= from || m.start >= to || m.id.inode != id->inode ||
            strcmp(m.id.device, id->device) != 0 || m.start < from || m.offset != m.start - from) {
            continue;
        }
        if (*n == cap) {
            cap = cap ? cap * 2 : 16;
            struct pages_range *r = reallocarray(*out, cap, sizeof *r);
            ok = r != NULL;
            *out = ok ? r : *out;
        }
        if (ok) {
            (*out)[(*n)++] = (struct pages_range){.start = (char *)(uintptr_t)m.start, .len = m.end - m.start};
        }
    }
    free(line);
    if (f) {
        fclose(f);
    }
    if (!ok) {
        free(*out);
        *out = NULL;
        *n = 0;
    }
    return ok;
}
