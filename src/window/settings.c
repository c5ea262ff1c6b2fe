/*
 * settings.c - the settings as the window tells them, and changing them by a request.
 *
 * Values mean what they mean in the environment and on the command line, because the same parser reads them
 * (sluice_settings_set); JSON's numbers and booleans become its text first. Everything in a request is checked before
 * anything is put into force. What is in force by then stays if a later one fails, and the answer says which.
 *
 * The cache comes first: with a smaller one there may be room for nothing else.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/settings.h"
#include "cache/clock.h"
#include "cache/error.h"
#include "window/impl.h"

enum { POST_VALUE = 64 }; /* bytes of a value, terminator included */

enum kind { CACHE, SHARE, SWITCH, WORD, NUMBER, BYTES, LIMIT, NAME, EXPERTS };

static const char fixed[] = "fixed when the program starts";
static const char loaded[] = "fixed when the model is loaded: start again with --n-expert-used K "
                             "(stock programs: --override-kv ARCHITECTURE.expert_used_count=int:K)";

#define AT(field) offsetof(struct sluice_settings, field)

/* The settings that there are, in the order in which they are told and put into force. */
static const struct setting {
    const char *name;     /* of the setting */
    enum kind kind;       /* how it is told */
    size_t at;            /* its field in struct sluice_settings, if it has one of its own */
    bool lossy;           /* it changes the output when it is on and experts are dropped */
    const char *reason;   /* why it cannot be changed while models run; "": it can */
    const char *on, *off; /* what true and false are in the environment; NULL: it is no switch, or never changed */
} settings[] = {
    {"cache", CACHE, 0, false, "", NULL, NULL},
    {"drop_cold_experts", SHARE, AT(drop_cold_experts), true, "", NULL, NULL},
    {"drop_renorm", SWITCH, AT(drop_renorm), true, "", "on", "off"},
    {"lookahead", SWITCH, AT(lookahead), false, "", "1", "0"},
    {"n_expert_used", EXPERTS, 0, true, loaded, NULL, NULL},
    {"drop_in_prefill", SWITCH, AT(drop_in_prefill), true, fixed, NULL, NULL},
    {"drop_reproducible", SWITCH, AT(drop_reproducible), false, fixed, NULL, NULL},
    {"cold_model", NAME, AT(cold_model), true, fixed, NULL, NULL},
    {"cache_policy", WORD, 0, false, fixed, NULL, NULL},
    {"dense", WORD, 0, false, fixed, NULL, NULL},
    {"io", WORD, 0, false, fixed, NULL, NULL},
    {"io_threads", NUMBER, AT(io_threads), false, fixed, NULL, NULL},
    {"memory", LIMIT, AT(memory_bytes), false, fixed, NULL, NULL},
    {"staging", BYTES, AT(staging_bytes), false, fixed, NULL, NULL},
};

enum { POST_N = sizeof settings / sizeof *settings, POST_DROP = 1 /* place of drop_cold_experts */ };

/* ---- telling them ---------------------------------------------------------------------------- */

/* The cache's value: text that would set it. */
static json_t *cache_json(const struct sluice_settings *s) {
    const bool whole = s->cache_bytes % (1 << 20) == 0;
    if (s->cache != SLUICE_CACHE_FIXED) {
        return json_string(s->cache == SLUICE_CACHE_OFF ? "off" : "auto");
    }
    return json_sprintf("%" PRIu64 "%s", whole ? s->cache_bytes >> 20 : s->cache_bytes, whole ? "MiB" : "B");
}

/* A setting's value, and whether it is more than nothing. */
static json_t *value_json(const struct setting *row, const struct window_numbers *x, bool *on) {
    const void *field = (const char *)&x->facts.settings + row->at;
    const char *name = field, *slash;
    *on = false;
    switch (row->kind) {
    case CACHE:
        return cache_json(field);
    case SHARE:
        *on = *(const double *)field > 0;
        return json_real(*(const double *)field);
    case SWITCH:
        *on = *(const bool *)field;
        return json_boolean(*on);
    case WORD:
        return json_string(settings_word(&x->facts.settings, row->name));
    case NUMBER:
        return json_integer(*(const int *)field);
    case LIMIT:
    case BYTES:
        *on = *(const uint64_t *)field > 0;
        return *on || row->kind == BYTES ? json_integer((json_int_t) * (const uint64_t *)field) : json_null();
    case NAME:
        *on = name[0] != '\0';
        slash = strrchr(name, '/');
        return *on ? stats_string(slash ? slash + 1 : name) : json_null();
    case EXPERTS:
        *on = x->facts.experts_own && x->experts_used && x->facts.experts_own != x->experts_used;
        return x->experts_used ? json_integer(x->experts_used) : json_null();
    }
    return NULL;
}

json_t *settings_json(const struct window *w) {
    const struct sluice_settings *s = &w->now.facts.settings;
    json_t *all = json_object();
    bool ok = true;
    for (const struct setting *row = settings; ok && row < settings + POST_N; row++) {
        bool on;
        json_t *value = value_json(row, &w->now, &on);
        const bool lossy = row->lossy && on && (s->drop_cold_experts > 0 || row->kind == EXPERTS);
        json_t *o = json_pack("{s:o,s:b,s:b,s:s}", "value", value, "changeable", row->reason[0] == '\0', "lossy",
                              (int)lossy, "reason", row->reason);
        if (row->kind == CACHE) { /* and its size for programs */
            json_object_set_new(
                o, "bytes", s->cache == SLUICE_CACHE_FIXED ? json_integer((json_int_t)s->cache_bytes) : json_null());
        }
        ok = json_object_set_new(all, row->name, o) == 0;
    }
    if (!ok) {
        json_decref(all);
        return NULL;
    }
    return all;
}

/* ---- changing them --------------------------------------------------------------------------- */

/* What a request wants. */
struct post {
    bool given[POST_N];             /* the setting is in it */
    char value[POST_N][POST_VALUE]; /* its text */
    unsigned status;                /* of the failure; 0: none so far */
    const char *setting;            /* that it is about; NULL: none */
    struct sluice_error why;        /* its message */
};

#define POST_FAIL(p, code, name, ...)                                                                                  \
    ((p)->status = (code), (p)->setting = (name), (void)sluice_fail(&(p)->why, SLUICE_ERR_ARG, __VA_ARGS__), false)

/* Note a value. False: it cannot be. */
static bool post_note(struct post *p, const char *name, const char *value) {
    size_t i = 0;
    while (i < POST_N && strcmp(settings[i].name, name) != 0) {
        i++;
    }
    if (i == POST_N) {
        return POST_FAIL(p, MHD_HTTP_BAD_REQUEST, NULL, "no setting is called '%.64s'", name);
    }
    name = settings[i].name;
    if (p->given[i]) {
        return POST_FAIL(p, MHD_HTTP_BAD_REQUEST, name, "%s is given twice", name);
    }
    if (settings[i].on) {
        value = strcmp(value, "true") == 0 ? settings[i].on : strcmp(value, "false") == 0 ? settings[i].off : value;
    }
    if (strlen(value) >= POST_VALUE) {
        return POST_FAIL(p, MHD_HTTP_BAD_REQUEST, name, "%s: the value is too long", name);
    }
    p->given[i] = true;
    snprintf(p->value[i], POST_VALUE, "%s", value);
    return true;
}

/* A JSON number as the environment would have it: no exponent, and a point whatever the locale. False: it has none
 * such. */
static bool post_number(const json_t *v, char text[POST_VALUE]) {
    if (json_is_integer(v)) {
        snprintf(text, POST_VALUE, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        return true;
    }
    const double x = json_real_value(v);
    if (!(x >= 0 && x < 1e15)) {
        return false;
    }
    uint64_t whole = (uint64_t)x, part = (uint64_t)((x - (double)whole) * 1e9 + 0.5);
    whole += part == 1000000000;
    part = part == 1000000000 ? 0 : part;
    int n = snprintf(text, POST_VALUE, "%" PRIu64 ".%09" PRIu64, whole, part);
    while (n > 2 && text[n - 1] == '0' && text[n - 2] != '.') {
        text[--n] = '\0';
    }
    return true;
}

static bool post_json(struct post *p, const char *body, size_t n) {
    json_error_t where;
    json_t *o = json_loadb(body, n, JSON_REJECT_DUPLICATES, &where);
    const char *name;
    json_t *v;
    if (!json_is_object(o)) {
        json_decref(o);
        return POST_FAIL(p, MHD_HTTP_BAD_REQUEST, NULL, "not a JSON object%s%s", o ? "" : ": ", o ? "" : where.text);
    }
    bool ok = true;
    json_object_foreach(o, name, v) {
        char number[POST_VALUE];
        if (json_is_string(v) && strlen(json_string_value(v)) == json_string_length(v)) {
            ok = post_note(p, name, json_string_value(v));
        } else if (json_is_boolean(v)) {
            ok = post_note(p, name, json_is_true(v) ? "true" : "false");
        } else if (json_is_number(v) && post_number(v, number)) {
            ok = post_note(p, name, number);
        } else {
            ok = POST_FAIL(p, MHD_HTTP_BAD_REQUEST, NULL, "%.64s: not a value", name);
        }
        if (!ok) {
            break;
        }
    }
    json_decref(o);
    return ok;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Undo a form's encoding of n bytes, in place, with a terminator. False: it is none, or holds a zero byte. */
static bool form_decode(char *text, size_t n) {
    size_t to = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i] == '+' ? ' ' : text[i];
        if (text[i] == '%') {
            const int high = i + 2 < n ? hex_digit(text[i + 1]) : -1;
            const int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
            if (low < 0) {
                return false;
            }
            c = (char)(high << 4 | low);
            i += 2;
        }
        if (c == '\0') {
            return false;
        }
        text[to++] = c;
    }
    text[to] = '\0';
    return true;
}

static bool post_form(struct post *p, const char *body, size_t n) {
    char text[WINDOW_BODY_MAX + 1];
    memcpy(text, body, n);
    text[n] = '\0';
    for (char *field = text, *end; field < text + n; field = end + 1) {
        const size_t left = (size_t)(text + n - field);
        end = memchr(field, '&', left);
        end = end ? end : text + n;
        char *equals = memchr(field, '=', (size_t)(end - field));
        char *value = equals ? equals + 1 : end;
        const size_t value_n = (size_t)(end - value), name_n = equals ? (size_t)(equals - field) : 0;
        if (!equals || !form_decode(value, value_n) || !form_decode(field, name_n)) {
            return POST_FAIL(p, MHD_HTTP_BAD_REQUEST, NULL, "not a form");
        }
        if (!post_note(p, field, value)) {
            return false;
        }
    }
    return true;
}

/* Check all that is wanted against what is in force. */
static bool post_check(struct post *p, const struct window *w, struct sluice_settings *next) {
    bool any = false;
    struct sluice_error why;
    *next = w->now.facts.settings;
    for (size_t i = 0; i < POST_N; i++) {
        const char *name = settings[i].name;
        if (p->given[i] && settings[i].reason[0]) {
            return POST_FAIL(p, MHD_HTTP_CONFLICT, name,
                             "%s cannot be changed while it runs (see its reason in /stats)", name);
        }
        if (p->given[i] && sluice_settings_set(next, name, p->value[i], &why)) {
            return POST_FAIL(p, MHD_HTTP_BAD_REQUEST, name, "%s", why.message);
        }
        any = any || p->given[i];
    }
    if (!any) {
        return POST_FAIL(p, MHD_HTTP_BAD_REQUEST, NULL, "no setting is given");
    }
    if (p->given[POST_DROP] && settings_check_drop(next->drop_cold_experts, next->cache, &why)) {
        return POST_FAIL(p, MHD_HTTP_CONFLICT, settings[POST_DROP].name, "%s", why.message);
    }
    return true;
}

enum MHD_Result settings_post(struct window *w, struct MHD_Connection *c, const char *body, size_t n, bool form) {
    struct post p = {0};
    struct sluice_settings next;
    w->source.numbers(w->source.ud, &w->now, true);
    if (!(form ? post_form(&p, body, n) : post_json(&p, body, n)) || !post_check(&p, w, &next)) {
        return reply_json(c, p.status, reply_failure(p.why.message, p.setting, NULL), NULL);
    }
    json_t *changed = json_array();
    const double begun = clock_seconds();
    for (size_t i = 0; i < POST_N && !p.status; i++) {
        if (!p.given[i]) {
            continue;
        }
        if (w->source.set(w->source.ud, settings[i].name, &next, &p.why)) {
            p.status = MHD_HTTP_CONFLICT;
            p.setting = settings[i].name;
        } else {
            json_array_append_new(changed, json_string(settings[i].name));
        }
    }
    /* Nobody else was served meanwhile: that is not their being late. */
    for (struct conn *x = w->conn; x < w->conn + WINDOW_CONNS; x++) {
        x->deadline += x->deadline > 0 ? clock_seconds() - begun : 0;
    }
    if (p.status) {
        return reply_json(c, p.status, reply_failure(p.why.message, p.setting, changed), NULL);
    }
    w->source.numbers(w->source.ud, &w->now, true);
    json_t *o = json_pack("{s:b,s:o,s:o}", "ok", 1, "changed", changed, "settings", settings_json(w));
    return reply_json(c, MHD_HTTP_OK, o, NULL);
}
