/* pages.h - which pages of a mapped model file should be in memory. */
#ifndef SLUICE_GGML_PAGES_H
#define SLUICE_GGML_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the mapping. */
struct pages_range {
    char *start; /* address */
    size_t len;  /* bytes */
};

/*
 * Advise the kernel on a model file, open as fd, mapped whole from `start` (parts may be unmapped
 * again): the expert ranges are not read through the mapping. With drop, page cache under them is given
 * back; with want, everything else is read ahead. Sorts `experts`. Never fails: advice that is not
 * taken costs time or memory, not bytes.
 */
void pages_advise(int fd, char *start, uint64_t size, struct pages_range *experts, size_t n, bool drop, bool want);

#endif
