/* test_window.c - the parts of the window that need no connection: who may ask, rates, the map. */
#include "unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "window/guard.h"
#include "window/map.h"
#include "window/rates.h"

/* ---- guard ----------------------------------------------------------------------------------- */

static struct guard guard_at(const char *address, bool remote) {
    struct guard g = {.allow_remote = remote};
    assert_true(plan_address_parse(address, &g.address));
    return g;
}

static void test_host(void **state) {
    (void)state;
    const struct guard v4 = guard_at("127.0.0.1:8090", false), v6 = guard_at("[::1]:8090", false);
    const struct guard remote = guard_at("0.0.0.0:8090", true), http = guard_at("127.0.0.1:80", false);
    static const struct {
        const char *host;
        bool v4, v6, remote;
    } hosts[] = {
        {"127.0.0.1:8090", true, false, true},
        {"localhost:8090", true, true, true},
        {"LocalHost:8090", true, true, true},
        {"[::1]:8090", false, true, true},
        {"192.168.1.7:8090", false, false, true},
        {"[fe80::1]:8090", false, false, true},
        {"127.0.0.2:8090", false, false, true},
        {"127.0.0.1", false, false, false},
        {"127.0.0.1:8091", false, false, false},
        {"127.0.0.1:80900", false, false, false},
        {"127.0.0.1:08090", false, false, false},
        {"127.0.0.1:", false, false, false},
        {"127.0.0.1:8090:8090", false, false, false},
        {"127.0.0.1:8090.", false, false, false},
        {"127.0.0.1.:8090", false, false, false},
        {"localhost.:8090", false, false, false},
        {"localhost.evil.org:8090", false, false, false},
        {"evil.org:8090", false, false, false},
        {"evil.org", false, false, false},
        {"127.0.0.1.evil.org:8090", false, false, false},
        {"[127.0.0.1]:8090", false, false, false},
        {"[localhost]:8090", false, false, false},
        {"::1:8090", false, false, false},
        {"[::1]", false, false, false},
        {"[::1", false, false, false},
        {"", false, false, false},
        {":8090", false, false, false},
        {"user@127.0.0.1:8090", false, false, false},
        {"2130706433:8090", false, false, false},
        {"0x7f.1:8090", false, false, false},
    };
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        if (guard_host(&v4, hosts[i].host) != hosts[i].v4 || guard_host(&v6, hosts[i].host) != hosts[i].v6 ||
            guard_host(&remote, hosts[i].host) != hosts[i].remote) {
            fail_msg("Host '%s'", hosts[i].host);
        }
    }
    assert_false(guard_host(&v4, NULL));
    assert_true(guard_host(&http, "127.0.0.1"));
    assert_true(guard_host(&http, "localhost:80"));
    assert_false(guard_host(&http, "localhost:8090"));
}

static void test_origin(void **state) {
    (void)state;
    const char *host = "127.0.0.1:8090";
    assert_true(guard_origin(NULL, host));
    assert_true(guard_origin("http://127.0.0.1:8090", host));
    assert_true(guard_origin("HTTP://127.0.0.1:8090", host));
    static const char *const foreign[] = {"",
                                          "null",
                                          "http://",
                                          "https://127.0.0.1:8090",
                                          "http://127.0.0.1:8080",
                                          "http://localhost:8090",
                                          "http://127.0.0.1:8090/",
                                          "http://127.0.0.1:80900",
                                          "http://evil.org",
                                          "127.0.0.1:8090"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        if (guard_origin(foreign[i], host)) {
            fail_msg("Origin '%s'", foreign[i]);
        }
    }
}

static void test_token(void **state) {
    (void)state;
    struct guard g = {0}, other = {0};
    struct sluice_error err;
    assert_int_equal(guard_token(&g, NULL, &err), SLUICE_OK);
    assert_int_equal(guard_token(&other, NULL, &err), SLUICE_OK);
    assert_int_equal(strlen(g.token), 32);
    assert_string_not_equal(g.token, other.token);
    assert_int_equal(strspn(g.token, "0123456789abcdef"), 32);
    assert_int_equal(guard_judge(&g, g.token, NULL), GUARD_RIGHT);
    char text[128];
    snprintf(text, sizeof text, "Bearer %s", g.token);
    assert_int_equal(guard_judge(&g, NULL, text), GUARD_RIGHT);
    snprintf(text, sizeof text, "bearer   %s", g.token);
    assert_int_equal(guard_judge(&g, NULL, text), GUARD_RIGHT);
    snprintf(text, sizeof text, "Basic %s", g.token);
    assert_int_equal(guard_judge(&g, NULL, text), GUARD_MISSING);
    assert_int_equal(guard_judge(&g, NULL, NULL), GUARD_MISSING);
    assert_int_equal(guard_judge(&g, "", NULL), GUARD_MISSING);
    assert_int_equal(guard_judge(&g, NULL, "Bearer "), GUARD_MISSING);
    assert_int_equal(guard_judge(&g, other.token, NULL), GUARD_WRONG);
    for (size_t i = 0; i < 32; i++) { /* every byte counts, and so does the length */
        snprintf(text, sizeof text, "%s", g.token);
        text[i] ^= 1;
        assert_int_equal(guard_judge(&g, text, NULL), GUARD_WRONG);
        memcpy(text, g.token, i + 1);
        text[i + 1] = '\0';
        assert_int_equal(guard_judge(&g, text, NULL), i == 31 ? GUARD_RIGHT : GUARD_WRONG);
    }
    snprintf(text, sizeof text, "%sa", g.token);
    assert_int_equal(guard_judge(&g, text, NULL), GUARD_WRONG);
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(guard_judge(&g, text, NULL), GUARD_WRONG);

    /* One that was given. */
    assert_int_equal(guard_token(&g, "abcDEF0123456_-x", &err), SLUICE_OK);
    assert_int_equal(guard_judge(&g, "abcDEF0123456_-x", NULL), GUARD_RIGHT);
    memset(text, 'b', 64);
    text[64] = '\0';
    assert_int_equal(guard_token(&g, text, &err), SLUICE_OK);
    assert_int_equal(guard_judge(&g, text, NULL), GUARD_RIGHT);
    text[64] = 'b';
    text[65] = '\0';
    assert_int_equal(guard_judge(&g, text, NULL), GUARD_WRONG);
    static const char *const bad[] = {"",
                                      "short",
                                      "abcdefghijklmno",
                                      "abcdefghijklmnop ",
                                      "abcdefgh/jklmnop",
                                      "\xc3\xa4"
                                      "bcdefghijklmnop"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(guard_token(&g, bad[i], &err), SLUICE_ERR_ARG);
    }
    assert_int_equal(guard_token(&g, text, &err), SLUICE_ERR_ARG); /* 65 */
}

/* ---- rates ----------------------------------------------------------------------------------- */

static bool near(double x, double y) {
    return fabs(x - y) < 1e-6 * (1 + fabs(y));
}

/* A generation of a step every `every` seconds begins at 10; what is seen at time t. */
static void generation_at(struct window_numbers *x, double t, double every) {
    const uint64_t steps = t > 10 ? (uint64_t)((t - 10) / every + 1e-9) : 0;
    memset(x, 0, sizeof *x);
    x->stats.layers = 4;
    x->stats.generation.blocks = 4 * steps;
    x->stats.generation.tokens = steps;
    x->stats.generation.rows = 4 * steps;
    x->stats.generation.hits = 6 * steps;
    x->stats.generation.misses = 2 * steps;
    x->stats.generation.hit_bytes = 90 * steps;
    x->stats.generation.miss_bytes = 10 * steps;
    x->stats.generation.read_bytes = 1000 * steps;
    struct step_sums *ended = &x->ended[SLUICE_PHASE_GENERATION];
    struct sluice_step *p = &ended->sum;
    ended->steps = p->tokens = steps;
    p->wall_s = 0.9 * every * (double)steps;
    p->expert_s = 0.5 * p->wall_s;
    p->stall_s = 0.25 * p->wall_s;
    p->other_s = 0.15 * p->wall_s;
    p->bookkeeping_s = 0.1 * p->wall_s;
    ended->ended = steps ? 10 + every * (double)steps : 0;
}

static void test_rates_generation(void **state) {
    (void)state;
    static const double every[] = {0.01, 0.127, 0.5, 1.3, 4}; /* seconds of a step */
    for (size_t i = 0; i < sizeof every / sizeof *every; i++) {
        struct rates r = {0};
        struct rates_now now;
        struct window_numbers x;
        rates_get(&r, 1, &now);
        assert_int_equal(now.phase, -1);
        for (double t = 1; t < 10; t += 0.5) {
            generation_at(&x, t, every[i]);
            rates_add(&r, &x, t);
        }
        rates_get(&r, 10, &now);
        assert_int_equal(now.phase, -1);
        assert_true(now.tokens_per_s[SLUICE_PHASE_GENERATION] < 0 && now.hits < 0 && now.part[0] < 0);
        assert_true(now.bytes_per_s == 0);
        double t = 10;
        for (; t < 40; t += 0.5) {
            generation_at(&x, t, every[i]);
            rates_add(&r, &x, t);
            rates_get(&r, t, &now);
            if (t > 11 + 3 * every[i] && every[i] < 3) {
                assert_int_equal(now.phase, SLUICE_PHASE_GENERATION);
                assert_true(near(now.tokens_per_s[SLUICE_PHASE_GENERATION], 1 / every[i]));
                assert_true(now.tokens_per_s[SLUICE_PHASE_PROMPT] < 0);
                assert_false(now.active[SLUICE_PHASE_PROMPT]);
            }
            if (t > 13 + every[i] && every[i] < 1) {
                assert_true(near(now.hits, 0.75));
                assert_true(near(now.hit_bytes, 0.9));
                assert_true(near(now.part[0], 0.5) && near(now.part[1], 0.25) && near(now.part[2], 0.15));
                assert_true(near(now.part[3], 0.1));
                assert_true(fabs(now.bytes_per_s - 1000 / every[i]) <= 1000); /* a step more or less a second */
            }
        }
        /* It ends: nothing is known of now, the best stays. */
        for (double end = t; t < end + 5; t += 0.5) {
            generation_at(&x, end, every[i]);
            rates_add(&r, &x, t);
        }
        rates_get(&r, t, &now);
        assert_int_equal(now.phase, -1);
        assert_true(now.tokens_per_s[SLUICE_PHASE_GENERATION] < 0 && now.bytes_per_s == 0 && now.part[0] < 0);
        assert_true(r.best >= 999 / every[i] / 2);
    }
}

/* After a pause of minutes the speed is that of the new turn. */
static void test_rates_pause(void **state) {
    (void)state;
    struct rates r = {0};
    struct rates_now now;
    struct window_numbers x;
    double t = 9;
    for (; t < 15; t += 0.5) {
        generation_at(&x, t, 0.1);
        rates_add(&r, &x, t);
    }
    const double stopped = t - 0.5;
    for (; t < 200; t += 0.5) {
        generation_at(&x, stopped, 0.1);
        rates_add(&r, &x, t);
    }
    const struct window_numbers before = x;
    const double begun = t - 0.5;
    int known = 0;
    for (; t < 210; t += 0.5) {
        struct window_numbers more;
        generation_at(&more, 10 + (t - begun), 0.2);
        x = before;
        x.stats.generation.blocks += more.stats.generation.blocks;
        x.ended[1].steps += more.ended[1].steps;
        x.ended[1].sum.tokens += more.ended[1].sum.tokens;
        x.ended[1].sum.wall_s += more.ended[1].sum.wall_s;
        x.ended[1].ended = begun + (more.ended[1].ended - 10);
        rates_add(&r, &x, t);
        rates_get(&r, t, &now);
        if (now.tokens_per_s[1] >= 0) {
            known++;
            /* At first by the steps' own length, which lacks a tenth here. */
            assert_true(now.tokens_per_s[1] > 4.9 && now.tokens_per_s[1] < 5.6);
        }
    }
    assert_true(known > 15);
    assert_true(near(now.tokens_per_s[1], 5));
}

/* A prompt is one step; its speed is seen by the blocks. */
static void test_rates_prompt(void **state) {
    (void)state;
    struct rates r = {0};
    struct rates_now now;
    struct window_numbers x = {0};
    x.stats.layers = 10;
    for (double t = 1; t < 30; t += 0.5) {
        /* From 5 on 2 blocks of 500 tokens a second: 100 tokens a second. */
        x.stats.prompt.blocks = t > 5 ? (uint64_t)(2 * (t - 5)) : 0;
        x.stats.prompt.rows = 500 * x.stats.prompt.blocks;
        rates_add(&r, &x, t);
        rates_get(&r, t, &now);
        if (t > 6) {
            assert_int_equal(now.phase, SLUICE_PHASE_PROMPT);
            assert_true(near(now.tokens_per_s[SLUICE_PHASE_PROMPT], 100));
            assert_true(now.part[0] < 0); /* no step has ended */
        }
    }
}

/* Slots of a server that generate together: blocks of several tokens, all of them generation. */
static void test_rates_slots(void **state) {
    (void)state;
    struct rates r = {0};
    struct rates_now now;
    struct window_numbers x = {0};
    x.stats.layers = 10;
    for (double t = 1; t < 30; t += 0.5) {
        const uint64_t steps = (uint64_t)(4 * (t - 1)); /* 4 a second, of 3 tokens */
        x.stats.generation.blocks = 10 * steps;
        x.stats.generation.rows = 3 * x.stats.generation.blocks;
        x.ended[SLUICE_PHASE_GENERATION] = (struct step_sums){
            .steps = steps, .ended = t, .sum = {.tokens = 3 * steps, .wall_s = 0.25 * (double)steps}};
        rates_add(&r, &x, t);
        rates_get(&r, t, &now);
        if (t > 4) {
            assert_int_equal(now.phase, SLUICE_PHASE_GENERATION);
            assert_true(near(now.tokens_per_s[SLUICE_PHASE_GENERATION], 12));
            assert_true(now.tokens_per_s[SLUICE_PHASE_PROMPT] < 0);
        }
    }
}

/* ---- the map --------------------------------------------------------------------------------- */

struct model {
    uint32_t layers, experts, top_k;
    struct window_layer layer[4];
};

static bool model_layer(void *ud, uint32_t i, struct window_layer *out) {
    struct model *m = ud;
    if (i >= m->layers) {
        return false;
    }
    *out = m->layer[i];
    out->experts = m->experts;
    out->top_k = m->top_k;
    return true;
}

static int base64_value(char c) {
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *p = c ? strchr(digit, c) : NULL;
    assert_non_null(p);
    return (int)(p - digit);
}

/* Decode the data of a map; returns the number of bytes. */
static size_t map_bytes(const char *text, uint8_t *out) {
    static const char key[] = "\"data\":\"";
    const char *p = strstr(text, key);
    assert_non_null(p);
    p += sizeof key - 1;
    const char *end = strchr(p, '"');
    assert_non_null(end);
    assert_int_equal((end - p) % 4, 0);
    size_t n = 0;
    for (; p < end; p += 4) {
        const int pad = (p[2] == '=') + (p[3] == '=');
        const uint32_t x = (uint32_t)base64_value(p[0]) << 18 | (uint32_t)base64_value(p[1]) << 12 |
                           (pad > 1 ? 0 : (uint32_t)base64_value(p[2]) << 6) |
                           (pad > 0 ? 0 : (uint32_t)base64_value(p[3]));
        out[n++] = (uint8_t)(x >> 16);
        if (pad < 2) {
            out[n++] = (uint8_t)(x >> 8);
        }
        if (pad < 1) {
            out[n++] = (uint8_t)x;
        }
    }
    return n;
}

static void look(struct window_map *m, struct model *model, struct window_layer *scratch, uint8_t *bytes, size_t want) {
    const struct window_source source = {.ud = model, .layer = model_layer};
    json_t *o = map_json(m, &source, scratch);
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    assert_non_null(text);
    json_decref(o);
    assert_int_equal(map_bytes(text, bytes), want);
    free(text);
}

static void test_map(void **state) {
    (void)state;
    struct window_map m = {0};
    struct model *model = calloc(1, sizeof *model);
    struct window_layer *scratch = calloc(1, sizeof *scratch);
    assert_true(model && scratch);
    uint8_t b[64];
    look(&m, model, scratch, b, 0); /* no model */
    *model = (struct model){.layers = 3, .experts = 5, .top_k = 2};
    model->layer[1].state[0] = ENGINE_READING;
    model->layer[1].state[1] = ENGINE_RESIDENT;
    model->layer[1].state[4] = ENGINE_IN_USE;
    look(&m, model, scratch, b, 15);
    for (int i = 0; i < 15; i++) {
        assert_int_equal(b[i], i == 5 ? 1 << 6 : i == 6 ? 2 << 6 : i == 9 ? 3 << 6 : 0);
    }
    /* 100 tokens: expert 0 in all of them, 1 in a quarter, 2 and 3 in the rest. */
    const uint32_t uses[] = {100, 25, 50, 25, 0};
    memcpy(model->layer[2].uses, uses, sizeof uses);
    look(&m, model, scratch, b, 15);
    assert_int_equal(b[10], 63);
    assert_int_equal(b[11], 32); /* 63 * sqrt(1/4) rounded */
    assert_int_equal(b[12], 45);
    assert_int_equal(b[14], 0);
    look(&m, model, scratch, b, 15); /* nothing runs: nothing changes */
    assert_int_equal(b[11], 32);
    /* 64 tokens later, all to 3 and 4, the old ones count half. */
    model->layer[2].uses[3] += 64;
    model->layer[2].uses[4] += 64;
    look(&m, model, scratch, b, 15);
    assert_int_equal(b[10], (int)(63 * sqrt(50.0 / 114) + 0.5)); /* of 100 tokens at half, and 64 */
    assert_int_equal(b[13], (int)(63 * sqrt(76.5 / 114) + 0.5));
    assert_int_equal(b[14], (int)(63 * sqrt(64.0 / 114) + 0.5));
    /* The cache is made anew: counts begin at 0, and so does the heat. */
    memset(model->layer[2].uses, 0, sizeof model->layer[2].uses);
    model->layer[2].uses[1] = 2;
    model->layer[2].uses[2] = 2;
    look(&m, model, scratch, b, 15);
    assert_int_equal(b[10], 0);
    assert_int_equal(b[11], 63);
    /* Another model. */
    model->layers = 2;
    model->experts = 8;
    model->layer[0].uses[7] = 10;
    model->layer[0].uses[6] = 10;
    look(&m, model, scratch, b, 16);
    assert_int_equal(b[7], 63);
    assert_int_equal(b[0], 0);
    model->layers = 0;
    look(&m, model, scratch, b, 0);
    map_free(&m);
    free(scratch);
    free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host),        cmocka_unit_test(test_origin),
        cmocka_unit_test(test_token),       cmocka_unit_test(test_rates_generation),
        cmocka_unit_test(test_rates_pause), cmocka_unit_test(test_rates_prompt),
        cmocka_unit_test(test_rates_slots), cmocka_unit_test(test_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
