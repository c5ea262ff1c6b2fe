/*
 * guard.c - who may ask the window.
 *
 * The window shows what runs and changes how it runs, on a port that every program and every web page of this machine
 * can connect to. So:
 *
 *   Host      A web page cannot choose this header: the browser puts the name of the address bar there. A page that had
 *             its own name point to 127.0.0.1 after it was loaded, to read us as if we were its server, is known by it.
 *   Origin    A page from elsewhere that sends us a request has its own origin there. Ours is the only one allowed, for
 *             reading too; the browser would keep the answer from it anyway, since we send no CORS headers.
 *   token     Changing anything needs it. It is in the fragment of the printed address, which browsers do not send,
 *             and in a header of its own, which a page from elsewhere may not set without asking first.
 *
 * Reading needs no token. Whoever can connect to a loopback port can either read the memory of the process anyway, or
 * is another user of this machine, from whom the numbers need no hiding. docs/window.md says so.
 */
#include "window/guard.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "cache/error.h"

bool guard_random(char *hex, size_t digits) {
    for (size_t i = 0; i < digits; i++) {
        uint8_t chance;
        ssize_t n;
        while ((n = getrandom(&chance, 1, 0)) < 0 && errno == EINTR) {
        }
        if (n != 1) {
            return false;
        }
        hex[i] = "0123456789abcdef"[chance & 15];
    }
    hex[digits] = '\0';
    return true;
}

int guard_token(struct guard *g, const char *token, struct sluice_error *err) {
    if (token) {
        static const char bytes[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        const size_t n = strspn(token, bytes);
        if (n < GUARD_TOKEN_MIN || n > GUARD_TOKEN_MAX || token[n]) {
            return sluice_fail(err, SLUICE_ERR_ARG, "SLUICE_WINDOW_TOKEN: %d to %d letters, digits, - and _ are wanted",
                               GUARD_TOKEN_MIN, GUARD_TOKEN_MAX);
        }
        memcpy(g->token, token, n + 1);
        return sluice_ok(err);
    }
    if (!guard_random(g->token, GUARD_CHANCE)) {
        return sluice_fail(err, SLUICE_ERR_IO, "window: no random numbers for a token: %s", strerror(errno));
    }
    return sluice_ok(err);
}

bool guard_host(const struct guard *g, const char *host) {
    static const char local[] = "localhost";
    char text[SLUICE_ADDRESS_MAX];
    struct plan_address a;
    const char *end = host && host[0] == '[' ? strchr(host, ']') : host; /* after it a colon is that of the port */
    const char *port = end ? strchr(end, ':') : NULL;
    const char *add = port ? "" : ":80"; /* that of HTTP, if none is named */
    if (!end || (port && port[1] == '0')) {
        return false;
    }
    const bool named = strncasecmp(host, local, sizeof local - 1) == 0;
    const char *rest = named ? host + sizeof local - 1 : host;
    const int n = snprintf(text, sizeof text, "%s%s%s", named ? local : "", rest, add);
    if (n >= (int)sizeof text || !plan_address_parse(text, &a) || a.port != g->address.port) {
        return false;
    }
    if (named) {
        return g->address.loopback || g->allow_remote;
    }
    /* Where other machines may ask, a router in between may give us another address than we know. */
    return g->allow_remote || (a.v6 == g->address.v6 && memcmp(a.ip, g->address.ip, sizeof a.ip) == 0);
}

bool guard_origin(const char *origin, const char *host) {
    static const char scheme[] = "http://";
    return !origin || (host && strncasecmp(origin, scheme, sizeof scheme - 1) == 0 &&
                       strcasecmp(origin + sizeof scheme - 1, host) == 0);
}

/* Equal? Looks at all bytes of the token whatever the first of them are. */
static bool guard_equal(const struct guard *g, const char *text) {
    char padded[GUARD_TOKEN_MAX + 1] = {0}, own[GUARD_TOKEN_MAX + 1] = {0};
    const size_t n = strnlen(text, sizeof padded);
    memcpy(padded, text, n < sizeof padded ? n : sizeof padded);
    memcpy(own, g->token, strlen(g->token));
    volatile uint8_t differ = 0; /* volatile: or a compiler might leave the loop early */
    for (size_t i = 0; i < sizeof padded; i++) {
        differ = differ | (uint8_t)(padded[i] ^ own[i]);
    }
    return differ == 0;
}

enum guard_verdict guard_judge(const struct guard *g, const char *token, const char *authorization) {
    static const char bearer[] = "Bearer ";
    if (!token && authorization && strncasecmp(authorization, bearer, sizeof bearer - 1) == 0) {
        token = authorization + sizeof bearer - 1;
        token += strspn(token, " ");
    }
    if (!token || !token[0]) {
        return GUARD_MISSING;
    }
    return guard_equal(g, token) ? GUARD_RIGHT : GUARD_WRONG;
}
