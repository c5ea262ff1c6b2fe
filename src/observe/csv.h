/* csv.h - one row per step in a file: the format that `sluice bench` and users' scripts read. */
#ifndef SLUICE_OBSERVE_CSV_H
#define SLUICE_OBSERVE_CSV_H

#include "sluice.h"

struct csv;

/* Create or empty the file. On failure *out is NULL. */
int csv_open(struct csv **out, const char *path, struct sluice_error *err);

/*
 * A line "# key=value" before the table. May be called until the first row; line breaks in the value
 * become blanks. Failures to write come out at the next csv_row or csv_close.
 */
void csv_fact(struct csv *c, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The facts that the settings hold, one line each. `streaming`: without it there is no cache at all. */
void csv_settings(struct csv *c, const struct sluice_settings *s, const struct sluice_stats *st, bool streaming);

/* How many rows there are. */
uint64_t csv_rows(const struct csv *c);

/* One row, which is in the file when this returns. SLUICE_ERR_IO. */
int csv_row(struct csv *c, const struct sluice_step *s, struct sluice_error *err);

/* Write the header if there was no row, and close. SLUICE_ERR_IO when something could not be written. NULL is fine. */
int csv_close(struct csv *c, struct sluice_error *err);

#endif
