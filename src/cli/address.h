/*
 * address.h - where a server listens: found, checked, spelled as a URL.
 */
#ifndef SLUICE_CLI_ADDRESS_H
#define SLUICE_CLI_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { CLI_HOST_MAX = 256 /* bytes of a host's name with its terminator */ };

struct cli_address {
    char host[CLI_HOST_MAX];     /* as the user spelled it, without brackets */
    char url[CLI_HOST_MAX + 32]; /* "http://127.0.0.1:8080"; of an address for all, that of this machine itself */
    struct sockaddr_storage at;  /* where to connect from this machine */
    socklen_t n_at;              /* bytes of it */
    uint16_t port;               /* in host byte order */
    bool any;                    /* it stands for all addresses of this machine */
    bool loopback;               /* no other machine can reach it */
};

/*
 * Find the address and see that nobody listens there now, port 0 becoming a free one. `option` and `port_option` are
 * what messages name. Returns 0, or an exit code after printing one line. Between this and the server's own bind
 * another program can take the port; then the server's message says so.
 */
int cli_address_take(struct cli_address *a, const char *host, uint16_t port, const char *command, const char *option,
                     const char *port_option);

#endif
