/*
 * address.c - see address.h.
 *
 * The port is tried here, before a model is loaded, because "in use" is the most common failure of a server's start,
 * and because the window is told where the chat is before llama-server exists.
 */
#include "cli/address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/args.h"

/* The port inside a socket address. NULL: it has none. */
static in_port_t *port_of(struct sockaddr_storage *at) {
    return at->ss_family == AF_INET    ? &((struct sockaddr_in *)(void *)at)->sin_port
           : at->ss_family == AF_INET6 ? &((struct sockaddr_in6 *)(void *)at)->sin6_port
                                       : NULL;
}

/* Is it the address that stands for all of this machine's? Then it becomes the loopback address, where we connect. */
static bool any_address(struct sockaddr_storage *at) {
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)at;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)at;
    if (at->ss_family == AF_INET && v4->sin_addr.s_addr == htonl(INADDR_ANY)) {
        v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return true;
    }
    if (at->ss_family == AF_INET6 && memcmp(&v6->sin6_addr, &in6addr_any, sizeof in6addr_any) == 0) {
        v6->sin6_addr = in6addr_loopback;
        return true;
    }
    return false;
}

static bool is_loopback(const struct sockaddr_storage *at) {
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)at;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)at;
    return at->ss_family == AF_INET ? ntohl(v4->sin_addr.s_addr) >> 24 == 127
                                    : memcmp(&v6->sin6_addr, &in6addr_loopback, sizeof in6addr_loopback) == 0;
}

/* Bind and let go. The address gets the port that it was. */
static int try_bind(struct cli_address *a, const char *command, const char *option, const char *port_option) {
    const int fd = socket(a->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1; /* as llama-server does: connections that linger from an earlier server are no obstacle */
    int error = 0;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(fd, (const struct sockaddr *)&a->at, a->n_at) != 0 || listen(fd, 1) != 0 ||
        getsockname(fd, (struct sockaddr *)&a->at, &a->n_at) != 0) {
        error = errno;
    }
    if (fd >= 0) {
        close(fd);
    }
    switch (error) {
    case 0:
        a->port = ntohs(*port_of(&a->at));
        return 0;
    case EADDRINUSE:
        return cli_fail(CLI_EXIT_FAILED, command,
                        "port %d of %s is in use: choose another with %s, or end the program that listens there",
                        a->port, a->host, port_option);
    case EADDRNOTAVAIL:
        return cli_fail(CLI_EXIT_USAGE, command, "%s %s: not an address of this machine", option, a->host);
    case EACCES:
        return cli_fail(CLI_EXIT_FAILED, command,
                        "port %d of %s: no right to listen there (ports from 1024 on are free for all)", a->port,
                        a->host);
    default:
        return cli_fail(CLI_EXIT_FAILED, command, "port %d of %s: %s", a->port, a->host, strerror(error));
    }
}

int cli_address_take(struct cli_address *a, const char *host, uint16_t port, const char *command, const char *option,
                     const char *port_option) {
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    memset(a, 0, sizeof *a);
    snprintf(a->host, sizeof a->host, "%s", host);
    a->port = port;
    const int rc = strlen(host) < sizeof a->host ? getaddrinfo(host, NULL, &hints, &found) : EAI_NONAME;
    if (rc != 0) {
        return cli_fail(CLI_EXIT_USAGE, command, "%s %.200s: %s", option, host,
                        rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
    }
    a->n_at = found->ai_addrlen;
    memcpy(&a->at, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    in_port_t *at_port = port_of(&a->at);
    if (!at_port) {
        return cli_fail(CLI_EXIT_USAGE, command, "%s %s: not an internet address", option, host);
    }
    *at_port = htons(port);
    const int bound = try_bind(a, command, option, port_option);
    if (bound) {
        return bound;
    }
    a->any = any_address(&a->at);
    a->loopback = !a->any && is_loopback(&a->at);
    const char *name = !a->any ? a->host : a->at.ss_family == AF_INET ? "127.0.0.1" : "::1";
    const bool brackets = strchr(name, ':') != NULL;
    snprintf(a->url, sizeof a->url, "http://%s%s%s:%d", brackets ? "[" : "", name, brackets ? "]" : "", a->port);
    return 0;
}
