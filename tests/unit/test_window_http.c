/*
 * test_window_http.c - the window's HTTP service over real connections: every path, every refusal, changed settings.
 */
#include "window_fixture.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "memory/address.h"

/* ---- reading --------------------------------------------------------------------------------- */

static void test_page(void **state) {
    (void)state;
    struct service s;
    begin(&s);
    char nonce[2][64] = {"", ""};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(get(&s, &answer, "/"), 200);
        check_headers(&answer, "text/html; charset=utf-8");
        assert_int_equal(sscanf(answer.body, "<script nonce=\"%32[0-9a-f]\">", nonce[i]), 1);
        assert_int_equal(strlen(nonce[i]), 32);
        char want[512];
        snprintf(want, sizeof want, "<script nonce=\"%s\">1</script><style nonce=\"%s\"></style>@NONCE", nonce[i],
                 nonce[i]);
        assert_int_equal(answer.n, strlen(want));
        assert_memory_equal(answer.body, want, answer.n);
        snprintf(want, sizeof want,
                 "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; img-src data:; connect-src 'self'; ",
                 nonce[i], nonce[i]);
        assert_true(has_header(&answer, want));
    }
    assert_string_not_equal(nonce[0], nonce[1]);
    assert_int_equal(ask(&s, &answer, "HEAD / HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\n\r\n"), 200);
    assert_int_equal(answer.n, 0);
    end(&s);
}

static void test_stats(void **state) {
    (void)state;
    struct service s;
    begin(&s);
    hold_fake(&s);
    s.fake.tokens = 10;
    let_fake(&s);
    assert_int_equal(get(&s, &answer, "/stats"), 200);
    check_headers(&answer, "application/json");
    assert_null(memchr(answer.body, '\n', answer.n));
    json_t *o = object_of(&answer);
    assert_true(number(o, "api") == 1 && number(o, "pid") == getpid());
    assert_string_equal(json_string_value(member(o, "version")), SLUICE_VERSION);
    assert_string_equal(json_string_value(member(o, "model.name")), "a \"b\\c\n?.gguf");
    assert_true(number(o, "model.experts") == 8 && number(o, "model.experts_used") == 2);
    assert_true(number(o, "generation.tokens") == 10 && number(o, "generation.tokens_done") == 10);
    assert_true(number(o, "generation.hits") == 30 && number(o, "generation.misses") == 10);
    assert_true(number(o, "generation.wall_seconds") == 1 && number(o, "generation.compute_seconds") == 0.4);
    assert_true(number(o, "generation.dropped.dropped_weight") == 0.25);
    assert_true(number(o, "prompt.tokens") == 0);
    assert_true(number(o, "memory.used.total_bytes") == 6 << 20);
    assert_true(number(o, "memory.plan.total_bytes") == 5 << 20);
    assert_true(number(o, "memory.limit_bytes") == 1 << 30);
    assert_string_equal(json_string_value(member(o, "memory.limit_by")), "machine");
    assert_string_equal(json_string_value(member(o, "disk.io")), "pread");
    assert_true(json_is_null(member(o, "disk.probed_bytes_per_second")));
    assert_true(json_is_null(member(o, "cold")));
    assert_true(json_is_null(member(o, "chat")));
    assert_string_equal(json_string_value(member(o, "settings.cache.value")), "auto");
    assert_true(json_is_null(member(o, "settings.cache.bytes")));
    assert_true(json_is_true(member(o, "settings.cache.changeable")));
    assert_true(json_is_false(member(o, "settings.n_expert_used.changeable")));
    assert_true(json_string_length(member(o, "settings.n_expert_used.reason")) > 0);
    assert_string_equal(json_string_value(member(o, "phase")), "idle");
    assert_true(json_is_null(member(o, "now.generation_tokens_per_second")));
    json_decref(o);
    /* A query is of no account. */
    assert_int_equal(get(&s, &answer, "/stats?x=1"), 200);
    end(&s);
}

/* Under sluice serve. */
static void test_chat(void **state) {
    (void)state;
    struct service s;
    const struct window_params p = {
        .address = "127.0.0.1:0", .token = TOKEN, .chat = "http://127.0.0.1:8080", .disk = "2000"};
    begin_with(&s, &p);
    assert_int_equal(get(&s, &answer, "/"), 200);
    assert_true(has_header(&answer, "connect-src 'self' http://127.0.0.1:8080;"));
    assert_int_equal(get(&s, &answer, "/stats"), 200);
    json_t *o = object_of(&answer);
    assert_string_equal(json_string_value(member(o, "chat.url")), "http://127.0.0.1:8080");
    assert_true(number(o, "chat.port") == 8080);
    assert_true(number(o, "disk.probed_bytes_per_second") == 2000.0 * 1048576);
    json_decref(o);
    end(&s);
    const struct window_params remote = {
        .address = "0.0.0.0:0", .allow_remote = true, .token = TOKEN, .chat = "http://0.0.0.0:8081"};
    begin_with(&s, &remote);
    assert_int_equal(ask(&s, &answer, "GET / HTTP/1.1\r\nHost: 127.0.0.7:%u\r\nConnection: close\r\n\r\n"), 200);
    assert_true(has_header(&answer, "connect-src 'self' http://127.0.0.7:8081;"));
    assert_int_equal(ask(&s, &answer, "GET / HTTP/1.1\r\nHost: [::7]:%u\r\nConnection: close\r\n\r\n"), 200);
    assert_true(has_header(&answer, "connect-src 'self' http://*:8081;"));
    assert_int_equal(get(&s, &answer, "/stats"), 200);
    o = object_of(&answer);
    assert_true(json_is_null(member(o, "chat.url")));
    /* What is printed is an address that one can open. */
    char printed[128];
    struct plan_address a;
    assert_int_equal(sscanf(window_url(s.window), "http://%127[^/]/#token=", printed), 1);
    assert_true(plan_address_parse(printed, &a));
    assert_int_equal(a.port, s.port);
    json_decref(o);
    end(&s);
}

/* ---- Prometheus ------------------------------------------------------------------------------ */

static bool name_byte(char c, bool first) {
    return isalpha((unsigned char)c) || c == '_' || c == ':' || (!first && isdigit((unsigned char)c));
}

/* Step over a name. */
static const char *skip_name(const char *p) {
    assert_true(name_byte(*p, true));
    while (name_byte(*p, false)) {
        p++;
    }
    return p;
}

/* Step over {label="value",...}. */
static const char *skip_labels(const char *p) {
    assert_int_equal(*p++, '{');
    for (;;) {
        p = skip_name(p);
        assert_memory_equal(p, "=\"", 2);
        for (p += 2; *p != '"'; p++) {
            assert_true(*p && *p != '\n');
            if (*p == '\\') {
                p++;
                assert_true(*p == '\\' || *p == '"' || *p == 'n');
            }
        }
        if (*++p == '}') {
            return p + 1;
        }
        assert_int_equal(*p++, ',');
    }
}

/* Strictly: each family has HELP, TYPE, then its samples, all in one place; no series twice; names by the conventions.
 */
static void check_metrics(const char *text, size_t n) {
    char family[128] = "", type[32] = "", seen[128][128];
    size_t n_seen = 0, samples = 0;
    char *series[1024];
    size_t n_series = 0;
    assert_true(n > 0 && text[n - 1] == '\n');
    for (const char *line = text; *line;) {
        const char *eol = strchr(line, '\n');
        assert_non_null(eol);
        char next[128], rest[512];
        if (sscanf(line, "# HELP %127s %511[^\n]", next, rest) == 2) {
            assert_true(family[0] == '\0' || samples > 0);
            for (size_t i = 0; i < n_seen; i++) {
                assert_string_not_equal(seen[i], next);
            }
            assert_true(n_seen < 128);
            strcpy(seen[n_seen++], next);
            strcpy(family, next);
            assert_int_equal(*skip_name(next), '\0');
            samples = 0;
            type[0] = '\0';
        } else if (sscanf(line, "# TYPE %127s %31s", next, type) == 2) {
            assert_string_equal(next, family);
            assert_true(strcmp(type, "counter") == 0 || strcmp(type, "gauge") == 0);
            const size_t len = strlen(family);
            const bool total = len > 6 && strcmp(family + len - 6, "_total") == 0;
            assert_int_equal(total, strcmp(type, "counter") == 0);
        } else {
            const char *p = skip_name(line);
            assert_true(type[0] && strlen(family) == (size_t)(p - line) &&
                        memcmp(line, family, (size_t)(p - line)) == 0);
            p = *p == '{' ? skip_labels(p) : p;
            for (size_t i = 0; i < n_series; i++) {
                assert_false(strlen(series[i]) == (size_t)(p - line) &&
                             memcmp(series[i], line, (size_t)(p - line)) == 0);
            }
            assert_true(n_series < 1024);
            series[n_series++] = strndup(line, (size_t)(p - line));
            assert_int_equal(*p++, ' ');
            char *number_end;
            assert_true(isdigit((unsigned char)*p));
            strtod(p, &number_end);
            assert_ptr_equal(number_end, eol);
            samples++;
        }
        line = eol + 1;
    }
    assert_true(samples > 0 && n_seen > 20);
    while (n_series > 0) {
        free(series[--n_series]);
    }
}

static void test_metrics(void **state) {
    (void)state;
    struct service s;
    begin(&s);
    hold_fake(&s);
    s.fake.tokens = 10;
    let_fake(&s);
    assert_int_equal(get(&s, &answer, "/metrics"), 200);
    check_headers(&answer, "text/plain; version=0.0.4; charset=utf-8");
    check_metrics(answer.body, answer.n);
    static const char *const lines[] = {
        "\nsluice_tokens_total{phase=\"generation\"} 10\n",
        "\nsluice_tokens_total{phase=\"prompt\"} 0\n",
        "\nsluice_step_seconds_total{phase=\"generation\",part=\"stall\"} 0.300000\n",
        "\nsluice_read_bytes_total{phase=\"generation\"} 40960\n",
        "\nsluice_router_weight_total{phase=\"generation\",fate=\"kept\"} 1.250000\n",
        "\nsluice_cache_bytes 1048576\n",
        "\nprocess_resident_memory_bytes 6291456\n",
        ",model=\"a \\\"b\\\\c\\n?.gguf\",",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (!strstr(answer.body, lines[i])) {
            fail_msg("no %s in %s", lines[i], answer.body);
        }
    }
    end(&s);
}

/* ---- who may ask ----------------------------------------------------------------------------- */

static void test_refused(void **state) {
    (void)state;
    static const struct {
        int status;
        const char *request; /* %u: the port */
    } cases[] = {
#define GET(path, host, more) "GET " path " HTTP/1.1\r\nHost: " host "\r\nConnection: close\r\n" more "\r\n"
        {200, GET("/stats", "localhost:%u", "")},
        {200, GET("/stats", "127.0.0.1:%u", "Origin: http://127.0.0.1:%u\r\n")},
        {421, GET("/stats", "evil.org:%u", "")},
        {421, GET("/", "evil.org:%u", "")},
        {421, GET("/events", "evil.org:%u", "")},
        {421, GET("/metrics", "evil.org:%u", "")},
        {421, GET("/stats", "127.0.0.1", "")},
        {421, GET("/stats", "127.0.0.1:%u1", "")},
        {421, "GET /stats HTTP/1.0\r\n\r\n"},
        {403, GET("/stats", "127.0.0.1:%u", "Origin: http://evil.org\r\n")},
        {403, GET("/", "127.0.0.1:%u", "Origin: null\r\n")},
        {403, GET("/events", "127.0.0.1:%u", "Origin: http://localhost:%u\r\n")},
        {404, GET("/nothing", "127.0.0.1:%u", "")},
        {404, GET("/stats/", "127.0.0.1:%u", "")},
        {404, GET("//stats", "127.0.0.1:%u", "")},
        {404, GET("/../../etc/passwd", "127.0.0.1:%u", "")},
        {404, GET("/%%2e%%2e/etc/passwd", "127.0.0.1:%u", "")},
        {405, GET("/settings", "127.0.0.1:%u", "")},
        {405, "POST /stats HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"},
        {405, "POST / HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"},
        {405, "PUT /settings HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"},
        {405, "DELETE /stats HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\n\r\n"},
        {405, "OPTIONS /settings HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\n\r\n"},
        {405, "BREW /stats HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\n\r\n"},
        {0, GET("/stats", "127.0.0.1:%u", "Content-Length: 5\r\n")},
#define POST(headers, body) "POST /settings HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\n" headers "\r\n" body
#define JSON                "Content-Type: application/json\r\n"
#define KEY                 "X-Sluice-Token: " TOKEN "\r\n"
#define LENGTH              "Content-Length: 18\r\n"
#define BODY                "{\"lookahead\":true}"
        {200, POST(JSON KEY LENGTH, BODY)},
        {200, POST(JSON "Authorization: Bearer " TOKEN "\r\n" LENGTH, BODY)},
        {200, POST("Content-Type: application/json; charset=utf-8\r\n" KEY LENGTH, BODY)},
        {200, POST(JSON KEY "Origin: http://127.0.0.1:%u\r\n" LENGTH, BODY)},
        {401, POST(JSON LENGTH, BODY)},
        {401, POST(JSON "X-Sluice-Token:\r\n" LENGTH, BODY)},
        {401, POST(JSON "Authorization: Basic " TOKEN "\r\n" LENGTH, BODY)},
        {403, POST(JSON "X-Sluice-Token: " TOKEN "x\r\n" LENGTH, BODY)},
        {403, POST(JSON "Authorization: Bearer 0123456789abcdef-TESS\r\n" LENGTH, BODY)},
        {403, POST(JSON KEY "Origin: http://evil.org\r\n" LENGTH, BODY)},
        {421, "POST /settings HTTP/1.1\r\nHost: evil.org:%u\r\nConnection: close\r\n" JSON KEY LENGTH "\r\n" BODY},
        {411, POST(JSON KEY, "")},
        {411, POST(JSON KEY "Transfer-Encoding: chunked\r\n", "12\r\n" BODY "\r\n0\r\n\r\n")},
        {413, POST(JSON KEY "Content-Length: 4097\r\n", "")},
        {413, POST(JSON KEY "Content-Length: 99999999999\r\n", "")},
        {415, POST("Content-Type: text/plain\r\n" KEY LENGTH, BODY)},
        {415, POST("Content-Type: application/jsonx\r\n" KEY LENGTH, BODY)},
        {415, POST("Content-Type: multipart/form-data; boundary=x\r\n" KEY LENGTH, BODY)},
        {415, POST(KEY LENGTH, BODY)},
    };
    struct service s;
    begin(&s);
    int changed = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int status = ask(&s, &answer, cases[i].request);
        if (status != cases[i].status) {
            fail_msg("%d, not %d: %s", status, cases[i].status, cases[i].request);
        }
        changed += status == 200 && strncmp(cases[i].request, "POST", 4) == 0;
        if (status >= 400) {
            json_t *o = object_of(&answer);
            assert_true(json_is_false(member(o, "ok")) && json_string_length(member(o, "error")) > 0);
            assert_true(json_is_null(member(o, "setting")) && json_array_size(member(o, "changed")) == 0);
            json_decref(o);
            check_headers(&answer, "application/json");
        }
        assert_true(status != 405 || has_header(&answer, "Allow: "));
        assert_true(status != 401 || has_header(&answer, "WWW-Authenticate: Bearer"));
    }
    /* Nothing refused has changed anything. */
    assert_int_equal(changed, 4);
    assert_string_equal(asked(&s), "lookahead lookahead lookahead lookahead ");
    /* A head that is too large, and what is no HTTP. */
    static char large[40000];
    memset(large, 'a', sizeof large - 1);
    int fd = dial(&s);
    say(fd, "GET /stats HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ");
    send(fd, large, sizeof large - 1, MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    listen_to(fd, &answer);
    assert_true(answer.status == 0 || (answer.status >= 400 && answer.status < 500));
    close(fd);
    fd = dial(&s);
    say(fd, "\x16\x03\x01 nonsense\r\n\r\n");
    shutdown(fd, SHUT_WR);
    listen_to(fd, &answer);
    assert_true(answer.status == 0 || answer.status >= 400);
    close(fd);
    assert_int_equal(get(&s, &answer, "/stats"), 200);
    end(&s);
}

/* ---- settings -------------------------------------------------------------------------------- */

static void test_settings(void **state) {
    (void)state;
    struct service s;
    begin(&s);
    assert_int_equal(
        post(&s, &answer, as_json,
             "{\"lookahead\": false, \"drop_renorm\": true, \"drop_cold_experts\": 0.125, \"cache\": 3000}"),
        200);
    json_t *o = object_of(&answer);
    assert_true(json_is_true(member(o, "ok")));
    assert_int_equal(json_array_size(member(o, "changed")), 4);
    assert_string_equal(json_string_value(member(o, "settings.cache.value")), "3000MiB");
    assert_true(number(o, "settings.cache.bytes") == 3000.0 * 1048576);
    assert_true(number(o, "settings.drop_cold_experts.value") == 0.125);
    assert_true(json_is_true(member(o, "settings.drop_cold_experts.lossy")));
    assert_true(json_is_true(member(o, "settings.drop_renorm.value")));
    assert_true(json_is_false(member(o, "settings.lookahead.value")));
    json_decref(o);
    assert_string_equal(asked(&s), "cache drop_cold_experts drop_renorm lookahead "); /* the cache first */
    assert_true(in_force(&s).drop_cold_experts == 0.125);
    assert_int_equal(in_force(&s).cache_bytes, (uint64_t)3000 << 20);

    static const struct {
        int status;
        const char *type, *body, *setting; /* setting: which is named; NULL: none */
    } cases[] = {
        {200, as_json, "{\"cache\":\"auto\"}", NULL},
        {200, as_json, "{\"cache\":\"off\",\"drop_cold_experts\":0}", NULL},
        {200, as_json, "{\"cache\":\"1.5GiB\"}", NULL},
        {200, as_json, "{\"drop_cold_experts\":\"0.5\"}", NULL},
        {200, as_json, "{\"drop_cold_experts\":1}", NULL},
        {200, as_json, "{\"drop_cold_experts\":1.0}", NULL},
        {200, as_json, "{\"drop_cold_experts\":0.00001}", NULL},
        {200, as_json, "{\"lookahead\":\"1\",\"drop_renorm\":\"off\"}", NULL},
        {200, as_json, " {\"lookahead\" : \"false\" } ", NULL},
        {200, as_form, "cache=2000MiB&drop_cold_experts=0.25&drop_renorm=on&lookahead=0", NULL},
        {200, as_form, "cache=%32000&lookahead=true", NULL},
        {200, as_form, "lookahead=1&", NULL},
        {400, as_json, "", NULL},
        {400, as_json, "{", NULL},
        {400, as_json, "[]", NULL},
        {400, as_json, "null", NULL},
        {400, as_json, "{}", NULL},
        {400, as_json, "{\"lookahead\":true}x", NULL},
        {400, as_json, "{\"lookahead\":true,\"lookahead\":true}", NULL},
        {400, as_json, "{\"lookahead\":null}", NULL},
        {400, as_json, "{\"lookahead\":[1]}", NULL},
        {400, as_json, "{\"lookahead\":2}", "lookahead"},
        {400, as_json, "{\"drop_cold_experts\":1.5}", "drop_cold_experts"},
        {400, as_json, "{\"drop_cold_experts\":-0.5}", NULL},
        {400, as_json, "{\"drop_cold_experts\":true}", "drop_cold_experts"},
        {400, as_json, "{\"drop_cold_experts\":\"nan\"}", "drop_cold_experts"},
        {400, as_json, "{\"drop_cold_experts\":1e300}", NULL},
        {400, as_json, "{\"cache\":\"12x\"}", "cache"},
        {400, as_json, "{\"cache\":-1}", "cache"},
        {400, as_json, "{\"cache\":\"\"}", "cache"},
        {400, as_json, "{\"cache\":\"1\\u0000\"}", NULL},
        {400, as_json, "{\"cache\":\"1111111111111111111111111111111111111111111111111111111111111111111111\"}",
         "cache"},
        {400, as_json, "{\"cashe\":\"auto\"}", NULL},
        {400, as_json, "{\"quiet\":true}", NULL},
        {400, as_json, "{\"window\":\"off\"}", NULL},
        {400, as_form, "lookahead", NULL},
        {400, as_form, "lookahead=1&lookahead=1", "lookahead"},
        {400, as_form, "lookahead=%3", NULL},
        {400, as_form, "lookahead=%zz", NULL},
        {400, as_form, "lookahead=1%00", NULL},
        {400, as_form, "lookahead=2", "lookahead"},
        {400, as_form, "=1", NULL},
        {400, as_form, "", NULL},
        {400, as_form, "cache=+1", "cache"},
        {409, as_json, "{\"n_expert_used\":4}", "n_expert_used"},
        {409, as_json, "{\"io\":\"pread\"}", "io"},
        {409, as_form, "cold_model=/etc/passwd", "cold_model"},
        {409, as_json, "{\"cache\":\"off\",\"drop_cold_experts\":0.5}", "drop_cold_experts"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        forget(&s, NULL);
        const int status = post(&s, &answer, cases[i].type, cases[i].body);
        if (status != cases[i].status) {
            fail_msg("%d, not %d: %s: %s", status, cases[i].status, cases[i].body, answer.body);
        }
        o = object_of(&answer);
        if (status == 200) {
            assert_true(json_is_true(member(o, "ok")));
            assert_true(asked(&s)[0] != '\0');
        } else {
            const char *setting = json_string_value(member(o, "setting"));
            if ((setting == NULL) != (cases[i].setting == NULL) ||
                (setting && strcmp(setting, cases[i].setting) != 0)) {
                fail_msg("%s: about %s", cases[i].body, setting ? setting : "nothing");
            }
            assert_string_equal(asked(&s), ""); /* nothing was put into force */
        }
        json_decref(o);
    }
    assert_int_equal(post(&s, &answer, as_json, "{\"drop_cold_experts\":0.00001}"), 200);
    assert_true(in_force(&s).drop_cold_experts == 0.00001);
    assert_int_equal(post(&s, &answer, as_json, "{\"drop_cold_experts\":0.3}"), 200);
    assert_true(in_force(&s).drop_cold_experts == 0.3);

    /* What fails in the middle: what came before stays, and is told. */
    forget(&s, "drop_cold_experts");
    assert_int_equal(post(&s, &answer, as_json, "{\"lookahead\":true,\"drop_cold_experts\":0.5,\"cache\":\"1GiB\"}"),
                     409);
    o = object_of(&answer);
    assert_string_equal(json_string_value(member(o, "setting")), "drop_cold_experts");
    assert_string_equal(json_string_value(member(o, "error")), "needs 7 MiB, has 3");
    assert_int_equal(json_array_size(member(o, "changed")), 1);
    assert_string_equal(json_string_value(json_array_get(member(o, "changed"), 0)), "cache");
    json_decref(o);
    assert_string_equal(asked(&s), "cache ");
    forget(&s, NULL);

    /* The largest body, and one that arrives in pieces. */
    static char body[4097];
    memset(body, ' ', 4096);
    memcpy(body, "{\"lookahead\":true}", 18);
    assert_int_equal(post(&s, &answer, as_json, body), 200);
    const int fd = dial(&s);
    char head[512];
    snprintf(head, sizeof head,
             "POST /settings HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\nContent-Type: application/json\r\n"
             "Content-Length: 18\r\nX-Sluice-Token: " TOKEN "\r\n\r\n",
             s.port);
    for (const char *p = head; *p; p += strlen(p) < 50 ? strlen(p) : 50) {
        char piece[51];
        snprintf(piece, sizeof piece, "%.50s", p);
        say(fd, piece);
        usleep(2000);
    }
    for (const char *p = "{\"lookahead\":true}"; *p; p++) {
        const char piece[] = {*p, '\0'};
        say(fd, piece);
        usleep(500);
    }
    listen_to(fd, &answer);
    close(fd);
    assert_int_equal(answer.status, 200);
    end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page),    cmocka_unit_test(test_stats),   cmocka_unit_test(test_chat),
        cmocka_unit_test(test_metrics), cmocka_unit_test(test_refused), cmocka_unit_test(test_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
