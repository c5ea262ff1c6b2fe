/*
 * utf8.h - the two things that streaming text needs to know about UTF-8.
 */
#ifndef SLUICE_RUN_UTF8_H
#define SLUICE_RUN_UTF8_H

#include <stddef.h>

/*
 * How many of the n bytes may be shown now: all but an incomplete sequence at the end that the next
 * token may still complete. Bytes that can never become valid are not held back.
 */
size_t sluice_utf8_ready(const char *text, size_t n);

/*
 * A copy of text[0..n) in which every byte that is not part of valid UTF-8 is replaced by U+FFFD,
 * NUL-terminated, its length in *out_len. NULL when there is no memory. To be freed.
 */
char *sluice_utf8_clean(const char *text, size_t n, size_t *out_len);

#endif
