/*
 * sluice-mkmoe - write a synthetic Mixture-of-Experts GGUF, from kilobytes to tens of gigabytes.
 *
 * The tests and the measurements need models whose every dimension can be chosen: quantisation,
 * slices that do not fill pages, tensors at odd file offsets, fused gate/up, split files, and one
 * of the exact shape of a real 30B model. Real models cannot be had in those variants (and not at
 * all without a network), so this tool makes them.
 *
 * GGUF tensors follow each other without gaps, so the only way to move them is to move the start of
 * the data section: --misalign grows a metadata string until the section starts where it was asked
 * to, and puts the expert tensors first so that little comes in between.
 *
 * This file decides which tensors go where in which file; mkmoe_fill.c makes their bytes. Memory stays
 * bounded by a few chunks of a tensor whatever the model's size.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ggml.h"
#include "gguf.h"
#include "mkmoe.h"

#define HEAD_DIM   128  /* of every attention head; a multiple of 32, and two heads fill a K-quant block */
#define PATH_CAP   4096 /* bytes of a file name with its terminator */
#define MAX_SHARDS 999

struct options {
    const char *out;
    const char *arch;       /* qwen3moe or hy_v3 */
    const char *vocab_from; /* GGUF whose tokenizer is copied, or NULL: no tokenizer */
    bool fast;              /* --fill fast */
    bool fused_gate_up;
    bool metadata_first; /* the first shard holds no tensors */
    int64_t layers, embd, ff, experts, top_k, vocab;
    int64_t shards;
    int64_t misalign; /* offset of the data section modulo 4096, or -1: wherever it falls */
    int64_t seed;
    double noise;
    enum ggml_type gate_up, down, down_odd, dense, output; /* GGML_TYPE_COUNT: not given */
};

struct plan {
    struct tensor *tensors;
    size_t count, cap;
};

static const enum ggml_type weight_types[] = {
    GGML_TYPE_F32,  GGML_TYPE_F16,    GGML_TYPE_Q4_0,    GGML_TYPE_Q8_0,  GGML_TYPE_Q4_K, GGML_TYPE_Q5_K,
    GGML_TYPE_Q6_K, GGML_TYPE_IQ4_XS, GGML_TYPE_IQ2_XXS, GGML_TYPE_MXFP4, GGML_TYPE_Q2_K, GGML_TYPE_Q3_K,
};

static const char usage_text[] =
    "usage: sluice-mkmoe --out FILE.gguf [options]\n"
    "\n"
    "Write a synthetic Mixture-of-Experts model with random weights.\n"
    "\n"
    "shape\n"
    "  --arch NAME            qwen3moe (default) or hy_v3 (needed for --fused-gate-up)\n"
    "  --layers N             transformer layers (4)\n"
    "  --embd N               embedding length (256)\n"
    "  --ff N                 inner length of one expert (256)\n"
    "  --experts N            experts per layer (32)\n"
    "  --top-k N              experts used per token (4)\n"
    "  --vocab N              vocabulary size (512); without --vocab-from there is no tokenizer\n"
    "  --vocab-from FILE      copy the tokenizer, and with it the vocabulary size, of this GGUF\n"
    "  --preset NAME          qwen3-30b-a3b: that model's exact shape, Q4_K/Q6_K, noise 3, fast fill;\n"
    "                         options after it override\n"
    "weights\n"
    "  --type-gate-up TYPE    type of the experts' gate and up (Q4_K). TYPE: F32 F16 Q4_0 Q8_0 Q4_K\n"
    "                         Q5_K Q6_K IQ4_XS IQ2_XXS MXFP4 Q2_K Q3_K\n"
    "  --type-down TYPE       type of the experts' down (Q4_K)\n"
    "  --type-down-odd TYPE   the same for layers 1, 3, 5, ... (as --type-down)\n"
    "  --type-dense TYPE      type of embeddings and attention (Q4_K)\n"
    "  --type-output TYPE     type of the output matrix and attention values (Q6_K when --type-dense is Q4_K,\n"
    "                         else as --type-dense)\n"
    "  --fill MODE            quantize (default): normal weights, quantised; fast: random quants with\n"
    "                         sane scales, at the speed of the disk, Q4_K and Q6_K only\n"
    "  --noise X              routing locality: embeddings are 0.02 * (common + X * normal) (1)\n"
    "  --seed N               seed of every random number (1)\n"
    "layout\n"
    "  --fused-gate-up        one ffn_gate_up_exps tensor per layer in place of two\n"
    "  --misalign N           start the data section at N modulo 4096 (a multiple of 32), expert\n"
    "                         tensors first\n"
    "  --shards N             split files FILE-00001-of-0000N.gguf\n"
    "  --metadata-first       the first of the shards holds no tensors\n"
    "  --help                 this text\n"
    "\n"
    "Exit codes: 0 written; 1 failure, no file is left behind; 2 usage.\n";

__attribute__((format(printf, 1, 2))) void complain(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fputs("sluice-mkmoe: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
}

/* ---- command line ------------------------------------------------------------------------ */

static bool parse_int(const char *text, int64_t low, int64_t high, int64_t *out) {
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || end == text || *end || v < low || v > high)
        return false;
    *out = v;
    return true;
}

static bool parse_type(const char *text, enum ggml_type *out) {
    for (size_t i = 0; i < sizeof(weight_types) / sizeof(weight_types[0]); i++)
        if (!strcasecmp(text, ggml_type_name(weight_types[i]))) {
            *out = weight_types[i];
            return true;
        }
    return false;
}

static bool apply_preset(const char *name, struct options *o) {
    if (strcmp(name, "qwen3-30b-a3b"))
        return false;
    o->layers = 48, o->embd = 2048, o->ff = 768, o->experts = 128, o->top_k = 8, o->vocab = 151936;
    o->noise = 3;
    o->gate_up = o->down = o->dense = GGML_TYPE_Q4_K;
    o->down_odd = o->output = GGML_TYPE_Q6_K;
    o->fast = true;
    return true;
}

/* The limits are llama.cpp's where it has one. They also bound the largest tensor to 2^48 bytes and
 * the largest model to 2^60, so that sizes fit in 63 bits without a check at every product. */
#define MAX_LAYERS  512
#define MAX_LENGTH  65536
#define MAX_EXPERTS 1024
#define MAX_VOCAB   (1 << 22)

enum option_kind { OPT_INT, OPT_TYPE, OPT_TEXT, OPT_FLAG, OPT_OTHER };

#define FIELD(name) offsetof(struct options, name)
static const struct {
    const char *name;
    enum option_kind kind;
    size_t field;      /* where in struct options the value goes; not for OPT_OTHER */
    int64_t low, high; /* OPT_INT */
} option_table[] = {
    {"out", OPT_TEXT, FIELD(out), 0, 0},
    {"arch", OPT_OTHER, 0, 0, 0},
    {"layers", OPT_INT, FIELD(layers), 1, MAX_LAYERS},
    {"embd", OPT_INT, FIELD(embd), 32, MAX_LENGTH},
    {"ff", OPT_INT, FIELD(ff), 32, MAX_LENGTH},
    {"experts", OPT_INT, FIELD(experts), 1, MAX_EXPERTS},
    {"top-k", OPT_INT, FIELD(top_k), 1, MAX_EXPERTS},
    {"vocab", OPT_INT, FIELD(vocab), 2, MAX_VOCAB},
    {"vocab-from", OPT_TEXT, FIELD(vocab_from), 0, 0},
    {"preset", OPT_OTHER, 0, 0, 0},
    {"type-gate-up", OPT_TYPE, FIELD(gate_up), 0, 0},
    {"type-down", OPT_TYPE, FIELD(down), 0, 0},
    {"type-down-odd", OPT_TYPE, FIELD(down_odd), 0, 0},
    {"type-dense", OPT_TYPE, FIELD(dense), 0, 0},
    {"type-output", OPT_TYPE, FIELD(output), 0, 0},
    {"fill", OPT_OTHER, 0, 0, 0},
    {"noise", OPT_OTHER, 0, 0, 0},
    {"seed", OPT_INT, FIELD(seed), INT64_MIN, INT64_MAX},
    {"misalign", OPT_INT, FIELD(misalign), 0, 4095},
    {"shards", OPT_INT, FIELD(shards), 1, MAX_SHARDS},
    {"fused-gate-up", OPT_FLAG, FIELD(fused_gate_up), 0, 0},
    {"metadata-first", OPT_FLAG, FIELD(metadata_first), 0, 0},
    {"help", OPT_OTHER, 0, 0, 0},
};
#define N_OPTIONS (sizeof(option_table) / sizeof(option_table[0]))

/* The options that are neither a number, a type nor a text of their own. */
static bool set_other(struct options *o, const char *name, const char *value) {
    if (!strcmp(name, "preset"))
        return apply_preset(value, o);
    if (!strcmp(name, "arch")) {
        o->arch = value;
        return !strcmp(value, "qwen3moe") || !strcmp(value, "hy_v3");
    }
    if (!strcmp(name, "fill")) {
        o->fast = !strcmp(value, "fast");
        return o->fast || !strcmp(value, "quantize");
    }
    char *end;
    o->noise = strtod(value, &end);
    return end != value && !*end && o->noise >= 0 && o->noise <= 1000;
}

static bool set_option(struct options *o, size_t i, const char *value) {
    void *field = (char *)o + option_table[i].field;
    bool ok = true;
    switch (option_table[i].kind) {
    case OPT_INT:
        ok = parse_int(value, option_table[i].low, option_table[i].high, field);
        break;
    case OPT_TYPE:
        ok = parse_type(value, field);
        break;
    case OPT_TEXT:
        *(const char **)field = value;
        break;
    case OPT_FLAG:
        *(bool *)field = true;
        break;
    case OPT_OTHER:
        ok = set_other(o, option_table[i].name, value);
        break;
    }
    if (!ok && option_table[i].kind == OPT_INT)
        complain("--%s takes a number from %" PRId64 " to %" PRId64 ", not \"%s\"", option_table[i].name,
                 option_table[i].low, option_table[i].high, value);
    else if (!ok)
        complain("--%s does not know \"%s\"", option_table[i].name, value);
    return ok;
}

/* Whole blocks per row, or the type cannot be used there. */
static bool check_row(const char *what, enum ggml_type type, int64_t inputs) {
    if (inputs % ggml_blck_size(type) == 0)
        return true;
    complain("%s: rows of %" PRId64 " values are no whole number of %s blocks (%" PRId64 " values)", what, inputs,
             ggml_type_name(type), ggml_blck_size(type));
    return false;
}

static int64_t count_heads(const struct options *o) {
    return o->embd >= 256 ? o->embd / 64 : 2;
}

/* One key/value head for eight query heads, or the nearest divisor below. */
static int64_t count_heads_kv(const struct options *o) {
    int64_t heads = count_heads(o), kv = heads / 8 > 0 ? heads / 8 : 1;
    while (heads % kv)
        kv--;
    return kv;
}

static bool check_options(struct options *o) {
    if (!o->out || !*o->out) {
        complain("--out is missing");
        return false;
    }
    if (strlen(o->out) + 32 > PATH_CAP) {
        complain("--out is too long");
        return false;
    }
    if (o->top_k > o->experts) {
        complain("--top-k %" PRId64 " is more than --experts %" PRId64, o->top_k, o->experts);
        return false;
    }
    if (o->fused_gate_up && strcmp(o->arch, "hy_v3")) {
        complain("--fused-gate-up: llama.cpp reads fused gate/up for --arch hy_v3, not for %s", o->arch);
        return false;
    }
    if (o->misalign >= 0 && o->misalign % GGUF_DEFAULT_ALIGNMENT) {
        complain("--misalign takes a multiple of %d, the alignment of every tensor in a GGUF", GGUF_DEFAULT_ALIGNMENT);
        return false;
    }
    if (o->metadata_first && o->shards < 2) {
        complain("--metadata-first needs --shards 2 or more");
        return false;
    }
    if (o->down_odd == GGML_TYPE_COUNT)
        o->down_odd = o->down;
    if (o->output == GGML_TYPE_COUNT)
        o->output = o->dense == GGML_TYPE_Q4_K ? GGML_TYPE_Q6_K : o->dense;
    const enum ggml_type big[] = {o->gate_up, o->down, o->down_odd, o->dense, o->output};
    for (size_t i = 0; i < sizeof(big) / sizeof(big[0]); i++)
        if (o->fast && !fill_fast_type(big[i])) {
            complain("--fill fast knows Q4_K and Q6_K, not %s", ggml_type_name(big[i]));
            return false;
        }
    return check_row("--type-gate-up", o->gate_up, o->embd) && check_row("--type-down", o->down, o->ff) &&
           check_row("--type-down-odd", o->down_odd, o->ff) && check_row("--type-dense", o->dense, o->embd) &&
           check_row("--type-dense", o->dense, count_heads(o) * HEAD_DIM) &&
           check_row("--type-output", o->output, o->embd);
}

/* Returns -1 to go on, else the exit code. */
static int parse_options(int argc, char **argv, struct options *o) {
    struct option longs[N_OPTIONS + 1] = {0};
    for (size_t i = 0; i < N_OPTIONS; i++) {
        bool bare = option_table[i].kind == OPT_FLAG || !strcmp(option_table[i].name, "help");
        longs[i] = (struct option){option_table[i].name, bare ? no_argument : required_argument, NULL, 1};
    }
    int c, index = 0;
    while ((c = getopt_long(argc, argv, "", longs, &index)) != -1) {
        if (c != 1)
            return 2; /* getopt_long has said why */
        if (!strcmp(longs[index].name, "help")) {
            fputs(usage_text, stdout);
            return fflush(stdout) ? 1 : 0;
        }
        if (!set_option(o, (size_t)index, optarg))
            return 2;
    }
    if (optind < argc) {
        complain("\"%s\" is not an option", argv[optind]);
        return 2;
    }
    return check_options(o) ? -1 : 2;
}

/* ---- the tensors of a model -------------------------------------------------------------- */

static bool add_tensor(struct plan *p, enum role role, enum ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2,
                       int layer, const char *name) {
    if (p->count == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 64;
        struct tensor *grown = realloc(p->tensors, cap * sizeof(*grown));
        if (!grown) {
            complain("out of memory");
            return false;
        }
        p->tensors = grown, p->cap = cap;
    }
    struct tensor *t = &p->tensors[p->count++];
    *t = (struct tensor){.type = type, .role = role, .ne = {ne0, ne1, ne2}};
    t->n_dims = ne1 == 0 ? 1 : ne2 == 0 ? 2 : 3;
    t->expert = t->n_dims == 3;
    if (layer < 0)
        snprintf(t->name, sizeof(t->name), "%s.weight", name);
    else
        snprintf(t->name, sizeof(t->name), "blk.%d.%s.weight", layer, name);
    return true;
}

static bool plan_layer(struct plan *p, const struct options *o, int il) {
    const int64_t q = count_heads(o) * HEAD_DIM, kv = count_heads_kv(o) * HEAD_DIM;
    const enum ggml_type f32 = GGML_TYPE_F32, down = il % 2 ? o->down_odd : o->down;
    bool ok = add_tensor(p, ROLE_NORM, f32, o->embd, 0, 0, il, "attn_norm") &&
              add_tensor(p, ROLE_NORM, f32, o->embd, 0, 0, il, "ffn_norm") &&
              add_tensor(p, ROLE_NORM, f32, HEAD_DIM, 0, 0, il, "attn_q_norm") &&
              add_tensor(p, ROLE_NORM, f32, HEAD_DIM, 0, 0, il, "attn_k_norm") &&
              add_tensor(p, ROLE_MATRIX, o->dense, o->embd, q, 0, il, "attn_q") &&
              add_tensor(p, ROLE_MATRIX, o->dense, o->embd, kv, 0, il, "attn_k") &&
              add_tensor(p, ROLE_MATRIX, o->output, o->embd, kv, 0, il, "attn_v") &&
              add_tensor(p, ROLE_MATRIX, o->dense, q, o->embd, 0, il, "attn_output") &&
              add_tensor(p, ROLE_ROUTER, f32, o->embd, o->experts, 0, il, "ffn_gate_inp");
    if (o->fused_gate_up)
        ok = ok && add_tensor(p, ROLE_MATRIX, o->gate_up, o->embd, 2 * o->ff, o->experts, il, "ffn_gate_up_exps");
    else
        ok = ok && add_tensor(p, ROLE_MATRIX, o->gate_up, o->embd, o->ff, o->experts, il, "ffn_gate_exps") &&
             add_tensor(p, ROLE_MATRIX, o->gate_up, o->embd, o->ff, o->experts, il, "ffn_up_exps");
    ok = ok && add_tensor(p, ROLE_MATRIX, down, o->ff, o->embd, o->experts, il, "ffn_down_exps");
    if (!strcmp(o->arch, "hy_v3")) /* its shared expert is not optional: llama.cpp multiplies by it unasked */
        ok = ok && add_tensor(p, ROLE_MATRIX, o->gate_up, o->embd, o->ff, 0, il, "ffn_gate_shexp") &&
             add_tensor(p, ROLE_MATRIX, o->gate_up, o->embd, o->ff, 0, il, "ffn_up_shexp") &&
             add_tensor(p, ROLE_MATRIX, down, o->ff, o->embd, 0, il, "ffn_down_shexp");
    return ok;
}

static int experts_first(const void *a, const void *b) {
    const struct tensor *x = a, *y = b;
    if (x->expert != y->expert)
        return x->expert ? -1 : 1;
    return strcmp(x->name, y->name); /* any fixed order; names differ */
}

static bool plan_model(struct plan *p, const struct options *o) {
    bool ok = add_tensor(p, ROLE_EMBEDDING, o->dense, o->embd, o->vocab, 0, -1, "token_embd") &&
              add_tensor(p, ROLE_NORM, GGML_TYPE_F32, o->embd, 0, 0, -1, "output_norm") &&
              add_tensor(p, ROLE_MATRIX, o->output, o->embd, o->vocab, 0, -1, "output");
    for (int il = 0; ok && il < o->layers; il++)
        ok = plan_layer(p, o, il);
    if (ok && o->misalign >= 0)
        qsort(p->tensors, p->count, sizeof(*p->tensors), experts_first);
    return ok;
}

/* ---- metadata ---------------------------------------------------------------------------- */

/* The tokenizer of the vocabulary file and nothing else of it: its architecture and shape are not ours. */
static struct gguf_context *read_tokenizer(struct options *o) {
    struct gguf_init_params params = {.no_alloc = true, .ctx = NULL};
    struct gguf_context *g = gguf_init_from_file(o->vocab_from, params);
    if (!g) {
        complain("%s: not a readable GGUF", o->vocab_from);
        return NULL;
    }
    for (int64_t i = gguf_get_n_kv(g); i-- > 0;)
        if (strncmp(gguf_get_key(g, i), "tokenizer.", 10))
            gguf_remove_key(g, gguf_get_key(g, i));
    int64_t tokens = gguf_find_key(g, "tokenizer.ggml.tokens");
    if (tokens < 0 || gguf_get_arr_n(g, tokens) < 2 || gguf_get_arr_n(g, tokens) > MAX_VOCAB) {
        complain("%s: holds no tokenizer", o->vocab_from);
        gguf_free(g);
        return NULL;
    }
    o->vocab = (int64_t)gguf_get_arr_n(g, tokens);
    return g;
}

static void set_u32(struct gguf_context *g, const char *arch, const char *key, int64_t value) {
    char full[128];
    snprintf(full, sizeof(full), "%s.%s", arch, key);
    gguf_set_val_u32(g, full, (uint32_t)value);
}

static void set_metadata(struct gguf_context *g, const struct options *o, const struct gguf_context *tokenizer) {
    const char *a = o->arch;
    char key[128];
    gguf_set_val_str(g, "general.architecture", a);
    gguf_set_val_str(g, "general.name", "synthetic");
    if (tokenizer)
        gguf_set_kv(g, tokenizer);
    else
        gguf_set_val_str(g, "tokenizer.ggml.model", "no_vocab");
    set_u32(g, a, "block_count", o->layers);
    set_u32(g, a, "context_length", 32768);
    set_u32(g, a, "embedding_length", o->embd);
    set_u32(g, a, "feed_forward_length", o->ff * 4);
    set_u32(g, a, "attention.head_count", count_heads(o));
    set_u32(g, a, "attention.head_count_kv", count_heads_kv(o));
    set_u32(g, a, "attention.key_length", HEAD_DIM);
    set_u32(g, a, "attention.value_length", HEAD_DIM);
    set_u32(g, a, "expert_count", o->experts);
    set_u32(g, a, "expert_used_count", o->top_k);
    set_u32(g, a, "expert_feed_forward_length", o->ff);
    set_u32(g, a, "vocab_size", o->vocab);
    snprintf(key, sizeof(key), "%s.rope.freq_base", a);
    gguf_set_val_f32(g, key, 1e6f);
    snprintf(key, sizeof(key), "%s.attention.layer_norm_rms_epsilon", a);
    gguf_set_val_f32(g, key, 1e-6f);
    if (!strcmp(a, "hy_v3")) { /* sigmoid router: without the norm its weights sum to about top-k / 2 */
        snprintf(key, sizeof(key), "%s.expert_weights_norm", a);
        gguf_set_val_bool(g, key, true);
    }
}

/* Grow the metadata until the data section starts at `want` modulo 4096. */
static bool pad_metadata(struct gguf_context *g, int64_t want) {
    gguf_set_val_str(g, "sluice.padding", "");
    size_t pad = ((size_t)want + 4096 - gguf_get_meta_size(g) % 4096) % 4096;
    char text[4096];
    memset(text, '.', sizeof(text));
    text[pad] = '\0';
    gguf_set_val_str(g, "sluice.padding", text);
    if ((int64_t)(gguf_get_meta_size(g) % 4096) == want)
        return true;
    complain("the metadata cannot be padded to %" PRId64 " modulo 4096", want);
    return false;
}

/* ---- files ------------------------------------------------------------------------------- */

/* Where shard `no` of the model goes; a name as llama.cpp's own split tool gives it. */
static void shard_path(char *path, const struct options *o, int64_t no, const char *suffix) {
    size_t stem = strlen(o->out);
    if (o->shards == 1) {
        snprintf(path, PATH_CAP, "%s%s", o->out, suffix);
        return;
    }
    if (stem > 5 && !strcmp(o->out + stem - 5, ".gguf"))
        stem -= 5;
    snprintf(path, PATH_CAP, "%.*s-%05d-of-%05d.gguf%s", (int)stem, o->out, (int)no + 1, (int)o->shards, suffix);
}

/* Metadata of one shard with the tensors first..last-1; NULL when it failed and said so. */
static struct gguf_context *shard_metadata(const struct options *o, const struct plan *p, size_t first, size_t last,
                                           int64_t no, const struct gguf_context *tokenizer) {
    struct gguf_context *g = gguf_init_empty();
    struct ggml_init_params params = {ggml_tensor_overhead() * (last - first + 1), NULL, true};
    struct ggml_context *ctx = ggml_init(params);
    if (!g || !ctx) {
        complain("out of memory");
        goto fail;
    }
    if (no == 0)
        set_metadata(g, o, tokenizer);
    if (o->shards > 1) {
        gguf_set_val_u16(g, "split.no", (uint16_t)no);
        gguf_set_val_u16(g, "split.count", (uint16_t)o->shards);
        gguf_set_val_i32(g, "split.tensors.count", (int32_t)p->count);
    }
    for (size_t i = first; i < last; i++) {
        const struct tensor *t = &p->tensors[i];
        struct ggml_tensor *x = ggml_new_tensor(ctx, t->type, t->n_dims, t->ne);
        ggml_set_name(x, t->name);
        gguf_add_tensor(g, x); /* copies what it needs */
    }
    if (o->misalign >= 0 && last > first && !pad_metadata(g, o->misalign))
        goto fail;
    ggml_free(ctx);
    return g;
fail:
    ggml_free(ctx);
    gguf_free(g);
    return NULL;
}

static bool write_metadata(struct writer *w, const struct gguf_context *g) {
    size_t n = gguf_get_meta_size(g);
    void *data = malloc(n);
    if (!data) {
        complain("out of memory");
        return false;
    }
    gguf_get_meta_data(g, data);
    bool ok = writer_put(w, data, n);
    free(data);
    return ok;
}

/* A rename would replace a device or a socket by a plain file. */
static bool check_target(const char *path) {
    struct stat st;
    if (stat(path, &st) || S_ISREG(st.st_mode))
        return true;
    complain("%s: exists and is no regular file", path);
    return false;
}

/* Write the shard to `path`; *bytes grows by its size. */
static bool write_shard(const char *path, const struct plan *p, size_t first, size_t last, const struct gguf_context *g,
                        struct fill *f, uint64_t *bytes) {
    static const char zeros[GGUF_DEFAULT_ALIGNMENT];
    struct writer w;
    if (!writer_open(&w, path))
        return false;
    bool ok = write_metadata(&w, g);
    for (size_t i = first; ok && i < last; i++) {
        const struct tensor *t = &p->tensors[i];
        ok = fill_tensor(&w, t, f);
        size_t rest = gguf_get_tensor_size(g, (int64_t)(i - first)) % GGUF_DEFAULT_ALIGNMENT;
        ok = ok && writer_put(&w, zeros, (GGUF_DEFAULT_ALIGNMENT - rest) % GGUF_DEFAULT_ALIGNMENT);
    }
    *bytes += w.total;
    return writer_close(&w, ok);
}

static size_t longest_row(const struct plan *p) {
    size_t longest = 0;
    for (size_t i = 0; i < p->count; i++)
        if ((size_t)p->tensors[i].ne[0] > longest)
            longest = (size_t)p->tensors[i].ne[0];
    return longest;
}

/* Every shard is written beside its name and renamed when all are complete: a reader never meets half a model. */
static bool write_model(const struct options *o, const struct plan *p, const struct gguf_context *tokenizer) {
    char part[PATH_CAP], path[PATH_CAP];
    struct fill f;
    uint64_t bytes = 0;
    const size_t data_shards = (size_t)(o->shards - (o->metadata_first ? 1 : 0));
    bool ok = fill_init(&f, o->seed, o->noise, o->fast, longest_row(p));
    for (int64_t i = 0; ok && i < o->shards; i++) {
        shard_path(path, o, i, "");
        ok = check_target(path);
    }
    int64_t made = 0;
    while (ok && made < o->shards) {
        size_t slot = (size_t)made - (o->metadata_first ? 1 : 0), first = 0, last = 0;
        if (made > 0 || !o->metadata_first) {
            first = p->count * slot / data_shards;
            last = p->count * (slot + 1) / data_shards;
        }
        struct gguf_context *g = shard_metadata(o, p, first, last, made, tokenizer);
        shard_path(part, o, made++, ".part");
        ok = g && write_shard(part, p, first, last, g, &f, &bytes);
        gguf_free(g);
    }
    for (int64_t i = 0; ok && i < o->shards; i++) {
        shard_path(part, o, i, ".part");
        shard_path(path, o, i, "");
        if (rename(part, path)) {
            complain("%s: %s", path, strerror(errno));
            ok = false;
        }
    }
    for (int64_t i = 0; !ok && i < made; i++) {
        shard_path(part, o, i, ".part");
        unlink(part);
    }
    fill_free(&f);
    if (ok) {
        shard_path(path, o, 0, "");
        printf("%s: %" PRIu64 " bytes, %zu tensors\n", path, bytes, p->count);
    }
    return ok;
}

int main(int argc, char **argv) {
    struct options o = {
        .arch = "qwen3moe",
        .layers = 4,
        .embd = 256,
        .ff = 256,
        .experts = 32,
        .top_k = 4,
        .vocab = 512,
        .shards = 1,
        .misalign = -1,
        .seed = 1,
        .noise = 1,
        .gate_up = GGML_TYPE_Q4_K,
        .down = GGML_TYPE_Q4_K,
        .down_odd = GGML_TYPE_COUNT,
        .dense = GGML_TYPE_Q4_K,
        .output = GGML_TYPE_COUNT,
    };
    int rc = parse_options(argc, argv, &o);
    if (rc >= 0)
        return rc;
    struct gguf_context *tokenizer = NULL;
    if (o.vocab_from && !(tokenizer = read_tokenizer(&o)))
        return 1;
    struct plan p = {0};
    bool ok = plan_model(&p, &o) && write_model(&o, &p, tokenizer);
    free(p.tensors);
    gguf_free(tokenizer);
    if (ok && fflush(stdout)) {
        complain("standard output: %s", strerror(errno));
        ok = false;
    }
    return ok ? 0 : 1;
}
