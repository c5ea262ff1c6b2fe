/*
 * version.h - which llama.cpp and ggml this program was built for and runs on.
 */
#ifndef SLUICE_RUN_VERSION_H
#define SLUICE_RUN_VERSION_H

#include <stdbool.h>

struct sluice_build {
    const char *llama;       /* release of llama.cpp that this was built for: "v0.5.0". All text here is static */
    const char *commit;      /* of the source that it was built from; "" when that was not a git checkout */
    const char *ggml;        /* version of the ggml that runs */
    const char *ggml_commit; /* its commit, as ggml says it: "unknown" when it does not know */
    const char *kind;        /* how that llama.cpp was built: native, dl, tsan (scripts/llama.sh), or installed */
    const char *sanitizer;   /* in our own code: address or thread; "" for none */
    bool assertions;         /* in our own code: not a release build */
    bool cpu_linked;         /* the CPU backend is linked in; else backends are loaded at run time */
    char cpu[512];           /* what that CPU backend makes use of, "AVX2 FMA"; "" when none is linked in */
};

/* Fill it. Before anything loads backends, or cpu_linked says what has been loaded instead. */
void sluice_build_find(struct sluice_build *b);

#endif
