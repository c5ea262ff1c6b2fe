/*
 * read.c - a route trace from a file that anybody may have written.
 *
 * Ours and those of the BigMoeOnEdge project (version 1; nine columns, or ten with `dropped` at the
 * end). Unknown comments and unknown key=value pairs are skipped, columns must be the known ones in
 * the known order: a file with others would be read wrongly without anybody noticing.
 *
 * Every number is checked to its last character and against its range, every row against the head. A
 * last line without its line break is an error: the trace of a process that was killed ends so, and
 * half a number is a number too. Every message names the line.
 *
 * The largest memory is 40 bytes per row, and a row is at least 18 bytes of file; the tables that a
 * replay makes are bounded by TRACE_BUNDLES_MAX.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/error.h"
#include "trace/trace.h"

enum { READ_LINE = 8192 }; /* bytes of a line, at most */

#define READ_COLUMNS "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes"

/* The file while it is read. */
struct reader {
    FILE *file;               /* from */
    const char *path;         /* for messages */
    uint64_t line;            /* number of the line in text, from 1 */
    struct sluice_error *err; /* where failures go */
    struct trace *t;          /* what is filled */
    size_t cap_rows;          /* entries allocated */
    int32_t *layer_of;        /* by a layer's number: its index, or -1; TRACE_LAYERS_MAX entries */
    bool drops;               /* there is a column `dropped` */
    char text[READ_LINE];     /* the line, without its break */
};

static int read_fail(const struct reader *r, const char *what) {
    return sluice_fail(r->err, SLUICE_ERR_FORMAT, "%s:%" PRIu64 ": %s", r->path, r->line, what);
}

/* Texts of the head are printed: what a terminal would obey becomes a question mark. */
static void disarm(char *text) {
    for (; *text; text++) {
        *text = (unsigned char)*text < ' ' || *text == 127 ? '?' : *text;
    }
}

/* The next line. *more: there was one. */
static int read_line(struct reader *r, bool *more) {
    *more = false;
    r->line++;
    size_t n = 0;
    for (;;) {
        const int c = getc_unlocked(r->file);
        if (c == EOF) {
            break;
        }
        if (c == '\n') {
            n -= n > 0 && r->text[n - 1] == '\r';
            r->text[n] = 0;
            *more = true;
            return SLUICE_OK;
        }
        if (c == 0) {
            return read_fail(r, "not a text file");
        }
        if (n == READ_LINE - 1) {
            return read_fail(r, "the line is too long for a route trace");
        }
        r->text[n++] = (char)c;
    }
    if (ferror(r->file)) {
        return sluice_fail(r->err, SLUICE_ERR_IO, "%s: cannot read: %s", r->path, strerror(errno));
    }
    return n ? read_fail(r, "the file ends in the middle of a line") : SLUICE_OK;
}

/* Digits up to `max`; *p moves behind them. */
static bool take_number(const char **p, uint64_t max, uint64_t *out) {
    uint64_t n = 0;
    const char *q = *p;
    if (*q < '0' || *q > '9') {
        return false;
    }
    for (; *q >= '0' && *q <= '9'; q++) {
        const uint64_t digit = (uint64_t)(*q - '0');
        if (digit > max || n > (max - digit) / 10) {
            return false;
        }
        n = n * 10 + digit;
    }
    *p = q;
    *out = n;
    return true;
}

/* A decimal number as printf's %g writes it, "nan", or nothing (not known). Not strtod: that asks the locale. */
static bool take_real(const char **p, float *out) {
    const char *q = *p;
    if (*q == ',' || *q == 0) {
        *out = NAN;
        return true;
    }
    const bool minus = *q == '-';
    q += minus;
    if (strncmp(q, "nan", 3) == 0) {
        *p = q + 3;
        *out = NAN;
        return true;
    }
    double x = 0;
    int scale = 0, digits = 0;
    for (; *q >= '0' && *q <= '9'; q++, digits++) {
        x = x * 10 + (*q - '0');
    }
    if (*q == '.') {
        for (q++; *q >= '0' && *q <= '9'; q++, digits++) {
            x = x * 10 + (*q - '0');
            scale--;
        }
    }
    if (digits == 0 || digits > 60) {
        return false;
    }
    if (*q == 'e' || *q == 'E') {
        q++;
        const bool down = *q == '-';
        q += *q == '-' || *q == '+';
        uint64_t e;
        if (!take_number(&q, 400, &e)) {
            return false;
        }
        scale += down ? -(int)e : (int)e;
    }
    x = minus ? -x * pow(10, scale) : x * pow(10, scale);
    if (!isfinite(x) || fabs(x) > 1e30) {
        return false;
    }
    *p = q;
    *out = (float)x;
    return true;
}

/* The number after " key=" in a comment; `given` tells whether it is there. */
static bool comment_number(const char *text, const char *key, uint64_t max, bool *given, uint64_t *out) {
    char pattern[32];
    const int n = snprintf(pattern, sizeof pattern, " %s=", key);
    const char *p = strstr(text, pattern);
    *given = p != NULL;
    if (!p) {
        return true;
    }
    p += n;
    return take_number(&p, max, out) && (*p == ' ' || *p == 0);
}

/* The word after " key=", cut to fit. */
static void comment_word(const char *text, const char *key, char *out, size_t cap) {
    char pattern[32];
    const int n = snprintf(pattern, sizeof pattern, " %s=", key);
    const char *p = strstr(text, pattern);
    out[0] = 0;
    if (p) {
        p += n;
        snprintf(out, cap, "%.*s", (int)strcspn(p, " "), p);
        disarm(out);
    }
}

/* "# model=PATH arch=A n_layer=N n_expert=N n_expert_used=N"; the path may hold blanks. */
static int read_model(struct reader *r) {
    struct trace_head *h = &r->t->head;
    const char *path = r->text + strlen("# model="), *end = NULL;
    for (const char *p = path; (p = strstr(p, " arch=")); p++) {
        end = p;
    }
    if (!end) {
        return read_fail(r, "no arch= after model=");
    }
    snprintf(h->model, sizeof h->model, "%.*s", (int)(end - path), path);
    disarm(h->model);
    comment_word(end, "arch", h->arch, sizeof h->arch);
    uint64_t n_layer = 0, n_expert = 0, used = 0;
    bool a, b, c;
    if (!comment_number(end, "n_layer", UINT32_MAX, &a, &n_layer) ||
        !comment_number(end, "n_expert", TRACE_BUNDLES_MAX, &b, &n_expert) ||
        !comment_number(end, "n_expert_used", TRACE_SLOT_MAX + 1, &c, &used) || !a || !b || !c || n_expert == 0 ||
        used == 0 || used > n_expert) {
        return read_fail(r, "n_layer, n_expert and n_expert_used must be numbers in range");
    }
    h->n_layer = (uint32_t)n_layer;
    h->n_expert = (uint32_t)n_expert;
    h->n_expert_used = (uint32_t)used;
    return SLUICE_OK;
}

/* "# layer=N expert_bytes=N dense_bytes=N [slot_bytes=N top_k=N]" */
static int read_layer(struct reader *r) {
    struct trace_head *h = &r->t->head;
    struct trace_layer l = {0};
    uint64_t number = 0, top_k = 0;
    const char *text = r->text + 1;
    bool a, b, c, d;
    if (!comment_number(text, "layer", TRACE_LAYERS_MAX - 1, &a, &number) ||
        !comment_number(text, "expert_bytes", INT64_MAX / TRACE_BUNDLES_MAX, &b, &l.expert_bytes) ||
        !comment_number(text, "dense_bytes", INT64_MAX, &c, &l.dense_bytes) ||
        !comment_number(text, "slot_bytes", INT64_MAX / TRACE_BUNDLES_MAX, &d, &l.slot_bytes) ||
        !comment_number(text, "top_k", TRACE_SLOT_MAX + 1, &c, &top_k) || !a || !b) {
        return read_fail(r, "layer, expert_bytes and what follows must be numbers in range");
    }
    if (l.expert_bytes == 0) {
        return SLUICE_OK; /* a layer without experts */
    }
    if (h->n_layers && number <= h->layers[h->n_layers - 1].number) {
        return read_fail(r, "layers must be named once each, in ascending order");
    }
    if (d && l.slot_bytes < l.expert_bytes) {
        return read_fail(r, "slot_bytes is less than expert_bytes");
    }
    struct trace_layer *layers = reallocarray(h->layers, h->n_layers + 1, sizeof *layers);
    if (!layers) {
        return sluice_fail(r->err, SLUICE_ERR_MEMORY, "%s: out of memory", r->path);
    }
    l.number = (uint32_t)number;
    l.top_k = (uint32_t)top_k;
    h->layers = layers;
    r->layer_of[number] = (int32_t)h->n_layers;
    layers[h->n_layers++] = l;
    return SLUICE_OK;
}

/* "# sluice version=V cache_policy=P cache_budget=N align=N groups=N lookahead=0|1" */
static int read_engine(struct reader *r) {
    struct trace_head *h = &r->t->head;
    uint64_t groups = 0, lookahead = 0;
    bool a, b, c, d;
    comment_word(r->text + 1, "cache_policy", h->policy, sizeof h->policy);
    if (!comment_number(r->text + 1, "cache_budget", INT64_MAX, &a, &h->budget) ||
        !comment_number(r->text + 1, "align", 1 << 20, &b, &h->align) ||
        !comment_number(r->text + 1, "groups", TRACE_LAYERS_MAX, &c, &groups) ||
        !comment_number(r->text + 1, "lookahead", 1, &d, &lookahead) || !a || !b || !c || !d || h->align == 0 ||
        groups < h->n_layers) {
        return read_fail(r, "cache_budget, align, groups and lookahead must be numbers in range");
    }
    h->engine = true;
    h->n_groups = (uint32_t)groups;
    h->lookahead = lookahead != 0;
    return SLUICE_OK;
}

/* Everything before the table. */
static int read_head(struct reader *r) {
    bool more, model = false;
    int rc = read_line(r, &more);
    if (rc) {
        return rc;
    }
    if (!more || strcmp(r->text, "# route_trace v1") != 0) {
        return read_fail(r, "not a route trace: it does not begin with \"# route_trace v1\"");
    }
    while ((rc = read_line(r, &more)) == SLUICE_OK && more && r->text[0] == '#') {
        if (strncmp(r->text, "# model=", 8) == 0) {
            rc = model ? read_fail(r, "a second model") : read_model(r);
            model = true;
        } else if (strncmp(r->text, "# layer=", 8) == 0) {
            rc = read_layer(r);
        } else if (strncmp(r->text, "# sluice ", 9) == 0) {
            rc = read_engine(r);
        }
        if (rc) {
            return rc;
        }
    }
    if (rc) {
        return rc;
    }
    const struct trace_head *h = &r->t->head;
    const size_t known = strlen(READ_COLUMNS);
    if (!more || strncmp(r->text, READ_COLUMNS, known) != 0 ||
        (r->text[known] && strcmp(r->text + known, ",dropped") != 0)) {
        return read_fail(r, "expected the columns " READ_COLUMNS "[,dropped]");
    }
    r->drops = r->text[known] != 0;
    if (!model || h->n_layers == 0) {
        return read_fail(r, "no model= or no layer= before the table");
    }
    if ((uint64_t)h->n_layers * h->n_expert > TRACE_BUNDLES_MAX) {
        return read_fail(r, "too many layers times experts");
    }
    return SLUICE_OK;
}

/* The row in text. */
static int read_row(struct reader *r) {
    const struct trace_head *h = &r->t->head;
    const char *p = r->text;
    uint64_t v[8] = {0};
    const struct {
        const char *wrong; /* what to say */
        uint64_t max;      /* the largest value */
    } column[] = {
        {"turn is not a number", UINT32_MAX},
        {"phase is not 0 or 1", 1},
        {"step is not a number", UINT32_MAX},
        {"layer is not one of the head's", TRACE_LAYERS_MAX - 1},
        {"slot is not a rank", TRACE_SLOT_MAX},
        {"expert is not below n_expert", h->n_expert - 1},
        {"residency is not 0, 1 or 2", TRACE_PREFETCHED},
        {"expert_bytes is not a number", INT64_MAX / TRACE_BUNDLES_MAX},
    };
    float weight = NAN;
    for (int i = 0; i < 8; i++) {
        if (i == 6) { /* between expert and residency */
            if (!take_real(&p, &weight) || *p++ != ',') {
                return read_fail(r, "weight is not a number");
            }
        }
        if (!take_number(&p, column[i].max, &v[i]) || (i < 7 && *p != ',')) {
            return read_fail(r, column[i].wrong);
        }
        p += i < 7;
    }
    uint64_t dropped = 0;
    if (r->drops && (*p++ != ',' || !take_number(&p, TRACE_COPIED, &dropped))) {
        return read_fail(r, "dropped is not 0, 1 or 2");
    }
    if (*p) {
        return read_fail(r, "there is something after the last column");
    }
    if (r->layer_of[v[3]] < 0) {
        return read_fail(r, column[3].wrong);
    }
    if (r->t->n_rows == r->cap_rows) {
        const size_t cap = r->cap_rows ? r->cap_rows + r->cap_rows / 2 : 1024;
        struct trace_row *rows = reallocarray(r->t->rows, cap, sizeof *rows);
        if (!rows) {
            return sluice_fail(r->err, SLUICE_ERR_MEMORY, "%s: out of memory", r->path);
        }
        r->t->rows = rows;
        r->cap_rows = cap;
    }
    r->t->rows[r->t->n_rows++] = (struct trace_row){.turn = (uint32_t)v[0],
                                                    .phase = (uint8_t)v[1],
                                                    .step = (uint32_t)v[2],
                                                    .layer = (uint32_t)r->layer_of[v[3]],
                                                    .slot = (uint16_t)v[4],
                                                    .expert = (uint32_t)v[5],
                                                    .weight = weight,
                                                    .residency = (uint8_t)v[6],
                                                    .bytes = v[7],
                                                    .dropped = (uint8_t)dropped};
    return SLUICE_OK;
}

int trace_read(struct trace *t, const char *path, struct sluice_error *err) {
    memset(t, 0, sizeof *t);
    struct reader *r = calloc(1, sizeof *r);
    int32_t *layer_of = malloc(TRACE_LAYERS_MAX * sizeof *layer_of);
    FILE *file = r && layer_of ? fopen(path, "re") : NULL;
    if (!file) {
        const int rc = r && layer_of ? sluice_fail(err, SLUICE_ERR_IO, "%s: cannot read: %s", path, strerror(errno))
                                     : sluice_fail(err, SLUICE_ERR_MEMORY, "%s: out of memory", path);
        free(r);
        free(layer_of);
        return rc;
    }
    *r = (struct reader){.file = file, .path = path, .err = err, .t = t, .layer_of = layer_of};
    memset(layer_of, 0xff, TRACE_LAYERS_MAX * sizeof *layer_of); /* all -1 */
    bool more = true;
    int rc = read_head(r);
    while (rc == SLUICE_OK && (rc = read_line(r, &more)) == SLUICE_OK && more) {
        rc = read_row(r);
    }
    if (rc == SLUICE_OK && t->n_rows == 0) {
        rc = read_fail(r, "the trace has no rows");
    }
    fclose(file);
    free(layer_of);
    free(r);
    if (rc) {
        trace_free(t);
        return rc;
    }
    return sluice_ok(err);
}

void trace_free(struct trace *t) {
    free(t->head.layers);
    free(t->rows);
    memset(t, 0, sizeof *t);
}
