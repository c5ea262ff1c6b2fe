/*
 * resize.c - change the budget of the plug-in's cache at random, between tokens and during them.
 *
 * sluice-logits stays the same program with and without the plug-in: the plug-in's public functions are
 * looked up by name in the library that GGML_BACKEND_PATH names, and sluice.h is included for their types.
 */
#include "resize.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sluice.h"

enum { RESIZE_NAP_NS = 300 * 1000 }; /* of the thread, between two changes: about a small model's token */

static struct {
    int (*set)(enum sluice_cache_mode, uint64_t, struct sluice_error *); /* NULL: no plug-in */
    uint64_t layer, index; /* the least that a fixed cache may have, and a little more than all, bytes */
    _Atomic uint64_t next; /* of the random sequence */
    _Atomic unsigned between, during, failed; /* changes */
    _Atomic bool stop;                        /* the thread returns */
    pthread_t thread;                         /* changes it during tokens */
} resize;

static uint32_t resize_random(void) {
    uint64_t x = atomic_fetch_add(&resize.next, 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)(x >> 32);
}

static void resize_now(_Atomic unsigned *count) {
    struct sluice_error err;
    const uint32_t what = resize_random() % 8;
    const uint64_t more = (resize.index - resize.layer) / 1000 * (resize_random() % 1000);
    const int rc = what == 0   ? resize.set(SLUICE_CACHE_OFF, 0, &err)
                   : what == 1 ? resize.set(SLUICE_CACHE_AUTO, 0, &err)
                               /* small ones more often */
                               : resize.set(SLUICE_CACHE_FIXED, resize.layer + more / (1 + resize_random() % 4), &err);
    if (rc && atomic_fetch_add(&resize.failed, 1) == 0) {
        fprintf(stderr, "sluice-logits: the budget could not be changed: %s\n", err.message);
    }
    atomic_fetch_add(count, rc == 0);
}

static void *resize_main(void *arg) {
    (void)arg;
    const struct timespec nap = {.tv_nsec = RESIZE_NAP_NS};
    while (!atomic_load(&resize.stop)) {
        resize_now(&resize.during);
        nanosleep(&nap, NULL);
    }
    return NULL;
}

bool resize_start(uint64_t seed) {
    const char *path = getenv("GGML_BACKEND_PATH");
    void *lib = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (!path) {
        return true;
    }
    void *set = lib ? dlsym(lib, "sluice_set_cache_budget") : NULL, *get = lib ? dlsym(lib, "sluice_get_stats") : NULL;
    if (!set || !get) {
        fprintf(stderr, "sluice-logits: %s has no budget to change\n", path);
        return false;
    }
    void (*stats)(struct sluice_stats *);
    struct sluice_stats st;
    memcpy(&resize.set, &set, sizeof resize.set);
    memcpy(&stats, &get, sizeof stats);
    stats(&st);
    resize.layer = st.layer_bytes * 2; /* slots are larger than bundles */
    resize.index = st.bank_bytes * 2 + resize.layer;
    atomic_store(&resize.next, seed);
    if (pthread_create(&resize.thread, NULL, resize_main, NULL)) {
        fprintf(stderr, "sluice-logits: cannot start a thread\n");
        resize.set = NULL;
        return false;
    }
    return true;
}

void resize_between(void) {
    if (resize.set && resize_random() % 2) {
        resize_now(&resize.between);
    }
}

bool resize_stop(void) {
    if (!resize.set) {
        return true;
    }
    atomic_store(&resize.stop, true);
    pthread_join(resize.thread, NULL);
    printf("resized %u between %u during\n", resize.between, resize.during);
    return resize.failed == 0 && resize.between > 0 && resize.during > 0;
}

bool resize_drop(double below) {
    const char *path = getenv("GGML_BACKEND_PATH");
    void *lib = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (!path) {
        return true;
    }
    void *p = lib ? dlsym(lib, "sluice_set_drop_cold_experts") : NULL;
    int (*set)(double, struct sluice_error *);
    struct sluice_error err;
    if (!p) {
        fprintf(stderr, "sluice-logits: %s has nothing to leave out\n", path);
        return false;
    }
    memcpy(&set, &p, sizeof set);
    if (set(-1, &err) != SLUICE_ERR_ARG || set(1.5, &err) != SLUICE_ERR_ARG ||
        set((double)NAN, &err) != SLUICE_ERR_ARG) {
        fprintf(stderr, "sluice-logits: a threshold that is none was accepted\n");
        return false;
    }
    if (set(below, &err)) {
        fprintf(stderr, "sluice-logits: what is left out could not be changed: %s\n", err.message);
        return false;
    }
    return true;
}

bool resize_resident(uint64_t *n) {
    const char *path = getenv("GGML_BACKEND_PATH");
    void *lib = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void *p = lib ? dlsym(lib, "sluice_get_stats") : NULL;
    void (*stats)(struct sluice_stats *);
    struct sluice_stats st;
    *n = 0;
    if (path && !p) {
        fprintf(stderr, "sluice-logits: %s has no counters\n", path);
        return false;
    }
    if (p) {
        memcpy(&stats, &p, sizeof stats);
        stats(&st);
        *n = st.resident;
    }
    return true;
}
