/* selftest.h - is this ggml the one that the design rests on? Asked once, before the first model streams. */
#ifndef SLUICE_SELFTEST_SELFTEST_H
#define SLUICE_SELFTEST_SELFTEST_H

#include <stdbool.h>
#include <stddef.h>

#include "selftest/assumption.h"
#include "sluice.h"

/* The name that messages, docs and tests use, e.g. "kernel"; and what it means, in one sentence. */
const char *selftest_name(enum selftest_assumption a);
const char *selftest_sentence(enum selftest_assumption a);

/*
 * Check them all, now. kernel: the decode kernel is to be used, so it is checked too. The first that is
 * broken comes back, with what was found in detail. SELFTEST_HOLDS with *err set: the check itself could not be
 * made (no memory, no file). Touches nothing of the registered device. Any thread.
 */
enum selftest_assumption selftest_check(bool kernel, char detail[SELFTEST_DETAIL_MAX], struct sluice_error *err);

/*
 * The same once in a process, for the registered device: later calls cost a lock. SLUICE_OK, or the refusal with
 * the assumption's name.
 */
int selftest_require(bool kernel, struct sluice_error *err);

/* The refusal, if one was made; SLUICE_OK when it was not, or nobody has asked yet. Checks nothing. */
int selftest_refused(struct sluice_error *err);

#endif
