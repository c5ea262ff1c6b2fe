/*
 * dense.c - dense weights out of the page cache, at the same address.
 *
 * llama.cpp computes dense weights (all that are not experts) in its mapping of the model, so they
 * live in the page cache: memory that any other program can push out, that is charged to whoever
 * touched it first, and that comes back page by page. Here they are read once, directly, into
 * anonymous memory, and that memory is moved over the pages of the mapping. Pointers into the
 * mapping stay right; llama.cpp's own munmap at the end takes it away with the rest.
 *
 * Atomic for readers. Another context of the model may be computing meanwhile. So the memory is
 * filled elsewhere, and mremap puts it in place while it holds the lock that faults need: a thread
 * reads the file's page or ours, the same bytes. (MAP_FIXED and reading in place would show zeros.)
 *
 * Which weights: those that graphs name (match.c notes them), not "all but the experts". Programs
 * that repack dense weights into buffers of their own never read the originals again; holding those
 * would double them.
 *
 * Experts are fenced: nobody may read them through the mapping, where each touch would quietly bring
 * them into the page cache. A stray touch ends in SIGSEGV, at its cause. A graph that wants to read
 * experts in place (a view of an expert tensor) announces itself while it is planned; then the file
 * is mapped there again (dense_unfence).
 *
 * Everything is in whole pages, rounded outwards for what is held and inwards for what is fenced: a
 * page that dense weights and an expert share is held, expert's bytes included.
 */
#include "ggml/dense.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "ggml/maps.h"
#include "cache/error.h"
#include "cache/page.h"

enum {
    DENSE_PIECE = 4 << 20,  /* bytes of one read: large enough for a disk's bandwidth, many enough to share */
    DENSE_HUGE = 2 << 20,   /* bytes of a huge page */
    DENSE_THREADS_MAX = 64, /* readers */
    DENSE_SAME_TENSOR = 8,  /* bytes: GGUF aligns tensors to a multiple of it, so a smaller gap holds none */
};

/* ---- lists ----------------------------------------------------------------------------------- */

/* The first range that starts after `at`. */
static size_t list_after(const struct dense_list *l, const char *at) {
    size_t low = 0, high = l->n;
    while (low < high) {
        const size_t mid = (low + high) / 2;
        if (l->range[mid].start <= at) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

static bool list_insert(struct dense_list *l, size_t index, char *start, size_t len) {
    if (l->n == l->cap) {
        const size_t cap = l->cap ? l->cap * 2 : 256;
        struct pages_range *r = reallocarray(l->range, cap, sizeof *r);
        if (!r) {
            return false;
        }
        l->range = r;
        l->cap = cap;
    }
    memmove(l->range + index + 1, l->range + index, (l->n - index) * sizeof *l->range);
    l->range[index] = (struct pages_range){.start = start, .len = len};
    l->n++;
    return true;
}

static void list_remove(struct dense_list *l, size_t index) {
    memmove(l->range + index, l->range + index + 1, (l->n - index - 1) * sizeof *l->range);
    l->n--;
}

static void list_free(struct dense_list *l) {
    free(l->range);
    *l = (struct dense_list){0};
}

bool dense_note(struct dense *d, char *at, size_t len) {
    const size_t i = list_after(&d->noted, at);
    const struct pages_range *before = i ? &d->noted.range[i - 1] : NULL;
    if (len == 0 || (before && before->start + before->len >= at + len)) {
        return true;
    }
    if (!list_insert(&d->noted, i, at, len)) {
        return false;
    }
    d->noted_bytes += len;
    return true;
}

void dense_free(struct dense *d) {
    list_free(&d->noted);
    list_free(&d->held);
    list_free(&d->plain);
    list_free(&d->fenced);
}

static bool list_meets(const struct dense_list *l, const char *from, const char *to) {
    const size_t i = list_after(l, from);
    return (i && l->range[i - 1].start + l->range[i - 1].len > from) || (i < l->n && l->range[i].start < to);
}

bool dense_is_fenced(const struct dense *d, const char *at, size_t len) {
    return list_meets(&d->fenced, at, at + len);
}

/* ---- holding --------------------------------------------------------------------------------- */

/* Pages of the mapping that are to be replaced in one piece. */
struct dense_run {
    char *at;      /* first page */
    size_t len;    /* bytes, whole pages */
    char *stage;   /* memory for file bytes from `from` on; NULL: none yet */
    size_t size;   /* its length, bytes */
    uint64_t from; /* file offset of stage: at's, rounded down to what direct reads need */
    size_t need;   /* bytes of it that the file has */
};

struct dense_runs {
    struct dense_run *run; /* by index */
    size_t n, cap;         /* how many, and room */
};

/* One read. */
struct dense_piece {
    const struct dense_run *run; /* whose */
    size_t skip;                 /* bytes from the run's stage */
};

struct dense_fill {
    const struct stream_file *file; /* to read from */
    struct dense_piece *piece;      /* all reads */
    size_t n;                       /* how many */
    _Atomic size_t next;            /* the next that nobody took */
    _Atomic int error;              /* errno of one that failed; 0: none did */
};

/* The pages that noted weights touch, as far as they still are the file's. */
static int dense_plan(const struct dense *d, const struct dense_map *m, struct dense_runs *runs,
                      struct sluice_error *err) {
    struct pages_range *part = NULL;
    size_t n_parts = 0, k = 0;
    if (!maps_parts(&m->id, m->start, m->file->size, &part, &n_parts)) {
        return sluice_fail(err, SLUICE_ERR_IO, "the mapping of %s is not to be found", m->file->path);
    }
    int rc = SLUICE_OK;
    for (size_t i = 0; i < d->noted.n && rc == SLUICE_OK;) {
        uintptr_t from = stream_page_down((uintptr_t)d->noted.range[i].start), to = from;
        for (; i < d->noted.n && stream_page_down((uintptr_t)d->noted.range[i].start) <= to; i++) {
            const uintptr_t end = stream_page_up((uintptr_t)d->noted.range[i].start + d->noted.range[i].len);
            to = end > to ? end : to;
        }
        for (; k < n_parts && (uintptr_t)part[k].start + part[k].len <= from; k++) {
        }
        for (size_t p = k; p < n_parts && (uintptr_t)part[p].start < to; p++) {
            const uintptr_t start = (uintptr_t)part[p].start, end = start + part[p].len;
            const uintptr_t a = from > start ? from : start, b = to < end ? to : end;
            if (runs->n == runs->cap) {
                const size_t cap = runs->cap ? runs->cap * 2 : 128;
                struct dense_run *r = reallocarray(runs->run, cap, sizeof *r);
                if (!r) {
                    rc = sluice_fail(err, SLUICE_ERR_MEMORY, "out of memory");
                    break;
                }
                runs->run = r;
                runs->cap = cap;
            }
            runs->run[runs->n++] = (struct dense_run){.at = (char *)a, .len = b - a};
        }
    }
    free(part);
    return rc;
}

/*
 * Memory for a run. Direct reads want it aligned like the file. Huge pages survive the move only if
 * both places are equally far from a huge page's boundary; both wishes agree unless the file wants
 * more than a page.
 */
static bool dense_stage(struct dense_run *r, const struct dense_map *m) {
    const uint64_t align = m->file->align, offset = (uint64_t)(r->at - m->start);
    const uintptr_t page = stream_page_size();
    r->from = offset / align * align;
    const uint64_t end = (offset + r->len + align - 1) / align * align;
    r->size = (size_t)(end - r->from);
    r->need = (size_t)((end < m->file->size ? end : m->file->size) - r->from);
    const size_t slack = align > DENSE_HUGE ? align : DENSE_HUGE;
    char *memory = mmap(NULL, r->size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return false;
    }
    const uintptr_t unit = align <= page ? DENSE_HUGE : align;
    const uintptr_t want = align <= page ? (uintptr_t)r->at % DENSE_HUGE : 0;
    const uintptr_t lead = (want + unit - (uintptr_t)memory % unit) % unit;
    r->stage = memory + lead;
    if (lead) {
        munmap(memory, lead);
    }
    if (slack > lead) {
        munmap(r->stage + r->size, slack - lead);
    }
    madvise(r->stage, r->size, MADV_HUGEPAGE); /* a wish */
    return true;
}

static void *dense_reader(void *arg) {
    struct dense_fill *f = arg;
    for (;;) {
        const size_t i = atomic_fetch_add(&f->next, 1);
        if (i >= f->n || atomic_load(&f->error)) {
            return NULL;
        }
        const struct dense_run *r = f->piece[i].run;
        const size_t skip = f->piece[i].skip, left = r->size - skip;
        const size_t len = left < DENSE_PIECE ? left : DENSE_PIECE, rest = r->need - skip;
        const uint64_t offset = r->from + skip;
        if (stream_file_read(f->file, r->stage + skip, offset, len, rest < len ? rest : len) < 0) {
            atomic_store(&f->error, errno ? errno : EIO);
        }
        if (f->file->fd_direct < 0) { /* what went through the page cache must not stay there twice */
            posix_fadvise(f->file->fd, (off_t)offset, (off_t)len, POSIX_FADV_DONTNEED);
        }
    }
}

/* Read all runs. */
static int dense_read(const struct dense_runs *runs, const struct dense_map *m, struct sluice_error *err) {
    struct dense_fill fill = {.file = m->file};
    pthread_t thread[DENSE_THREADS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < runs->n; i++) {
        n += (runs->run[i].need + DENSE_PIECE - 1) / DENSE_PIECE;
    }
    fill.piece = calloc(n ? n : 1, sizeof *fill.piece);
    if (!fill.piece) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "out of memory");
    }
    for (size_t i = 0; i < runs->n; i++) {
        for (size_t skip = 0; skip < runs->run[i].need; skip += DENSE_PIECE) {
            fill.piece[fill.n++] = (struct dense_piece){.run = &runs->run[i], .skip = skip};
        }
    }
    int started = 0;
    while (started + 1 < m->threads && started < DENSE_THREADS_MAX &&
           pthread_create(&thread[started], NULL, dense_reader, &fill) == 0) {
        started++; /* with fewer, or none, it only takes longer */
    }
    dense_reader(&fill);
    for (int i = 0; i < started; i++) {
        pthread_join(thread[i], NULL);
    }
    free(fill.piece);
    const int e = atomic_load(&fill.error);
    return e == 0 ? sluice_ok(err)
                  : sluice_fail(err, SLUICE_ERR_IO, "%s: reading the dense weights failed: %s", m->file->path,
                                e == ENODATA ? "the file ended early" : strerror(e));
}

/* Put the file back over pages, after a move or a fence that went wrong or is not wanted any more. */
static int dense_remap(const struct dense_map *m, char *at, size_t len, struct sluice_error *err) {
    if (mmap(at, len, PROT_READ, MAP_SHARED | MAP_FIXED, m->file->fd, (off_t)(at - m->start)) == MAP_FAILED) {
        return sluice_fail(err, SLUICE_ERR_STATE, "%s: a part of the mapping was lost: %s", m->file->path,
                           strerror(errno));
    }
    return SLUICE_OK;
}

/* Put a run in place. */
static int dense_move(struct dense *d, const struct dense_map *m, struct dense_run *r, struct sluice_error *err) {
    const size_t lead = (size_t)((uint64_t)(r->at - m->start) - r->from);
    char *from = r->stage + lead;
    /* Room in the list first: what was moved must be known. */
    if (!list_insert(&d->held, list_after(&d->held, r->at), r->at, r->len)) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "out of memory");
    }
    if (mprotect(from, r->len, PROT_READ) == 0 &&
        mremap(from, r->len, r->len, MREMAP_MAYMOVE | MREMAP_FIXED, r->at) != MAP_FAILED) {
        d->held_bytes += r->len;
        /* What direct reads needed around it. The rest is gone, and may be somebody else's by now. */
        if (lead) {
            munmap(r->stage, lead);
        }
        if (lead + r->len < r->size) {
            munmap(from + r->len, r->size - lead - r->len);
        }
        r->stage = NULL;
        return SLUICE_OK;
    }
    const int e = errno;
    list_remove(&d->held, list_after(&d->held, r->at) - 1);
    /* The kernel may have unmapped the target before it failed. Where the file cannot be put back, zeros are: the model
     * is lost, and its next block says so; but until then attention may read here, and must not end in SIGSEGV. */
    const int rc = dense_remap(m, r->at, r->len, err);
    if (rc) {
        mmap(r->at, r->len, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    return rc ? rc : sluice_fail(err, SLUICE_ERR_MEMORY, "cannot move memory into the mapping: %s", strerror(e));
}

/* Give back the page cache of the file: of all of it, or, when experts are read through it, of what is held. */
static void dense_drop_cache(const struct dense *d, const struct dense_map *m) {
    if (m->file->fd_direct >= 0) {
        posix_fadvise(m->file->fd, 0, 0, POSIX_FADV_DONTNEED);
        return;
    }
    for (size_t i = 0; i < d->held.n; i++) {
        posix_fadvise(m->file->fd, (off_t)(d->held.range[i].start - m->start), (off_t)d->held.range[i].len,
                      POSIX_FADV_DONTNEED);
    }
}

int dense_hold(struct dense *d, const struct dense_map *m, struct sluice_error *err) {
    struct dense_runs runs = {0};
    int rc = dense_plan(d, m, &runs, err);
    for (size_t i = 0; i < runs.n && rc == SLUICE_OK; i++) {
        if (!dense_stage(&runs.run[i], m)) {
            rc = sluice_fail(err, SLUICE_ERR_MEMORY, "no memory for the dense weights: %s", strerror(errno));
        }
    }
    rc = rc ? rc : dense_read(&runs, m, err);
    for (size_t i = 0; i < runs.n && rc == SLUICE_OK; i++) {
        rc = dense_move(d, m, &runs.run[i], err);
    }
    for (size_t i = 0; i < runs.n; i++) {
        if (runs.run[i].stage) {
            munmap(runs.run[i].stage, runs.run[i].size);
        }
    }
    free(runs.run);
    dense_drop_cache(d, m);
    return rc;
}

/* ---- fencing and locking --------------------------------------------------------------------- */

/* Fence [from, to), whole pages, where it is still the file's. */
static void dense_fence_pages(struct dense *d, const struct pages_range *part, size_t n, uintptr_t from, uintptr_t to) {
    for (size_t p = 0; p < n; p++) {
        const uintptr_t start = (uintptr_t)part[p].start, end = start + part[p].len;
        const uintptr_t a = from > start ? from : start, b = to < end ? to : end;
        const size_t i = list_after(&d->fenced, (char *)a);
        if (a < b && list_insert(&d->fenced, i, (char *)a, b - a) &&
            mmap((void *)a, b - a, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
                MAP_FAILED) {
            list_remove(&d->fenced, i);
        }
    }
}

void dense_fence(struct dense *d, const struct dense_map *m) {
    struct pages_range *part = NULL;
    size_t n_parts = 0;
    if (!maps_parts(&m->id, m->start, m->file->size, &part, &n_parts)) {
        return;
    }
    /* What is left of the mapping is hardly ever used: give its pages back. */
    for (size_t p = 0; p < n_parts && m->file->fd_direct >= 0; p++) {
        madvise(part[p].start, part[p].len, MADV_DONTNEED);
    }
    for (size_t i = 0; i < m->n_experts;) {
        const char *from = m->experts[i].start, *to = from + m->experts[i].len;
        /* Tensors that lie back to back: their common page is experts' alone. */
        for (i++; i < m->n_experts && m->experts[i].start - to < DENSE_SAME_TENSOR; i++) {
            to = m->experts[i].start + m->experts[i].len;
        }
        const uintptr_t a = stream_page_up((uintptr_t)from), b = stream_page_down((uintptr_t)to);
        if (a < b && !list_meets(&d->noted, (const char *)a, (const char *)b) &&
            !list_meets(&d->plain, (const char *)a, (const char *)b)) {
            dense_fence_pages(d, part, n_parts, a, b);
        }
    }
    free(part);
    dense_drop_cache(d, m);
}

int dense_leave(struct dense *d, const struct dense_map *m, char *at, size_t len, struct sluice_error *err) {
    if (!list_meets(&d->plain, at, at + len) && !list_insert(&d->plain, list_after(&d->plain, at), at, len)) {
        return sluice_fail(err, SLUICE_ERR_STATE, "out of memory");
    }
    for (size_t i = 0; i < d->fenced.n;) {
        const struct pages_range r = d->fenced.range[i];
        if (r.start >= at + len || r.start + r.len <= at) {
            i++;
            continue;
        }
        const int rc = dense_remap(m, r.start, r.len, err);
        if (rc) {
            return rc;
        }
        list_remove(&d->fenced, i);
    }
    return sluice_ok(err);
}

int dense_lock(struct dense *d, struct sluice_error *err) {
    for (size_t i = 0; i < d->held.n; i++) {
        if (mlock(d->held.range[i].start, d->held.range[i].len) == 0) {
            continue;
        }
        const int e = errno;
        while (i-- > 0) {
            munlock(d->held.range[i].start, d->held.range[i].len);
        }
        struct rlimit limit;
        char allowed[64] = "unlimited";
        if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
            snprintf(allowed, sizeof allowed, "%.1f MiB", (double)limit.rlim_cur / (1 << 20));
        }
        return sluice_fail(err, SLUICE_ERR_MEMORY,
                           "dense lock: %.1f MiB of weights cannot be locked (%s; RLIMIT_MEMLOCK is %s): raise it "
                           "(ulimit -l), or take dense anon",
                           (double)d->held_bytes / (1 << 20), strerror(e), allowed);
    }
    return sluice_ok(err);
}
