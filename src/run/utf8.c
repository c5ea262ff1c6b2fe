/*
 * utf8.c - see utf8.h.
 *
 * A token of a byte-level vocabulary may end in the middle of a character. A terminal that gets the
 * first half shows a replacement mark and is then out of step, so the tail is held back until the
 * next token completes it. What a model generates need not be valid at all; plain output passes
 * such bytes on as they are, JSON cannot and gets the clean copy.
 */
#include "run/utf8.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the sequence that starts with this byte; 0 when none does. */
static size_t sequence_length(unsigned char lead) {
    return lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
}

/* May `second` follow `lead`? Excludes overlong forms, surrogates and code points above U+10FFFF. */
static int second_fits(unsigned char lead, unsigned char second) {
    unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    return second >= low && second <= high;
}

/* How many of the n >= 1 bytes at s are a valid start of one sequence (its full length: complete). */
static size_t valid_part(const unsigned char *s, size_t n) {
    size_t len = sequence_length(s[0]), i = 1;
    if (len == 0) {
        return 0;
    }
    while (i < len && i < n && (i == 1 ? second_fits(s[0], s[1]) : (s[i] & 0xC0) == 0x80)) {
        i++;
    }
    return i;
}

size_t sluice_utf8_ready(const char *text, size_t n) {
    const unsigned char *s = (const unsigned char *)text;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        const unsigned char *lead = s + n - back;
        if ((*lead & 0xC0) == 0x80) {
            continue; /* a continuation byte: its lead is further left */
        }
        return sequence_length(*lead) > back && valid_part(lead, back) == back ? n - back : n;
    }
    return n;
}

char *sluice_utf8_clean(const char *text, size_t n, size_t *out_len) {
    const unsigned char *s = (const unsigned char *)text;
    char *out = n <= (SIZE_MAX - 1) / 3 ? malloc(3 * n + 1) : NULL;
    size_t o = 0;
    if (!out) {
        return NULL;
    }
    for (size_t i = 0; i < n;) {
        size_t len = sequence_length(s[i]);
        if (len && len <= n - i && valid_part(s + i, n - i) == len) {
            memcpy(out + o, s + i, len);
            o += len;
            i += len;
        } else {
            memcpy(out + o, "\xEF\xBF\xBD", 3);
            o += 3;
            i++;
        }
    }
    out[o] = '\0';
    *out_len = o;
    return out;
}
