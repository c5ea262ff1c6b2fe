/*
 * io_no_uring.c - in the place of io_uring.c where liburing is not to be had (SLUICE_URING=OFF): Android has no
 * package of it, and kills programs that try the system call. Reader threads are the default everywhere, so only
 * asking for io_uring by name fails.
 */
#include "cache/error.h"
#include "cache/io_impl.h"

int io_uring_check(struct sluice_error *err) {
    return sluice_fail(err, SLUICE_ERR_ARG, "io=uring: this build has no io_uring (SLUICE_URING=OFF)");
}

struct io *io_uring_create(uint32_t n, io_done_fn done, void *ud, struct sluice_error *err) {
    (void)n, (void)done, (void)ud;
    io_uring_check(err);
    return NULL;
}
