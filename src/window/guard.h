/* guard.h - who may ask the window: names of the host, origins, the token. */
#ifndef SLUICE_WINDOW_GUARD_H
#define SLUICE_WINDOW_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/address.h"
#include "sluice.h"

enum {
    GUARD_TOKEN_MIN = 16, /* bytes of a token */
    GUARD_TOKEN_MAX = 64, /* likewise */
    GUARD_CHANCE = 32     /* hexadecimal digits of one that is made here: 128 random bits */
};

struct guard {
    struct plan_address address;     /* where the window listens, with the port that it got */
    bool allow_remote;               /* other machines may ask */
    char token[GUARD_TOKEN_MAX + 1]; /* what changing settings needs */
};

/* Random hexadecimal digits and a terminator. False: the kernel gave none. */
bool guard_random(char *hex, size_t digits);

/* Take this token, or make one of 128 random bits (NULL). SLUICE_ERR_ARG, SLUICE_ERR_IO (the kernel gave none). */
int guard_token(struct guard *g, const char *token, struct sluice_error *err);

/*
 * Is the Host header (NULL: there was none) a name by which this window may be called? Only numeric addresses and
 * "localhost" are: a page from elsewhere whose name was made to point here (DNS rebinding) brings its own name along.
 */
bool guard_host(const struct guard *g, const char *host);

/* May a page of this Origin (NULL: the header was not there) ask, in a request to `host`? Our own page only. */
bool guard_origin(const char *origin, const char *host);

/* What became of a token. */
enum guard_verdict { GUARD_MISSING, GUARD_WRONG, GUARD_RIGHT };

/* Judge the headers X-Sluice-Token and Authorization, either may be NULL. Takes as long whatever is in them. */
enum guard_verdict guard_judge(const struct guard *g, const char *token, const char *authorization);

#endif
