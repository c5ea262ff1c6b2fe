/*
 * unit.c - helpers of the unit tests.
 *
 * File content is a function of the offset, so that a test can check any bytes without keeping a
 * copy, and a read that lands one sector off is seen at once.
 */
#include "unit.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t unit_mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint8_t unit_byte(uint64_t offset) {
    return (uint8_t)(unit_mix(offset / 8) >> (offset % 8 * 8));
}

int unit_file(char *path, uint64_t size) {
    enum { PIECE = 1 << 16 };
    strcpy(path, "unit-XXXXXX");
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    uint8_t *piece = malloc(PIECE);
    assert_non_null(piece);
    for (uint64_t at = 0; at < size; at += PIECE) {
        const uint64_t n = size - at < PIECE ? size - at : PIECE;
        for (uint64_t i = 0; i < n; i++) {
            piece[i] = unit_byte(at + i);
        }
        assert_int_equal(write(fd, piece, n), (ssize_t)n);
    }
    free(piece);
    assert_int_equal(fsync(fd), 0);
    return fd;
}

bool unit_same(const void *p, uint64_t offset, uint64_t n) {
    const uint8_t *bytes = p;
    for (uint64_t i = 0; i < n; i++) {
        if (bytes[i] != unit_byte(offset + i)) {
            return false;
        }
    }
    return true;
}

uint32_t unit_random(uint64_t *seed) {
    return (uint32_t)(unit_mix((*seed)++) >> 32);
}

bool unit_limit_holds(void) {
    struct rlimit before, limit, now;
    assert_int_equal(getrlimit(RLIMIT_DATA, &before), 0);
    limit = before;
    const rlim_t much = (rlim_t)1 << 40; /* more than anything here takes */
    limit.rlim_cur = before.rlim_max < much ? before.rlim_max - 1 : much;
    assert_int_equal(setrlimit(RLIMIT_DATA, &limit), 0);
    assert_int_equal(getrlimit(RLIMIT_DATA, &now), 0);
    assert_int_equal(setrlimit(RLIMIT_DATA, &before), 0);
    if (now.rlim_cur != limit.rlim_cur) {
        static bool said;
        if (!said) {
            printf("note: limits on memory do not hold here; their tests are skipped\n");
            said = true;
        }
        return false;
    }
    return true;
}

char unit_root[64];

int unit_root_begin(void **state) {
    (void)state;
    strcpy(unit_root, "root-XXXXXX");
    return mkdtemp(unit_root) ? 0 : -1;
}

int unit_root_end(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", unit_root);
    return system(command);
}

void unit_root_put(const char *path, const char *text) {
    char full[512];
    snprintf(full, sizeof full, "%s%s", unit_root, path);
    for (char *p = full + strlen(unit_root) + 1; *p; p++) {
        if (*p == '/') {
            *p = 0;
            assert_true(mkdir(full, 0777) == 0 || errno == EEXIST);
            *p = '/';
        }
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

void unit_in_turkish(void (*check)(void)) {
    /* Made here, since few machines have it. */
    if (system("localedef -c -i tr_TR -f ISO-8859-9 ./tr_TR.ISO-8859-9 >/dev/null 2>&1") < 0 ||
        access("tr_TR.ISO-8859-9/LC_CTYPE", R_OK) || setenv("LOCPATH", ".", 1) ||
        !setlocale(LC_ALL, "tr_TR.ISO-8859-9")) {
        unsetenv("LOCPATH");
        skip();
    }
    assert_string_equal(localeconv()->decimal_point, ",");
    check();
    setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
}
