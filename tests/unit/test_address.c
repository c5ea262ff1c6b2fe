/* test_address.c - addresses from text: numeric ones and "localhost", with a port, or a port alone. */
#include "unit.h"

#include <string.h>

#include "memory/address.h"

static void test_good(void **state) {
    (void)state;
    static const struct {
        const char *text, *host;
        unsigned port;
        bool v6, loopback, any;
    } good[] = {
        {"127.0.0.1:8090", "127.0.0.1", 8090, false, true, false},
        {"127.1.2.3:1", "127.1.2.3", 1, false, true, false},
        {"localhost:80", "127.0.0.1", 80, false, true, false},
        {"8090", "127.0.0.1", 8090, false, true, false},
        {"0", "127.0.0.1", 0, false, true, false},
        {"65535", "127.0.0.1", 65535, false, true, false},
        {"0.0.0.0:8090", "0.0.0.0", 8090, false, false, true},
        {"192.168.1.7:0", "192.168.1.7", 0, false, false, false},
        {"[::1]:8090", "::1", 8090, true, true, false},
        {"[0:0:0:0:0:0:0:1]:8090", "::1", 8090, true, true, false},
        {"[::]:8090", "::", 8090, true, false, true},
        {"[fe80::1]:8090", "fe80::1", 8090, true, false, false},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct plan_address a;
        if (!plan_address_parse(good[i].text, &a)) {
            fail_msg("%s is refused", good[i].text);
        }
        assert_string_equal(a.host, good[i].host);
        assert_int_equal(a.port, good[i].port);
        assert_int_equal(a.v6, good[i].v6);
        assert_int_equal(a.loopback, good[i].loopback);
        assert_int_equal(a.any, good[i].any);
    }
}

static void test_bad(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        ":",
        ":8090",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "127.0.0.1:+1",
        "127.0.0.1: 80",
        "127.0.0.1:80 ",
        " 127.0.0.1:80",
        "127.0.0.1:8x",
        "127.0.0.1:0x50",
        "127.0.0.1:000080",
        "127.1:80",
        "127.0.0.01:80",
        "127.0.0.256:80",
        "[127.0.0.1]:80",
        "::1:8090",
        "[::1]",
        "[::1]8090",
        "[::1:80",
        "::1]:80",
        "[]:80",
        "[:80",
        "[localhost]:80",
        "example.org:80",
        "LOCALHOST:80",
        "65536",
        "999999999999",
        "-1",
        "off",
        "on",
        "http://127.0.0.1:80",
        "[fe80::1%eth0]:80",
        "127.0.0.1:80:80",
        "[0000:0000:0000:0000:0000:0000:0000:0001]:00000000000000000000000000000001",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct plan_address a, before;
        memset(&a, 0x5a, sizeof a);
        before = a;
        if (plan_address_parse(bad[i], &a)) {
            fail_msg("'%s' is taken", bad[i]);
        }
        assert_memory_equal(&a, &before, sizeof a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_bad)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
