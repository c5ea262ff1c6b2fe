/*
 * info.c - `sluice info`: what a model needs, from its metadata alone.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "run/info.h"

/* "1.50 GiB (1610612736 bytes)"; below one MiB only the bytes. */
static void print_bytes(FILE *out, const char *name, uint64_t n) {
    double x = (double)n;
    if (n >= 1u << 30) {
        fprintf(out, "  %-22s%.2f GiB (%" PRIu64 " bytes)\n", name, x / (1u << 30), n);
    } else if (n >= 1u << 20) {
        fprintf(out, "  %-22s%.2f MiB (%" PRIu64 " bytes)\n", name, x / (1u << 20), n);
    } else {
        fprintf(out, "  %-22s%" PRIu64 " bytes\n", name, n);
    }
}

static void print_experts(FILE *out, const struct sluice_info *i) {
    fprintf(out, "  %-22s%" PRIu64 " in each of %" PRIu64 " layers, ", "experts", i->experts, i->moe_layers);
    if (i->top_k_min == i->top_k_max) {
        fprintf(out, "%" PRIu64 " per token\n", i->top_k_max);
    } else {
        fprintf(out, "%" PRIu64 " to %" PRIu64 " per token\n", i->top_k_min, i->top_k_max);
    }
    print_bytes(out, "one expert", i->expert_max);
    if (i->expert_min != i->expert_max) {
        print_bytes(out, "one expert, smallest", i->expert_min);
    }
    print_bytes(out, "demand per layer", i->layer_bytes);
    print_bytes(out, "demand per token", i->token_bytes);
}

static void print_info(FILE *out, const struct sluice_gguf *g, const struct sluice_info *i) {
    fprintf(out, "%s\n", g->shards[0].path);
    fprintf(out, "  %-22s%s", "architecture", g->architecture);
    if (g->name[0]) {
        fprintf(out, " (%s)", g->name);
    }
    fprintf(out, "\n  %-22s%" PRIu64 "\n", "layers", i->layers);
    if (i->context) {
        fprintf(out, "  %-22s%" PRIu64 " tokens\n", "trained context", i->context);
    }
    if (i->expert_tensors) {
        print_experts(out, i);
    } else {
        fprintf(out, "  %-22snone: not a Mixture-of-Experts model, nothing would stream\n", "experts");
    }
    print_bytes(out, "expert weights", i->expert_bytes);
    print_bytes(out, "dense weights", i->dense_bytes);
    print_bytes(out, "all weights", i->total_bytes);
    fprintf(out, "  %-22s", "types");
    for (uint32_t t = 0; t < i->n_types; t++) {
        fprintf(out, "%s%s %.1f %%", t ? ", " : "", i->types[t].name,
                i->total_bytes ? 100.0 * (double)i->types[t].bytes / (double)i->total_bytes : 0);
    }
    fprintf(out, "\n  %-22s%" PRIu32 "\n", "shards", g->n_shards);
    for (uint32_t s = 0; g->n_shards > 1 && s < g->n_shards; s++) {
        fprintf(out, "    %s: %" PRIu64 " bytes, %" PRIu32 " tensors\n", g->shards[s].path, g->shards[s].bytes,
                g->shards[s].tensors);
    }
}

static json_t *types_json(const struct sluice_info *i) {
    json_t *o = json_object();
    for (uint32_t t = 0; t < i->n_types; t++) {
        json_t *type = json_object();
        bool ok =
            cli_json_count(type, "bytes", i->types[t].bytes) && cli_json_count(type, "tensors", i->types[t].tensors);
        if (!ok) {
            json_decref(type);
        }
        if (!ok || !cli_json_put(o, i->types[t].name, type)) {
            json_decref(o);
            return NULL;
        }
    }
    return o;
}

static json_t *shards_json(const struct sluice_gguf *g) {
    json_t *list = json_array();
    for (uint32_t s = 0; s < g->n_shards; s++) {
        json_t *o = json_object();
        bool ok = cli_json_put(o, "path", cli_json_text(g->shards[s].path)) &&
                  cli_json_count(o, "bytes", g->shards[s].bytes) && cli_json_count(o, "tensors", g->shards[s].tensors);
        if (!ok) {
            json_decref(o);
        }
        if (!ok || json_array_append_new(list, o) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *info_json(const struct sluice_gguf *g, const struct sluice_info *i) {
    json_t *o = json_object();
    bool ok = cli_json_put(o, "architecture", cli_json_text(g->architecture)) &&
              cli_json_put(o, "name", cli_json_text(g->name)) && cli_json_count(o, "layers", i->layers) &&
              cli_json_count(o, "moe_layers", i->moe_layers) && cli_json_count(o, "context", i->context) &&
              cli_json_count(o, "experts", i->experts) && cli_json_count(o, "top_k", i->top_k_max) &&
              cli_json_count(o, "top_k_min", i->top_k_min) && cli_json_count(o, "expert_tensors", i->expert_tensors) &&
              cli_json_count(o, "expert_bytes", i->expert_max) &&
              cli_json_count(o, "expert_bytes_min", i->expert_min) &&
              cli_json_count(o, "layer_demand_bytes", i->layer_bytes) &&
              cli_json_count(o, "token_demand_bytes", i->token_bytes) &&
              cli_json_count(o, "bank_bytes", i->expert_bytes) && cli_json_count(o, "dense_bytes", i->dense_bytes) &&
              cli_json_count(o, "total_bytes", i->total_bytes) && cli_json_count(o, "file_bytes", i->file_bytes) &&
              cli_json_put(o, "types", types_json(i)) && cli_json_put(o, "shards", shards_json(g));
    return cli_json_whole(o, ok);
}

/* The page in memory first: it is written as a whole or the command fails. To be freed; NULL: no memory. */
static char *render(const struct sluice_gguf *g, const struct sluice_info *i, bool json) {
    char *page = NULL;
    size_t n = 0;
    json_t *o = json ? info_json(g, i) : NULL;
    FILE *out = open_memstream(&page, &n);
    bool ok = out && (o || !json);
    if (ok && json) {
        ok = json_dumpf(o, out, JSON_INDENT(2)) == 0 && fputc('\n', out) != EOF;
    } else if (ok) {
        print_info(out, g, i);
    }
    json_decref(o);
    if (out && fclose(out) != 0) {
        ok = false;
    }
    if (!ok) {
        free(page);
        return NULL;
    }
    return page;
}

static int info_main(struct cli_config *config) {
    struct sluice_gguf *g;
    struct sluice_info info;
    struct sluice_error err;
    if (config->n_args == 0) {
        return cli_fail(CLI_EXIT_USAGE, config->command, "no model: name a GGUF file (see sluice info --help)");
    }
    if (sluice_gguf_check(config->args[0], &g, &err)) {
        return cli_fail(CLI_EXIT_FAILED, config->command, "%s", err.message);
    }
    if (sluice_info_collect(g, &info, &err)) {
        sluice_gguf_free(g);
        return cli_fail(CLI_EXIT_FAILED, config->command, "%s", err.message);
    }
    char *page = render(g, &info, config->json);
    sluice_gguf_free(g);
    if (!page) {
        return cli_fail(CLI_EXIT_FAILED, config->command, "no memory to describe the model");
    }
    const int rc = cli_write(config->command, page, strlen(page)) ? CLI_EXIT_OK : CLI_EXIT_FAILED;
    free(page);
    return rc;
}

const struct cli_command cli_info_command = {
    .name = "sluice info",
    .summary = "what a model needs: experts, bytes per token, dense bytes",
    .usage = "sluice info MODEL [--json]",
    .about = "Reads the metadata of a GGUF model (all its shards) and prints what matters for running\n"
             "it from disk. The model is not loaded. Of a split model name the first shard.",
    .groups = {{"Options", "--json"}},
    .notes = "The demand is what one token asks for: top-k experts in every layer. A cache under one\n"
             "layer's demand cannot work; under LRU a cache under one token's demand never hits.",
    .max_args = 1,
    .run = info_main,
};
