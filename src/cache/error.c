/*
 * error.c - one way to report a failure.
 *
 * A failure is an enum for programs and one line for people. The line names the thing (file,
 * offset, tensor, setting) and, where there is one, what to do. It is cut, never overflowed, and
 * newlines are replaced, since callers print it after "program: ".
 */
#include "cache/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int sluice_fail(struct sluice_error *err, enum sluice_status status, const char *fmt, ...) {
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        err->status = status;
        vsnprintf(err->message, sizeof err->message, fmt, ap);
        va_end(ap);
        for (char *p = err->message; *p; p++) {
            if (*p == '\n' || *p == '\r') {
                *p = ' ';
            }
        }
    }
    return status;
}

int sluice_ok(struct sluice_error *err) {
    if (err) {
        err->status = SLUICE_OK;
        err->message[0] = 0;
    }
    return SLUICE_OK;
}
