/*
 * csv.c - one row per step.
 *
 * Comments, then a header, then rows:
 *
 *     # sluice-csv 1
 *     # model=/models/qwen.gguf
 *     ...
 *     step,phase,tokens,wall_s,stall_s,...
 *     1,prompt,512,4.1234567,...
 *
 * The comments say what was in force, so that a file found a year later still tells what was
 * measured. Columns are only ever added at the end; the number in the first line changes when that is
 * not enough.
 *
 * The columns are rows of the table of counters (counters.c). Every row is flushed, so that a run that is killed leaves
 * what it did, and `tail -f` shows it as it happens.
 */
#include "observe/csv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cache/error.h"
#include "memory/settings.h"
#include "observe/counters.h"

struct csv {
    FILE *file;    /* where to */
    uint64_t rows; /* written so far */
    bool headed;   /* the header is written */
    char path[];   /* for messages */
};

static int csv_fail(const struct csv *c, struct sluice_error *err) {
    return sluice_fail(err, SLUICE_ERR_IO, "%s: cannot write: %s", c->path, strerror(errno));
}

int csv_open(struct csv **out, const char *path, struct sluice_error *err) {
    *out = NULL;
    struct csv *c = calloc(1, sizeof *c + strlen(path) + 1);
    if (!c) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "out of memory");
    }
    strcpy(c->path, path);
    c->file = fopen(path, "we");
    if (!c->file) {
        const int rc = csv_fail(c, err);
        free(c);
        return rc;
    }
    char start[32] = "unknown";
    const time_t now = time(NULL);
    struct tm tm;
    if (gmtime_r(&now, &tm)) {
        strftime(start, sizeof start, "%Y-%m-%dT%H:%M:%SZ", &tm);
    }
    fputs("# sluice-csv 1\n", c->file);
    csv_fact(c, "start", "%s", start);
    csv_fact(c, "sluice", "%s", SLUICE_VERSION);
    csv_fact(c, "llama", "%s", SLUICE_LLAMA_VERSION);
    *out = c;
    return sluice_ok(err);
}

void csv_fact(struct csv *c, const char *key, const char *format, ...) {
    char value[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    for (char *p = value; *p; p++) {
        *p = *p == '\n' || *p == '\r' ? ' ' : *p;
    }
    fprintf(c->file, "# %s=%s\n", key, value);
}

void csv_settings(struct csv *c, const struct sluice_settings *s, const struct sluice_stats *st, bool streaming) {
    static const char *const cache[] = {
        [SLUICE_CACHE_AUTO] = "auto", [SLUICE_CACHE_OFF] = "off", [SLUICE_CACHE_FIXED] = "fixed"};
    csv_fact(c, "streaming", "%d", streaming);
    csv_fact(c, "cache", "%s", streaming ? cache[s->cache] : "none");
    csv_fact(c, "cache_bytes", "%" PRIu64, streaming ? st->cache_bytes : 0);
    csv_fact(c, "staging_bytes", "%" PRIu64, streaming ? s->staging_bytes : 0);
    csv_fact(c, "cache_policy", "%s", settings_word(s, "cache_policy"));
    csv_fact(c, "dense", "%s", streaming ? settings_word(s, "dense") : "mmap");
    csv_fact(c, "reads", "%s", !streaming ? "none" : st->direct_io ? "direct" : "buffered");
    csv_fact(c, "io", "%s", streaming ? "pread" : "none");
    csv_fact(c, "lanes", "%d", s->io_threads);
    csv_fact(c, "lookahead", "%d", s->lookahead);
    fputs("# drop_cold_experts=", c->file);
    counters_fixed(c->file, s->drop_cold_experts, 6);
    fputc('\n', c->file);
    csv_fact(c, "drop_renorm", "%d", s->drop_renorm);
    csv_fact(c, "drop_in_prefill", "%d", s->drop_in_prefill);
    csv_fact(c, "drop_reproducible", "%d", s->drop_reproducible);
    csv_fact(c, "cold_model", "%s", s->cold_model[0] ? s->cold_model : "none");
    csv_fact(c, "kernel", "%s", settings_word(s, "kernel"));
}

uint64_t csv_rows(const struct csv *c) {
    return c->rows;
}

static void csv_head(struct csv *c) {
    if (!c->headed) {
        fputs("step,phase", c->file);
        counters_csv_head(c->file);
        fputc('\n', c->file);
        c->headed = true;
    }
}

int csv_row(struct csv *c, const struct sluice_step *s, struct sluice_error *err) {
    csv_head(c);
    fprintf(c->file, "%" PRIu64 ",%s", ++c->rows, s->phase == SLUICE_PHASE_PROMPT ? "prompt" : "generation");
    counters_csv_row(c->file, s);
    fputc('\n', c->file);
    if (fflush(c->file) || ferror(c->file)) {
        return csv_fail(c, err);
    }
    return sluice_ok(err);
}

int csv_close(struct csv *c, struct sluice_error *err) {
    if (!c) {
        return sluice_ok(err);
    }
    csv_head(c);
    const bool bad = ferror(c->file) != 0;
    int rc = sluice_ok(err);
    if (fclose(c->file) || bad) {
        rc = csv_fail(c, err);
    }
    free(c);
    return rc;
}
