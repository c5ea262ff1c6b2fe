/*
 * fuzz_gguf.c - model files: what a stranger made, and the first thing that we read.
 *
 * An input is a file, or several shards with |SHARD| between them. They are read by the checker in both its ways,
 * and what it lets through goes on to everything that is made of headers without llama.cpp: the page of `sluice info`,
 * the model's identity, the expert index with every tensor's windows, the cut of the slot memory.
 *
 * What must hold of a file that passed: all that gguf_check.h promises, and that those after it can rely on it; the
 * windows of an expert cover its bytes, lie aligned, and the weights lie inside the file; ggml's own parser neither
 * crashes nor aborts on it, which is what the checker is for.
 */
#include "fuzz.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/info.c" /* the page that it prints */
#include "ggml.h"
#include "gguf.h"
#include "gguf/gguf_check.h"
#include "run/identity.h"
#include "run/info.h"
#include "cache/expert_index.h"
#include "cache/slots.h"

enum { SHARDS = 4 }; /* files of an input, at most */

static void no_log(enum ggml_log_level level, const char *text, void *ud) {
    (void)level, (void)text, (void)ud;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    ggml_log_set(no_log, NULL);
    return 0;
}

/* Nothing that a terminal would obey. */
static bool harmless(const char *text) {
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == 127) {
            return false;
        }
    }
    return true;
}

/* What gguf_check.h says of a result. */
static void check_promises(const struct sluice_gguf *g, bool partial) {
    const struct sluice_gguf_number *all[] = {&g->layers, &g->context, &g->experts, &g->expert_used};
    FUZZ_CHECK(g->n_shards >= 1 && g->n_shards <= SLUICE_GGUF_SHARDS_MAX && g->n_tensors > 0);
    FUZZ_CHECK(memchr(g->architecture, 0, sizeof g->architecture) && g->architecture[0]);
    FUZZ_CHECK(memchr(g->name, 0, sizeof g->name));
    FUZZ_CHECK(harmless(g->architecture) && harmless(g->name));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        FUZZ_CHECK(all[i]->n <= SLUICE_GGUF_LAYERS_MAX);
        FUZZ_CHECK(all[i]->n == 0 || strcmp(all[i]->prefix, g->architecture) == 0);
    }
    uint64_t tensors = 0;
    for (uint32_t i = 0; i < g->n_shards; i++) {
        FUZZ_CHECK(g->shards[i].header <= g->shards[i].bytes && g->shards[i].whole >= g->shards[i].header);
        FUZZ_CHECK(partial || g->shards[i].whole <= g->shards[i].bytes);
        tensors += g->shards[i].tensors;
    }
    FUZZ_CHECK(tensors == g->n_tensors);
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct sluice_gguf_tensor *t = &g->tensors[i];
        FUZZ_CHECK(memchr(t->name, 0, sizeof t->name) && t->name[0]);
        FUZZ_CHECK(t->shard < g->n_shards && t->n_dims <= 4 && t->type >= 0 && t->type < GGML_TYPE_COUNT);
        const struct sluice_gguf_shard *s = &g->shards[t->shard];
        FUZZ_CHECK(t->offset >= s->header && t->offset <= s->whole && t->bytes <= s->whole - t->offset);
    }
}

/* The index of a model's headers, and where each expert is read. */
static void check_bank(const struct sluice_gguf *g, const struct sluice_info *info) {
    struct expert_index index;
    struct sluice_error err;
    index_init(&index);
    if (sluice_info_index(&index, g, info, &err) == 0) {
        FUZZ_CHECK(index_weight_bytes(&index) == info->expert_bytes);
        for (uint32_t i = 0; i < index.n_tensors; i++) {
            const struct index_tensor *t = &index.tensors[i];
            const uint32_t experts[] = {0, t->n_expert / 2, t->n_expert - 1};
            for (size_t k = 0; t->live && k < sizeof experts / sizeof *experts; k++) {
                const struct index_window w = index_window_of(&index, i, experts[k]);
                const struct index_group *group = &index.groups[t->group];
                const uint64_t start = t->offset + experts[k] * t->slice;
                FUZZ_CHECK(w.offset % w.file->align == 0 && w.len % w.file->align == 0 && w.skip < w.file->align);
                FUZZ_CHECK(w.offset + w.skip == start && w.skip + t->slice <= w.len);
                FUZZ_CHECK(start <= w.file->size && t->slice <= w.file->size - start);
                FUZZ_CHECK(group->window[t->part] + w.len <= group->slot_bytes);
            }
        }
        uint64_t bytes = 0, layer = 0;
        const uint64_t all = index_weight_bytes(&index), budgets[] = {0, all / 3, all, UINT64_MAX};
        FUZZ_CHECK(index_token_slot_bytes(&index, &layer) >= layer);
        for (size_t i = 0; i < sizeof budgets / sizeof *budgets && index.live_tensors; i++) {
            (void)slots_measure(&index, budgets[i], &bytes, &err);
        }
    }
    index_free(&index);
}

static void check_passed(const struct sluice_gguf *g, bool partial) {
    struct sluice_error err;
    struct sluice_info info;
    struct sluice_identity identity;
    check_promises(g, partial);
    if (sluice_info_collect(g, &info, &err)) {
        return;
    }
    FUZZ_CHECK(info.expert_bytes <= info.total_bytes && info.dense_bytes == info.total_bytes - info.expert_bytes);
    (void)sluice_info_check_top_k(g, info.top_k_max, &err);
    const struct model m = {.gguf = g, .info = info};
    char *page = NULL;
    size_t n_page = 0;
    FILE *out = open_memstream(&page, &n_page);
    FUZZ_CHECK(out != NULL);
    print_info(out, &m);
    FUZZ_CHECK(fclose(out) == 0 && n_page > 0);
    free(page);
    json_t *o = info_json(g, &info);
    FUZZ_CHECK(o != NULL);
    json_decref(o);
    if (info.expert_tensors) {
        check_bank(g, &info);
    }
    const int rc = sluice_model_identity(g, &identity, &err);
    FUZZ_CHECK(rc == 0 ? strlen(identity.files) == 32 : partial);
    if (!partial) {
        struct ggml_context *ctx = NULL;
        struct gguf_context *theirs =
            gguf_init_from_file(g->shards[0].path, (struct gguf_init_params){.no_alloc = true, .ctx = &ctx});
        gguf_free(theirs);
        ggml_free(ctx);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *piece[SHARDS];
    size_t n[SHARDS], count = 0, at = 0;
    char name[64], first[4096];
    struct sluice_error err;
    while (count < SHARDS && fuzz_piece(data, size, "|SHARD|", &at, &piece[count], &n[count])) {
        count++;
    }
    for (size_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "m-%05zu-of-%05zu.gguf", i + 1, count);
        const char *path = fuzz_write(count == 1 ? "m.gguf" : name, piece[i], n[i]);
        if (i == 0) {
            snprintf(first, sizeof first, "%s", path);
        }
    }
    for (int partial = 0; partial < 2; partial++) {
        struct sluice_gguf *g = NULL;
        const int rc = (partial ? sluice_gguf_check_header : sluice_gguf_check)(first, &g, &err);
        FUZZ_CHECK((rc == 0) == (g != NULL));
        FUZZ_CHECK(rc == 0 || (err.message[0] && (int)err.status == rc));
        if (g) {
            check_passed(g, partial);
        }
        sluice_gguf_free(g);
    }
    for (size_t i = 1; i < count; i++) { /* or the next input would have shards of this one */
        snprintf(name, sizeof name, "m-%05zu-of-%05zu.gguf", i + 1, count);
        unlink(fuzz_path(name));
    }
    return 0;
}
