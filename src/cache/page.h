/* page.h - the size of the kernel's pages, and rounding to it. */
#ifndef SLUICE_CACHE_PAGE_H
#define SLUICE_CACHE_PAGE_H

#include <stddef.h>
#include <stdint.h>

/*
 * Bytes of a page: 4 KiB on x86, also 16 or 64 KiB on ARM (Android 15 and later, Asahi, some servers). A power of
 * two. What is given to mmap, mprotect, madvise and munmap is a multiple of it. Nothing else depends on it: direct
 * reads have an alignment of their own (struct stream_file), and slots have any size.
 *
 * The C library is asked each time (it looks into its own memory), so a test that defines sysconf gives any size.
 */
size_t stream_page_size(void);

/* The address or size x, rounded down or up to a multiple of the page size. */
uintptr_t stream_page_down(uintptr_t x);
uintptr_t stream_page_up(uintptr_t x);

#endif
