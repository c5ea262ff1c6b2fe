/*
 * address.c - where the window listens, from text.
 *
 * Here and not with the window, because it is a setting: it is checked where all settings are, before a model is
 * loaded, also by `sluice exec`, which has no window.
 */
#include "memory/address.h"

#include <arpa/inet.h>
#include <string.h>

#include "sluice.h"

/* 0..65535 in digits, all of the text. */
static bool address_port(const char *text, uint16_t *port) {
    uint32_t n = 0;
    size_t i = 0;
    for (; text[i] >= '0' && text[i] <= '9' && i < 5; i++) {
        n = n * 10 + (uint32_t)(text[i] - '0');
    }
    if (i == 0 || text[i] || n > 65535) {
        return false;
    }
    *port = (uint16_t)n;
    return true;
}

bool plan_address_literal(const char *text, struct plan_address *a) {
    static const uint8_t zero[16], one[16] = {[15] = 1};
    struct plan_address x = {.v6 = strchr(text, ':') != NULL};
    if (inet_pton(x.v6 ? AF_INET6 : AF_INET, text, x.ip) != 1) {
        return false;
    }
    x.loopback = x.v6 ? memcmp(x.ip, one, sizeof one) == 0 : x.ip[0] == 127;
    x.any = memcmp(x.ip, zero, sizeof zero) == 0;
    if (!inet_ntop(x.v6 ? AF_INET6 : AF_INET, x.ip, x.host, sizeof x.host)) {
        return false;
    }
    *a = x;
    return true;
}

bool plan_address_parse(const char *text, struct plan_address *a) {
    struct plan_address x;
    uint16_t port;
    char host[SLUICE_ADDRESS_MAX];
    if (strlen(text) >= sizeof host) {
        return false;
    }
    if (address_port(text, &port)) {
        plan_address_literal("127.0.0.1", a);
        a->port = port;
        return true;
    }
    const char *colon = strrchr(text, ':');
    if (!colon || !address_port(colon + 1, &port)) {
        return false;
    }
    size_t n = (size_t)(colon - text);
    const bool brackets = n >= 2 && text[0] == '[' && text[n - 1] == ']';
    memcpy(host, text + brackets, n - 2 * brackets);
    host[n - 2 * brackets] = '\0';
    if (!plan_address_literal(strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, &x) || x.v6 != brackets) {
        return false;
    }
    x.port = port;
    *a = x;
    return true;
}
