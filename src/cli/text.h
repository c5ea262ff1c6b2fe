/*
 * text.h - a growing text, and files read into one.
 */
#ifndef SLUICE_CLI_TEXT_H
#define SLUICE_CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct cli_text {
    char *data; /* owned; NULL while empty */
    size_t n;   /* bytes used */
    size_t cap; /* bytes allocated */
};

/* Append n bytes. False when there is no memory (or more than 1 GiB): nothing was appended then. */
bool cli_text_add(struct cli_text *t, const char *data, size_t n);

/* Free it. It is empty and usable again. */
void cli_text_free(struct cli_text *t);

/*
 * Append a whole file, or standard input for "-". Returns 0 or an exit code after printing one line
 * that starts with `command`.
 */
int cli_text_read(struct cli_text *t, const char *path, const char *command);

#endif
