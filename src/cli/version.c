/*
 * version.c - `sluice --version`: what a report of a fault should begin with, as text or as JSON.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "run/version.h"
#include "sluice.h"

static int print_text(const struct sluice_build *b) {
    char page[2048], ours[96] = "release";
    if (b->assertions || b->sanitizer[0]) {
        snprintf(ours, sizeof ours, "%s%s%s", b->assertions ? "debug (assertions are on)" : "release",
                 b->sanitizer[0] ? ", sanitizer: " : "", b->sanitizer);
    }
    int n = snprintf(page, sizeof page,
                     "sluice %s (llama.cpp %s)\n"
                     "  llama.cpp    %s%s%s, %s build\n"
                     "  ggml         %s, commit %s\n"
                     "  CPU backend  %s%s\n"
                     "  sluice       %s build\n",
                     sluice_version(), b->llama, b->llama, b->commit[0] ? ", commit " : "", b->commit, b->kind, b->ggml,
                     b->ggml_commit, b->cpu_linked ? "linked in: " : "loaded at run time", b->cpu, ours);
    return cli_write("sluice", page, (size_t)n) ? CLI_EXIT_OK : CLI_EXIT_FAILED;
}

static int print_json(const struct sluice_build *b) {
    json_t *o = json_object();
    const bool ok = cli_json_put(o, "sluice", json_string(sluice_version())) &&
                    cli_json_put(o, "llama_cpp", cli_json_text(b->llama)) &&
                    cli_json_put(o, "llama_cpp_commit", b->commit[0] ? cli_json_text(b->commit) : json_null()) &&
                    cli_json_put(o, "llama_cpp_build", cli_json_text(b->kind)) &&
                    cli_json_put(o, "ggml", cli_json_text(b->ggml)) &&
                    cli_json_put(o, "ggml_commit", cli_json_text(b->ggml_commit)) &&
                    cli_json_put(o, "cpu_backend_linked_in", json_boolean(b->cpu_linked)) &&
                    cli_json_put(o, "cpu_features", b->cpu_linked ? cli_json_text(b->cpu) : json_null()) &&
                    cli_json_put(o, "assertions", json_boolean(b->assertions)) &&
                    cli_json_put(o, "sanitizer", b->sanitizer[0] ? cli_json_text(b->sanitizer) : json_null());
    o = cli_json_whole(o, ok);
    char *text = o ? json_dumps(o, JSON_INDENT(2)) : NULL;
    int rc = CLI_EXIT_FAILED;
    if (!text) {
        cli_fail(rc, "sluice", "no memory");
    } else if (cli_write("sluice", text, strlen(text)) && cli_write("sluice", "\n", 1)) {
        rc = CLI_EXIT_OK;
    }
    free(text);
    json_decref(o);
    return rc;
}

int cli_version(int argc, char **argv) {
    struct sluice_build b;
    const bool json = argc == 2 && strcmp(argv[1], "--json") == 0;
    if (argc > 1 && !json) {
        return cli_fail(CLI_EXIT_USAGE, "sluice", "--version %s: only --json may follow it", argv[argc - 1]);
    }
    sluice_build_find(&b);
    return json ? print_json(&b) : print_text(&b);
}
