/*
 * preload.c - registers the plug-in in a program that would not load it by itself.
 *
 * `sluice exec` starts a stock llama.cpp program with this library preloaded and SLUICE_PLUGIN naming
 * libggml-sluice.so. There are three kinds of program, told apart when this constructor runs, which is
 * before main and after the constructors of the libraries that the program is linked with:
 *
 *   1. ggml is there and has a CPU backend (upstream's default build: the backend is linked in). Such a
 *      program need not ever look for backends, so the plug-in is registered here, and
 *      GGML_BACKEND_PATH is removed lest a later ggml_backend_load_all registers it again.
 *   2. ggml is there without a CPU backend (built with GGML_BACKEND_DL: upstream's release binaries), or
 *   3. ggml is not there. It may be dlopened later (node-llama-cpp in node), or never, or this is a
 *      shell that starts the real program. In both cases GGML_BACKEND_PATH is set to the plug-in:
 *      ggml_backend_load_all, which programs of kind 2 must call to get any backend, loads the CPU
 *      backend first and then what GGML_BACKEND_PATH names. A program without ggml does not care.
 *
 * So one process uses exactly one of the two mechanisms and the device cannot be registered twice.
 * Children inherit the preload and SLUICE_PLUGIN and decide anew; a GGML_BACKEND_PATH that a parent of
 * kind 3 left to them is removed under 1 and right under 2. A GGML_BACKEND_PATH that the user set to
 * something else is never touched (`sluice exec` warns about it).
 *
 * A program with libsluice linked in (sluice itself, an embedder) registers its own device: nothing is
 * done there.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* enum ggml_backend_dev_type: GGML_BACKEND_DEVICE_TYPE_CPU. This library includes nothing of ggml's. */
enum { DEVICE_TYPE_CPU = 0 };

typedef void *(*load_fn)(const char *path);
typedef void *(*device_by_type_fn)(int type);

/* dlsym returns an object pointer; POSIX promises that it converts to a function pointer. */
static void *find(const char *name) {
    return dlsym(RTLD_DEFAULT, name);
}

static void leave_it_to_load_all(const char *plugin) {
    if (!getenv("GGML_BACKEND_PATH") && setenv("GGML_BACKEND_PATH", plugin, 1) != 0) {
        fprintf(stderr, "sluice: no memory for the environment: the model will not stream\n");
    }
}

__attribute__((constructor)) static void preload_register(void) {
    const char *plugin = getenv("SLUICE_PLUGIN");
    if (!plugin || !plugin[0] || find("sluice_register")) {
        return;
    }
    load_fn load = (load_fn)find("ggml_backend_load");
    device_by_type_fn by_type = (device_by_type_fn)find("ggml_backend_dev_by_type");
    if (!load || !by_type || !by_type(DEVICE_TYPE_CPU)) {
        leave_it_to_load_all(plugin);
        return;
    }
    const char *path = getenv("GGML_BACKEND_PATH");
    if (path && strcmp(path, plugin) == 0) {
        unsetenv("GGML_BACKEND_PATH");
    }
    if (!load(plugin)) {
        /* The user asked for streaming: going on would read a model bigger than memory into memory. */
        fprintf(stderr, "sluice: %s could not be loaded into this program\n", plugin);
        _exit(1);
    }
}
