/*
 * reply.c - answers, and the headers that all of them have.
 *
 * Nothing is to be kept (the numbers are old at once), nothing is to be taken for another type than it is, nothing may
 * be framed or be loaded by a page from elsewhere, and the address, which had the token in it, is told to nobody.
 */
#include <stdlib.h>
#include <string.h>

#include "window/impl.h"

const char reply_policy[] = "default-src 'none'; frame-ancestors 'none'";

bool reply_headers(struct MHD_Response *r, const char *type, const char *policy) {
    const char *const header[][2] = {
        {MHD_HTTP_HEADER_CONTENT_TYPE, type}, {MHD_HTTP_HEADER_CACHE_CONTROL, "no-store"},
        {"Content-Security-Policy", policy},  {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Referrer-Policy", "no-referrer"},   {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
    };
    for (size_t i = 0; i < sizeof header / sizeof *header; i++) {
        if (MHD_add_response_header(r, header[i][0], header[i][1]) != MHD_YES) {
            return false;
        }
    }
    return true;
}

enum MHD_Result reply(struct window *w, struct MHD_Connection *c, unsigned status, const char *type, char *body,
                      size_t n, const char *extra, const char *value) {
    (void)w;
    struct MHD_Response *r = body ? MHD_create_response_from_buffer(n, body, MHD_RESPMEM_MUST_FREE) : NULL;
    if (!r) {
        free(body);
        return MHD_NO; /* no memory: the connection is closed */
    }
    enum MHD_Result rc = MHD_NO;
    if (reply_headers(r, type, reply_policy) && (!extra || MHD_add_response_header(r, extra, value) == MHD_YES)) {
        rc = MHD_queue_response(c, status, r);
    }
    MHD_destroy_response(r);
    return rc;
}

enum MHD_Result reply_failure(struct window *w, struct MHD_Connection *c, unsigned status, const char *message,
                              const char *setting, json_t *changed) {
    static const struct {
        unsigned status;
        const char *name, *value; /* a header that belongs to it */
    } extra[] = {
        {MHD_HTTP_UNAUTHORIZED, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer realm=\"sluice\""},
        {MHD_HTTP_SERVICE_UNAVAILABLE, MHD_HTTP_HEADER_RETRY_AFTER, "5"},
    };
    size_t n = 0, at = 0;
    json_t *o = json_pack("{s:b,s:s,s:s?,s:o}", "ok", 0, "error", message, "setting", setting, "changed",
                          changed ? changed : json_array());
    char *text = stats_text(o, &n);
    while (at < sizeof extra / sizeof *extra && extra[at].status != status) {
        at++;
    }
    const bool has = at < sizeof extra / sizeof *extra;
    return reply(w, c, status, "application/json", text, n, has ? extra[at].name : NULL, has ? extra[at].value : NULL);
}
