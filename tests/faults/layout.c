/*
 * layout.c - where the tensors of a GGUF lie: a line `NAME START END` each, in bytes of the file.
 *
 * By that tests of faults find the bytes of an expert, and where the last tensor begins: a file that is cut while it is
 * mapped ends a program by SIGBUS where mapped bytes are missing, so only expert weights may be cut.
 */
#include <inttypes.h>
#include <stdio.h>

#include "gguf.h"

int main(int argc, char **argv) {
    struct gguf_context *g =
        argc == 2 ? gguf_init_from_file(argv[1], (struct gguf_init_params){.no_alloc = true}) : NULL;
    if (!g) {
        fprintf(stderr, "usage: faults-layout MODEL.gguf\n");
        return 2;
    }
    for (int64_t i = 0; i < gguf_get_n_tensors(g); i++) {
        const uint64_t start = gguf_get_data_offset(g) + gguf_get_tensor_offset(g, i);
        printf("%s %" PRIu64 " %" PRIu64 "\n", gguf_get_tensor_name(g, i), start, start + gguf_get_tensor_size(g, i));
    }
    gguf_free(g);
    return 0;
}
