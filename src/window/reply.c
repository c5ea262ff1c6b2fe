/*
 * reply.c - answers, the headers that all of them have, and the page, which is in the program.
 *
 * Nothing is to be kept (the numbers are old at once), nothing is to be taken for another type than it is, nothing may
 * be framed or be loaded by a page from elsewhere, and the address, which had the token in it, is told to nobody.
 *
 * The page is one file, made at build time (src/window/page/, cmake/embed.cmake): nothing is read from disk by name,
 * and the page asks nobody else. Its scripts and styles are in it, and the policy allows those alone: each answer has a
 * fresh nonce, put where the file says @NONCE@. So a text that found its way into the page's document (an answer of the
 * model, in the chat) cannot become a script, even if the page should fail to escape it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "window/impl.h"

static const char reply_policy[] = "default-src 'none'; frame-ancestors 'none'";

enum MHD_Result reply_queue(struct MHD_Connection *c, unsigned status, struct MHD_Response *r, const char *type,
                            const char *policy) {
    const char *const header[][2] = {
        {MHD_HTTP_HEADER_CONTENT_TYPE, type},
        {MHD_HTTP_HEADER_CACHE_CONTROL, "no-store"},
        {"Content-Security-Policy", policy ? policy : reply_policy},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Referrer-Policy", "no-referrer"},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
    };
    bool ok = r != NULL;
    for (size_t i = 0; ok && i < sizeof header / sizeof *header; i++) {
        ok = MHD_add_response_header(r, header[i][0], header[i][1]) == MHD_YES;
    }
    const enum MHD_Result rc = ok ? MHD_queue_response(c, status, r) : MHD_NO;
    if (r) {
        MHD_destroy_response(r);
    }
    return rc;
}

struct MHD_Response *reply_text(char *body, size_t n) {
    struct MHD_Response *r = body ? MHD_create_response_from_buffer(n, body, MHD_RESPMEM_MUST_FREE) : NULL;
    if (!r) {
        free(body);
    }
    return r;
}

enum MHD_Result reply_json(struct MHD_Connection *c, unsigned status, json_t *object, const char *allow) {
    const struct {
        unsigned status;
        const char *name, *value; /* a header that belongs to it */
    } extra[] = {
        {MHD_HTTP_UNAUTHORIZED, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer realm=\"sluice\""},
        {MHD_HTTP_SERVICE_UNAVAILABLE, MHD_HTTP_HEADER_RETRY_AFTER, "5"},
        {MHD_HTTP_METHOD_NOT_ALLOWED, MHD_HTTP_HEADER_ALLOW, allow},
    };
    size_t n = 0;
    char *text = stats_text(object, &n);
    struct MHD_Response *r = reply_text(text, n);
    for (size_t i = 0; r && i < sizeof extra / sizeof *extra; i++) {
        if (extra[i].status == status && MHD_add_response_header(r, extra[i].name, extra[i].value) != MHD_YES) {
            MHD_destroy_response(r);
            return MHD_NO;
        }
    }
    return reply_queue(c, status, r, "application/json", NULL);
}

json_t *reply_failure(const char *message, const char *setting, json_t *changed) {
    return json_pack("{s:b,s:s,s:s?,s:o}", "ok", 0, "error", message, "setting", setting, "changed",
                     changed ? changed : json_array());
}

/* ---- the page -------------------------------------------------------------------------------- */

/* The file. Made by cmake/embed.cmake; a test has its own. */
extern const unsigned char window_page[];
extern const size_t window_page_n;

static const char page_mark[] = "@NONCE@";

enum { PAGE_NONCE = 32 }; /* hexadecimal digits of a nonce */

/* The page with the nonce in it, by malloc. NULL: no memory. */
static char *page_text(const char *nonce, size_t *n) {
    const char *p = (const char *)window_page, *end = p + window_page_n;
    size_t marks = 0;
    for (const char *m = p; (m = memmem(m, (size_t)(end - m), page_mark, sizeof page_mark - 1)); m++) {
        marks++;
    }
    char *text = malloc(window_page_n + marks * PAGE_NONCE + 1), *to = text;
    if (!text) {
        return NULL;
    }
    for (const char *m; (m = memmem(p, (size_t)(end - p), page_mark, sizeof page_mark - 1)); p = m) {
        memcpy(to, p, (size_t)(m - p));
        to += m - p;
        memcpy(to, nonce, PAGE_NONCE);
        to += PAGE_NONCE;
        m += sizeof page_mark - 1;
    }
    memcpy(to, p, (size_t)(end - p));
    *n = (size_t)(to - text) + (size_t)(end - p);
    return text;
}

/*
 * The origin of the chat API as this request's page is to call it; "" when there is none. A policy cannot name an IPv6
 * address (its grammar has no brackets, and browsers then ignore the source): any host at that port stands for it.
 */
static void page_chat(const struct window *w, const char *host, char *buf, size_t cap) {
    const bool v6 = w->chat.same_host ? host[0] == '[' : strchr(w->chat.origin, '[') != NULL;
    if (w->chat.there && v6) {
        snprintf(buf, cap, " http://*:%u", (unsigned)w->chat.port);
    } else if (w->chat.there && w->chat.same_host) {
        snprintf(buf, cap, " http://%.*s:%u", (int)strcspn(host, ":"), host, (unsigned)w->chat.port);
    } else {
        snprintf(buf, cap, "%s%s", w->chat.there ? " " : "", w->chat.origin);
    }
}

enum MHD_Result reply_page(struct window *w, struct MHD_Connection *c, const char *host) {
    char nonce[PAGE_NONCE + 1], policy[512], chat[160];
    size_t n = 0;
    if (!guard_random(nonce, PAGE_NONCE)) {
        return MHD_NO;
    }
    page_chat(w, host, chat, sizeof chat);
    snprintf(policy, sizeof policy,
             "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; img-src data:; connect-src 'self'%s; "
             "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
             nonce, nonce, chat);
    char *text = page_text(nonce, &n);
    return reply_queue(c, MHD_HTTP_OK, reply_text(text, n), "text/html; charset=utf-8", policy);
}
