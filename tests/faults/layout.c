/*
 * layout.c - where the last tensor of a GGUF lies, as `name NAME`, `start N`, `end N` lines.
 *
 * A file that is cut while it is mapped ends a program by SIGBUS where mapped bytes are missing, so a
 * test of what the streaming engine does about it may cut expert weights only. This says where the
 * last tensor begins; the test looks at its name.
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
    uint64_t start = 0, end = 0;
    const char *name = "";
    for (int64_t i = 0; i < gguf_get_n_tensors(g); i++) {
        const uint64_t at = gguf_get_data_offset(g) + gguf_get_tensor_offset(g, i);
        if (at >= start) {
            start = at;
            end = at + gguf_get_tensor_size(g, i);
            name = gguf_get_tensor_name(g, i);
        }
    }
    printf("name %s\nstart %" PRIu64 "\nend %" PRIu64 "\n", name, start, end);
    gguf_free(g);
    return 0;
}
