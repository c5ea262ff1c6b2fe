/* json.h - building JSON objects: nothing needs checking but the last result. */
#ifndef SLUICE_CLI_JSON_H
#define SLUICE_CLI_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Put `value` into `object`, taking it over. False when either is NULL or memory is short. */
bool cli_json_put(json_t *object, const char *key, json_t *value);

/* A string, which may come from a file or the user: whatever is not UTF-8 is replaced. NULL becomes null. NULL: no
 * memory. */
json_t *cli_json_text(const char *text);

/* A count. */
bool cli_json_count(json_t *object, const char *key, uint64_t n);

/* `n` as a number; null where 0 means that it is not known. */
json_t *cli_json_known(uint64_t n);

/*
 * Write `o` and a newline to standard output with jansson's `flags`, and free it. Returns an exit code after printing
 * one line; that there is no memory, if `o` is NULL.
 */
int cli_json_print(const char *command, json_t *o, size_t flags);

/* `o` if all of it is there (ok), else NULL, and o is freed. */
json_t *cli_json_whole(json_t *o, bool ok);

#endif
