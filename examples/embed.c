/* embed.c - llama.cpp with experts streamed from disk:  embed MODEL CACHE_MIB PROMPT TOKENS
 * cc embed.c $(pkg-config --cflags --libs sluice) -o embed, or the CMakeLists.txt beside. All but sluice_* is llama.h.
 */
#include <llama.h>
#include <sluice.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void quiet(enum ggml_log_level level, const char *text, void *user) {
    (void)user;
    fputs(level == GGML_LOG_LEVEL_ERROR ? text : "", stderr);
}

static void need(bool ok, const char *what, const char *why) {
    if (!ok) {
        fprintf(stderr, "embed: %s: %s\n", what, why);
        exit(1);
    }
}

int main(int argc, char **argv) {
    struct sluice_settings settings;
    struct sluice_error error;
    llama_token tokens[512];
    char piece[512];
    need(argc == 5, "usage", "embed MODEL CACHE_MIB PROMPT TOKENS");

    llama_log_set(quiet, NULL);
    sluice_settings_default(&settings); /* or sluice_settings_from_env */
    need(sluice_settings_set(&settings, "cache", argv[2], &error) == 0, "cache", error.message);
    need(sluice_register(&settings, &error) == 0, "sluice", error.message);

    struct llama_model_params params = llama_model_default_params();
    params.use_extra_bufts = false; /* as sluice itself: weights are not repacked, and the bytes are those */
    struct llama_model *model = llama_model_load_from_file(argv[1], params);
    need(model, argv[1], "cannot be loaded");
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    struct llama_context *context = llama_init_from_model(model, llama_context_default_params());
    struct llama_sampler *greedy = llama_sampler_init_greedy();
    need(context && greedy, "context", "cannot be made");
    int n = llama_tokenize(vocab, argv[3], (int)strlen(argv[3]), tokens, 512, true, true);
    need(n > 0, "prompt", "empty, or more than 512 tokens");
    for (int left = atoi(argv[4]); left > 0; n = 1) {
        const bool ok = llama_decode(context, llama_batch_get_one(tokens, n)) == 0;
        need(ok, "decode", !ok && sluice_take_error(&error) ? error.message : "llama.cpp failed");
        tokens[0] = llama_sampler_sample(greedy, context, -1);
        left = llama_vocab_is_eog(vocab, tokens[0]) ? 0 : left - 1;
        const int bytes = llama_token_to_piece(vocab, tokens[0], piece, sizeof piece, 0, false);
        need(bytes >= 0, "token", "longer than 512 bytes");
        fwrite(piece, 1, (size_t)bytes, stdout);
    }
    sluice_mode_line(piece, sizeof piece);
    fprintf(stderr, "%s\n", piece);
    llama_sampler_free(greedy);
    llama_free(context);
    llama_model_free(model);
    return fflush(stdout) || ferror(stdout);
}
