/*
 * reply.c - answers, and the headers that all of them have.
 *
 * Nothing is to be kept (the numbers are old at once), nothing is to be taken for another type than it is, nothing may
 * be framed or be loaded by a page from elsewhere, and the address, which had the token in it, is told to nobody.
 */
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
