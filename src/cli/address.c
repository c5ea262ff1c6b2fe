/*
 * address.c - see address.h.
 *
 * The port is tried here, before a model is loaded, because "in use" is the most common failure of a server's start,
 * and because the window is told where the chat is before llama-server exists.
 */
#include "cli/address.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/args.h"
#include "memory/address.h"

/* The socket address of a name and a port. Returns what getaddrinfo does. */
static int resolve(struct cli_address *a, const char *host, uint16_t port) {
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char service[8];
    snprintf(service, sizeof service, "%d", port);
    const int rc = getaddrinfo(host, service, &hints, &found);
    if (rc == 0) {
        a->n_at = found->ai_addrlen;
        memcpy(&a->at, found->ai_addr, found->ai_addrlen);
        freeaddrinfo(found);
    }
    return rc;
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
    char text[CLI_HOST_MAX], service[8];
    struct plan_address found;
    memset(a, 0, sizeof *a);
    snprintf(a->host, sizeof a->host, "%s", host);
    a->port = port;
    int rc = strlen(host) < sizeof a->host ? resolve(a, host, port) : EAI_NONAME;
    if (rc != 0) {
        return cli_fail(CLI_EXIT_USAGE, command, "%s %.200s: %s", option, host,
                        rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
    }
    rc = try_bind(a, command, option, port_option);
    if (rc) {
        return rc;
    }
    rc = getnameinfo((const struct sockaddr *)&a->at, a->n_at, text, sizeof text, service, sizeof service,
                     NI_NUMERICHOST | NI_NUMERICSERV);
    text[rc ? 0 : strcspn(text, "%")] = '\0'; /* fe80::1%eth0: without the interface */
    if (!plan_address_literal(text, &found)) {
        return cli_fail(CLI_EXIT_USAGE, command, "%s %s: not an internet address", option, host);
    }
    a->port = (uint16_t)strtoul(service, NULL, 10);
    a->any = found.any;
    a->loopback = found.loopback;
    const char *name = !a->any ? a->host : found.v6 ? "::1" : "127.0.0.1"; /* where this machine reaches it */
    const bool brackets = strchr(name, ':') != NULL;
    snprintf(a->url, sizeof a->url, "http://%s%s%s:%d", brackets ? "[" : "", name, brackets ? "]" : "", a->port);
    return a->any && resolve(a, name, a->port) ? cli_fail(CLI_EXIT_FAILED, command, "%s cannot be reached", a->url) : 0;
}
