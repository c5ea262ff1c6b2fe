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

static const struct cli_option exec_options[] = {
    {.name = "--quiet",
     .letter = 'q',
     .set = cli_set_setting,
     .setting = "quiet",
     .fixed = "1",
     .help = "no mode line and no warnings from the plug-in (errors stay)"},
    {0},
};

static const struct cli_group groups[] = {{"Expert cache", cli_cache_options},
                                          {"Lossy", cli_lossy_options},
                                          {"Window", cli_window_options},
                                          {"Output", exec_options},
                                          {NULL, NULL}};

static const struct cli_command command = {
    .name = "sluice exec",
    .usage = "sluice exec [options] -- PROGRAM [ARGS]",
    .about = "Starts PROGRAM, any dynamically linked program built on the llama.cpp that this sluice was\n"
             "built for, so that it streams the experts of the models that it loads. The program's own\n"
             "options decide everything else; its processes inherit the streaming.",
    .groups = groups,
    .notes = "The plug-in libggml-sluice.so and libsluice-preload.so are looked for in $SLUICE_PLUGIN_DIR,\n"
             "beside the sluice program, in ../lib and in ../lib/sluice. Exit codes are the program's; 126 when\n"
             "it cannot be started, 127 when it is not found, 2 for a wrong command line.\n\n"
             "Example: sluice exec --cache 4GiB -- llama-server -m model.gguf -c 8192",
    .max_args = INT_MAX,
    .stop_at_arg = true,
};

int cli_exec(int argc, char **argv) {
    struct cli_config c;
    int rc = cli_parse(&command, argc, argv, &c);
    if (rc || c.help) {
        return rc ? rc : cli_help(&command);
    }
    if (c.n_args == 0) {
        return cli_fail(CLI_EXIT_USAGE, c.command, "no program: sluice exec [options] -- PROGRAM [ARGS]");
    }
    rc = cli_launch_streaming(&c);
    if (rc) {
        return rc;
    }
    argv[1 + c.n_args] = NULL; /* the parser moved the arguments to the front */
    execvp(c.args[0], c.args);
    rc = errno == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_EXECUTE;
    return cli_fail(rc, c.command, "%s: %s", c.args[0], strerror(errno));
}
