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

/* `o` if all of it is there (ok), else NULL, and o is freed. */
json_t *cli_json_whole(json_t *o, bool ok);

#endif
