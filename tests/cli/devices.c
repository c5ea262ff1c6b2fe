/*
 * devices.c - a program that uses ggml, and says how many of its devices are sluice's: before it looks for
 * backends itself, and after.
 *
 *   cli-devices                    ggml is linked in, as in llama.cpp's own programs
 *   cli-devices-late LIBGGML.so    ggml is opened at run time, as node's add-ons are
 *
 * Under `sluice exec` both must say 1 at the end: 0 would not stream, 2 would be registered twice.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Of ggml-backend.h, by symbol: the late program has no ggml to include. */
struct ggml {
    size_t (*count)(void);
    void *(*get)(size_t index);
    const char *(*name)(void *device);
    void (*load_all)(void);
};

static void *symbol(void *handle, const char *name) {
    void *at = dlsym(handle, name);
    if (!at) {
        fprintf(stderr, "%s is missing: %s\n", name, dlerror());
    }
    return at;
}

static int sluice_devices(const struct ggml *g) {
    int n = 0;
    for (size_t i = 0; i < g->count(); i++) {
        const char *name = g->name(g->get(i));
        n += strncmp(name, "sluice", 6) == 0 || strncmp(name, "Sluice", 6) == 0 || strncmp(name, "SLUICE", 6) == 0;
    }
    return n;
}

int main(int argc, char **argv) {
    void *handle = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : RTLD_DEFAULT;
    if (argc > 1 && !handle) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    struct ggml g = {
        .count = (size_t(*)(void))symbol(handle, "ggml_backend_dev_count"),
        .get = (void *(*)(size_t))symbol(handle, "ggml_backend_dev_get"),
        .name = (const char *(*)(void *))symbol(handle, "ggml_backend_dev_name"),
        .load_all = (void (*)(void))symbol(handle, "ggml_backend_load_all"),
    };
    if (!g.count || !g.get || !g.name || !g.load_all) {
        return 1;
    }
    printf("before %d\n", sluice_devices(&g));
    g.load_all();
    printf("after %d\n", sluice_devices(&g));
    g.load_all();
    printf("again %d\n", sluice_devices(&g));
    return 0;
}
