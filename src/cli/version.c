/*
 * version.c - `sluice --version`: what a report of a fault should begin with, as text or as JSON.
 */
#include <stdio.h>
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
    return cli_json_print("sluice",
                          json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:b, s:o}", "sluice", sluice_version(),
                                    "llama_cpp", cli_json_text(b->llama), "llama_cpp_commit",
                                    cli_json_text(b->commit[0] ? b->commit : NULL), "llama_cpp_build",
                                    cli_json_text(b->kind), "ggml", cli_json_text(b->ggml), "ggml_commit",
                                    cli_json_text(b->ggml_commit), "cpu_backend_linked_in", b->cpu_linked,
                                    "cpu_features", cli_json_text(b->cpu_linked ? b->cpu : NULL), "assertions",
                                    b->assertions, "sanitizer", cli_json_text(b->sanitizer[0] ? b->sanitizer : NULL)),
                          JSON_INDENT(2));
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
