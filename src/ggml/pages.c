/*
 * pages.c - the page cache of a mapped model.
 *
 * With dense weights in the page cache (`--dense mmap`, or when dense.c cannot move them) they are
 * read through llama.cpp's mapping; the experts lie between them, layer by layer. Left alone, the first token faults
 * the dense weights in one by one, each fault reads around itself, and most of what is read around is experts: four
 * bytes of page cache for each byte of dense weights (measured: 2.2 GiB for 0.5 GiB after 12 s of
 * an 18.5 GB model), at 50 MB/s of useful reading. So
 *
 *   - the dense ranges are asked for at once (MADV_WILLNEED), exactly, while the context is made;
 *     what is there is not faulted in, so nothing is read around it. Reading around stays on: should
 *     memory run so short that dense pages are taken away, they come back in larger pieces than one
 *     page a fault;
 *   - what was read of the experts (all of it, where a program maps the model populated) is given
 *     back, unless they are to be read buffered, from that very cache.
 */
#include "ggml/pages.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "cache/page.h"

static int pages_order(const void *a, const void *b) {
    const struct pages_range *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

/* The kernel cuts one request to its read-ahead window: ask in pieces that fit any. */
enum { PAGES_PIECE = 128 << 10 };

/* Ask for all pages that [from, to) touches. */
static void pages_want(const char *from, const char *to) {
    uintptr_t at = stream_page_down((uintptr_t)from);
    while (at < (uintptr_t)to) {
        const uintptr_t left = (uintptr_t)to - at;
        madvise((void *)at, left < PAGES_PIECE ? left : PAGES_PIECE, MADV_WILLNEED);
        at += PAGES_PIECE;
    }
}

void pages_advise(int fd, char *start, uint64_t size, struct pages_range *experts, size_t n, bool drop, bool want) {
    char *const end = start + size;
    if (n) { /* of a file whose experts were all refused there are none, and no array */
        qsort(experts, n, sizeof *experts, pages_order);
    }
    for (size_t i = 0; i < n && drop; i++) {
        /* Whole pages only: the first and the last one are shared with neighbours, which may be dense. */
        const uintptr_t from = stream_page_up((uintptr_t)experts[i].start);
        const uintptr_t to = stream_page_down((uintptr_t)experts[i].start + experts[i].len);
        /* Unmap first: the kernel keeps pages that somebody has mapped. */
        if (to > from && madvise((void *)from, to - from, MADV_DONTNEED) == 0) {
            posix_fadvise(fd, (off_t)(from - (uintptr_t)start), (off_t)(to - from), POSIX_FADV_DONTNEED);
        }
    }
    const char *at = start;
    for (size_t i = 0; i < n && want; i++) {
        pages_want(at, experts[i].start);
        at = experts[i].start + experts[i].len;
    }
    if (want) {
        pages_want(at, end);
    }
}
