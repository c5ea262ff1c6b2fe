/*
 * gguf_check.c - read and check the metadata of a GGUF file set.
 *
 * Why a second parser beside ggml's: ggml's is written for files that are what they claim to be.
 * On others it prints several lines, or reaches an assertion and aborts the process, or succeeds
 * and leaves it to a page fault in the middle of a generation to find that the file is too short.
 * A user who mistyped a path, or whose download stopped at 90 %, should get one line and exit 1.
 * So this file walks the metadata once, checks every count and every extent against the file sizes,
 * and checks that the whole shard set is there. What it collects on the way is all that `sluice
 * info` and `--n-expert-used` need, hence no model is loaded for those.
 *
 * It does not judge what the numbers mean: whether the architecture is known and the tensors have
 * the shapes that it wants is llama.cpp's to say, and it says it without aborting. The few
 * relations between numbers that llama.cpp asserts are checked in check_experts. The layout of the format is described
 * at the top of ggml's gguf.h.
 */
#include "gguf/gguf_check.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ggml.h"
#include "gguf.h"
#include "cache/error.h"
#include "gguf/gguf_reader.h"

enum {
    KV_BYTES_MIN = 8 + 1 + 4 + 1,         /* the shortest key-value pair */
    TENSOR_BYTES_MIN = 8 + 4 + 4 + 8,     /* the shortest tensor description */
    EXPERTS_MAX = 1024,                   /* llama.cpp asserts this */
    STRING_BYTES_MAX = 1024 * 1024 * 1024 /* ggml's own limit */
};

/* What is needed while one file is read. */
struct check {
    struct sluice_gguf *g;        /* what is being filled */
    struct sluice_gguf_reader *r; /* the file, while it is read */
    const char *path;             /* its name, for messages */
    struct sluice_error *err;     /* where messages go */
    uint32_t shard;               /* its index in the set */
    uint64_t alignment;           /* general.alignment, bytes */
    uint64_t split_no;            /* split.no; 0 when absent */
    uint64_t split_count;         /* split.count; 0 when absent */
    bool partial;                 /* tensors may lie beyond the end of the file */
};

/* The file is not what it should be: "PATH: " and what is wrong. */
__attribute__((format(printf, 2, 3))) static int bad(const struct check *c, const char *format, ...) {
    char what[sizeof c->err->message];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return sluice_fail(c->err, SLUICE_ERR_FORMAT, "%s: %s", c->path, what);
}

/* The message for a reader that failed: the disk's error, or a file that ends too early. */
static int check_reader_error(const struct check *c, const char *where) {
    if (c->r->io_errno) {
        return sluice_fail(c->err, SLUICE_ERR_IO, "%s: %s", c->path, strerror(c->r->io_errno));
    }
    return bad(c, "truncated or damaged: it ends inside %s (%" PRIu64 " bytes)", where, c->r->size);
}

/* Bytes of one value of a fixed-size metadata type; 0 for strings, arrays and unknown types. */
static uint64_t value_bytes(uint32_t type) {
    static const uint8_t bytes[GGUF_TYPE_COUNT] = {
        [GGUF_TYPE_UINT8] = 1,  [GGUF_TYPE_INT8] = 1,   [GGUF_TYPE_BOOL] = 1,    [GGUF_TYPE_UINT16] = 2,
        [GGUF_TYPE_INT16] = 2,  [GGUF_TYPE_UINT32] = 4, [GGUF_TYPE_INT32] = 4,   [GGUF_TYPE_FLOAT32] = 4,
        [GGUF_TYPE_UINT64] = 8, [GGUF_TYPE_INT64] = 8,  [GGUF_TYPE_FLOAT64] = 8,
    };
    return type < GGUF_TYPE_COUNT ? bytes[type] : 0;
}

static bool is_integer(uint32_t type) {
    return value_bytes(type) && type != GGUF_TYPE_FLOAT32 && type != GGUF_TYPE_FLOAT64 && type != GGUF_TYPE_BOOL;
}

/* The next integer of that type. Negative numbers come out huge, which every user of it refuses. */
static uint64_t read_integer(struct sluice_gguf_reader *r, uint32_t type) {
    const size_t n = (size_t)value_bytes(type), above = 64 - 8 * n;
    const uint64_t v = sluice_gguf_reader_number(r, n);
    const bool is_signed = type == GGUF_TYPE_INT8 || type == GGUF_TYPE_INT16 || type == GGUF_TYPE_INT32;
    return is_signed ? (uint64_t)((int64_t)(v << above) >> above) : v;
}

/* A text that is printed: what a terminal would obey becomes a question mark. NULL: none. */
static void disarm(char *text) {
    for (; text && *text; text++) {
        *text = (unsigned char)*text < ' ' || *text == 127 ? '?' : *text;
    }
}

static bool ends_with(const char *s, const char *tail) {
    size_t a = strlen(s), b = strlen(tail);
    return a >= b && strcmp(s + a - b, tail) == 0;
}

/* The numbers that are kept, by the end of their key. */
static const struct {
    const char *end; /* after the architecture */
    size_t offset;   /* in struct sluice_gguf */
} numbers[] = {
    {".block_count", offsetof(struct sluice_gguf, layers)},
    {".context_length", offsetof(struct sluice_gguf, context)},
    {".expert_count", offsetof(struct sluice_gguf, experts)},
    {".expert_used_count", offsetof(struct sluice_gguf, expert_used)},
};

enum { NUMBERS = sizeof numbers / sizeof numbers[0] };

static struct sluice_gguf_number *number_at(struct sluice_gguf *g, size_t i) {
    return (struct sluice_gguf_number *)(void *)((char *)g + numbers[i].offset);
}

/*
 * Where a number of the first shard belongs; NULL: nowhere. Keys are told by their ends, because the
 * architecture usually comes before them in the file but need not. check_prefixes has the last word.
 */
static struct sluice_gguf_number *number_of(struct check *c, const char *key) {
    const char *architecture = c->g->architecture;
    const size_t n = strcspn(key, "."), known = strlen(architecture);
    for (size_t i = 0; i < NUMBERS && c->shard == 0; i++) {
        struct sluice_gguf_number *number = number_at(c->g, i);
        if (strcmp(key + n, numbers[i].end) == 0 && n < sizeof number->prefix &&
            (known == 0 || (n == known && memcmp(key, architecture, n) == 0))) {
            memcpy(number->prefix, key, n);
            number->prefix[n] = '\0';
            return number;
        }
    }
    return NULL;
}

/* Forget numbers that turned out to be of another architecture: llama.cpp does not look at them either. */
static void check_prefixes(struct sluice_gguf *g) {
    for (size_t i = 0; i < NUMBERS; i++) {
        if (strcmp(number_at(g, i)->prefix, g->architecture) != 0) {
            number_at(g, i)->n = 0;
        }
    }
}

/* The rest of a pair whose value is an array. */
static int read_array(struct check *c, const char *key) {
    struct sluice_gguf_reader *r = c->r;
    const uint32_t type = (uint32_t)sluice_gguf_reader_number(r, 4);
    const uint64_t n = sluice_gguf_reader_number(r, 8), each = value_bytes(type);
    struct sluice_gguf_number *number = is_integer(type) ? number_of(c, key) : NULL;
    if (type == GGUF_TYPE_STRING) {
        for (uint64_t i = 0; i < n && !r->failed; i++) {
            sluice_gguf_reader_string(r, NULL, 0);
        }
    } else if (!each) {
        return bad(c, "damaged: key %s has an array of unknown type %" PRIu32, key, type);
    } else if (number && n <= SLUICE_GGUF_LAYERS_MAX) {
        number->n = (uint32_t)n;
        number->array = true;
        for (uint32_t i = 0; i < n; i++) {
            number->value[i] = read_integer(r, type);
        }
    } else {
        sluice_gguf_reader_skip(r, n > (r->size - r->pos) / each ? UINT64_MAX : n * each); /* UINT64_MAX: fails */
    }
    return 0;
}

/* One key-value pair; keeps the few that matter here. check_file sees whether the file was long enough. */
static int read_pair(struct check *c) {
    struct sluice_gguf_reader *r = c->r;
    char key[256];
    uint64_t key_len = sluice_gguf_reader_string(r, key, sizeof key);
    uint32_t type = (uint32_t)sluice_gguf_reader_number(r, 4);
    if (key_len == 0 || key_len > STRING_BYTES_MAX) {
        return bad(c, "damaged: a metadata key has %" PRIu64 " bytes", key_len);
    }
    if (strlen(key) < key_len && strlen(key) < sizeof key - 1) { /* others compare keys as texts, or as bytes */
        return bad(c, "damaged: there is a zero byte in metadata key %s", key);
    }
    if (type == GGUF_TYPE_ARRAY) {
        return read_array(c, key);
    }
    uint64_t *own = strcmp(key, "split.no") == 0            ? &c->split_no
                    : strcmp(key, "split.count") == 0       ? &c->split_count
                    : strcmp(key, "general.alignment") == 0 ? &c->alignment
                                                            : NULL;
    if (own && own != &c->alignment && type != GGUF_TYPE_UINT16) { /* ggml asserts this type */
        return bad(c, "damaged: key %s is not a 16-bit number", key);
    }
    if (own == &c->alignment && type != GGUF_TYPE_UINT32) {
        return bad(c, "damaged: general.alignment is not a 32-bit number");
    }
    if (type == GGUF_TYPE_STRING) {
        const bool architecture = c->shard == 0 && strcmp(key, "general.architecture") == 0;
        const bool name = c->shard == 0 && strcmp(key, "general.name") == 0;
        char *text = architecture ? c->g->architecture : name ? c->g->name : NULL;
        sluice_gguf_reader_string(r, text, architecture ? sizeof c->g->architecture : name ? sizeof c->g->name : 0);
        disarm(text);
    } else if (is_integer(type)) {
        uint64_t v = read_integer(r, type);
        struct sluice_gguf_number *number = number_of(c, key);
        if (number) {
            number->n = 1;
            number->value[0] = v;
        } else if (own) {
            *own = v;
        }
    } else if (value_bytes(type)) {
        sluice_gguf_reader_skip(r, value_bytes(type));
    } else {
        return bad(c, "damaged: key %s has the unknown type %" PRIu32, key, type);
    }
    return 0;
}

/* Bytes of a tensor of that shape and type, or UINT64_MAX when that is not a size. */
static uint64_t tensor_bytes(const struct sluice_gguf_tensor *t) {
    uint64_t block = (uint64_t)ggml_blck_size((enum ggml_type)t->type);
    uint64_t bytes = ggml_type_size((enum ggml_type)t->type);
    if (block == 0 || bytes == 0 || t->ne[0] % block != 0) {
        return UINT64_MAX;
    }
    /* Values as well as bytes, in signed numbers as ggml has them: of small types there are more values than bytes. */
    int64_t values = 1;
    for (int i = 0; i < 4; i++) {
        const uint64_t blocks = i == 0 ? t->ne[0] / block : t->ne[i];
        if (__builtin_mul_overflow(bytes, blocks, &bytes) || __builtin_mul_overflow(values, t->ne[i], &values)) {
            return UINT64_MAX;
        }
    }
    return bytes == 0 || bytes > INT64_MAX ? UINT64_MAX : bytes; /* nobody writes a tensor of nothing */
}

bool sluice_gguf_multiplies(int type) {
    return type == GGML_TYPE_F32 || ggml_get_type_traits((enum ggml_type)type)->to_float != NULL;
}

/* One tensor description, likewise. offset stays relative to the data section until that is known. */
static int read_tensor(struct check *c, struct sluice_gguf_tensor *t) {
    struct sluice_gguf_reader *r = c->r;
    uint64_t len = sluice_gguf_reader_string(r, t->name, sizeof t->name);
    t->n_dims = (uint32_t)sluice_gguf_reader_number(r, 4);
    if (len == 0 || len >= SLUICE_GGUF_NAME_MAX || t->n_dims > 4) {
        return bad(c, "damaged: a tensor has a name of %" PRIu64 " bytes and %" PRIu32 " dimensions", len, t->n_dims);
    }
    if (strlen(t->name) < len) {
        return bad(c, "damaged: there is a zero byte in the name of tensor %s", t->name);
    }
    for (uint32_t i = 0; i < 4; i++) {
        t->ne[i] = i < t->n_dims ? sluice_gguf_reader_number(r, 8) : 1;
    }
    t->type = (int)sluice_gguf_reader_number(r, 4);
    t->offset = sluice_gguf_reader_number(r, 8);
    t->shard = c->shard;
    if (t->type < 0 || t->type >= GGML_TYPE_COUNT) {
        return bad(c, "tensor %s has type %d, which this llama.cpp does not know", t->name, t->type);
    }
    t->bytes = tensor_bytes(t);
    if (t->bytes == UINT64_MAX) {
        return bad(c,
                   "damaged: tensor %s has the impossible shape %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64
                   " of type %d",
                   t->name, t->ne[0], t->ne[1], t->ne[2], t->ne[3], t->type);
    }
    /* A matrix of such a type makes the CPU backend jump to nowhere. A table of experts by token is only looked up. */
    if (t->ne[1] > 1 && ends_with(t->name, ".weight") && !ends_with(t->name, "_tid2eid.weight") &&
        !sluice_gguf_multiplies(t->type)) {
        return bad(c, "damaged: tensor %s has type %s, with which nothing can be multiplied", t->name,
                   ggml_type_name((enum ggml_type)t->type));
    }
    return 0;
}

/* The fixed start of the file: magic, version, and counts that the file is long enough for. */
static int read_header(struct check *c, uint64_t *n_tensors, uint64_t *n_pairs) {
    struct sluice_gguf_reader *r = c->r;
    char magic[4];
    if (r->size == 0) {
        return bad(c, "the file is empty");
    }
    if (!sluice_gguf_reader_bytes(r, magic, sizeof magic) || memcmp(magic, GGUF_MAGIC, 4) != 0) {
        return r->io_errno ? check_reader_error(c, "its header") : bad(c, "not a GGUF file");
    }
    uint32_t version = (uint32_t)sluice_gguf_reader_number(r, 4);
    *n_tensors = sluice_gguf_reader_number(r, 8);
    *n_pairs = sluice_gguf_reader_number(r, 8);
    if (r->failed) {
        return check_reader_error(c, "its header");
    }
    if (version < 2 || version > GGUF_VERSION) {
        return bad(c, "GGUF version %" PRIu32 " is not supported (2 and %d are)", version, GGUF_VERSION);
    }
    if (*n_pairs > r->size / KV_BYTES_MIN || *n_tensors > r->size / TENSOR_BYTES_MIN) {
        return bad(c,
                   "truncated or damaged: %" PRIu64 " bytes cannot hold %" PRIu64 " key-value pairs and %" PRIu64
                   " tensors",
                   r->size, *n_pairs, *n_tensors);
    }
    return 0;
}

/* Everything of one file. Appends its tensors to g. */
static int check_file(struct check *c) {
    struct sluice_gguf_reader *r = c->r;
    uint64_t n_tensors = 0, n_pairs = 0;
    int rc = read_header(c, &n_tensors, &n_pairs);
    for (uint64_t i = 0; rc == 0 && i < n_pairs; i++) {
        rc = read_pair(c);
        rc = r->failed ? check_reader_error(c, "its key-value pairs") : rc;
    }
    if (rc) {
        return rc;
    }
    if (c->alignment == 0 || (c->alignment & (c->alignment - 1))) {
        return bad(c, "damaged: alignment %" PRIu64 " is not a power of two", c->alignment);
    }
    struct sluice_gguf *g = c->g;
    size_t total = g->n_tensors + (size_t)n_tensors;
    struct sluice_gguf_tensor *all = realloc(g->tensors, (total ? total : 1) * sizeof *all);
    if (!all) {
        return sluice_fail(c->err, SLUICE_ERR_MEMORY, "%s: no memory for %zu tensor descriptions", c->path, total);
    }
    g->tensors = all;
    struct sluice_gguf_tensor *mine = all + g->n_tensors;
    for (uint64_t i = 0; i < n_tensors; i++) {
        rc = read_tensor(c, &mine[i]);
        rc = r->failed ? check_reader_error(c, "its list of tensors") : rc;
        if (rc) {
            return rc;
        }
    }
    /* Extents: the data section starts at the next multiple of the alignment. */
    struct sluice_gguf_shard *shard = &g->shards[c->shard];
    uint64_t data = (r->pos + c->alignment - 1) & ~(c->alignment - 1);
    shard->header = shard->whole = r->pos;
    for (uint64_t i = 0; i < n_tensors; i++) {
        uint64_t end;
        if (__builtin_add_overflow(mine[i].offset, data, &mine[i].offset) ||
            __builtin_add_overflow(mine[i].offset, mine[i].bytes, &end) || end > (c->partial ? INT64_MAX : r->size)) {
            return bad(c, "truncated: tensor %s lies beyond the end of the file (%" PRIu64 " bytes)", mine[i].name,
                       r->size);
        }
        shard->whole = end > shard->whole ? end : shard->whole;
    }
    g->n_tensors = total;
    shard->tensors = (uint32_t)n_tensors;
    return 0;
}

/* Open a file that must be a regular one, and check it as the next shard. */
static int add_shard(struct check *c, const char *path) {
    struct sluice_gguf *g = c->g;
    struct sluice_gguf_shard *shards = realloc(g->shards, (g->n_shards + 1) * sizeof *shards);
    char *name = strdup(path);
    g->shards = shards ? shards : g->shards;
    if (!shards || !name) {
        free(name);
        return sluice_fail(c->err, SLUICE_ERR_MEMORY, "%s: no memory to read its metadata", path);
    }
    shards[g->n_shards] = (struct sluice_gguf_shard){.path = name};
    c->shard = g->n_shards++;
    c->path = name;
    struct stat st;
    struct sluice_gguf_reader reader = {.fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    int rc = 0;
    if (reader.fd < 0 || fstat(reader.fd, &st) != 0) {
        rc = sluice_fail(c->err, SLUICE_ERR_IO, "%s: %s", c->path, strerror(errno));
    } else if (S_ISDIR(st.st_mode)) {
        rc = sluice_fail(c->err, SLUICE_ERR_IO, "%s: is a directory, not a model file", c->path);
    } else if (!S_ISREG(st.st_mode)) {
        rc = sluice_fail(c->err, SLUICE_ERR_IO, "%s: is not a regular file", c->path);
    } else if (!(reader.buf = malloc(SLUICE_GGUF_READER_BUFFER))) {
        rc = sluice_fail(c->err, SLUICE_ERR_MEMORY, "%s: no memory for a read buffer", c->path);
    } else {
        reader.size = (uint64_t)st.st_size;
        c->g->shards[c->shard].bytes = reader.size;
        c->r = &reader;
        c->alignment = GGUF_DEFAULT_ALIGNMENT;
        c->split_no = c->split_count = 0;
        rc = check_file(c);
    }
    free(reader.buf);
    if (reader.fd >= 0) {
        close(reader.fd);
    }
    return rc;
}

/* The other shards: <prefix>-00002-of-00003.gguf and so on, from the name of the first. */
static int check_shards(struct check *c, const char *first, uint64_t count) {
    char tail[32];
    size_t len = strlen(first);
    size_t tail_len = (size_t)snprintf(tail, sizeof tail, "-%05d-of-%05d.gguf", 1, (int)count);
    if (count > SLUICE_GGUF_SHARDS_MAX) {
        return bad(c, "claims to be one of %" PRIu64 " shards", count);
    }
    if (len < tail_len || strcmp(first + len - tail_len, tail) != 0) {
        return bad(c, "is the first of %" PRIu64 " shards, so its name must end in %s", count, tail);
    }
    char *path = strdup(first);
    int rc = path ? 0 : sluice_fail(c->err, SLUICE_ERR_MEMORY, "%s: no memory for a file name", first);
    for (int i = 1; rc == 0 && i < (int)count; i++) {
        snprintf(path + len - tail_len, tail_len + 1, "-%05d-of-%05d.gguf", i + 1, (int)count);
        rc = add_shard(c, path);
        if (rc == SLUICE_ERR_IO && access(path, F_OK) != 0) {
            rc = sluice_fail(c->err, SLUICE_ERR_IO, "%s: shard %d of %d is missing", path, i + 1, (int)count);
        } else if (rc == 0 && (c->split_no != (uint64_t)i || (c->split_count && c->split_count != count))) {
            rc = bad(c, "is shard %" PRIu64 " of %" PRIu64 ", but shard %d of %d belongs here", c->split_no + 1,
                     c->split_count, i + 1, (int)count);
        }
    }
    free(path);
    return rc;
}

/* The relations between the expert numbers that llama.cpp asserts, as errors. */
static int check_experts(const struct check *c) {
    const struct sluice_gguf *g = c->g;
    uint64_t experts = g->experts.n ? g->experts.value[0] : 0;
    if (experts > EXPERTS_MAX) {
        return bad(c, "claims %" PRIu64 " experts, llama.cpp supports %d", experts, EXPERTS_MAX);
    }
    bool none = g->expert_used.n && experts;
    for (uint32_t i = 0; i < g->expert_used.n; i++) {
        none = none && g->expert_used.value[i] == 0;
        if (g->expert_used.value[i] > experts) {
            return bad(c, "claims to use %" PRIu64 " of %" PRIu64 " experts", g->expert_used.value[i], experts);
        }
    }
    return none ? bad(c, "claims to use none of %" PRIu64 " experts", experts) : 0;
}

static int check_set(const char *path, bool partial, struct sluice_gguf **out, struct sluice_error *err) {
    *out = NULL;
    struct sluice_gguf *g = calloc(1, sizeof *g);
    if (!g) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "%s: no memory to read its metadata", path);
    }
    struct check c = {.g = g, .err = err, .partial = partial};
    int rc = add_shard(&c, path);
    if (rc == 0 && c.split_count > 1) {
        rc = c.split_no == 0 ? check_shards(&c, path, c.split_count)
                             : bad(&c, "is shard %" PRIu64 " of %" PRIu64 ": name the first shard instead",
                                   c.split_no + 1, c.split_count);
    }
    c.path = path; /* from here on about the whole set */
    if (rc == 0 && g->n_tensors == 0) {
        rc = bad(&c, "holds no tensors (a vocabulary only?)");
    }
    if (rc == 0 && g->architecture[0] == '\0') {
        rc = bad(&c, "does not say which architecture it is");
    }
    if (rc == 0) {
        check_prefixes(g);
        rc = check_experts(&c);
    }
    if (rc) {
        sluice_gguf_free(g);
    } else {
        *out = g;
    }
    return rc;
}

int sluice_gguf_check(const char *path, struct sluice_gguf **out, struct sluice_error *err) {
    return check_set(path, false, out, err);
}

int sluice_gguf_check_header(const char *path, struct sluice_gguf **out, struct sluice_error *err) {
    return check_set(path, true, out, err);
}

void sluice_gguf_free(struct sluice_gguf *g) {
    if (!g) {
        return;
    }
    for (uint32_t i = 0; i < g->n_shards; i++) {
        free(g->shards[i].path);
    }
    free(g->shards);
    free(g->tensors);
    free(g);
}
