/* pagesize.h - a kernel with larger pages, as far as a process can be made to believe it. See pagesize.c. */
#ifndef SLUICE_TESTS_PAGESIZE_H
#define SLUICE_TESTS_PAGESIZE_H

#include <stddef.h>
#include <stdint.h>

/* From now on pages have so many bytes; 0: the kernel's own, and nothing is judged. */
void pagesize_set(size_t bytes);

/* Calls that were judged since pagesize_set, and those that a kernel with such pages refuses or widens. */
unsigned long pagesize_calls(void);
unsigned long pagesize_wrong(void);

/* When not NULL: told of every madvise that is right. For one thread at a time. */
extern void (*pagesize_advised)(uintptr_t at, size_t len, int advice);

#endif
