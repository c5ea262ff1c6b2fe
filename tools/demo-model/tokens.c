// tokens.c checks the demo model's tokenizer through llama.cpp itself: it tokenises a text file with
// the vocabulary of a GGUF, turns the tokens back into text, fails unless that is the same bytes, and
// prints the token numbers (one line each), so that they can be compared with the training script's.
//
//   cc tokens.c -I LLAMA/include -I LLAMA/ggml/include -L BIN -lllama -Wl,-rpath,BIN -o tokens
//   ./tokens MODEL.gguf TEXT > ids

#include "llama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void quiet(enum ggml_log_level level, const char *text, void *user) {
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s MODEL.gguf TEXT\n", argv[0]);
        return 2;
    }
    llama_log_set(quiet, NULL);
    llama_backend_init();
    struct llama_model_params mp = llama_model_default_params();
    mp.vocab_only = true;
    struct llama_model *model = llama_model_load_from_file(argv[1], mp);
    FILE *f = fopen(argv[2], "rb");
    if (!model || !f) {
        fprintf(stderr, "cannot open %s\n", model ? argv[2] : argv[1]);
        return 1;
    }
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    char *text = malloc(n + 1), *back = malloc(2 * n + 64);
    llama_token *ids = malloc((n + 8) * sizeof *ids);
    if (!text || !back || !ids || fread(text, 1, n, f) != (size_t)n) {
        fprintf(stderr, "cannot read %s\n", argv[2]);
        return 1;
    }
    fclose(f);

    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    int count = llama_tokenize(vocab, text, n, ids, n + 8, false, false);
    int got = count < 0 ? -1 : llama_detokenize(vocab, ids, count, back, 2 * n + 64, false, false);
    if (got != n || memcmp(back, text, n) != 0) {
        fprintf(stderr, "round trip failed: %ld bytes in, %d tokens, %d bytes out\n", n, count, got);
        return 1;
    }
    for (int i = 0; i < count; i++)
        printf("%d\n", ids[i]);
    fprintf(stderr, "%ld bytes -> %d tokens -> the same bytes\n", n, count);
    free(text);
    free(back);
    free(ids);
    llama_model_free(model);
    return 0;
}
