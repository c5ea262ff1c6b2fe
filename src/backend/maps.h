/* maps.h - from an address to the file that is mapped there. */
#ifndef SLUICE_BACKEND_MAPS_H
#define SLUICE_BACKEND_MAPS_H

#include <stddef.h>
#include <stdint.h>

#include "sluice.h"

struct maps_file {
    int fd;          /* opened for reading; the caller closes it */
    uint64_t offset; /* file offset of the address, bytes */
    uint64_t size;   /* of the file, bytes */
    char path[4096]; /* for messages */
};

/*
 * Find the file behind memory [addr, addr + size): opened by the path that the kernel names, or, if
 * that is gone or is another file by now, by an open descriptor of this process. Verified by its
 * GGUF magic and by comparing bytes at several places. SLUICE_ERR_IO: not a mapped model file.
 */
int maps_find(const void *addr, size_t size, struct maps_file *out, struct sluice_error *err);

#endif
