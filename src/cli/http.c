/*
 * http.c - see http.h.
 *
 * Not a library such as libcurl: `sluice serve` asks its own child three questions, on loopback, once, in clear text,
 * of which only the three digits of the status are read. That is this file; it must run inside serve's one poll, and an
 * answer need not be understood. The connection is closed by the server after each answer (Connection: close).
 */
#include "cli/http.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void cli_http_end(struct cli_http *h) {
    if (h->fd >= 0) {
        close(h->fd);
    }
    h->fd = -1;
}

static int failed(struct cli_http *h) {
    cli_http_end(h);
    return CLI_HTTP_FAILED;
}

int cli_http_begin(struct cli_http *h, const struct cli_address *to, const char *path, const char *json) {
    int n;
    h->n_sent = h->n_answer = 0;
    if (json) {
        n = snprintf(h->request, sizeof h->request,
                     "POST %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n%s",
                     path, to->url + sizeof "http://" - 1, strlen(json), json);
    } else {
        n = snprintf(h->request, sizeof h->request, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path,
                     to->url + sizeof "http://" - 1);
    }
    h->fd = -1;
    if (n < 0 || (size_t)n >= sizeof h->request) {
        return CLI_HTTP_FAILED;
    }
    h->n_request = (size_t)n;
    h->fd = socket(to->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (h->fd < 0 ||
        (connect(h->fd, (const struct sockaddr *)&to->at, to->n_at) != 0 && errno != EINPROGRESS && errno != EINTR)) {
        return failed(h);
    }
    return CLI_HTTP_PENDING;
}

short cli_http_events(const struct cli_http *h) {
    return h->n_sent < h->n_request ? POLLOUT : POLLIN;
}

/* The answer is complete: its status, if it is an answer. */
static int status_of(struct cli_http *h) {
    static const char start[] = "HTTP/1.";
    const char *a = h->answer;
    const bool right = h->n_answer >= 12 && memcmp(a, start, sizeof start - 1) == 0 && a[8] == ' ' && a[9] >= '1' &&
                       a[9] <= '5' && a[10] >= '0' && a[10] <= '9' && a[11] >= '0' && a[11] <= '9';
    cli_http_end(h);
    return right ? 100 * (a[9] - '0') + 10 * (a[10] - '0') + (a[11] - '0') : CLI_HTTP_FAILED;
}

int cli_http_step(struct cli_http *h) {
    while (h->n_sent < h->n_request) {
        /* A connection that could not be made shows here, too. */
        const ssize_t n = send(h->fd, h->request + h->n_sent, h->n_request - h->n_sent, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return CLI_HTTP_PENDING;
        }
        if (n < 0) {
            return failed(h);
        }
        h->n_sent += (size_t)n;
    }
    for (;;) {
        char rest[4096];
        const size_t room = sizeof h->answer - h->n_answer;
        const ssize_t n = room ? recv(h->fd, h->answer + h->n_answer, room, 0) : recv(h->fd, rest, sizeof rest, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return CLI_HTTP_PENDING;
        }
        if (n == 0 || (n < 0 && h->n_answer == sizeof h->answer)) {
            return status_of(h); /* an answer that breaks off after its status is one */
        }
        if (n < 0) {
            return failed(h);
        }
        h->n_answer += room ? (size_t)n : 0;
    }
}
