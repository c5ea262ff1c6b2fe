/*
 * exec.c - `sluice exec`: start a stock llama.cpp program with streaming.
 *
 * The program takes this one's place: same process, same terminal, its own exit code. What it needs in order to stream
 * is in launch.c, which `sluice serve` shares.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "cli/args.h"
#include "cli/commands.h"
#include "cli/launch.h"
#include "cli/options.h"

enum {
    EXIT_CANNOT_EXECUTE = 126, /* as shells have it: found, but it cannot be started */
    EXIT_NOT_FOUND = 127       /* as shells have it */
};

static int exec_main(struct cli_config *config) {
    if (config->n_args == 0) {
        return cli_fail(CLI_EXIT_USAGE, config->command, "no program: sluice exec [options] -- PROGRAM [ARGS]");
    }
    int rc = cli_launch_streaming(config);
    if (rc) {
        return rc;
    }
    config->args[config->n_args] = NULL; /* the parser moved the arguments to the front of argv */
    execvp(config->args[0], config->args);
    rc = errno == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_EXECUTE;
    return cli_fail(rc, config->command, "%s: %s", config->args[0], strerror(errno));
}

const struct cli_command cli_exec_command = {
    .name = "sluice exec",
    .summary = "start a llama.cpp program with streaming",
    .usage = "sluice exec [options] -- PROGRAM [ARGS]",
    .about = "Starts PROGRAM, any dynamically linked program built on the llama.cpp that this sluice was\n"
             "built for, so that it streams the experts of the models that it loads. The program's own\n"
             "options decide everything else; its processes inherit the streaming.",
    .groups = {{"Expert cache", cli_cache_options},
               {"Lossy", cli_lossy_options},
               {"Window", cli_window_options},
               {"Output", "--quiet"}},
    .notes = "The plug-in libggml-sluice.so and libsluice-preload.so are looked for in $SLUICE_PLUGIN_DIR,\n"
             "beside the sluice program, in ../lib and in ../lib/sluice. Exit codes are the program's; 126 when\n"
             "it cannot be started, 127 when it is not found, 2 for a wrong command line.\n\n"
             "Example: sluice exec --cache 4GiB -- llama-server -m model.gguf -c 8192",
    .max_args = INT_MAX,
    .stop_at_arg = true,
    .run = exec_main,
};
