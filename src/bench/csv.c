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

#include "cache/error.h"

enum {
    CSV_COLUMNS_MAX = 64,      /* of a header row */
    CSV_BYTES_MAX = 1 << 30,   /* of a file */
    CSV_LINE_MAX = 1 << 12,    /* bytes of a row */
    CSV_ROW_MIN = 29,          /* bytes of a token's row: a digit and a separator for each column that is needed */
    CSV_UNKNOWN = BENCH_VALUES /* a column that is not for us */
};

const struct bench_value_info bench_values[BENCH_VALUES] = {
    [BENCH_STEP] = {.column = "step", .count = true},
    [BENCH_PHASE] = {.column = "phase"},
    [BENCH_CACHE_BYTES] = {"cache_bytes", NULL, .count = true},
    [BENCH_LOAD_S] = {.key = "load_seconds"},
    [BENCH_FIRST_TOKEN_S] = {.key = "first_token_seconds"},
    [BENCH_PROMPT_TOKENS] = {"prompt_tokens", NULL, .count = true},
    [BENCH_PROMPT_S] = {.key = "prompt_seconds"},
    [BENCH_TOKENS] = {"tokens", "tokens", .count = true},
    [BENCH_WALL_S] = {"wall_seconds", "wall_s", .each = true},
    [BENCH_RATE] = {.key = "tokens_per_second"},
    [BENCH_WAIT_S] = {"wait_seconds", "stall_s", .each = true},
    [BENCH_CPU_S] = {.key = "cpu_seconds", .column = "cpu_s"},
    [BENCH_READ_BYTES] = {"read_bytes", "read_bytes", .count = true, .each = true},
    [BENCH_HITS] = {"hits", "hits", .count = true, .each = true},
    [BENCH_MISSES] = {"misses", "misses", .count = true, .each = true},
    [BENCH_MAJOR_FAULTS] = {"major_faults", "major_faults", .count = true},
};

/* A file that is being read. */
struct reader {
    const char *path;            /* for messages */
    uint64_t line;               /* number of the current one, from 1 */
    int column[CSV_COLUMNS_MAX]; /* what each field is: enum bench_value or CSV_UNKNOWN */
    size_t n_columns;            /* fields of the header; 0: it did not come yet */
    size_t cap;                  /* generated tokens that there is room for */
    double last_step;            /* number of the last row; -1: there was none */
    struct bench_csv *out;       /* what was read so far */
    struct sluice_error *err;    /* where a failure goes */
};

static int bad(struct reader *r, const char *what, const char *name) {
    return sluice_fail(r->err, SLUICE_ERR_FORMAT, "%s, line %" PRIu64 ": %s%.40s", r->path, r->line, what, name);
}

/* One field. What strtod takes besides plain numbers is refused: blanks, signs, hexadecimal numbers, nan. */
static bool parse(const char *text, int column, double *out) {
    const bool count = bench_values[column].count;
    char *end;
    if (column == BENCH_PHASE) {
        *out = strcmp(text, "generation") == 0;
        return *out != 0 || strcmp(text, "prompt") == 0;
    }
    if (text[0] < '0' || text[0] > '9' || text[strspn(text, count ? "0123456789" : "0123456789.eE+-")]) {
        return false;
    }
    *out = strtod(text, &end);
    return !*end && *out <= (count ? (double)INT64_MAX : 1e9);
}

/* Split in place at the commas. Returns the number of fields; CSV_COLUMNS_MAX + 1 when there are more. */
static size_t split(char *line, char *field[CSV_COLUMNS_MAX]) {
    size_t n = 0;
    while (line && n < CSV_COLUMNS_MAX) {
        field[n++] = strsep(&line, ",");
    }
    return line ? n + 1 : n;
}

static int read_header(struct reader *r, char *line) {
    char *field[CSV_COLUMNS_MAX];
    const size_t n = split(line, field);
    if (n > CSV_COLUMNS_MAX) {
        return bad(r, "too many columns", "");
    }
    for (size_t i = 0; i < n; i++) {
        r->column[i] = CSV_UNKNOWN;
    }
    for (int c = 0; c < BENCH_VALUES; c++) {
        int found = 0;
        for (size_t i = 0; i < n && bench_values[c].column; i++) {
            if (strcmp(field[i], bench_values[c].column) == 0) {
                r->column[i] = c;
                found++;
            }
        }
        if (bench_values[c].column && found != 1) {
            return bad(r, found ? "twice the column " : "no column ", bench_values[c].column);
        }
    }
    r->n_columns = n;
    return 0;
}

static int read_row(struct reader *r, char *line) {
    char *field[CSV_COLUMNS_MAX];
    double row[BENCH_VALUES] = {0};
    struct bench_csv *out = r->out;
    if (split(line, field) != r->n_columns) {
        return bad(r, "not as many fields as the header has", "");
    }
    for (size_t i = 0; i < r->n_columns; i++) {
        if (r->column[i] != CSV_UNKNOWN && !parse(field[i], r->column[i], &row[r->column[i]])) {
            return sluice_fail(r->err, SLUICE_ERR_FORMAT, "%s, line %" PRIu64 ": '%.40s' is no value for %s", r->path,
                               r->line, field[i], bench_values[r->column[i]].column);
        }
    }
    const bool generation = row[BENCH_PHASE] != 0;
    if (row[BENCH_STEP] <= r->last_step || out->n == r->cap) {
        return bad(r, "a step that does not follow the last one", "");
    }
    if (row[BENCH_TOKENS] == 0 || (generation && row[BENCH_TOKENS] != 1)) {
        return bad(r, "a batch of an impossible number of tokens", "");
    }
    r->last_step = row[BENCH_STEP];
    if (!generation) {
        out->total[BENCH_PROMPT_TOKENS] += row[BENCH_TOKENS];
        out->total[BENCH_PROMPT_S] += row[BENCH_WALL_S];
        return 0;
    }
    row[BENCH_ROUTED] = row[BENCH_HITS] + row[BENCH_MISSES];
    for (int v = 0; v < BENCH_VALUES; v++) {
        out->total[v] += row[v];
        if (out->token[v]) {
            out->token[v][out->n] = row[v];
        }
    }
    out->n++;
    return 0;
}

/* One line without its newline, of n bytes. */
static int read_line(struct reader *r, char *line, size_t n) {
    if (strlen(line) != n) {
        return bad(r, "a zero byte", "");
    }
    if (r->line == 1 && strcmp(line, "# sluice-csv 1") != 0) {
        return bad(r, "does not start with '# sluice-csv 1'", "");
    }
    if (line[0] == '#') { /* of any length: one may hold the path of a model */
        return 0;
    }
    if (n > CSV_LINE_MAX) {
        return bad(r, "too long", "");
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
        line[n - 1] = '\0';
        rc = whole ? read_line(r, line, (size_t)n - 1) : bad(r, "the last line is cut off", "");
    }
    free(line);
    r->out->total[BENCH_ONE] = 1;
    r->out->total[BENCH_RATE] = r->out->total[BENCH_WALL_S] > 0 ? (double)r->out->n / r->out->total[BENCH_WALL_S] : NAN;
    if (rc == 0 && ferror(f)) {
        return sluice_fail(r->err, SLUICE_ERR_IO, "%s: %s", r->path, strerror(errno));
    }
    r->line++;
    return rc == 0 && r->n_columns == 0 && !torn ? bad(r, "no header row", "") : rc;
}

/* Room for the tokens of a file of that size, a column per value that it has. */
static bool make_room(struct reader *r, size_t bytes) {
    size_t at = 0;
    r->cap = bytes / CSV_ROW_MIN + 1;
    double *all = calloc(r->cap, BENCH_VALUES * sizeof *all);
    for (int v = 0; all && v < BENCH_VALUES; v++) {
        r->out->token[v] = v == 0 || bench_values[v].column ? all + at++ * r->cap : NULL;
    }
    return all != NULL;
}

int bench_csv_read(const char *path, bool torn, struct bench_csv *out, struct sluice_error *err) {
    struct reader r = {.path = path, .last_step = -1, .out = out, .err = err};
    struct stat st;
    *out = (struct bench_csv){0};
    FILE *f = fopen(path, "re");
    if (!f) {
        return sluice_fail(err, SLUICE_ERR_IO, "%s: %s", path, strerror(errno));
    }
    int rc = 0;
    if (fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > CSV_BYTES_MAX) {
        rc = sluice_fail(err, SLUICE_ERR_FORMAT, "%s: not a file of a size to be read", path);
    } else if (!make_room(&r, (size_t)st.st_size)) {
        rc = sluice_fail(err, SLUICE_ERR_MEMORY, "%s: no memory for its rows", path);
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
    free(c->token[0]);
    *c = (struct bench_csv){0};
}
