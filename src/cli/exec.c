/*
 * exec.c - `sluice exec`: start a stock llama.cpp program with streaming.
 *
 * Settings are checked here, where a mistake can be explained, and handed on in the environment, where
 * the plug-in reads them. Two files go along: the plug-in itself (SLUICE_PLUGIN) and the preload
 * library, which registers it and keeps the model file from being read at load (src/preload/). How
 * the program gets the plug-in, by the preload library or by GGML_BACKEND_PATH, is decided in the
 * program, because only there it is known whether ggml is linked in: see preload.c.
 */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/args.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "plan/settings.h"
#include "sluice.h"

#define PLUGIN  "libggml-sluice.so"
#define PRELOAD "libsluice-preload.so"

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
    .notes = "The plug-in " PLUGIN " and " PRELOAD " are looked for in $SLUICE_PLUGIN_DIR,\n"
             "beside the sluice program, and in ../lib. Exit codes are the program's; 126 when it cannot\n"
             "be started, 127 when it is not found, 2 for a wrong command line.\n\n"
             "Example: sluice exec --cache 4GiB -- llama-server -m model.gguf -c 8192",
    .max_args = INT_MAX,
    .stop_at_arg = true,
};

/* dir/file, as an absolute path, if it can be read. */
static bool readable(const char *dir, const char *file, char out[PATH_MAX]) {
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", dir, file);
    return n > 0 && (size_t)n < sizeof path && access(path, R_OK) == 0 && realpath(path, out) != NULL;
}

/* The directory of the running program, then a path relative to it. */
static bool beside_program(const char *relative, char out[PATH_MAX]) {
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0) {
        return false;
    }
    exe[n] = '\0';
    char *slash = strrchr(exe, '/');
    if (!slash) {
        return false;
    }
    *slash = '\0';
    int len = snprintf(out, PATH_MAX, "%s%s", exe, relative);
    return len > 0 && len < PATH_MAX;
}

/* Find one of the two files. With $SLUICE_PLUGIN_DIR set, only there: whoever sets it means it. */
static int find_file(const char *file, char out[PATH_MAX]) {
    static const char *const places[] = {"", "/../lib", "/../lib/sluice"};
    char dir[PATH_MAX];
    const char *wish = getenv("SLUICE_PLUGIN_DIR");
    if (wish && wish[0]) {
        if (!readable(wish, file, out)) {
            return cli_fail(CLI_EXIT_FAILED, command.name, "%s/%s cannot be read (SLUICE_PLUGIN_DIR)", wish, file);
        }
        return 0;
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (beside_program(places[i], dir) && readable(dir, file, out)) {
            return 0;
        }
    }
    return cli_fail(CLI_EXIT_FAILED, command.name,
                    "%s is neither beside this program nor in ../lib: name its "
                    "directory in SLUICE_PLUGIN_DIR",
                    file);
}

static int set_variable(const char *name, const char *value) {
    return setenv(name, value, 1) == 0 ? 0 : cli_fail(CLI_EXIT_FAILED, command.name, "%s: %s", name, strerror(errno));
}

/* The settings of the command line become variables: "io_threads" -> SLUICE_IO_THREADS. */
static int export_settings(const struct cli_config *c) {
    for (size_t i = 0; i < c->n_settings; i++) {
        char name[64] = "SLUICE_";
        size_t at = strlen(name);
        for (const char *p = c->settings[i].name; *p && at + 1 < sizeof name; p++) {
            name[at++] = (char)toupper((unsigned char)*p);
        }
        name[at] = '\0';
        int rc = set_variable(name, c->settings[i].value);
        if (rc) {
            return rc;
        }
    }
    struct sluice_settings scratch; /* what the plug-in will see must be right as a whole */
    struct sluice_error err;
    sluice_settings_default(&scratch);
    const bool bad = sluice_settings_from_env(&scratch, &err) || settings_check(&scratch, &err);
    return bad ? cli_fail(CLI_EXIT_USAGE, command.name, "%s", err.message) : 0;
}

/* Put the library in front of what is preloaded already. */
static int export_preload(const char *library) {
    const char *old = getenv("LD_PRELOAD");
    if (strpbrk(library, " :")) {
        return cli_fail(CLI_EXIT_FAILED, command.name,
                        "%s: the loader cannot preload a file with a blank or colon in its path", library);
    }
    if (!old || !old[0]) {
        return set_variable("LD_PRELOAD", library);
    }
    size_t n = strlen(library) + strlen(old) + 2;
    char *list = malloc(n);
    if (!list) {
        return cli_fail(CLI_EXIT_FAILED, command.name, "no memory");
    }
    snprintf(list, n, "%s:%s", library, old);
    int rc = set_variable("LD_PRELOAD", list);
    free(list);
    return rc;
}

int cli_exec(int argc, char **argv) {
    struct cli_config c;
    char plugin[PATH_MAX], preload[PATH_MAX];
    int rc = cli_parse(&command, argc, argv, &c);
    if (rc || c.help) {
        return rc ? rc : cli_help(&command);
    }
    if (c.n_args == 0) {
        return cli_fail(CLI_EXIT_USAGE, c.command, "no program: sluice exec [options] -- PROGRAM [ARGS]");
    }
    rc = export_settings(&c);
    rc = rc ? rc : find_file(PLUGIN, plugin);
    rc = rc ? rc : find_file(PRELOAD, preload);
    rc = rc ? rc : set_variable("SLUICE_PLUGIN", plugin);
    rc = rc ? rc : export_preload(preload);
    if (rc) {
        return rc;
    }
    const char *path = getenv("GGML_BACKEND_PATH");
    if (path && strcmp(path, plugin) != 0) {
        cli_fail(0, c.command,
                 "GGML_BACKEND_PATH is set to %s: a program that loads its backends at run time gets that "
                 "one and does not stream",
                 path);
    }
    argv[1 + c.n_args] = NULL; /* the parser moved the arguments to the front */
    execvp(c.args[0], c.args);
    rc = errno == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_EXECUTE;
    return cli_fail(rc, c.command, "%s: %s", c.args[0], strerror(errno));
}
