/*
 * launch.c - see launch.h. Used by `sluice exec` and `sluice serve`.
 *
 * Settings are checked here, where a mistake can be explained, and handed on in the environment, where
 * the plug-in reads them. Two files go along: the plug-in itself (SLUICE_PLUGIN) and the preload
 * library, which registers it and keeps the model file from being read at load (src/preload/). How
 * the program gets the plug-in, by the preload library or by GGML_BACKEND_PATH, is decided in the
 * program, because only there it is known whether ggml is linked in: see preload.c.
 */
#include "cli/launch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory/settings.h"
#include "sluice.h"

#define PLUGIN  "libggml-sluice.so"
#define PRELOAD "libsluice-preload.so"

/* dir/file, as an absolute path, if it can be read. */
static bool readable(const char *dir, const char *file, char out[PATH_MAX]) {
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", dir, file);
    return n > 0 && (size_t)n < sizeof path && access(path, R_OK) == 0 && realpath(path, out) != NULL;
}

bool cli_launch_beside(const char *relative, char out[PATH_MAX]) {
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
static int find_file(const char *command, const char *file, char out[PATH_MAX]) {
    static const char *const places[] = {"", "/../lib", "/../lib/sluice"};
    char dir[PATH_MAX];
    const char *wish = getenv("SLUICE_PLUGIN_DIR");
    if (wish && wish[0]) {
        if (!readable(wish, file, out)) {
            return cli_fail(CLI_EXIT_FAILED, command, "%s/%s cannot be read (SLUICE_PLUGIN_DIR)", wish, file);
        }
        return 0;
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (cli_launch_beside(places[i], dir) && readable(dir, file, out)) {
            return 0;
        }
    }
    return cli_fail(CLI_EXIT_FAILED, command,
                    "%s is neither beside this program nor in ../lib or ../lib/sluice: name its "
                    "directory in SLUICE_PLUGIN_DIR",
                    file);
}

int cli_launch_set(const char *command, const char *name, const char *value) {
    return setenv(name, value, 1) == 0 ? 0 : cli_fail(CLI_EXIT_FAILED, command, "%s: %s", name, strerror(errno));
}

/* The settings of the command line become variables. */
static int export_settings(const struct cli_config *c) {
    for (size_t i = 0; i < c->n_settings; i++) {
        char name[SETTINGS_NAME];
        settings_variable(c->settings[i].name, name);
        int rc = cli_launch_set(c->command, name, c->settings[i].value);
        if (rc) {
            return rc;
        }
    }
    struct sluice_settings scratch; /* what the plug-in will see must be right as a whole */
    struct sluice_error err;
    sluice_settings_default(&scratch);
    const bool bad = sluice_settings_from_env(&scratch, &err) || settings_check(&scratch, &err);
    return bad ? cli_fail(CLI_EXIT_USAGE, c->command, "%s", err.message) : 0;
}

/* Put the library in front of what is preloaded already. */
static int export_preload(const char *command, const char *library) {
    const char *old = getenv("LD_PRELOAD");
    if (strpbrk(library, " :")) {
        return cli_fail(CLI_EXIT_FAILED, command,
                        "%s: the loader cannot preload a file with a blank or colon in its path", library);
    }
    if (!old || !old[0]) {
        return cli_launch_set(command, "LD_PRELOAD", library);
    }
    size_t n = strlen(library) + strlen(old) + 2;
    char *list = malloc(n);
    if (!list) {
        return cli_fail(CLI_EXIT_FAILED, command, "no memory");
    }
    snprintf(list, n, "%s:%s", library, old);
    int rc = cli_launch_set(command, "LD_PRELOAD", list);
    free(list);
    return rc;
}

int cli_launch_streaming(const struct cli_config *c) {
    char plugin[PATH_MAX], preload[PATH_MAX];
    int rc = export_settings(c);
    rc = rc ? rc : find_file(c->command, PLUGIN, plugin);
    rc = rc ? rc : find_file(c->command, PRELOAD, preload);
    rc = rc ? rc : cli_launch_set(c->command, "SLUICE_PLUGIN", plugin);
    rc = rc ? rc : export_preload(c->command, preload);
    if (rc) {
        return rc;
    }
    const char *path = getenv("GGML_BACKEND_PATH");
    if (path && strcmp(path, plugin) != 0) {
        cli_fail(0, c->command,
                 "GGML_BACKEND_PATH is set to %s: a program that loads its backends at run time gets that "
                 "one and does not stream",
                 path);
    }
    return 0;
}
