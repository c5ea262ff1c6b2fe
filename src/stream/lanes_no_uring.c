/*
 * lanes_no_uring.c - in the place of lanes_uring.c where liburing is not to be had (SLUICE_URING=OFF): Android has no
 * package of it, and kills programs that try the system call. Reader threads are the default everywhere, so only
 * asking for io_uring by name fails.
 */
#include "stream/error.h"
#include "stream/lanes_impl.h"

int lanes_uring_check(struct sluice_error *err) {
    return sluice_fail(err, SLUICE_ERR_ARG, "io=uring: this build has no io_uring (SLUICE_URING=OFF)");
}

struct lanes *lanes_uring_create(uint32_t n, lane_done_fn done, void *ud, struct sluice_error *err) {
    (void)n, (void)done, (void)ud;
    lanes_uring_check(err);
    return NULL;
}
