/* unit.h - what the unit tests share: cmocka, files with known content, a reproducible random sequence. */
#ifndef SLUICE_TESTS_UNIT_H
#define SLUICE_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The byte at an offset of every file that unit_file makes. */
uint8_t unit_byte(uint64_t offset);

/*
 * Create a file of `size` known bytes in the working directory; path receives its name (at least 64
 * bytes). Returns a descriptor open for reading and writing. The test unlinks and closes.
 */
int unit_file(char *path, uint64_t size);

/* Do the n bytes at p equal the file's from offset on? */
bool unit_same(const void *p, uint64_t offset, uint64_t n);

/* The next number of a sequence; the same on every machine. *seed may start at anything. */
uint32_t unit_random(uint64_t *seed);

/* Does a limit on a process's memory (RLIMIT_DATA) hold? Not under qemu's emulation of programs. When not, says so,
 * once. */
bool unit_limit_holds(void);

/*
 * A made-up file system root, for what reads /proc and /sys: setup and teardown functions for cmocka, its
 * directory, and a way to write a file under it, with the directories that it needs.
 */
int unit_root_begin(void **state);
int unit_root_end(void **state);
extern char unit_root[64];
void unit_root_put(const char *path, const char *text);

/* Run `check` in a locale whose decimal sign is a comma and whose I is not i; the test is skipped without one. */
void unit_in_turkish(void (*check)(void));

#endif
