/*
 * version.c - see version.h.
 *
 * CMake knows what was decided at build time; ggml is asked for what may differ at run time. An installation brings
 * its own libraries, but a program with a plug-in, or a wrong LD_LIBRARY_PATH, may load others.
 */
#include "run/version.h"

#include <stdio.h>
#include <string.h>

#include "ggml-backend.h"
#include "ggml.h"

/* The instruction sets that the CPU backend was compiled for: where one is lacking, it ends by an illegal instruction.
 */
static void find_features(ggml_backend_dev_t cpu, char *out, size_t cap) {
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(cpu);
    ggml_backend_get_features_t get =
        (ggml_backend_get_features_t)ggml_backend_reg_get_proc_address(reg, "ggml_backend_get_features");
    size_t n = 0;
    for (struct ggml_backend_feature *f = get ? get(reg) : NULL; f && f->name && n < cap; f++) {
        if (strcmp(f->value, "0") != 0) {
            n += (size_t)snprintf(out + n, cap - n, "%s%s", n ? " " : "", f->name);
        }
    }
}

void sluice_build_find(struct sluice_build *b) {
    *b = (struct sluice_build){
        .llama = SLUICE_LLAMA_VERSION,
        .commit = SLUICE_LLAMA_COMMIT,
        .ggml = ggml_version(),
        .ggml_commit = ggml_commit(),
        .kind = SLUICE_LLAMA_KIND,
        .sanitizer = SLUICE_SANITIZE,
    };
#ifndef NDEBUG
    b->assertions = true;
#endif
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    b->cpu_linked = cpu != NULL;
    if (cpu) {
        find_features(cpu, b->cpu, sizeof b->cpu);
    }
}
