/*
 * http.h - one small HTTP request to a server of this machine, without ever waiting: only its status is of interest.
 */
#ifndef SLUICE_CLI_HTTP_H
#define SLUICE_CLI_HTTP_H

#include <stddef.h>

#include "cli/address.h"

enum {
    CLI_HTTP_PENDING = 0, /* call cli_http_step again when the descriptor is ready */
    CLI_HTTP_FAILED = -1  /* nobody listens, the connection broke, or the answer is not HTTP */
};

/* A request under way. fd is -1 when there is none. */
struct cli_http {
    char request[1024]; /* head and body */
    size_t n_request;   /* bytes of it */
    size_t n_sent;      /* bytes of it that are out */
    char answer[16];    /* the beginning of the answer: "HTTP/1.1 200" */
    size_t n_answer;    /* bytes of it */
    int fd;             /* the connection; -1: none */
};

/* Begin: a GET, or a POST of a JSON text. Returns CLI_HTTP_PENDING or CLI_HTTP_FAILED. */
int cli_http_begin(struct cli_http *h, const struct cli_address *to, const char *path, const char *json);

/* What poll is to wait for. */
short cli_http_events(const struct cli_http *h);

/* Go on. Returns the status of the answer (100..599) once all of it has arrived, or one of the above. Never sleeps. */
int cli_http_step(struct cli_http *h);

/* Give up or clean up; does nothing without a request. */
void cli_http_end(struct cli_http *h);

#endif
