/*
 * json.c - building JSON objects.
 *
 * jansson's functions take NULL and say that they failed, so a page is one chain of `&&`. What every
 * command's page needs for that is here; how it shows its own numbers and texts is its own affair.
 */
#include "cli/json.h"

#include <stdlib.h>
#include <string.h>

#include "cli/args.h"
#include "run/utf8.h"

bool cli_json_put(json_t *object, const char *key, json_t *value) {
    return json_object_set_new(object, key, value) == 0;
}

json_t *cli_json_text(const char *text) {
    size_t n = 0;
    if (!text) {
        return json_null();
    }
    char *clean = sluice_utf8_clean(text, strlen(text), &n);
    json_t *s = clean ? json_stringn(clean, n) : NULL;
    free(clean);
    return s;
}

bool cli_json_count(json_t *object, const char *key, uint64_t n) {
    return cli_json_put(object, key, json_integer((json_int_t)n));
}

json_t *cli_json_whole(json_t *o, bool ok) {
    if (!ok) {
        json_decref(o);
        return NULL;
    }
    return o;
}

json_t *cli_json_known(uint64_t n) {
    return n ? json_integer((json_int_t)n) : json_null();
}

int cli_json_print(const char *command, json_t *o, size_t flags) {
    char *page = o ? json_dumps(o, flags) : NULL;
    json_decref(o);
    if (!page) {
        return cli_fail(CLI_EXIT_FAILED, command, "no memory for the JSON object");
    }
    const bool ok = cli_write(command, page, strlen(page)) && cli_write(command, "\n", 1);
    free(page);
    return ok ? CLI_EXIT_OK : CLI_EXIT_FAILED;
}
