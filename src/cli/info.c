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

/* What was found out about a model. */
struct model {
    const struct sluice_gguf *gguf; /* the header */
    struct sluice_info info;        /* of it */
};

static void print_info(FILE *out, const void *what) {
    const struct model *m = what;
    const struct sluice_gguf *g = m->gguf;
    const struct sluice_info *i = &m->info;
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
    bool ok = o != NULL;
    for (uint32_t t = 0; ok && t < i->n_types; t++) {
        ok = cli_json_put(
            o, i->types[t].name,
            json_pack("{s:I, s:I}", "bytes", i->types[t].bytes, "tensors", (json_int_t)i->types[t].tensors));
    }
    return cli_json_whole(o, ok);
}

static json_t *shards_json(const struct sluice_gguf *g) {
    json_t *list = json_array();
    bool ok = list != NULL;
    for (uint32_t s = 0; ok && s < g->n_shards; s++) {
        const struct sluice_gguf_shard *shard = &g->shards[s];
        ok = json_array_append_new(list, json_pack("{s:o, s:I, s:I}", "path", cli_json_text(shard->path), "bytes",
                                                   (json_int_t)shard->bytes, "tensors", (json_int_t)shard->tensors)) ==
             0;
    }
    return cli_json_whole(list, ok);
}

static json_t *info_json(const struct sluice_gguf *g, const struct sluice_info *i) {
    return json_pack("{s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}",
                     "architecture", cli_json_text(g->architecture), "name", cli_json_text(g->name), "layers",
                     i->layers, "moe_layers", i->moe_layers, "context", i->context, "experts", i->experts, "top_k",
                     i->top_k_max, "top_k_min", i->top_k_min, "expert_tensors", i->expert_tensors, "expert_bytes",
                     i->expert_max, "expert_bytes_min", i->expert_min, "layer_demand_bytes", i->layer_bytes,
                     "token_demand_bytes", i->token_bytes, "bank_bytes", i->expert_bytes, "dense_bytes", i->dense_bytes,
                     "total_bytes", i->total_bytes, "file_bytes", i->file_bytes, "types", types_json(i), "shards",
                     shards_json(g));
}

static int info_main(struct cli_config *config) {
    struct model m;
    struct sluice_gguf *g;
    struct sluice_error err;
    int rc;
    if (config->n_args == 0) {
        return cli_fail(CLI_EXIT_USAGE, config->command, "no model: name a GGUF file (see sluice info --help)");
    }
    if (sluice_gguf_check(config->args[0], &g, &err)) {
        return cli_fail(CLI_EXIT_FAILED, config->command, "%s", err.message);
    }
    m.gguf = g;
    if (sluice_info_collect(g, &m.info, &err)) {
        rc = cli_fail(CLI_EXIT_FAILED, config->command, "%s", err.message);
    } else if (config->json) {
        rc = cli_json_print(config->command, info_json(g, &m.info), JSON_INDENT(2));
    } else {
        rc = cli_print(config->command, print_info, &m);
    }
    sluice_gguf_free(g);
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
