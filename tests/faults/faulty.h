/* faulty.h - shared by the two ways in which faulty.c and faulty_uring.c stand between a program and its disk. */
#ifndef SLUICE_TESTS_FAULTY_H
#define SLUICE_TESTS_FAULTY_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Is it a model file? Its path comes back, and whether the descriptor is a direct one. */
bool faulty_is_model(int fd, char path[PATH_MAX], bool *direct);

/* Count a read of a model that is about to happen. True: spoil it; a file that is to be cut is cut now. */
bool faulty_choose(bool direct, const char *path);

/* Spoil a read that happened: n bytes of buf, or -errno. Returns what it shall have returned. */
int64_t faulty_spoil(void *buf, int64_t n, off_t offset, bool direct);

/* Shall the ring fail from now on? */
bool faulty_ring_broken(void);

/* May no io_uring be made? */
bool faulty_ring_forbidden(void);

#endif
