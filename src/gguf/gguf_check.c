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
 * relations between numbers that llama.cpp asserts are checked in check_experts.
 *
 * The layout of the format is described at the top of ggml's gguf.h.
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
    struct sluice_gguf_reader *r; /* the file */
    const char *path;             /* its name, for messages */
    struct sluice_error *err;     /* where messages go */
    uint32_t shard;               /* its index in the set */
    uint64_t alignment;           /* general.alignment, bytes */
    uint64_t split_no;            /* split.no; 0 when absent */
    uint64_t split_count;         /* split.count; 0 when absent */
    bool partial;                 /* tensors may lie beyond the end of the file */
};

int sluice_error_set(struct sluice_error *err, enum sluice_status status, const char *format, ...) {
    if (err) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->message, sizeof err->message, format, args);
        va_end(args);
        err->status = status;
    }
    return (int)status;
}

/* The message for a reader that failed: the disk's error, or a file that ends too early. */
static int check_reader_error(const struct check *c, const char *where) {
    if (c->r->io_errno) {
        return sluice_error_set(c->err, SLUICE_ERR_IO, "%s: %s", c->path, strerror(c->r->io_errno));
    }
    return sluice_error_set(c->err, SLUICE_ERR_FORMAT,
                            "%s: truncated or damaged: it ends inside %s (%" PRIu64 " bytes)", c->path, where,
                            c->r->size);
}

/* Bytes of one value of a fixed-size metadata type; 0 for strings, arrays and unknown types. */
static uint64_t value_bytes(uint32_t type) {
    switch (type) {
    case GGUF_TYPE_UINT8:
    case GGUF_TYPE_INT8:
    case GGUF_TYPE_BOOL:
        return 1;
    case GGUF_TYPE_UINT16:
    case GGUF_TYPE_INT16:
        return 2;
    case GGUF_TYPE_UINT32:
    case GGUF_TYPE_INT32:
    case GGUF_TYPE_FLOAT32:
        return 4;
    case GGUF_TYPE_UINT64:
    case GGUF_TYPE_INT64:
    case GGUF_TYPE_FLOAT64:
        return 8;
    default:
        return 0;
    }
}

static bool is_integer(uint32_t type) {
    return value_bytes(type) && type != GGUF_TYPE_FLOAT32 && type != GGUF_TYPE_FLOAT64 && type != GGUF_TYPE_BOOL;
}

/* The next integer of that type. Negative numbers come out huge, which every user of it refuses. */
static uint64_t read_integer(struct sluice_gguf_reader *r, uint32_t type) {
    unsigned char b[8] = {0};
    size_t n = (size_t)value_bytes(type);
    sluice_gguf_reader_bytes(r, b, n);
    bool negative = (type == GGUF_TYPE_INT8 || type == GGUF_TYPE_INT16 || type == GGUF_TYPE_INT32) && b[n - 1] >> 7;
    uint64_t v = negative ? UINT64_MAX : 0;
    for (size_t i = n; i-- > 0;) {
        v = v << 8 | b[i];
    }
    return v;
}

/* A text that is printed: what a terminal would obey becomes a question mark. */
static void disarm(char *text) {
    for (; *text; text++) {
        *text = (unsigned char)*text < ' ' || *text == 127 ? '?' : *text;
    }
}

static bool ends_with(const char *s, const char *tail) {
    size_t a = strlen(s), b = strlen(tail);
    return a >= b && strcmp(s + a - b, tail) == 0;
}

/* Is `key` the architecture's own, that is "<architecture>.something"? */
static bool has_prefix(const char *key, const char *prefix) {
    size_t n = strlen(prefix);
    return strncmp(key, prefix, n) == 0 && key[n] == '.';
}

/*
 * Where a number of the first shard belongs; NULL: nowhere. Keys are told by their ends, because the
 * architecture usually comes before them in the file but need not. check_prefixes has the last word.
 */
static struct sluice_gguf_number *number_of(struct check *c, const char *key) {
    struct sluice_gguf *g = c->g;
    struct sluice_gguf_number *number = ends_with(key, ".block_count")         ? &g->layers
                                        : ends_with(key, ".context_length")    ? &g->context
                                        : ends_with(key, ".expert_count")      ? &g->experts
                                        : ends_with(key, ".expert_used_count") ? &g->expert_used
                                                                               : NULL;
    size_t n = strcspn(key, ".");
    if (c->shard != 0 || !number || n >= sizeof number->prefix || strchr(key + n + 1, '.') ||
        (g->architecture[0] && !has_prefix(key, g->architecture))) {
        return NULL;
    }
    memcpy(number->prefix, key, n);
    number->prefix[n] = '\0';
    return number;
}

/* Forget numbers that turned out to be of another architecture: llama.cpp does not look at them either. */
static void check_prefixes(struct sluice_gguf *g) {
    struct sluice_gguf_number *all[] = {&g->layers, &g->context, &g->experts, &g->expert_used};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strcmp(all[i]->prefix, g->architecture) != 0) {
            all[i]->n = 0;
        }
    }
}

static int read_array(struct check *c, const char *key) {
    struct sluice_gguf_reader *r = c->r;
    uint32_t type = sluice_gguf_reader_u32(r);
    uint64_t n = sluice_gguf_reader_u64(r);
    uint64_t each = value_bytes(type);
    if (r->failed) {
        return check_reader_error(c, "its key-value pairs");
    }
    if (type == GGUF_TYPE_STRING) {
        char skipped[1];
        if (n > (r->size - r->pos) / 8) {
            return check_reader_error(c, "its key-value pairs");
        }
        for (uint64_t i = 0; i < n && !r->failed; i++) {
            sluice_gguf_reader_string(r, skipped, sizeof skipped);
        }
    } else if (!each) {
        return sluice_error_set(c->err, SLUICE_ERR_FORMAT, "%s: damaged: key %s has an array of unknown type %" PRIu32,
                                c->path, key, type);
    } else if (n > (r->size - r->pos) / each) {
        return check_reader_error(c, "its key-value pairs");
    } else {
        struct sluice_gguf_number *number = is_integer(type) ? number_of(c, key) : NULL;
        if (number && n <= SLUICE_GGUF_LAYERS_MAX) {
            number->n = (uint32_t)n;
            number->array = true;
            for (uint32_t i = 0; i < n; i++) {
                number->value[i] = read_integer(r, type);
            }
        } else {
            sluice_gguf_reader_skip(r, n * each);
        }
    }
    return r->failed ? check_reader_error(c, "its key-value pairs") : 0;
}

/* One key-value pair; keeps the few that matter here. */
static int read_pair(struct check *c) {
    struct sluice_gguf_reader *r = c->r;
    char key[256];
    uint64_t key_len = sluice_gguf_reader_string(r, key, sizeof key);
    uint32_t type = sluice_gguf_reader_u32(r);
    if (r->failed) {
        return check_reader_error(c, "its key-value pairs");
    }
    if (key_len == 0 || key_len > STRING_BYTES_MAX) {
        return sluice_error_set(c->err, SLUICE_ERR_FORMAT, "%s: damaged: a metadata key has %" PRIu64 " bytes", c->path,
                                key_len);
    }
    if (strlen(key) < key_len && strlen(key) < sizeof key - 1) { /* others compare keys as texts, or as bytes */
        return sluice_error_set(c->err, SLUICE_ERR_FORMAT, "%s: damaged: there is a zero byte in metadata key %s",
                                c->path, key);
    }
    if (type == GGUF_TYPE_ARRAY) {
        return read_array(c, key);
    }
    bool split = strcmp(key, "split.no") == 0 || strcmp(key, "split.count") == 0;
    if (split && type != GGUF_TYPE_UINT16) { /* ggml asserts this type */
        return sluice_error_set(c->err, SLUICE_ERR_FORMAT, "%s: damaged: key %s is not a 16-bit number", c->path, key);
    }
    if (strcmp(key, "general.alignment") == 0 && type != GGUF_TYPE_UINT32) {
        return sluice_error_set(c->err, SLUICE_ERR_FORMAT, "%s: damaged: general.alignment is not a 32-bit number",
                                c->path);
    }
    if (type == GGUF_TYPE_STRING) {
        char ignored[1];
        if (c->shard == 0 && strcmp(key, "general.architecture") == 0) {
            sluice_gguf_reader_string(r, c->g->architecture, sizeof c->g->architecture);
            disarm(c->g->architecture);
        } else if (c->shard == 0 && strcmp(key, "general.name") == 0) {
            sluice_gguf_reader_string(r, c->g->name, sizeof c->g->name);
            disarm(c->g->name);
        } else {
            sluice_gguf_reader_string(r, ignored, sizeof ignored);
        }
    } else if (is_integer(type)) {
        uint64_t v = read_integer(r, type);
        struct sluice_gguf_number *number = number_of(c, key);
        if (number) {
            number->n = 1;
            number->value[0] = v;
        } else if (strcmp(key, "split.no") == 0) {
            c->split_no = v;
        } else if (strcmp(key, "split.count") == 0) {
            c->split_count = v;
        } else if (strcmp(key, "general.alignment") == 0) {
            c->alignment = v;
        }
    } else if (value_bytes(type)) {
        sluice_gguf_reader_skip(r, value_bytes(type));
    } else {
        return sluice_error_set(c->err, SLUICE_ERR_FORMAT, "%s: damaged: key %s has the unknown type %" PRIu32, c->path,
                                key, type);
    }
    return r->failed ? check_reader_error(c, "its key-value pairs") : 0;
}

/* Bytes of a tensor of that shape and type, or UINT64_MAX when that is not a size. */
static uint64_t tensor_bytes(const struct sluice_gguf_tensor *t) {
    uint64_t block = (uint64_t)ggml_blck_size((enum ggml_type)t->type);
    uint64_t bytes = ggml_type_size((enum ggml_type)t->type);
    if (block == 0 || bytes == 0 || t->ne[0] % block != 0) {
        return UINT64_MAX;
    }
    /* Values as well as bytes, in signed numbers as ggml has them: of small types there are more values than bytes. */
    int64_t values;
    if (__builtin_mul_overflow(bytes, t->ne[0] / block, &bytes) || __builtin_mul_overflow(t->ne[0], 1u, &values)) {
        return UINT64_MAX;
    }
    for (int i = 1; i < 4; i++) {
        if (__builtin_mul_overflow(bytes, t->ne[i], &bytes) || __builtin_mul_overflow(values, t->ne[i], &values)) {
            return UINT64_MAX;
        }
    }
    return bytes == 0 || bytes > INT64_MAX ? UINT64_MAX : bytes; /* nobody writes a tensor of nothing */
}

bool sluice_gguf_multiplies(int type) {
    return type == GGML_TYPE_F32 || ggml_get_type_traits((enum ggml_type)type)->to_float != NULL;
}

/* One tensor description. offset stays relative to the data section until that is known. */
static int read_tensor(struct check *c, struct sluice_gguf_tensor *t) {
    struct sluice_gguf_reader *r = c->r;
    uint64_t len = sluice_gguf_reader_string(r, t->name, sizeof t->name);
    t->n_dims = sluice_gguf_reader_u32(r);
    if (!r->failed && (len == 0 || len >= SLUICE_GGUF_NAME_MAX || t->n_dims > 4)) {
        return sluice_error_set(c->err, SLUICE_ERR_FORMAT,
                                "%s: damaged: a tensor has a name of %" PRIu64 " bytes and %" PRIu32 " dimensions",
                                c->path, len, t->n_dims);
    }
    if (strlen(t->name) < len) {
        return sluice_error_set(c->err, SLUICE_ERR_FORMAT, "%s: damaged: there is a zero byte in the name of tensor %s",
                                c->path, t->name);
    }
    for (uint32_t i = 0; i < 4; i++) {
        t->ne[i] = i < t->n_dims ? sluice_gguf_reader_u64(r) : 1;
    }
    t->type = (int)sluice_gguf_reader_u32(r);
    t->offset = sluice_gguf_reader_u64(r);
    t->shard = c->shard;
    if (r->failed) {
        return check_reader_error(c, "its list of tensors");
    }
    if (t->type < 0 || t->type >= GGML_TYPE_COUNT) {
        return sluice_error_set(c->err, SLUICE_ERR_FORMAT,
                                "%s: tensor %s has type %d, which this llama.cpp does not know", c->path, t->name,
                                t->type);
    }
    t->bytes = tensor_bytes(t);
    if (t->bytes == UINT64_MAX) {
        return sluice_error_set(c->err, SLUICE_ERR_FORMAT,
                                "%s: damaged: tensor %s has the impossible shape %" PRIu64 " x %" PRIu64 " x %" PRIu64
                                " x %" PRIu64 " of type %d",
                                c->path, t->name, t->ne[0], t->ne[1], t->ne[2], t->ne[3], t->type);
    }
    /* A matrix of such a type makes the CPU backend jump to nowhere. A table of experts by token is only looked up. */
    if (t->ne[1] > 1 && ends_with(t->name, ".weight") && !ends_with(t->name, "_tid2eid.weight") &&
        !sluice_gguf_multiplies(t->type)) {
        return sluice_error_set(c->err, SLUICE_ERR_FORMAT,
                                "%s: damaged: tensor %s has type %s, with which nothing can be multiplied", c->path,
                                t->name, ggml_type_name((enum ggml_type)t->type));
    }
    return 0;
}

/* The fixed start of the file: magic, version, and counts that the file is long enough for. */
static int read_header(struct check *c, uint64_t *n_tensors, uint64_t *n_pairs) {
    struct sluice_gguf_reader *r = c->r;
    char magic[4];
    if (r->size == 0) {
        return sluice_error_set(c->err, SLUICE_ERR_FORMAT, "%s: the file is empty", c->path);
    }
    if (!sluice_gguf_reader_bytes(r, magic, sizeof magic) || memcmp(magic, GGUF_MAGIC, 4) != 0) {
        return r->io_errno ? check_reader_error(c, "its header")
                           : sluice_error_set(c->err, SLUICE_ERR_FORMAT, "%s: not a GGUF file", c->path);
    }
    uint32_t version = sluice_gguf_reader_u32(r);
    *n_tensors = sluice_gguf_reader_u64(r);
    *n_pairs = sluice_gguf_reader_u64(r);
    if (r->failed) {
        return check_reader_error(c, "its header");
    }
    if (version < 2 || version > GGUF_VERSION) {
        return sluice_error_set(c->err, SLUICE_ERR_FORMAT,
                                "%s: GGUF version %" PRIu32 " is not supported (2 and %d are)", c->path, version,
                                GGUF_VERSION);
    }
    if (*n_pairs > r->size / KV_BYTES_MIN || *n_tensors > r->size / TENSOR_BYTES_MIN) {
        return sluice_error_set(c->err, SLUICE_ERR_FORMAT,
                                "%s: truncated or damaged: %" PRIu64 " bytes cannot hold %" PRIu64
                                " key-value pairs and %" PRIu64 " tensors",
                                c->path, r->size, *n_pairs, *n_tensors);
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
    }
    if (rc) {
        return rc;
    }
    if (c->alignment == 0 || (c->alignment & (c->alignment - 1))) {
        return sluice_error_set(c->err, SLUICE_ERR_FORMAT, "%s: damaged: alignment %" PRIu64 " is not a power of two",
                                c->path, c->alignment);
    }
    struct sluice_gguf *g = c->g;
    size_t total = g->n_tensors + (size_t)n_tensors;
    struct sluice_gguf_tensor *all = realloc(g->tensors, (total ? total : 1) * sizeof *all);
    if (!all) {
        return sluice_error_set(c->err, SLUICE_ERR_MEMORY, "%s: no memory for %zu tensor descriptions", c->path, total);
    }
    g->tensors = all;
    struct sluice_gguf_tensor *mine = all + g->n_tensors;
    for (uint64_t i = 0; i < n_tensors; i++) {
        rc = read_tensor(c, &mine[i]);
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
            return sluice_error_set(c->err, SLUICE_ERR_FORMAT,
                                    "%s: truncated: tensor %s lies beyond the end of the file (%" PRIu64 " bytes)",
                                    c->path, mine[i].name, r->size);
        }
        shard->whole = end > shard->whole ? end : shard->whole;
    }
    g->n_tensors = total;
    shard->tensors = (uint32_t)n_tensors;
    return 0;
}

/* Open a file that must be a regular one, and check it as shard number c->shard. */
static int open_and_check(struct check *c) {
    struct stat st;
    struct sluice_gguf_reader reader = {.fd = open(c->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (reader.fd < 0 || fstat(reader.fd, &st) != 0) {
        int error = errno;
        if (reader.fd >= 0) {
            close(reader.fd);
        }
        return sluice_error_set(c->err, SLUICE_ERR_IO, "%s: %s", c->path, strerror(error));
    }
    int rc = 0;
    if (S_ISDIR(st.st_mode)) {
        rc = sluice_error_set(c->err, SLUICE_ERR_IO, "%s: is a directory, not a model file", c->path);
    } else if (!S_ISREG(st.st_mode)) {
        rc = sluice_error_set(c->err, SLUICE_ERR_IO, "%s: is not a regular file", c->path);
    } else if (!(reader.buf = malloc(SLUICE_GGUF_READER_BUFFER))) {
        rc = sluice_error_set(c->err, SLUICE_ERR_MEMORY, "%s: no memory for a read buffer", c->path);
    } else {
        reader.size = (uint64_t)st.st_size;
        c->g->shards[c->shard].bytes = reader.size;
        c->r = &reader;
        c->alignment = GGUF_DEFAULT_ALIGNMENT;
        c->split_no = c->split_count = 0;
        rc = check_file(c);
        c->r = NULL;
    }
    free(reader.buf);
    close(reader.fd);
    return rc;
}

/* The other shards: <prefix>-00002-of-00003.gguf and so on, from the name of the first. */
static int check_shards(struct check *c, const char *first, uint64_t count) {
    char tail[32];
    size_t len = strlen(first);
    size_t tail_len = (size_t)snprintf(tail, sizeof tail, "-%05d-of-%05d.gguf", 1, (int)count);
    if (count > SLUICE_GGUF_SHARDS_MAX) {
        return sluice_error_set(c->err, SLUICE_ERR_FORMAT, "%s: claims to be one of %" PRIu64 " shards", first, count);
    }
    if (len < tail_len || strcmp(first + len - tail_len, tail) != 0) {
        return sluice_error_set(c->err, SLUICE_ERR_FORMAT,
                                "%s: is the first of %" PRIu64 " shards, so its name must end in %s", first, count,
                                tail);
    }
    struct sluice_gguf_shard *shards = realloc(c->g->shards, (size_t)count * sizeof *shards);
    if (!shards) {
        return sluice_error_set(c->err, SLUICE_ERR_MEMORY, "%s: no memory for %" PRIu64 " shards", first, count);
    }
    c->g->shards = shards;
    for (uint32_t i = 1; i < count; i++) {
        char *path = malloc(len + 1);
        if (!path) {
            return sluice_error_set(c->err, SLUICE_ERR_MEMORY, "%s: no memory for a file name", first);
        }
        memcpy(path, first, len + 1);
        snprintf(path + len - tail_len, tail_len + 1, "-%05d-of-%05d.gguf", (int)i + 1, (int)count);
        shards[i] = (struct sluice_gguf_shard){.path = path};
        c->g->n_shards = i + 1;
        c->path = path;
        c->shard = i;
        int rc = open_and_check(c);
        if (rc == SLUICE_ERR_IO && c->err && access(path, F_OK) != 0) {
            return sluice_error_set(c->err, SLUICE_ERR_IO, "%s: shard %d of %d is missing", path, (int)i + 1,
                                    (int)count);
        }
        if (rc) {
            return rc;
        }
        if (c->split_no != i || (c->split_count && c->split_count != count)) {
            return sluice_error_set(c->err, SLUICE_ERR_FORMAT,
                                    "%s: is shard %" PRIu64 " of %" PRIu64 ", but shard %d of %d belongs here", path,
                                    c->split_no + 1, c->split_count, (int)i + 1, (int)count);
        }
    }
    return 0;
}

/* The relations between the expert numbers that llama.cpp asserts, as errors. */
static int check_experts(const struct sluice_gguf *g, const char *path, struct sluice_error *err) {
    uint64_t experts = g->experts.n ? g->experts.value[0] : 0;
    if (experts > EXPERTS_MAX) {
        return sluice_error_set(err, SLUICE_ERR_FORMAT, "%s: claims %" PRIu64 " experts, llama.cpp supports %d", path,
                                experts, EXPERTS_MAX);
    }
    uint64_t most = 0;
    for (uint32_t i = 0; i < g->expert_used.n; i++) {
        most = g->expert_used.value[i] > most ? g->expert_used.value[i] : most;
        if (g->expert_used.value[i] > experts) {
            return sluice_error_set(err, SLUICE_ERR_FORMAT, "%s: claims to use %" PRIu64 " of %" PRIu64 " experts",
                                    path, g->expert_used.value[i], experts);
        }
    }
    if (g->expert_used.n && experts && most == 0) {
        return sluice_error_set(err, SLUICE_ERR_FORMAT, "%s: claims to use none of %" PRIu64 " experts", path, experts);
    }
    return 0;
}

static int check_set(const char *path, bool partial, struct sluice_gguf **out, struct sluice_error *err) {
    *out = NULL;
    struct sluice_gguf *g = calloc(1, sizeof *g);
    if (g) {
        g->shards = calloc(1, sizeof *g->shards);
    }
    if (!g || !g->shards || !(g->shards[0].path = strdup(path))) {
        sluice_gguf_free(g);
        return sluice_error_set(err, SLUICE_ERR_MEMORY, "%s: no memory to read its metadata", path);
    }
    g->n_shards = 1;
    struct check c = {.g = g, .path = path, .err = err, .partial = partial};
    int rc = open_and_check(&c);
    if (rc == 0 && c.split_count > 1) {
        rc = c.split_no == 0 ? check_shards(&c, path, c.split_count)
                             : sluice_error_set(err, SLUICE_ERR_FORMAT,
                                                "%s: is shard %" PRIu64 " of %" PRIu64 ": name the first shard instead",
                                                path, c.split_no + 1, c.split_count);
    }
    if (rc == 0 && g->n_tensors == 0) {
        rc = sluice_error_set(err, SLUICE_ERR_FORMAT, "%s: holds no tensors (a vocabulary only?)", path);
    }
    if (rc == 0 && g->architecture[0] == '\0') {
        rc = sluice_error_set(err, SLUICE_ERR_FORMAT, "%s: does not say which architecture it is", path);
    }
    if (rc == 0) {
        check_prefixes(g);
        rc = check_experts(g, path, err);
    }
    if (rc) {
        sluice_gguf_free(g);
        return rc;
    }
    *out = g;
    return 0;
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
