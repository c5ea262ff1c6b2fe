/*
 * metrics.c - the counters as Prometheus reads them (text format 0.0.4).
 *
 * By its conventions: base units, counters end in _total, one family per thing with labels for its kinds, and no rates,
 * which whoever asks computes over the time that he likes. What is counted comes from the table of counters
 * (observe/counters.c).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cache/clock.h"
#include "window/impl.h"

static void single(FILE *out, const char *name, const char *help, uint64_t n) {
    counters_family(out, name, help);
    fprintf(out, "%s %" PRIu64 "\n", name, n);
}

/* A label's value. Text of others (file names) that is no UTF-8, which all of the answer must be, becomes '?'. */
static void quoted(FILE *out, const char *text) {
    json_t *valid = json_string(text);
    fputc('"', out);
    for (const char *p = text; *p; p++) {
        if (*p == '"' || *p == '\\') {
            fputc('\\', out);
        }
        if (*p == '\n') {
            fputs("\\n", out);
        } else {
            fputc((unsigned char)*p < 0x80 || valid ? *p : '?', out);
        }
    }
    fputc('"', out);
    json_decref(valid);
}

char *metrics_text(struct window *w, size_t *n) {
    struct window_numbers *x = &w->now;
    char *text = NULL;
    FILE *out = open_memstream(&text, n);
    if (!out) {
        return NULL;
    }
    w->source.numbers(w->source.ud, x, true);
    counters_family(out, "sluice_info", "What runs: always 1.");
    fputs("sluice_info{version=", out);
    quoted(out, SLUICE_VERSION);
    fputs(",program=", out);
    quoted(out, x->program);
    fputs(",model=", out);
    quoted(out, x->model);
    fputs(",architecture=", out);
    quoted(out, x->facts.architecture);
    fputs("} 1\n", out);
    single(out, "sluice_lossy", "1 when settings in force change the output.", x->lossy);
    counters_family(out, "sluice_window_uptime_seconds", "Time since the window opened.");
    fputs("sluice_window_uptime_seconds ", out);
    counters_fixed(out, clock_seconds() - w->started, 6);
    fputc('\n', out);
    counters_metrics(out, &x->stats, x->ended, x->facts.planned ? &x->facts.plan : NULL);
    if (x->facts.planned && x->facts.plan.limit_bytes) {
        single(out, "sluice_memory_limit_bytes", "What the process may use.", x->facts.plan.limit_bytes);
    }
    single(out, "process_resident_memory_bytes", "Resident memory size in bytes.",
           x->anonymous_bytes + x->file_bytes + x->shared_bytes);
    single(out, "sluice_window_readers", "Pages that watch now.", w->events.readers);
    single(out, "sluice_window_readers_dropped_total", "Readers disconnected for being slow.", w->events.dropped);
    const bool bad = ferror(out) != 0;
    if (fclose(out) || bad) {
        free(text);
        return NULL;
    }
    return text;
}
