/*
 * hostile-craft IN OUT EDIT... - copy a GGUF file with deliberate lies in it.
 *
 * Reads a sound file into lists of key-value pairs and tensors, applies the edits, and writes what comes out, with
 * no regard for sense. It must be able to write what no library would, hence no library. An edit is WORD=ARGUMENTS,
 * the arguments apart by colons; numbers may be negative and are cut to the width that the file has for them.
 *
 *   u16=KEY:V u32=KEY:V u64=KEY:V   set a number, of that width; add it if it is not there
 *   drop=KEY                        remove a pair
 *   twice=KEY                       write a pair twice
 *   name=TENSOR:NEW                 rename a tensor
 *   ndims=TENSOR:N                  say it has N dimensions, of which those beyond four are written as 1
 *   dim=TENSOR:I:V                  set one of its dimensions
 *   type=TENSOR:V                   set the number of its type
 *   offset=TENSOR:V                 set where its data is said to begin
 *   over=TENSOR:OTHER               say that its data begins where the other's does
 *   bytes=TENSOR:N                  with layout, give it so many bytes of data; what it lacks is zeros
 *   fill=TENSOR:nan|inf|zero        set its values, which are floats
 *   fillrow=TENSOR:ROW:nan|inf|zero the same of one row
 *   ids=TENSOR:V                    set all its values, which are 32-bit integers
 *   id=TENSOR:I:V                   set one of them
 *   tensors=N pairs=N               say how many there are
 *   layout=ALIGN                    lay the data out anew with that alignment, and say so
 *   cut=N                           end the file N bytes early
 */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAIRS_MAX = 256, TENSORS_MAX = 4096, DIMS_MAX = 64, NAME_CAP = 256 };

/* A key-value pair, as its bytes. */
struct pair {
    char key[NAME_CAP];
    const uint8_t *bytes; /* type and value */
    size_t n;             /* of them */
    bool dropped, twice;
    uint8_t own[16]; /* where bytes of an edited number lie */
};

struct craft_tensor {
    char name[NAME_CAP];
    uint32_t n_dims, type;
    uint64_t ne[DIMS_MAX], offset; /* as the file is to say */
    uint64_t row;                  /* values of a row, as they were */
    uint64_t from, n;              /* where its bytes are in the data section, and how many until the next tensor's */
    uint64_t bytes;                /* what layout gives it; 0: n */
};

static struct {
    uint8_t *in;            /* the whole input */
    size_t n_in, at;        /* its bytes, and how many are read */
    uint8_t *data;          /* the data section, in it */
    size_t n_data;          /* bytes of it */
    uint64_t align;         /* of the data section of the output */
    uint64_t layout;        /* lay out anew, 0: no */
    uint64_t cut;           /* bytes missing at the end */
    int64_t tensors, pairs; /* what the header is to say, -1: the truth */
    struct pair pair[PAIRS_MAX];
    struct craft_tensor tensor[TENSORS_MAX];
    size_t n_pairs, n_tensors;
} craft = {.align = 32, .tensors = -1, .pairs = -1};

static void die(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "hostile-craft: ");
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    exit(2);
}

/* ---- reading ---- */

static const uint8_t *take(size_t n) {
    if (n > craft.n_in - craft.at) {
        die("the input is not whole");
    }
    craft.at += n;
    return craft.in + craft.at - n;
}

static uint64_t take_number(size_t bytes) {
    uint64_t v = 0;
    memcpy(&v, take(bytes), bytes);
    return v;
}

static void take_string(char *dst) {
    const uint64_t n = take_number(8);
    if (n >= NAME_CAP) {
        die("a name of %" PRIu64 " bytes", n);
    }
    memcpy(dst, take((size_t)n), (size_t)n);
    dst[n] = '\0';
}

static void skip_value(uint32_t type) {
    static const size_t size[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == 8) {
        take((size_t)take_number(8));
    } else if (type == 9) {
        const uint32_t each = (uint32_t)take_number(4);
        for (uint64_t n = take_number(8); n > 0; n--) {
            skip_value(each);
        }
    } else if (type < sizeof size / sizeof size[0]) {
        take(size[type]);
    } else {
        die("a value of type %" PRIu32, type);
    }
}

static void read_input(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) || (craft.n_in = (size_t)ftell(f)) == 0 || fseek(f, 0, SEEK_SET) ||
        !(craft.in = malloc(craft.n_in)) || fread(craft.in, 1, craft.n_in, f) != craft.n_in) {
        die("%s cannot be read", path);
    }
    fclose(f);
    if (memcmp(take(4), "GGUF", 4) != 0 || take_number(4) != 3) {
        die("%s is not a GGUF file of version 3", path);
    }
    craft.n_tensors = (size_t)take_number(8);
    craft.n_pairs = (size_t)take_number(8);
    if (craft.n_tensors > TENSORS_MAX || craft.n_pairs > PAIRS_MAX - 8) {
        die("%s has too much in it", path);
    }
    for (size_t i = 0; i < craft.n_pairs; i++) {
        struct pair *p = &craft.pair[i];
        take_string(p->key);
        p->bytes = craft.in + craft.at;
        skip_value((uint32_t)take_number(4));
        p->n = (size_t)(craft.in + craft.at - p->bytes);
    }
    for (size_t i = 0; i < craft.n_tensors; i++) {
        struct craft_tensor *t = &craft.tensor[i];
        take_string(t->name);
        t->n_dims = (uint32_t)take_number(4);
        for (uint32_t d = 0; d < DIMS_MAX; d++) {
            t->ne[d] = d < t->n_dims ? take_number(8) : 1;
        }
        t->row = t->ne[0];
        t->type = (uint32_t)take_number(4);
        t->offset = t->from = take_number(8);
    }
    craft.at = (craft.at + 31) / 32 * 32;
    craft.data = craft.in + craft.at;
    craft.n_data = craft.n_in - craft.at;
    for (size_t i = 0; i < craft.n_tensors; i++) {
        uint64_t end = craft.n_data;
        for (size_t k = 0; k < craft.n_tensors; k++) {
            const uint64_t from = craft.tensor[k].from;
            end = from > craft.tensor[i].from && from < end ? from : end;
        }
        craft.tensor[i].n = end - craft.tensor[i].from;
    }
}

/* ---- edits ---- */

static struct craft_tensor *find(const char *name) {
    for (size_t i = 0; i < craft.n_tensors; i++) {
        if (strcmp(craft.tensor[i].name, name) == 0) {
            return &craft.tensor[i];
        }
    }
    die("no tensor %s", name);
    return NULL;
}

static struct pair *find_pair(const char *key, bool add) {
    for (size_t i = 0; i < craft.n_pairs; i++) {
        if (strcmp(craft.pair[i].key, key) == 0) {
            return &craft.pair[i];
        }
    }
    if (!add || craft.n_pairs == PAIRS_MAX || strlen(key) >= NAME_CAP) {
        die("no key %s", key);
    }
    struct pair *p = &craft.pair[craft.n_pairs++];
    strcpy(p->key, key);
    return p;
}

static uint64_t number(const char *text) {
    char *end;
    const uint64_t v = *text == '-' ? (uint64_t)strtoll(text, &end, 0) : strtoull(text, &end, 0);
    if (end == text || *end) {
        die("%s is no number", text);
    }
    return v;
}

static void set_number(const char *key, uint32_t type, size_t bytes, uint64_t v) {
    struct pair *p = find_pair(key, true);
    memcpy(p->own, &type, 4);
    memcpy(p->own + 4, &v, bytes);
    p->bytes = p->own;
    p->n = 4 + bytes;
}

static void fill(struct craft_tensor *t, uint64_t from, uint64_t n, const char *with) {
    const float v = strcmp(with, "nan") == 0 ? NAN : strcmp(with, "inf") == 0 ? INFINITY : 0.0f;
    if (from > t->n / 4 || n > t->n / 4 - from) {
        die("%s has no such row", t->name);
    }
    for (uint64_t i = from; i < from + n; i++) {
        memcpy(craft.data + t->from + i * 4, &v, 4);
    }
}

static void set_id(struct craft_tensor *t, uint64_t i, uint64_t v) {
    if (i >= t->n / 4) {
        die("%s has no value %" PRIu64, t->name, i);
    }
    memcpy(craft.data + t->from + i * 4, &v, 4);
}

static void edit(char *text) {
    char *arg[4] = {NULL};
    char *rest = strchr(text, '=');
    int n = 0;
    if (!rest) {
        die("%s is no edit", text);
    }
    *rest++ = '\0';
    for (char *p = strtok(rest, ":"); p && n < 4; p = strtok(NULL, ":")) {
        arg[n++] = p;
    }
#define IS(word, args) (strcmp(text, word) == 0 && n == (args))
    if (IS("u16", 2)) {
        set_number(arg[0], 2, 2, number(arg[1]));
    } else if (IS("u32", 2)) {
        set_number(arg[0], 4, 4, number(arg[1]));
    } else if (IS("u64", 2)) {
        set_number(arg[0], 10, 8, number(arg[1]));
    } else if (IS("drop", 1)) {
        find_pair(arg[0], false)->dropped = true;
    } else if (IS("twice", 1)) {
        find_pair(arg[0], false)->twice = true;
    } else if (IS("name", 2)) {
        snprintf(find(arg[0])->name, NAME_CAP, "%s", arg[1]);
    } else if (IS("ndims", 2)) {
        find(arg[0])->n_dims = (uint32_t)number(arg[1]);
    } else if (IS("dim", 3) && number(arg[1]) < DIMS_MAX) {
        find(arg[0])->ne[number(arg[1])] = number(arg[2]);
    } else if (IS("type", 2)) {
        find(arg[0])->type = (uint32_t)number(arg[1]);
    } else if (IS("offset", 2)) {
        find(arg[0])->offset = number(arg[1]);
    } else if (IS("over", 2)) {
        find(arg[0])->offset = find(arg[1])->offset;
    } else if (IS("bytes", 2)) {
        find(arg[0])->bytes = number(arg[1]);
    } else if (IS("fill", 2)) {
        fill(find(arg[0]), 0, find(arg[0])->n / 4, arg[1]);
    } else if (IS("fillrow", 3)) {
        fill(find(arg[0]), number(arg[1]) * find(arg[0])->row, find(arg[0])->row, arg[2]);
    } else if (IS("ids", 2)) {
        for (uint64_t i = 0; i < find(arg[0])->n / 4; i++) {
            set_id(find(arg[0]), i, number(arg[1]));
        }
    } else if (IS("id", 3)) {
        set_id(find(arg[0]), number(arg[1]), number(arg[2]));
    } else if (IS("tensors", 1)) {
        craft.tensors = (int64_t)number(arg[0]);
    } else if (IS("pairs", 1)) {
        craft.pairs = (int64_t)number(arg[0]);
    } else if (IS("layout", 1)) {
        craft.layout = craft.align = number(arg[0]);
        set_number("general.alignment", 4, 4, craft.align);
    } else if (IS("cut", 1)) {
        craft.cut = number(arg[0]);
    } else {
        die("%s is no edit", text);
    }
}

/* ---- writing ---- */

static FILE *out;
static uint64_t out_bytes; /* written */

static void put(const void *bytes, size_t n) {
    if (n && fwrite(bytes, 1, n, out) != n) {
        die("the output cannot be written");
    }
    out_bytes += n;
}

static void put_number(uint64_t v, size_t bytes) {
    put(&v, bytes);
}

static void put_string(const char *s) {
    put_number(strlen(s), 8);
    put(s, strlen(s));
}

static void pad(uint64_t align) {
    static const uint8_t zeros[64];
    while (out_bytes % align) {
        const uint64_t n = align - out_bytes % align;
        put(zeros, n < sizeof zeros ? (size_t)n : sizeof zeros);
    }
}

static uint64_t layout_bytes(const struct craft_tensor *t) {
    return t->bytes ? t->bytes : t->n;
}

static void write_output(const char *path) {
    size_t pairs = 0;
    out = fopen(path, "w+b");
    if (!out) {
        die("%s cannot be written", path);
    }
    if (craft.layout) {
        uint64_t at = 0;
        for (size_t i = 0; i < craft.n_tensors; i++) {
            craft.tensor[i].offset = at;
            at = (at + layout_bytes(&craft.tensor[i]) + craft.layout - 1) / craft.layout * craft.layout;
        }
    }
    for (size_t i = 0; i < craft.n_pairs; i++) {
        pairs += craft.pair[i].dropped ? 0 : craft.pair[i].twice ? 2 : 1;
    }
    put("GGUF", 4);
    put_number(3, 4);
    put_number(craft.tensors >= 0 ? (uint64_t)craft.tensors : craft.n_tensors, 8);
    put_number(craft.pairs >= 0 ? (uint64_t)craft.pairs : pairs, 8);
    for (size_t i = 0; i < craft.n_pairs; i++) {
        const struct pair *p = &craft.pair[i];
        for (int k = 0; k < (p->dropped ? 0 : p->twice ? 2 : 1); k++) {
            put_string(p->key);
            put(p->bytes, p->n);
        }
    }
    for (size_t i = 0; i < craft.n_tensors; i++) {
        const struct craft_tensor *t = &craft.tensor[i];
        put_string(t->name);
        put_number(t->n_dims, 4);
        for (uint32_t d = 0; d < t->n_dims && d < DIMS_MAX; d++) {
            put_number(t->ne[d], 8);
        }
        put_number(t->type, 4);
        put_number(t->offset, 8);
    }
    pad(craft.align);
    if (craft.layout) {
        for (size_t i = 0; i < craft.n_tensors; i++) {
            const struct craft_tensor *t = &craft.tensor[i];
            const uint64_t n = layout_bytes(t);
            put(craft.data + t->from, (size_t)(n < t->n ? n : t->n));
            for (uint64_t k = t->n; k < n; k++) {
                put("", 1);
            }
            pad(craft.layout);
        }
    } else {
        put(craft.data, craft.n_data);
    }
    const uint64_t end = craft.cut < out_bytes ? out_bytes - craft.cut : 0;
    if (fflush(out) || ftruncate(fileno(out), (off_t)end) || fclose(out)) {
        die("%s cannot be written", path);
    }
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: hostile-craft IN OUT EDIT...\n");
        return 2;
    }
    read_input(argv[1]);
    for (int i = 3; i < argc; i++) {
        edit(argv[i]);
    }
    write_output(argv[2]);
    free(craft.in);
    return 0;
}
