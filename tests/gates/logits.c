/*
 * sluice-logits - decode a model with stock llama.cpp calls and write every logit to a file.
 *
 * The gates compare two runs of this program with cmp(1): one without the plug-in, one with it. So
 * it must be exactly as deterministic as llama.cpp is, and it must know nothing of sluice: it
 * includes llama.h and gguf.h only, and what streams is decided by GGML_BACKEND_PATH outside. (With
 * --resize, resize.c looks a function up in that plug-in.)
 *
 * A run is one or more sessions, each a context over one of the models with its own output file:
 * several models in one process decode in turn, several contexts on one model (--parallel) decode
 * from threads at the same time. The tokens are pseudo-random, different for every session and
 * every sequence, so that no tokenizer is needed and sessions route differently; after the prompt
 * each sequence continues greedily. With --join the sequences of a session do not begin together: one after another
 * joins, chunk by chunk of its prompt, in batches that also hold the next token of those that are there, and only rows
 * that continue a text want logits. That is how a server with several slots fills its batches, without its
 * timing, on which it depends there who shares a batch with whom. Repacking of weights is off (use_extra_bufts) unless
 * asked for, because a repacked resident run multiplies in another order than any streamed one can.
 *
 * A comparison of two broken runs succeeds, so a run that proves nothing fails here: logits that are
 * not finite, and rows in which all logits are equal.
 *
 * --info reads only the GGUF: how many expert tensors a model has, how they lie in the file, and a
 * cache size that is above one layer's demand and far under the whole, so that a gate can force
 * evictions without knowing the model.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-backend.h"
#include "gguf.h"
#include "llama.h"

#include "backends.h"
#include "resize.h"

#define MAX_MODELS   4
#define MAX_PARALLEL 16
#define MAX_SEQS     16
#define GUEST        9 /* the number of its session */
#define PATH_CAP     4096

struct options {
    const char *out;
    const char *models[MAX_MODELS];
    const char *guest; /* a model that comes and goes after half of the steps; NULL: none */
    int n_models;
    int prefill;  /* prompt tokens per sequence */
    int decode;   /* greedy steps after it */
    int ubatch;   /* tokens per physical batch */
    int threads;  /* compute threads per context */
    int seqs;     /* sequences in every batch */
    int join;     /* prompt tokens per batch while sequences join one after another; 0: they begin together */
    bool wait;    /* for the end of standard input, with the contexts still there */
    bool unified; /* one KV cache for all sequences: a batch of theirs is not cut up */
    int parallel; /* contexts per model, each in its own thread when more than one */
    int resize;   /* seed of changes of the plug-in's budget; 0: none */
    int drop;     /* after half of the steps the plug-in leaves out below this many hundredths; -1: no change */
    enum llama_load_mode load_mode;
    bool repack; /* let llama.cpp repack weights, as its programs do */
    bool info;
};

struct session {
    const struct options *opt;
    struct llama_model *model; /* shared between the sessions of one model, not owned */
    struct llama_context *ctx;
    struct llama_batch batch;
    FILE *file;
    char path[PATH_CAP];
    int n_vocab;
    int pos[MAX_SEQS];          /* tokens of each sequence decoded so far */
    uint32_t rng;               /* of the prompt's tokens */
    llama_token next[MAX_SEQS]; /* greedy choice for each sequence */
    bool ok;                    /* result of a threaded run */
};

static const char usage_text[] =
    "usage: sluice-logits --out FILE [options] MODEL...\n"
    "       sluice-logits --info MODEL\n"
    "\n"
    "Decode MODEL with stock llama.cpp and write every logit to FILE as 32-bit floats. With several\n"
    "sessions (models times --parallel) the files are FILE.0, FILE.1, ...\n"
    "\n"
    "  --prefill N            prompt tokens per sequence (24)\n"
    "  --decode N             greedy steps after the prompt (8)\n"
    "  --ubatch N             tokens per physical batch (512)\n"
    "  --threads N            compute threads per context (2)\n"
    "  --seqs N               sequences in every batch, at most 16 (1)\n"
    "  --join N               sequences join one after another, N prompt tokens in a batch with the others' next\n"
    "  --unified              one KV cache for all sequences, so that they share batches of any shape\n"
    "  --parallel N           N contexts per model, decoding at once from N threads (1)\n"
    "  --resize SEED          change the plug-in's cache budget at random, between and during tokens\n"
    "  --drop-later N         after half of the greedy steps, have the plug-in leave out experts below N/100\n"
    "  --guest MODEL          after half of the greedy steps load MODEL, decode with it (FILE.9), and free it\n"
    "  --wait                 when all is computed, say so and wait for the end of standard input\n"
    "  --load-mode MODE       mmap (default) or none\n"
    "  --repack               let llama.cpp repack weights (its own results change with it)\n"
    "  --info                 print what the GGUF says about its experts, one `key value` per line\n"
    "  --help                 this text\n"
    "\n"
    "GGML_BACKEND_PATH names a backend plug-in to load. Exit codes: 0, 1 failure, 2 usage.\n";

__attribute__((format(printf, 1, 2))) static void complain(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fputs("sluice-logits: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
}

static bool parse_int(const char *text, int low, int high, int *out) {
    char *end;
    errno = 0;
    long v = strtol(text, &end, 10);
    if (errno || end == text || *end || v < low || v > high)
        return false;
    *out = (int)v;
    return true;
}

/* Returns -1 to go on, else the exit code. */
static int parse_options(int argc, char **argv, struct options *o) {
    static const struct option longs[] = {
        {"out", required_argument, 0, 'o'},
        {"prefill", required_argument, 0, 'p'},
        {"decode", required_argument, 0, 'd'},
        {"ubatch", required_argument, 0, 'u'},
        {"threads", required_argument, 0, 't'},
        {"seqs", required_argument, 0, 's'},
        {"join", required_argument, 0, 'j'},
        {"unified", no_argument, 0, 'k'},
        {"parallel", required_argument, 0, 'n'},
        {"load-mode", required_argument, 0, 'l'},
        {"resize", required_argument, 0, 'z'},
        {"guest", required_argument, 0, 'g'},
        {"drop-later", required_argument, 0, 'c'},
        {"repack", no_argument, 0, 'r'},
        {"info", no_argument, 0, 'i'},
        {"help", no_argument, 0, 'h'},
        {"wait", no_argument, 0, 'w'},
        {0, 0, 0, 0},
    };
    int c;
    bool ok = true;
    while (ok && (c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        switch (c) {
        case 'o':
            o->out = optarg;
            break;
        case 'p':
            ok = parse_int(optarg, 1, 65536, &o->prefill);
            break;
        case 'd':
            ok = parse_int(optarg, 0, 65536, &o->decode);
            break;
        case 'u':
            ok = parse_int(optarg, 1, 65536, &o->ubatch);
            break;
        case 't':
            ok = parse_int(optarg, 1, 64, &o->threads);
            break;
        case 's':
            ok = parse_int(optarg, 1, MAX_SEQS, &o->seqs);
            break;
        case 'j':
            ok = parse_int(optarg, 1, 65536, &o->join);
            break;
        case 'k':
            o->unified = true;
            break;
        case 'n':
            ok = parse_int(optarg, 1, MAX_PARALLEL, &o->parallel);
            break;
        case 'l':
            o->load_mode = strcmp(optarg, "none") ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;
            ok = o->load_mode == LLAMA_LOAD_MODE_NONE || !strcmp(optarg, "mmap");
            break;
        case 'z':
            ok = parse_int(optarg, 1, INT_MAX, &o->resize);
            break;
        case 'c':
            ok = parse_int(optarg, 0, 100, &o->drop);
            break;
        case 'g':
            o->guest = optarg;
            break;
        case 'w':
            o->wait = true;
            break;
        case 'r':
            o->repack = true;
            break;
        case 'i':
            o->info = true;
            break;
        case 'h':
            fputs(usage_text, stdout);
            return fflush(stdout) ? 1 : 0;
        default:
            return 2;
        }
        if (!ok)
            complain("bad value \"%s\"", optarg);
    }
    while (ok && optind < argc) {
        if (o->n_models == MAX_MODELS) {
            complain("at most %d models", MAX_MODELS);
            ok = false;
        } else {
            o->models[o->n_models++] = argv[optind++];
        }
    }
    if (ok && (o->n_models == 0 || (!o->out && !o->info) || (o->info && o->n_models > 1))) {
        fputs(usage_text, stderr);
        ok = false;
    }
    if (ok && o->out && strlen(o->out) + 16 > PATH_CAP) {
        complain("--out is too long");
        ok = false;
    }
    return ok ? -1 : 2;
}

/* ---- decoding ---------------------------------------------------------------------------- */

static void log_errors(enum ggml_log_level level, const char *text, void *user) {
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

static llama_token random_token(struct session *s) {
    s->rng = s->rng * 1103515245u + 12345u;
    return (llama_token)((s->rng >> 8) % (uint32_t)s->n_vocab);
}

/* The next token of a sequence. */
static void batch_add(struct session *s, llama_token token, int seq, bool logits) {
    struct llama_batch *b = &s->batch;
    b->token[b->n_tokens] = token;
    b->pos[b->n_tokens] = s->pos[seq]++;
    b->n_seq_id[b->n_tokens] = 1;
    b->seq_id[b->n_tokens][0] = seq;
    b->logits[b->n_tokens] = logits;
    b->n_tokens++;
}

/* Write one row of logits; *best is its largest. */
static bool write_row(struct session *s, const float *row, llama_token *best) {
    int top = 0;
    bool flat = true;
    for (int i = 0; i < s->n_vocab; i++) {
        if (!isfinite(row[i])) {
            complain("%s: logit %d is not finite", s->path, i);
            return false;
        }
        flat = flat && row[i] == row[0];
        if (row[i] > row[top])
            top = i;
    }
    if (flat) {
        complain("%s: all %d logits of a row are equal", s->path, s->n_vocab);
        return false;
    }
    *best = top;
    if (fwrite(row, sizeof(*row), (size_t)s->n_vocab, s->file) == (size_t)s->n_vocab)
        return true;
    complain("%s: %s", s->path, strerror(errno));
    return false;
}

/* Decode the session's batch and write the logits of every row that wants them. */
static bool run_batch(struct session *s) {
    const struct llama_batch *b = &s->batch;
    resize_between();
    int rc = llama_decode(s->ctx, s->batch);
    if (rc) {
        complain("%s: llama_decode returned %d at position %d", s->path, rc, (int)b->pos[0]);
        return false;
    }
    for (int i = 0; i < b->n_tokens; i++) {
        const float *row = b->logits[i] ? llama_get_logits_ith(s->ctx, i) : NULL;
        if (b->logits[i] && !row) {
            complain("%s: no logits for row %d", s->path, i);
            return false;
        }
        if (row && !write_row(s, row, &s->next[b->seq_id[i][0]]))
            return false;
    }
    return true;
}

/* A batch of the next token of the first n sequences, to be run or added to. */
static void batch_begin(struct session *s, int n) {
    s->batch.n_tokens = 0;
    for (int seq = 0; seq < n; seq++)
        batch_add(s, s->next[seq], seq, true);
}

/* One sequence after another reads its prompt, in chunks, beside the next tokens of those before it. */
static bool join(struct session *s) {
    bool ok = true;
    for (int seq = 0; seq < s->opt->seqs; seq++) {
        for (int left = s->opt->prefill; ok && left;) {
            batch_begin(s, seq);
            for (int i = 0; i < s->opt->join && left; i++)
                batch_add(s, random_token(s), seq, --left == 0);
            ok = run_batch(s);
        }
    }
    return ok;
}

static bool prefill(struct session *s) {
    if (s->opt->join)
        return join(s);
    batch_begin(s, 0);
    for (int seq = 0; seq < s->opt->seqs; seq++)
        for (int i = 0; i < s->opt->prefill; i++)
            batch_add(s, random_token(s), seq, true);
    return run_batch(s);
}

static bool step(struct session *s) {
    batch_begin(s, s->opt->seqs);
    return run_batch(s);
}

static bool open_session(struct session *s, const struct options *o, struct llama_model *model, int index, int total) {
    const int joining = o->join ? (o->prefill + o->join - 1) / o->join * o->seqs : 0; /* batches until all are there */
    const int per_batch = o->join ? o->join + o->seqs : o->prefill * o->seqs;
    s->opt = o, s->model = model;
    s->rng = 12345u + 7919u * (uint32_t)index;
    snprintf(s->path, sizeof(s->path), total > 1 ? "%s.%d" : "%s", o->out, index);
    s->n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = (uint32_t)((o->prefill + joining + o->decode + 255) / 256 * 256 * o->seqs);
    p.n_batch = (uint32_t)(per_batch > o->ubatch ? per_batch : o->ubatch);
    p.n_ubatch = (uint32_t)o->ubatch;
    p.n_seq_max = (uint32_t)o->seqs;
    p.kv_unified = o->unified;
    p.n_threads = p.n_threads_batch = o->threads;
    s->ctx = llama_init_from_model(model, p);
    if (!s->ctx) {
        complain("%s: no context", index == GUEST ? o->guest : o->models[index / o->parallel]);
        return false;
    }
    s->batch = llama_batch_init(per_batch, 0, 1); /* aborts on its own when out of memory */
    s->file = fopen(s->path, "wb");
    if (!s->file)
        complain("%s: %s", s->path, strerror(errno));
    return s->file != NULL;
}

static bool close_session(struct session *s) {
    bool ok = true;
    if (s->file && fclose(s->file)) {
        complain("%s: %s", s->path, strerror(errno));
        ok = false;
    }
    if (s->batch.token)
        llama_batch_free(s->batch);
    if (s->ctx)
        llama_free(s->ctx);
    return ok;
}

static void *session_thread(void *arg) {
    struct session *s = arg;
    s->ok = prefill(s);
    for (int i = 0; s->ok && i < s->opt->decode; i++)
        s->ok = step(s);
    return NULL;
}

static bool run_threads(struct session *sessions, int n) {
    pthread_t threads[MAX_MODELS * MAX_PARALLEL];
    int started = 0;
    bool ok = true;
    while (ok && started < n) {
        int rc = pthread_create(&threads[started], NULL, session_thread, &sessions[started]);
        if (rc)
            complain("cannot start a thread: %s", strerror(rc));
        ok = rc == 0;
        started += ok;
    }
    for (int i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
        ok = ok && sessions[i].ok;
    }
    return ok;
}

/* Another model is loaded, computes and is freed. Says how many experts were in memory before, while and after. */
static bool run_guest(const struct options *o) {
    static struct session s;
    uint64_t before, loaded, freed;
    struct llama_model_params p = llama_model_default_params();
    p.use_extra_bufts = o->repack;
    p.load_mode = o->load_mode;
    bool ok = resize_resident(&before);
    struct llama_model *model = ok ? llama_model_load_from_file(o->guest, p) : NULL;
    ok = model && resize_resident(&loaded) && open_session(&s, o, model, GUEST, GUEST + 1) && prefill(&s) && step(&s);
    if (!ok)
        complain("%s: could not be a guest", o->guest);
    ok = close_session(&s) && ok;
    llama_model_free(model);
    ok = ok && resize_resident(&freed);
    if (ok)
        printf("resident %" PRIu64 " before, %" PRIu64 " loaded, %" PRIu64 " freed\n", before, loaded, freed);
    return ok;
}

/* All sessions in one thread, a step each in turn: models must not disturb one another. */
static bool run_interleaved(struct session *sessions, int n) {
    bool ok = true;
    for (int i = 0; ok && i < n; i++)
        ok = prefill(&sessions[i]);
    for (int d = 0; ok && d < sessions[0].opt->decode; d++) {
        if (sessions[0].opt->drop >= 0 && d == sessions[0].opt->decode / 2)
            ok = resize_drop(sessions[0].opt->drop / 100.0);
        if (ok && sessions[0].opt->guest && d == sessions[0].opt->decode / 2)
            ok = run_guest(sessions[0].opt);
        for (int i = 0; ok && i < n; i++)
            ok = step(&sessions[i]);
    }
    return ok;
}

static bool run(const struct options *o) {
    static struct session sessions[MAX_MODELS * MAX_PARALLEL];
    struct llama_model *models[MAX_MODELS] = {0};
    const int total = o->n_models * o->parallel;
    bool ok = true;
    for (int m = 0; ok && m < o->n_models; m++) {
        struct llama_model_params p = llama_model_default_params();
        p.use_extra_bufts = o->repack;
        p.load_mode = o->load_mode;
        models[m] = llama_model_load_from_file(o->models[m], p);
        ok = models[m] != NULL;
        if (!ok)
            complain("%s: cannot be loaded", o->models[m]);
        if (ok && llama_model_has_encoder(models[m])) {
            complain("%s: an encoder; only decoders are compared here", o->models[m]);
            ok = false;
        }
    }
    for (int i = 0; ok && i < total; i++)
        ok = open_session(&sessions[i], o, models[i / o->parallel], i, total);
    const bool resizing = ok && o->resize;
    if (resizing)
        ok = resize_start((uint64_t)o->resize);
    if (ok)
        ok = o->parallel > 1 ? run_threads(sessions, total) : run_interleaved(sessions, total);
    if (resizing && !resize_stop()) {
        complain("the budget was not changed as it should have been");
        ok = false;
    }
    if (o->wait && puts("computed") >= 0 && fflush(stdout) == 0)
        while (getchar() != EOF) {
        }
    for (int i = 0; i < total; i++)
        ok = close_session(&sessions[i]) && ok;
    for (int m = 0; m < o->n_models; m++)
        llama_model_free(models[m]);
    if (ok)
        printf("%d session(s), %d + %d tokens in %d sequence(s)\n", total, o->prefill, o->decode, o->seqs);
    return ok;
}

/* ---- --info ------------------------------------------------------------------------------ */

#define MAX_LAYERS 512

struct info {
    uint32_t top_k;
    unsigned shards;
    unsigned tensors;           /* expert tensors */
    unsigned off_sector;        /* of those, at file offsets that are no multiple of 512 */
    unsigned off_page;          /* of those, whose slices are no multiple of 4096 bytes */
    unsigned layers;            /* that have expert tensors */
    uint64_t experts;           /* most in any tensor */
    uint64_t bytes;             /* of all expert tensors */
    uint64_t window_bytes;      /* the same with every slice rounded out to the pages it can touch */
    uint64_t layer[MAX_LAYERS]; /* the rounded bytes of one token's experts, by layer */
};

static uint32_t read_top_k(const struct gguf_context *g) {
    int64_t arch = gguf_find_key(g, "general.architecture");
    if (arch < 0 || gguf_get_kv_type(g, arch) != GGUF_TYPE_STRING)
        return 0;
    char key[256];
    snprintf(key, sizeof(key), "%s.expert_used_count", gguf_get_val_str(g, arch));
    int64_t id = gguf_find_key(g, key);
    return id >= 0 && gguf_get_kv_type(g, id) == GGUF_TYPE_UINT32 ? gguf_get_val_u32(g, id) : 0;
}

/* Routed expert weights are the 3-dimensional "blk.N.ffn_*exps.weight": biases have two dimensions, shared
 * experts ("shexp") are not routed. Groups of experts ("chexps") are. */
static void count_tensor(struct info *in, const struct gguf_context *g, int64_t id) {
    const char *name = gguf_get_tensor_name(g, id);
    const int64_t *ne = gguf_get_tensor_ne(g, id);
    int layer;
    if (sscanf(name, "blk.%d.ffn_", &layer) != 1 || !strstr(name, "exps.weight") || ne[2] < 2)
        return;
    uint64_t size = gguf_get_tensor_size(g, id), slice = size / (uint64_t)ne[2];
    uint64_t offset = gguf_get_data_offset(g) + gguf_get_tensor_offset(g, id);
    uint64_t window = (slice + 4095) / 4096 * 4096 + 4096, used = (uint64_t)ne[2];
    if (in->top_k && in->top_k < used)
        used = in->top_k;
    in->tensors++;
    in->off_sector += offset % 512 != 0;
    in->off_page += slice % 4096 != 0;
    in->bytes += size;
    in->window_bytes += window * (uint64_t)ne[2];
    if ((uint64_t)ne[2] > in->experts)
        in->experts = (uint64_t)ne[2];
    if (layer >= 0 && layer < MAX_LAYERS) {
        in->layers += in->layer[layer] == 0;
        in->layer[layer] += window * used;
    }
}

static bool read_shard(struct info *in, const char *path, bool first) {
    struct gguf_init_params params = {.no_alloc = true, .ctx = NULL};
    struct gguf_context *g = gguf_init_from_file(path, params);
    if (!g) {
        complain("%s: not a readable GGUF", path);
        return false;
    }
    if (first) {
        int64_t id = gguf_find_key(g, "split.count");
        in->top_k = read_top_k(g);
        in->shards = id >= 0 && gguf_get_kv_type(g, id) == GGUF_TYPE_UINT16 ? gguf_get_val_u16(g, id) : 1;
    }
    for (int64_t i = 0; i < gguf_get_n_tensors(g); i++)
        count_tensor(in, g, i);
    gguf_free(g);
    return true;
}

static bool print_info(const char *path) {
    static struct info in;
    char prefix[PATH_CAP], shard[PATH_CAP];
    bool ok = read_shard(&in, path, true);
    if (ok && in.shards > 1) {
        ok = llama_split_prefix(prefix, sizeof(prefix), path, 0, (int)in.shards) > 0;
        if (!ok)
            complain("%s: not named as the first of %u shards", path, in.shards);
    }
    for (unsigned i = 1; ok && i < in.shards; i++) {
        llama_split_path(shard, sizeof(shard), prefix, (int)i, (int)in.shards);
        ok = read_shard(&in, shard, false);
    }
    if (!ok)
        return false;
    uint64_t layer = 0, token = 0;
    for (int i = 0; i < MAX_LAYERS; i++) {
        token += in.layer[i];
        layer = in.layer[i] > layer ? in.layer[i] : layer;
    }
    /* A quarter above the largest layer, so that rounding in the cache cannot push it under; evictions are certain
     * when even that leaves a good part of the experts out. */
    uint64_t tight = layer + layer / 4;
    printf("tensors %u\nlayers %u\nexperts %" PRIu64 "\ntop_k %u\nshards %u\n", in.tensors, in.layers, in.experts,
           in.top_k, in.shards);
    printf("off_sector %u\noff_page %u\nbytes %" PRIu64 "\nwindow_bytes %" PRIu64 "\n", in.off_sector, in.off_page,
           in.bytes, in.window_bytes);
    printf("layer_bytes %" PRIu64 "\ntoken_bytes %" PRIu64 "\ntight_cache %" PRIu64 "\nevicts %d\n", layer, token,
           tight, in.window_bytes >= layer + layer / 2);
    return true;
}

int main(int argc, char **argv) {
    struct options o = {
        .prefill = 24,
        .decode = 8,
        .ubatch = 512,
        .threads = 2,
        .seqs = 1,
        .parallel = 1,
        .drop = -1,
        .load_mode = LLAMA_LOAD_MODE_MMAP,
    };
    int rc = parse_options(argc, argv, &o);
    if (rc >= 0)
        return rc;
    llama_log_set(log_errors, NULL);
    bool ok;
    if (o.info) {
        ok = print_info(o.models[0]);
    } else {
        load_backends();
        llama_backend_init();
        ok = run(&o);
        llama_backend_free();
    }
    if (fflush(stdout)) {
        complain("standard output: %s", strerror(errno));
        ok = false;
    }
    return ok ? 0 : 1;
}
