/*
 * test_file.c - reads of model files. Faults of the kernel are injected in tests/faults; here are
 * the ordinary cases, direct where the file system of the build tree allows it, and buffered.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/error.h"
#include "cache/file.h"

enum { SIZE = 1000003 }; /* no multiple of anything */

static void test_read(void **state) {
    char path[64];
    const bool want_direct = *state != NULL;
    const int fd = unit_file(path, SIZE);
    struct stream_file f;
    struct sluice_error err;
    assert_int_equal(stream_file_open(&f, path, want_direct, &err), SLUICE_OK);
    assert_int_equal(f.size, SIZE);
    assert_true(f.align >= 512 && (f.align & (f.align - 1)) == 0);
    assert_true((f.fd_direct < 0) == (f.why_buffered[0] != 0));
    if (!want_direct) {
        assert_int_equal(f.fd_direct, -1);
        assert_string_equal(f.why_buffered, "asked for");
    }
    const size_t cap = (SIZE + f.align - 1) / f.align * f.align;
    char *buf = NULL;
    assert_int_equal(posix_memalign((void **)&buf, f.align, cap), 0);
    /* Everything in one request: the odd tail included, nothing past the end needed. */
    memset(buf, 0xee, cap);
    assert_int_equal(stream_file_read(&f, buf, 0, cap, SIZE), SIZE);
    assert_true(unit_same(buf, 0, SIZE));
    /* Windows anywhere. */
    uint64_t seed = 1;
    for (int i = 0; i < 200; i++) {
        const uint64_t offset = unit_random(&seed) % (SIZE / f.align) * f.align;
        const uint64_t rest = SIZE - offset;
        uint64_t need = 1 + unit_random(&seed) % 100000;
        need = need < rest ? need : rest;
        const size_t len = (need + f.align - 1) / f.align * f.align;
        memset(buf, 0xee, len);
        const int64_t got = stream_file_read(&f, buf, offset, len, need);
        assert_true(got >= (int64_t)need && got <= (int64_t)len);
        assert_true(unit_same(buf, offset, (uint64_t)got));
    }
    /* What lies past the end cannot be had. */
    errno = 0;
    assert_int_equal(stream_file_read(&f, buf, SIZE / f.align * f.align, f.align, f.align), -1);
    assert_int_equal(errno, ENODATA);
    /* Nor can what was there at open. */
    assert_int_equal(ftruncate(fd, 3 * (off_t)f.align + 100), 0);
    assert_true(stream_file_read(&f, buf, 2 * f.align, 2 * f.align, f.align + 100) >= (int64_t)f.align + 100);
    assert_true(unit_same(buf, 2 * f.align, f.align + 100));
    errno = 0;
    assert_int_equal(stream_file_read(&f, buf, 2 * f.align, 2 * f.align, f.align + 101), -1);
    assert_int_equal(errno, ENODATA);
    stream_file_close(&f);
    stream_file_close(&f); /* a closed one is accepted */
    free(buf);
    close(fd);
    unlink(path);
}

static void test_open_fd(void **state) {
    (void)state;
    char path[64];
    const int fd = unit_file(path, 10000);
    unlink(path); /* the descriptor is enough, also for direct reads */
    struct stream_file f;
    struct sluice_error err;
    assert_int_equal(stream_file_open_fd(&f, fd, "as told", true, &err), SLUICE_OK);
    assert_string_equal(f.path, "as told");
    assert_true(f.fd != fd && fcntl(f.fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
    char *buf = NULL;
    assert_int_equal(posix_memalign((void **)&buf, f.align, 4 * f.align), 0);
    assert_int_equal(stream_file_read(&f, buf, f.align, f.align, f.align), f.align);
    assert_true(unit_same(buf, f.align, f.align));
    stream_file_close(&f);
    free(buf);
}

static void test_refused(void **state) {
    (void)state;
    struct stream_file f;
    struct sluice_error err;
    assert_int_equal(stream_file_open(&f, "no-such-file", true, &err), SLUICE_ERR_IO);
    assert_non_null(strstr(err.message, "no-such-file: No such file"));
    stream_file_close(&f);
    assert_int_equal(stream_file_open(&f, ".", true, &err), SLUICE_ERR_IO);
    assert_non_null(strstr(err.message, "not a regular file"));
    stream_file_close(&f);
    assert_int_equal(stream_file_open_fd(&f, -1, "closed", true, &err), SLUICE_ERR_IO);
    stream_file_close(&f);
    assert_int_equal(stream_file_open(&f, "no-such-file", true, NULL), SLUICE_ERR_IO); /* err may be NULL */
}

static void test_tiny_files(void **state) {
    (void)state;
    for (uint64_t size = 0; size < 3; size++) {
        char path[64];
        const int fd = unit_file(path, size);
        struct stream_file f;
        struct sluice_error err;
        assert_int_equal(stream_file_open(&f, path, true, &err), SLUICE_OK);
        char *buf = NULL;
        assert_int_equal(posix_memalign((void **)&buf, f.align, f.align), 0);
        assert_int_equal(stream_file_read(&f, buf, 0, f.align, size), size);
        assert_true(unit_same(buf, 0, size));
        free(buf);
        stream_file_close(&f);
        close(fd);
        unlink(path);
    }
}

static void test_error_is_one_line(void **state) {
    (void)state;
    struct sluice_error err;
    assert_int_equal(sluice_fail(&err, SLUICE_ERR_IO, "a\nb\r%s", "c"), SLUICE_ERR_IO);
    assert_string_equal(err.message, "a b c");
    char longer[2000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    sluice_fail(&err, SLUICE_ERR_ARG, "%s", longer);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    assert_int_equal(sluice_ok(&err), SLUICE_OK);
    assert_int_equal(err.status, SLUICE_OK);
    assert_string_equal(err.message, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        {"buffered", test_read, NULL, NULL, NULL},
        {"direct", test_read, NULL, NULL, (void *)1},
        cmocka_unit_test(test_open_fd),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_tiny_files),
        cmocka_unit_test(test_error_is_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
