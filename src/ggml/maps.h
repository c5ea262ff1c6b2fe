/* maps.h - from an address to the file that is mapped there. */
#ifndef SLUICE_GGML_MAPS_H
#define SLUICE_GGML_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ggml/pages.h"
#include "sluice.h"

/* Which file, as /proc/self/maps names it (which stat need not agree with on every file system). */
struct maps_id {
    uint64_t inode;  /* never 0 */
    char device[16]; /* as text */
};

struct maps_file {
    int fd;          /* opened for reading; the caller closes it */
    uint64_t offset; /* file offset of the address, bytes */
    uint64_t size;   /* of the file, bytes */
    char path[4096]; /* for messages */
    struct maps_id id;
};

/*
 * Find the file behind memory [addr, addr + size): opened by the path that the kernel names, or, if
 * that is gone or is another file by now, by an open descriptor of this process. Verified by its
 * GGUF magic and by comparing bytes at several places. SLUICE_ERR_IO: not a mapped model file.
 */
int maps_find(const void *addr, size_t size, struct maps_file *out, struct sluice_error *err);

/*
 * The parts of [start, start + size) that are still the mapping of that file, from its first byte on:
 * programs unmap parts of a mapping, and the kernel may have given the addresses to somebody else. In
 * *out, which the caller frees, n ranges in order of address. False: not to be read, or no memory.
 */
bool maps_parts(const struct maps_id *id, char *start, uint64_t size, struct pages_range **out, size_t *n);

#endif
