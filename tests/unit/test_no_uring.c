/* test_no_uring.c - a build without liburing: threads read, and who asks for io_uring is told. */
#include "unit.h"

#include "cache/io.h"

static void done(void *ud, const struct io_request *r, int64_t got, int error) {
    (void)ud, (void)r, (void)got, (void)error;
}

static void test_choose(void **state) {
    (void)state;
    struct sluice_error err;
    enum sluice_io got;
    assert_int_equal(io_choose(SLUICE_IO_AUTO, &got, &err), SLUICE_OK);
    assert_int_equal(got, SLUICE_IO_PREAD);
    assert_int_equal(io_choose(SLUICE_IO_URING, &got, &err), SLUICE_ERR_ARG);
    assert_string_equal(err.message, "io=uring: this build has no io_uring (SLUICE_URING=OFF)");
}

static void test_create(void **state) {
    (void)state;
    struct sluice_error err;
    assert_null(io_create(SLUICE_IO_URING, 4, done, NULL, &err));
    assert_int_equal(err.status, SLUICE_ERR_ARG);
    struct io *l = io_create(SLUICE_IO_PREAD, 4, done, NULL, &err);
    assert_non_null(l);
    assert_int_equal(io_kind(l), SLUICE_IO_PREAD);
    io_destroy(l);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_choose), cmocka_unit_test(test_create)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
