/*
 * csv.c - see csv.h.
 *
 * The file comes from a child that may have been killed, may be of another version, or may not have been
 * written by sluice at all. A reader that guesses would put a wrong number into a table that somebody
 * believes, so every doubt is an error that names the line. Columns are found by name: the writer
 * may add some and order them as it likes.
 */
#include "bench/csv.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/error.h"

enum {
    CSV_COLUMNS_MAX = 64,    /* of a header row */
    CSV_STEPS_MAX = 1 << 24, /* more than any context holds */
    CSV_BYTES_MAX = 1 << 30, /* of a file */
    CSV_LINE_MAX = 1 << 12,  /* bytes of a row */
    CSV_UNKNOWN = -1,        /* a column that is not for us */
};

/* What a field of a column must be. */
enum column_kind { COLUMN_STEP, COLUMN_PHASE, COLUMN_COUNT, COLUMN_SECONDS };

static const struct column {
    const char *name;      /* in the header row */
    enum column_kind kind; /* how it is parsed */
    size_t offset;         /* in struct bench_step, for counts and seconds */
} columns[] = {
    {"step", COLUMN_STEP, 0},
    {"phase", COLUMN_PHASE, 0},
    {"tokens", COLUMN_COUNT, offsetof(struct bench_step, tokens)},
    {"wall_s", COLUMN_SECONDS, offsetof(struct bench_step, wall_s)},
    {"stall_s", COLUMN_SECONDS, offsetof(struct bench_step, stall_s)},
    {"expert_s", COLUMN_SECONDS, offsetof(struct bench_step, expert_s)},
    {"cpu_s", COLUMN_SECONDS, offsetof(struct bench_step, cpu_s)},
    {"read_bytes", COLUMN_COUNT, offsetof(struct bench_step, read_bytes)},
    {"hits", COLUMN_COUNT, offsetof(struct bench_step, hits)},
    {"misses", COLUMN_COUNT, offsetof(struct bench_step, misses)},
    {"major_faults", COLUMN_COUNT, offsetof(struct bench_step, major_faults)},
};

enum { COLUMNS = sizeof columns / sizeof columns[0] };

/* A file that is being read. */
struct reader {
    const char *path;            /* for messages */
    uint64_t line;               /* number of the current one, from 1 */
    int column[CSV_COLUMNS_MAX]; /* row of `columns` for each field, or CSV_UNKNOWN */
    size_t n_columns;            /* fields of the header; 0: it did not come yet */
    size_t cap;                  /* steps allocated */
    uint64_t last_step;          /* number of the last row */
    struct bench_csv *out;       /* what was read so far */
    struct sluice_error *err;    /* where a failure goes */
};

static int bad(struct reader *r, const char *what) {
    return sluice_fail(r->err, SLUICE_ERR_FORMAT, "%s, line %" PRIu64 ": %s", r->path, r->line, what);
}

static bool parse_count(const char *text, uint64_t *out) {
    uint64_t n = 0;
    if (!text[0]) {
        return false;
    }
    for (const char *p = text; *p; p++) {
        if (*p < '0' || *p > '9' || __builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, (uint64_t)(*p - '0'), &n) || n > INT64_MAX) {
            return false;
        }
    }
    *out = n;
    return true;
}

static bool parse_seconds(const char *text, double *out) {
    char *end;
    if (text[0] < '0' || text[0] > '9' || text[strspn(text, "0123456789.eE+-")]) {
        return false; /* strtod would take blanks, hexadecimal, nan */
    }
    const double x = strtod(text, &end);
    if (*end || !isfinite(x) || x < 0 || x > 1e9) {
        return false;
    }
    *out = x;
    return true;
}

/* Split in place at the commas. Returns the number of fields; CSV_COLUMNS_MAX + 1 when there are more. */
static size_t split(char *line, char *field[CSV_COLUMNS_MAX]) {
    size_t n = 0;
    for (char *p = line; p; n++) {
        char *comma = strchr(p, ',');
        if (n == CSV_COLUMNS_MAX) {
            return n + 1;
        }
        field[n] = p;
        if (comma) {
            *comma++ = '\0';
        }
        p = comma;
    }
    return n;
}

static int read_header(struct reader *r, char *line) {
    char *field[CSV_COLUMNS_MAX];
    bool seen[COLUMNS] = {false};
    const size_t n = split(line, field);
    if (n > CSV_COLUMNS_MAX) {
        return bad(r, "too many columns");
    }
    for (size_t i = 0; i < n; i++) {
        r->column[i] = CSV_UNKNOWN;
        for (int c = 0; c < COLUMNS; c++) {
            if (strcmp(field[i], columns[c].name) == 0) {
                if (seen[c]) {
                    return bad(r, "a column comes twice");
                }
                seen[c] = true;
                r->column[i] = c;
            }
        }
    }
    for (int c = 0; c < COLUMNS; c++) {
        if (!seen[c]) {
            return sluice_fail(r->err, SLUICE_ERR_FORMAT, "%s, line %" PRIu64 ": no column %s", r->path, r->line,
                               columns[c].name);
        }
    }
    r->n_columns = n;
    return 0;
}

/* One field into the step. */
static bool read_field(struct reader *r, const struct column *c, const char *text, struct bench_step *s) {
    uint64_t n;
    switch (c->kind) {
    case COLUMN_STEP:
        if (!parse_count(text, &n) || (r->out->n && n <= r->last_step)) {
            return false;
        }
        r->last_step = n;
        return true;
    case COLUMN_PHASE:
        s->generation = strcmp(text, "generation") == 0;
        return s->generation || strcmp(text, "prompt") == 0;
    case COLUMN_COUNT:
        return parse_count(text, (uint64_t *)(void *)((char *)s + c->offset));
    case COLUMN_SECONDS:
        return parse_seconds(text, (double *)(void *)((char *)s + c->offset));
    }
    return false;
}

static int read_row(struct reader *r, char *line) {
    char *field[CSV_COLUMNS_MAX];
    struct bench_step step = {0};
    if (split(line, field) != r->n_columns) {
        return bad(r, "not as many fields as the header has");
    }
    for (size_t i = 0; i < r->n_columns; i++) {
        if (r->column[i] != CSV_UNKNOWN && !read_field(r, &columns[r->column[i]], field[i], &step)) {
            return sluice_fail(r->err, SLUICE_ERR_FORMAT, "%s, line %" PRIu64 ": '%.40s' is no value for %s", r->path,
                               r->line, field[i], columns[r->column[i]].name);
        }
    }
    if (step.tokens == 0 || (step.generation && step.tokens != 1)) {
        return bad(r, "a batch of an impossible number of tokens");
    }
    if (r->out->n == r->cap) {
        const size_t cap = r->cap ? 2 * r->cap : 256;
        struct bench_step *more = cap <= CSV_STEPS_MAX ? realloc(r->out->steps, cap * sizeof *more) : NULL;
        if (!more) {
            return sluice_fail(r->err, SLUICE_ERR_MEMORY, "%s: no memory for its rows", r->path);
        }
        r->out->steps = more;
        r->cap = cap;
    }
    r->out->steps[r->out->n++] = step;
    return 0;
}

/* One line without its newline. */
static int read_line(struct reader *r, char *line, size_t n) {
    if (strlen(line) != n) {
        return bad(r, "a zero byte");
    }
    if (r->line == 1) {
        return strcmp(line, "# sluice-csv 1") == 0 ? 0 : bad(r, "does not start with '# sluice-csv 1'");
    }
    if (line[0] == '#') { /* of any length: one may hold the path of a model */
        return 0;
    }
    if (n > CSV_LINE_MAX) {
        return bad(r, "too long");
    }
    return r->n_columns ? read_row(r, line) : read_header(r, line);
}

static int read_file(struct reader *r, FILE *f, bool torn) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int rc = 0;
    while (rc == 0 && (n = getline(&line, &cap, f)) > 0) {
        const bool whole = line[n - 1] == '\n';
        r->line++;
        if (!whole && torn) {
            break;
        }
        if (!whole) {
            rc = bad(r, "the last line is cut off");
        } else {
            line[n - 1] = '\0';
            rc = read_line(r, line, (size_t)n - 1);
        }
    }
    free(line);
    if (rc == 0 && ferror(f)) {
        return sluice_fail(r->err, SLUICE_ERR_IO, "%s: %s", r->path, strerror(errno));
    }
    if (rc == 0 && r->n_columns == 0 && !torn) {
        r->line++;
        rc = bad(r, "no header row");
    }
    return rc;
}

int bench_csv_read(const char *path, bool torn, struct bench_csv *out, struct sluice_error *err) {
    struct reader r = {.path = path, .out = out, .err = err};
    struct stat st;
    *out = (struct bench_csv){0};
    FILE *f = fopen(path, "re");
    if (!f) {
        return sluice_fail(err, SLUICE_ERR_IO, "%s: %s", path, strerror(errno));
    }
    int rc = 0;
    if (fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > CSV_BYTES_MAX) {
        rc = sluice_fail(err, SLUICE_ERR_FORMAT, "%s: not a file of a size to be read", path);
    }
    rc = rc ? rc : read_file(&r, f, torn);
    fclose(f);
    if (rc) {
        bench_csv_free(out);
        return rc;
    }
    return sluice_ok(err);
}

void bench_csv_free(struct bench_csv *c) {
    free(c->steps);
    *c = (struct bench_csv){0};
}
