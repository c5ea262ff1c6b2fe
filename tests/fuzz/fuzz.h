/* fuzz.h - what the fuzz targets share: scratch files, and a way to say that something must hold. */
#ifndef SLUICE_TESTS_FUZZ_H
#define SLUICE_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* What libFuzzer calls: once with the command line, then once per input. The second returns 0. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What must hold whatever the input is. A failure ends the program, which libFuzzer counts as a crash. */
#define FUZZ_CHECK(x) ((x) ? (void)0 : fuzz_broken(#x, __FILE__, __LINE__))
_Noreturn void fuzz_broken(const char *what, const char *file, int line);

/*
 * The path of a scratch file of that name: in $SLUICE_FUZZ_DIR (which run.sh makes in memory and removes), else in a
 * directory of this process that is removed at its end. The text is valid until the next call of the fourth.
 */
const char *fuzz_path(const char *name);

/* Write a scratch file, of mode 0600, in place of what it held. Returns its path, as fuzz_path. */
const char *fuzz_write(const char *name, const void *data, size_t size);

/* A number that depends on every byte: for choices that are not worth a byte of input. */
uint64_t fuzz_hash(const uint8_t *data, size_t size);

/*
 * The next piece of an input that `mark` (a text) cuts into pieces: *piece of *n bytes, perhaps none. *at is where to
 * go on, 0 at first. 0: there is none left.
 */
int fuzz_piece(const uint8_t *data, size_t size, const char *mark, size_t *at, const uint8_t **piece, size_t *n);

/* Standard output and standard error's printf go nowhere; libFuzzer's own reports still come out. */
void fuzz_quiet(void);

#endif
