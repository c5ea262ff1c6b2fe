/*
 * test_direct.c - file systems whose direct reads cannot be trusted: nothing wrong is ever read, and why is said.
 *
 * pread, fstat, statx and fstatfs are defined here, under the names that a 64-bit off_t gives them, so they win over
 * the C library's. Only direct reads (the descriptor says so) are spoilt, as on the phones where that was seen.
 */
#include "unit.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "cache/file.h"

enum { SIZE = 9000001 };

enum spoil {
    SPOIL_NOTHING,
    SPOIL_BIT,       /* one bit of every read */
    SPOIL_SHIFT,     /* bytes from one block earlier */
    SPOIL_UNTOUCHED, /* the count is right, nothing was written */
    SPOIL_LONG,      /* the end of reads of 64 KiB and more */
    SPOIL_MIDDLE,    /* only in the middle of the file */
    SPOIL_SHORT,     /* half of what was asked for, and no multiple of anything */
    SPOIL_EIO,
    SPOIL_EINVAL,
    SPOIL_FINE_AFTER_EINTR,
    SPOIL_PIECES, /* right, a block at a time */
};

static struct {
    enum spoil spoil;
    long type;        /* what fstatfs says; 0: the truth */
    long block;       /* what fstat calls the block size; 0: the truth */
    long told;        /* the alignment that statx tells; 0: nothing */
    unsigned direct;  /* reads */
    bool interrupted; /* the last one was */
} fake;

static void *real(const char *name) {
    void *p = dlsym(RTLD_NEXT, name);
    assert_non_null(p);
    return p;
}

ssize_t fake_pread(int fd, void *buf, size_t len, off_t offset) __asm__("pread64");
int fake_fstatfs(int fd, struct statfs *fs) __asm__("fstatfs64");
int fake_fstat(int fd, struct stat *st) __asm__("fstat64");

ssize_t fake_pread(int fd, void *buf, size_t len, off_t offset) {
    ssize_t (*read_it)(int, void *, size_t, off_t);
    void *p = real("pread64");
    memcpy(&read_it, &p, sizeof p);
    if (!(fcntl(fd, F_GETFL) & O_DIRECT)) {
        return read_it(fd, buf, len, offset);
    }
    fake.direct++;
    char *bytes = buf;
    ssize_t n;
    switch (fake.spoil) {
    case SPOIL_UNTOUCHED:
        n = offset >= SIZE ? 0 : SIZE - offset;
        return n < (ssize_t)len ? n : (ssize_t)len;
    case SPOIL_SHIFT:
        return read_it(fd, buf, len, offset < 4096 ? offset : offset - 4096);
    case SPOIL_EIO:
    case SPOIL_EINVAL:
        errno = fake.spoil == SPOIL_EIO ? EIO : EINVAL;
        return -1;
    case SPOIL_FINE_AFTER_EINTR:
        fake.interrupted = !fake.interrupted;
        errno = EINTR;
        return fake.interrupted ? -1 : read_it(fd, buf, len, offset);
    case SPOIL_PIECES:
        return read_it(fd, buf, len < 65536 ? len : 65536, offset);
    default:
        n = read_it(fd, buf, len, offset);
    }
    if (n > 0 && fake.spoil == SPOIL_BIT) {
        bytes[n / 2] ^= 1;
    }
    if (n >= 65536 && fake.spoil == SPOIL_LONG) {
        memset(bytes + n - 4096, 0, 4096);
    }
    if (n > 0 && fake.spoil == SPOIL_MIDDLE && offset <= SIZE / 2 && SIZE / 2 < offset + n) {
        bytes[SIZE / 2 - offset] ^= 0x80;
    }
    return fake.spoil == SPOIL_SHORT && n > 1 ? n / 2 - 1 : n;
}

int fake_fstatfs(int fd, struct statfs *fs) {
    int (*ask)(int, struct statfs *);
    void *p = real("fstatfs64");
    memcpy(&ask, &p, sizeof p);
    const int rc = ask(fd, fs);
    if (fake.type) {
        fs->f_type = fake.type;
    }
    return rc;
}

int fake_fstat(int fd, struct stat *st) {
    int (*ask)(int, struct stat *);
    void *p = real("fstat64");
    memcpy(&ask, &p, sizeof p);
    const int rc = ask(fd, st);
    if (fake.block) {
        st->st_blksize = fake.block;
    }
    return rc;
}

/* Linux 6.1 and later tell; before, nothing is told, as here unless the test says otherwise. */
int statx(int dir, const char *restrict path, int flags, unsigned int mask, struct statx *restrict out) {
    (void)dir, (void)path, (void)flags;
    memset(out, 0, sizeof *out);
    if (fake.told) {
        out->stx_mask = mask;
        out->stx_dio_mem_align = 512;
        out->stx_dio_offset_align = (uint32_t)fake.told;
    }
    return 0;
}

/* Whatever happens, what is read is right. */
static void read_all(const struct stream_file *f) {
    char *buf = NULL;
    const size_t piece = 1 << 20;
    assert_int_equal(posix_memalign((void **)&buf, f->align, piece), 0);
    for (uint64_t at = 0; at < SIZE; at += piece) {
        const uint64_t need = SIZE - at < piece ? SIZE - at : piece;
        assert_true(stream_file_read(f, buf, at, piece, need) >= (int64_t)need);
        assert_true(unit_same(buf, at, need));
    }
    free(buf);
}

/* Are direct reads to be had where the tests are built? Otherwise there is nothing to spoil. */
static bool have_direct(void) {
    char path[64];
    const int fd = unit_file(path, SIZE);
    struct stream_file f;
    fake.spoil = SPOIL_NOTHING;
    assert_int_equal(stream_file_open_fd(&f, fd, path, true, NULL), SLUICE_OK);
    const bool have = f.fd_direct >= 0;
    if (!have) {
        printf("note: no direct reads here (%s): nothing to test\n", f.why_buffered);
    }
    stream_file_close(&f);
    close(fd);
    unlink(path);
    return have;
}

static void check(enum spoil spoil, bool direct, const char *why) {
    char path[64];
    const int fd = unit_file(path, SIZE);
    struct stream_file f;
    struct sluice_error err;
    fake.spoil = spoil;
    fake.direct = 0;
    assert_int_equal(stream_file_open_fd(&f, fd, path, true, &err), SLUICE_OK);
    assert_true(fake.direct > 0);
    assert_int_equal(f.fd_direct >= 0, direct);
    if (!strstr(f.why_buffered, why)) {
        fail_msg("\"%s\" does not say \"%s\"", f.why_buffered, why);
    }
    fake.direct = 0;
    read_all(&f);
    assert_int_equal(fake.direct > 0, direct);
    fake.spoil = SPOIL_NOTHING;
    stream_file_close(&f);
    close(fd);
    unlink(path);
}

static void test_wrong(void **state) {
    (void)state;
    if (!have_direct()) {
        skip();
    }
    check(SPOIL_BIT, false, "direct reads return wrong bytes at offset 0");
    check(SPOIL_SHIFT, false, "direct reads return wrong bytes at offset ");
    check(SPOIL_UNTOUCHED, false, "direct reads return wrong bytes at offset 0");
    check(SPOIL_LONG, false, "direct reads return wrong bytes at offset ");
    check(SPOIL_MIDDLE, false, "direct reads return wrong bytes at offset ");
    check(SPOIL_SHORT, false, "direct reads fail (short)");
    check(SPOIL_EIO, false, "direct reads fail (Input/output error)");
    check(SPOIL_EINVAL, false, "direct reads fail (Invalid argument)");
}

static void test_right(void **state) {
    (void)state;
    if (!have_direct()) {
        skip();
    }
    check(SPOIL_NOTHING, true, "");
    check(SPOIL_FINE_AFTER_EINTR, true, "");
    check(SPOIL_PIECES, true, "");
}

/* Not even asked for: what a process serves may be right now and wrong later. */
static void test_untrusted(void **state) {
    (void)state;
    static const struct {
        long type;
        const char *why;
    } kinds[] = {{0x65735546, "direct reads of FUSE can be wrong"},
                 {0x5dca2df5, "direct reads of sdcardfs can be wrong"}};
    char path[64];
    const int fd = unit_file(path, SIZE);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct stream_file f;
        fake.type = kinds[i].type;
        fake.direct = 0;
        assert_int_equal(stream_file_open_fd(&f, fd, path, true, NULL), SLUICE_OK);
        assert_int_equal(f.fd_direct, -1);
        assert_string_equal(f.why_buffered, kinds[i].why);
        read_all(&f);
        assert_int_equal(fake.direct, 0);
        stream_file_close(&f);
        /* Who asked for buffered reads is told that, and not this. */
        assert_int_equal(stream_file_open_fd(&f, fd, path, false, NULL), SLUICE_OK);
        assert_string_equal(f.why_buffered, "asked for");
        stream_file_close(&f);
    }
    fake.type = 0;
    close(fd);
    unlink(path);
}

/* The alignment is what the kernel tells; where it tells nothing, the block size is believed, if it can be one. */
static void test_alignment(void **state) {
    (void)state;
    static const struct {
        long told, block;
        uint32_t align;
    } cases[] = {
        {0, 4096, 4096},      {0, 512, 4096},      {0, 16384, 16384},     {0, 65536, 65536},
        {0, 12288, 4096},     {0, 1 << 20, 4096},  {512, 16384, 4096},    {4096, 65536, 4096},
        {16384, 4096, 16384}, {12288, 4096, 4096}, {1 << 21, 4096, 4096}, {1 << 20, 512, 1 << 20},
    };
    if (!have_direct()) {
        skip();
    }
    char path[64];
    const int fd = unit_file(path, SIZE);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stream_file f;
        fake.told = cases[i].told;
        fake.block = cases[i].block;
        assert_int_equal(stream_file_open_fd(&f, fd, path, true, NULL), SLUICE_OK);
        assert_int_equal(f.align, cases[i].align);
        assert_true(f.fd_direct >= 0);
        read_all(&f);
        stream_file_close(&f);
    }
    fake.told = fake.block = 0;
    close(fd);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_right),
        cmocka_unit_test(test_untrusted),
        cmocka_unit_test(test_alignment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
