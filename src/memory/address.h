/* address.h - where the window listens (docs/window.md): a numeric address and a port, from text. */
#ifndef SLUICE_MEMORY_ADDRESS_H
#define SLUICE_MEMORY_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

struct plan_address {
    bool v6;        /* IPv6; else IPv4 */
    bool loopback;  /* only programs of this machine reach it: 127.0.0.0/8 or ::1 */
    bool any;       /* all addresses of this machine: 0.0.0.0 or :: */
    uint8_t ip[16]; /* network order; the first 4 of IPv4 */
    uint16_t port;  /* 0: any free one */
    char host[48];  /* the address in its usual spelling, without brackets */
};

/*
 * "127.0.0.1:8090", "[::1]:8090", "localhost:8090" (which is 127.0.0.1), or a port alone, on 127.0.0.1. No other names:
 * an address must not depend on who answers for a name. False, leaving *a alone, for anything else, and for
 * SLUICE_ADDRESS_MAX bytes and more.
 */
bool plan_address_parse(const char *text, struct plan_address *a);

/* An address without a port: "127.0.0.1", "::1". Port becomes 0. False, leaving *a alone, for anything else. */
bool plan_address_literal(const char *text, struct plan_address *a);

#endif
