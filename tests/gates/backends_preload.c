/*
 * backends_preload.c - load ggml's backends in a program of llama.cpp's that does not (test-llama-archs), for builds in
 * which none is linked in. Preloaded: it depends on libggml, so this runs after libggml's own constructors.
 */
#include "backends.h"

__attribute__((constructor)) static void preload_backends(void) {
    load_backends();
}
