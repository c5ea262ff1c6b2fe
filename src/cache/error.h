/* error.h - filling struct sluice_error. Shared by every layer; knows nothing of them. */
#ifndef SLUICE_CACHE_ERROR_H
#define SLUICE_CACHE_ERROR_H

#include "sluice.h"

/*
 * Put status and a printf-style one-line message into *err (which may be NULL) and return status,
 * so that a failing function can end with `return sluice_fail(err, ...)`.
 */
int sluice_fail(struct sluice_error *err, enum sluice_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Clear *err (which may be NULL) and return SLUICE_OK. */
int sluice_ok(struct sluice_error *err);

#endif
