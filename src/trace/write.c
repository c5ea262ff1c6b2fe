/*
 * write.c - a route trace, as it happens.
 *
 * The format is the CSV of the BigMoeOnEdge project's route traces, version 1, so that tools for those
 * read ours: two lines of comments about the model, one per layer, the header, a row per routed
 * expert. What only we know stands where their readers do not look: more key=value pairs at the end
 * of the layers' lines, a comment line `# sluice ...` after them.
 *
 * A token of a large model is some 400 rows, and tracing may cost it nothing that one could measure. So
 * rows are formatted by hand (no printf, which asks the locale and takes ten times as long) into one
 * buffer that is written when it is full. Nothing is allocated after the file is open.
 *
 * Weights have eight decimals. They are compared with thresholds like 0.5 / top-k, and a float has
 * seven digits.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/error.h"
#include "trace/trace.h"

enum {
    WRITE_BUFFER = 1 << 16, /* bytes that are written at once */
    WRITE_ROW = 160,        /* a row is shorter */
};

struct trace_writer {
    int fd;                    /* the file */
    int error;                 /* errno of the first write that failed; 0: none did */
    size_t n;                  /* bytes in buffer */
    char *path;                /* for messages */
    char buffer[WRITE_BUFFER]; /* not written yet */
};

int trace_writer_open(struct trace_writer **out, const char *path, struct sluice_error *err) {
    *out = NULL;
    struct trace_writer *w = malloc(sizeof *w);
    char *name = strdup(path);
    if (!w || !name) {
        free(w);
        free(name);
        return sluice_fail(err, SLUICE_ERR_MEMORY, "out of memory");
    }
    w->error = 0;
    w->n = 0;
    w->path = name;
    w->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (w->fd < 0) {
        const int rc = sluice_fail(err, SLUICE_ERR_IO, "%s: cannot write: %s", path, strerror(errno));
        free(name);
        free(w);
        return rc;
    }
    *out = w;
    return sluice_ok(err);
}

static void write_out(struct trace_writer *w) {
    size_t at = 0;
    while (at < w->n && !w->error) {
        const ssize_t n = write(w->fd, w->buffer + at, w->n - at);
        if (n > 0) {
            at += (size_t)n;
        } else if (n < 0 && errno != EINTR) {
            w->error = errno;
        } else if (n == 0) {
            w->error = EIO;
        }
    }
    w->n = 0;
}

/* Room for `bytes` more. */
static char *write_room(struct trace_writer *w, size_t bytes) {
    if (w->n + bytes > WRITE_BUFFER) {
        write_out(w);
    }
    return w->buffer + w->n;
}

/* Text as it is, but a line stays a line. */
static void write_text(struct trace_writer *w, const char *text) {
    for (; *text; text++) {
        *write_room(w, 1) = *text == '\n' || *text == '\r' ? ' ' : *text;
        w->n++;
    }
}

static void write_line(struct trace_writer *w, const char *line) {
    write_text(w, line);
    *write_room(w, 1) = '\n';
    w->n++;
}

void trace_writer_head(struct trace_writer *w, const struct trace_head *h) {
    char line[256];
    write_line(w, "# route_trace v1");
    write_text(w, "# model=");
    write_text(w, h->model);
    snprintf(line, sizeof line, " arch=%s n_layer=%" PRIu32 " n_expert=%" PRIu32 " n_expert_used=%" PRIu32, h->arch,
             h->n_layer, h->n_expert, h->n_expert_used);
    write_line(w, line);
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const struct trace_layer *l = &h->layers[i];
        int n = snprintf(line, sizeof line, "# layer=%" PRIu32 " expert_bytes=%" PRIu64 " dense_bytes=%" PRIu64,
                         l->number, l->expert_bytes, l->dense_bytes);
        if (l->slot_bytes) {
            snprintf(line + n, sizeof line - (size_t)n, " slot_bytes=%" PRIu64 " top_k=%" PRIu32, l->slot_bytes,
                     l->top_k);
        }
        write_line(w, line);
    }
    if (h->engine) {
        snprintf(line, sizeof line,
                 "# sluice version=" SLUICE_VERSION " cache_policy=%s cache_budget=%" PRIu64 " align=%" PRIu64
                 " groups=%" PRIu32 " lookahead=%d",
                 h->policy, h->budget, h->align, h->n_groups, h->lookahead);
        write_line(w, line);
    }
    write_line(w, "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes,dropped");
}

static char *put_number(char *p, uint64_t n) {
    char digits[20];
    int k = 0;
    do {
        digits[k++] = (char)('0' + n % 10);
        n /= 10;
    } while (n);
    while (k) {
        *p++ = digits[--k];
    }
    return p;
}

/* Eight decimals, zeros at the end left out; whatever the locale. */
static char *put_real(char *p, float x) {
    if (!isfinite(x)) {
        *p++ = 'n';
        *p++ = 'a';
        *p++ = 'n';
        return p;
    }
    if (x < 0) {
        *p++ = '-';
        x = -x;
    }
    const double bounded = x < 1e9f ? (double)x : 1e9;
    const uint64_t n = (uint64_t)(bounded * 1e8 + 0.5);
    p = put_number(p, n / 100000000);
    uint32_t part = (uint32_t)(n % 100000000);
    if (part) {
        char digits[8];
        for (int i = 7; i >= 0; i--) {
            digits[i] = (char)('0' + part % 10);
            part /= 10;
        }
        int k = 8;
        while (digits[k - 1] == '0') {
            k--;
        }
        *p++ = '.';
        memcpy(p, digits, (size_t)k);
        p += k;
    }
    return p;
}

/* "turn,phase,step,layer," */
static char *put_place(char *p, const struct trace_row *r) {
    p = put_number(p, r->turn);
    *p++ = ',';
    *p++ = r->phase == TRACE_PROMPT ? '0' : '1';
    *p++ = ',';
    p = put_number(p, r->step);
    *p++ = ',';
    p = put_number(p, r->layer);
    *p++ = ',';
    return p;
}

void trace_writer_row(struct trace_writer *w, const struct trace_row *r) {
    char *p = put_place(write_room(w, WRITE_ROW), r);
    p = put_number(p, r->slot);
    *p++ = ',';
    p = put_number(p, r->expert);
    *p++ = ',';
    p = put_real(p, r->weight);
    *p++ = ',';
    *p++ = (char)('0' + r->residency);
    *p++ = ',';
    p = put_number(p, r->bytes);
    *p++ = ',';
    *p++ = (char)('0' + r->dropped);
    *p++ = '\n';
    w->n = (size_t)(p - w->buffer);
}

void trace_writer_probs(struct trace_writer *w, const struct trace_row *r, const float *prob, uint32_t n) {
    char *p = put_place(write_room(w, WRITE_ROW), r);
    w->n = (size_t)(p - w->buffer) - 1; /* without the last comma: one stands before every number */
    for (uint32_t i = 0; i < n; i++) {
        p = write_room(w, WRITE_ROW);
        *p++ = ',';
        p = put_real(p, prob[i]);
        w->n = (size_t)(p - w->buffer);
    }
    *write_room(w, 1) = '\n';
    w->n++;
}

int trace_writer_close(struct trace_writer *w, struct sluice_error *err) {
    if (!w) {
        return sluice_ok(err);
    }
    write_out(w);
    if (close(w->fd) && !w->error) {
        w->error = errno;
    }
    const int rc = w->error ? sluice_fail(err, SLUICE_ERR_IO, "%s: cannot write: %s", w->path, strerror(w->error))
                            : sluice_ok(err);
    free(w->path);
    free(w);
    return rc;
}
