/*
 * backends.c - load ggml's backends in a test program, whatever kind of build llama.cpp is.
 *
 * Where the CPU backend is linked in, ggml_backend_load_all is called only so that GGML_BACKEND_PATH is looked at.
 * Where backends are loaded at run time (GGML_BACKEND_DL), ggml looks for them beside the program and in the current
 * directory, and programs of this build lie elsewhere: they are beside libggml. Both functions load GGML_BACKEND_PATH
 * last, and the plug-in must come after the CPU backend, so exactly one of them is called.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "ggml-backend.h"

#include "backends.h"

void load_backends(void) {
    Dl_info where;
    char dir[4096];
    if (!ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) && dladdr((void *)ggml_backend_load_all, &where)) {
        const char *slash = strrchr(where.dli_fname, '/');
        int n = slash ? (int)(slash - where.dli_fname) : -1;
        if (n > 0 && n < (int)sizeof dir) {
            snprintf(dir, sizeof dir, "%.*s", n, where.dli_fname);
            ggml_backend_load_all_from_path(dir);
            return;
        }
    }
    ggml_backend_load_all();
}
