/*
 * faults-lost MODEL sound|lost - two tokens in one context and one in another, while dense weights cannot be moved.
 *
 * With `lost`, moving memory over the mapping unmaps what was there and fails, and the file cannot be mapped there
 * again: the kernel may do that when it runs out of memory or of mappings. Every token must then end in an error, also
 * the second one, which finds nothing left to move. Prints `decode N` for each result; exit code 0 when all succeeded.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "llama.h"

#include "backends.h"

#define EXPORT __attribute__((visibility("default")))

static bool lost;

/* In place of the C library's, for the plug-in too. */
EXPORT void *lost_mremap(void *old, size_t old_size, size_t size, int flags, void *at) __asm__("mremap");
EXPORT void *lost_mmap32(void *at, size_t len, int prot, int flags, int fd, off_t offset) __asm__("mmap");
EXPORT void *lost_mmap64(void *at, size_t len, int prot, int flags, int fd, off_t offset) __asm__("mmap64");

void *lost_mremap(void *old, size_t old_size, size_t size, int flags, void *at) {
    if (lost && (flags & MREMAP_FIXED)) {
        munmap(at, size);
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mremap, old, old_size, size, flags, at);
}

void *lost_mmap64(void *at, size_t len, int prot, int flags, int fd, off_t offset) {
    if (lost && (flags & MAP_FIXED) && fd >= 0) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, at, len, prot, flags, fd, offset);
}

void *lost_mmap32(void *at, size_t len, int prot, int flags, int fd, off_t offset) {
    return lost_mmap64(at, len, prot, flags, fd, offset);
}

static bool decode(struct llama_context *ctx) {
    llama_token token = 1;
    const int rc = llama_decode(ctx, llama_batch_get_one(&token, 1));
    printf("decode %d\n", rc);
    fflush(stdout);
    return rc == 0;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: faults-lost MODEL sound|lost\n");
        return 2;
    }
    load_backends();
    struct llama_model_params mp = llama_model_default_params();
    mp.use_extra_bufts = false;
    struct llama_model *model = llama_model_load_from_file(argv[1], mp);
    struct llama_context_params cp = llama_context_default_params();
    cp.n_ctx = 64;
    cp.n_threads = cp.n_threads_batch = 1;
    struct llama_context *first = model ? llama_init_from_model(model, cp) : NULL;
    struct llama_context *second = first ? llama_init_from_model(model, cp) : NULL;
    if (!second) {
        fprintf(stderr, "faults-lost: no context\n");
        return 2;
    }
    lost = strcmp(argv[2], "lost") == 0;
    bool ok = decode(first);
    ok = decode(first) && ok;
    ok = decode(second) && ok;
    llama_free(first);
    llama_free(second);
    llama_model_free(model);
    return ok ? 0 : 1;
}
