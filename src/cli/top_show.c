/*
 * top_show.c - one process as a page of text, for the terminal and for --once; all of them as JSON, for programs.
 *
 * Rates are those of the last steps, at most STAT_STEPS of them and only as many as are of the newest
 * one's phase: a prompt of 500 tokens would drown the generation after it. They are per second of
 * computing, so a server that waits for requests shows what it last did, marked as idle.
 *
 * Text is ASCII only: every terminal shows it, and a path that holds escape sequences does nothing. JSON is one object,
 * in base units.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json.h"
#include "cli/top.h"

enum { IDLE_S = 2 }; /* seconds without news after which a process counts as idle */

static const char RAMP[] = " .:-=+*#%@"; /* none .. all of a layer's experts in memory */

/* What the last steps, those of the newest one's phase, say. All 0 when there was none. */
struct top_rates {
    bool prompt;            /* the phase is the prompt */
    double tokens_per_s;    /* tokens per second of the steps' wall time */
    double bytes_per_s;     /* read, likewise */
    double hits, hit_bytes; /* fractions 0..1, by count and by bytes */
    double part[4];         /* fractions of the wall time: stall, experts, other, bookkeeping */
};

static struct top_rates top_rates_of(const struct stat_data *d) {
    struct top_rates r = {0};
    struct step_sums last = {0};
    const struct sluice_step *s = &last.sum;
    if (d->n_steps == 0) {
        return r;
    }
    const enum sluice_phase phase = d->step[(d->n_steps - 1) % STAT_STEPS].phase;
    for (uint64_t i = 1; i <= STAT_STEPS && i <= d->n_steps; i++) {
        const struct sluice_step *step = &d->step[(d->n_steps - i) % STAT_STEPS];
        if (step->phase != phase) {
            break;
        }
        counters_add_step(&last, step);
    }
    const double part[] = {s->stall_s, s->expert_s, s->other_s, s->bookkeeping_s};
    r.prompt = phase == SLUICE_PHASE_PROMPT;
    r.tokens_per_s = counters_ratio((double)s->tokens, s->wall_s);
    r.bytes_per_s = counters_ratio((double)s->read_bytes, s->wall_s);
    r.hits = counters_share(s->hits, s->misses);
    r.hit_bytes = counters_share(s->hit_bytes, s->miss_bytes);
    for (int i = 0; i < 4; i++) {
        r.part[i] = counters_ratio(part[i] > 0 ? part[i] : 0, s->wall_s);
    }
    return r;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* A page that is being written. */
struct page {
    FILE *out;       /* where to */
    int width, rows; /* what fits */
    int n;           /* lines so far */
};

/* Add a line, cut to the width, of printable characters. */
static void add(struct page *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct page *p, const char *format, ...) {
    char line[TOP_WIDTH];
    if (p->n >= p->rows) {
        return;
    }
    p->n++;
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    line[p->width] = '\0';
    for (char *c = line; *c; c++) {
        *c = *c >= ' ' && *c <= '~' ? *c : '?';
    }
    fprintf(p->out, "%s\n", line);
}

/* "time" and a bar of `cells` letters, one kind per part. */
static void add_bar(struct page *p, const struct top_rates *r) {
    static const char letter[] = "w#o.";
    char bar[TOP_WIDTH];
    int cells = p->width - 74, n = 0;
    cells = cells < 10 ? 10 : cells > 60 ? 60 : cells;
    double at = 0;
    for (int i = 0; i < 4; i++) {
        at += r->part[i] * cells;
        while (n < cells && n + 0.5 < at) {
            bar[n++] = letter[i];
        }
    }
    bar[n] = '\0';
    add(p, "time     [%-*s] w waiting %.0f %%, # experts %.0f %%, o other %.0f %%, . bookkeeping %.0f %%", cells, bar,
        100 * r->part[0], 100 * r->part[1], 100 * r->part[2], 100 * r->part[3]);
}

/* A cell per layer, or a row per layer. */
static void add_map(struct page *p, const struct stat_data *d, bool rows) {
    char cells[TOP_WIDTH];
    int n = 0;
    add(p, "cache map: experts in memory, by layer");
    if (rows && p->rows - p->n >= (int)d->n_layers) {
        int wide = p->width - 24;
        wide = wide < 8 ? 8 : wide > 128 ? 128 : wide;
        for (uint64_t i = 0; i < d->n_layers; i++) {
            const struct stat_layer *l = &d->layer[i];
            const int full = (int)(counters_ratio(l->resident, l->experts) * wide + 0.5);
            memset(cells, '#', (size_t)full);
            memset(cells + full, '.', (size_t)(wide - full));
            cells[wide] = '\0';
            add(p, "%5" PRIu64 " %s %" PRIu32 "/%" PRIu32, i, cells, l->resident, l->experts);
        }
        return;
    }
    for (uint64_t i = 0; i < d->n_layers; i++) {
        const double part = counters_ratio(d->layer[i].resident, d->layer[i].experts);
        /* Blank is none at all, @ is all of them. */
        cells[n++] = part <= 0 ? RAMP[0] : part >= 1 ? RAMP[9] : RAMP[1 + (int)(part * 8)];
        if (n == p->width - 4 || n == 64 || i + 1 == d->n_layers) {
            cells[n] = '\0';
            add(p, " |%s|", cells);
            n = 0;
        }
    }
}

char *top_page(const struct top_process *p, double now, int width, int rows, bool map_rows) {
    const struct stat_data *d = &p->d;
    const struct sluice_step *prompt = &d->ended[SLUICE_PHASE_PROMPT].sum;
    const struct sluice_step *generation = &d->ended[SLUICE_PHASE_GENERATION].sum;
    struct step_sums both = {0};
    struct sluice_phase_stats live = d->stats.prompt;
    const struct sluice_step *all = &both.sum;
    const struct top_rates r = top_rates_of(d);
    const double GIB = 1024.0 * 1024 * 1024;
    struct page page = {.rows = rows, .width = width < 8 ? 8 : width >= TOP_WIDTH ? TOP_WIDTH - 1 : width};
    char idle[48] = "", *text = NULL;
    size_t n = 0;
    page.out = open_memstream(&text, &n);
    if (!page.out) {
        return NULL;
    }
    counters_add(&live, &d->stats.generation);
    counters_add_step(&both, prompt);
    counters_add_step(&both, generation);
    if (now - d->updated > IDLE_S) {
        snprintf(idle, sizeof idle, ", idle for %.0f s", now - d->updated);
    }
    add(&page, "%s, pid %" PRIu64 ", sluice %s, %" PRIu64 " threads%s", d->program, d->pid, d->version, d->threads,
        idle);
    add(&page, "rate     %s %.2f tok/s, %.2f GB/s read, hits %.1f %%, of bytes %.1f %%",
        r.prompt ? "prompt" : "generation", r.tokens_per_s, r.bytes_per_s / 1e9, 100 * r.hits, 100 * r.hit_bytes);
    add_bar(&page, &r);
    add(&page, "memory   %.2f GiB resident; cache %.2f GiB, %" PRIu64 " of %" PRIu64 " slots in use; experts %.2f GiB",
        (double)p->memory / GIB, (double)d->stats.cache_bytes / GIB, d->stats.resident, d->stats.slots,
        (double)d->stats.bank_bytes / GIB);
    add(&page,
        "total    %" PRIu64 " tokens read, %" PRIu64 " generated, %.2f GB read, hits %.1f %%, %" PRIu64 " evicted",
        prompt->tokens, generation->tokens, (double)live.read_bytes / 1e9, 100 * counters_share(live.hits, live.misses),
        all->evictions);
    if (all->drop.substituted) {
        add(&page, "copies   for %.1f %% of the routings examined, %.2f GB of experts not read",
            100 * counters_ratio((double)all->drop.substituted, (double)all->drop.examined),
            (double)all->drop.avoided_bytes / 1e9);
    } else if (all->drop.examined) {
        add(&page, "dropped  %.1f %% of the routings examined, %.1f %% of their weight, %.2f GB not read",
            100 * counters_ratio((double)all->drop.dropped, (double)all->drop.examined),
            100 * counters_ratio(all->drop.dropped_weight, all->drop.weight), (double)all->drop.avoided_bytes / 1e9);
    }
    add(&page, "faults   %" PRIu64 " major, %" PRIu64 " minor; %.1f processors busy", all->major_faults,
        all->minor_faults, counters_ratio(all->cpu_s, all->wall_s));
    add(&page, "model    %s", d->model);
    add(&page, "mode     %s", d->mode);
    add_map(&page, d, map_rows);
    const bool bad = ferror(page.out) != 0;
    if (fclose(page.out) || bad) {
        free(text);
        return NULL;
    }
    return text;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *rates_json(const struct top_rates *r) {
    return json_pack("{s:s,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "phase", r->prompt ? "prompt" : "generation",
                     "tokens_per_second", r->tokens_per_s, "read_bytes_per_second", r->bytes_per_s, "hit_rate", r->hits,
                     "hit_rate_of_bytes", r->hit_bytes, "stall", r->part[0], "experts", r->part[1], "other", r->part[2],
                     "bookkeeping", r->part[3]);
}

static json_t *layers_json(const struct stat_data *d) {
    json_t *a = json_array();
    for (uint64_t i = 0; i < d->n_layers; i++) {
        json_array_append_new(a, json_pack("{s:I,s:I}", "resident", (json_int_t)d->layer[i].resident, "experts",
                                           (json_int_t)d->layer[i].experts));
    }
    return a;
}

static json_t *phase_json(const struct step_sums *s) {
    return counters_object(COUNTERS_TOP, &(struct counters_at){.ended = s});
}

static json_t *process_json(const struct top_process *p, double now) {
    const struct stat_data *d = &p->d;
    const struct top_rates r = top_rates_of(d);
    struct sluice_phase_stats all = d->stats.prompt;
    counters_add(&all, &d->stats.generation);
    json_t *o =
        json_pack("{s:I,s:o,s:o,s:o,s:o,s:I,s:f,s:I}", "pid", (json_int_t)d->pid, "program", cli_json_text(d->program),
                  "sluice", cli_json_text(d->version), "model", cli_json_text(d->model), "mode", cli_json_text(d->mode),
                  "threads", (json_int_t)d->threads, "age_seconds", now > d->updated ? now - d->updated : 0,
                  "memory_bytes", (json_int_t)p->memory);
    const bool ok = counters_json(o, COUNTERS_TOP, &(struct counters_at){.stats = &d->stats}) &&
                    counters_json(o, COUNTERS_TOTAL, &(struct counters_at){.live = &all}) &&
                    cli_json_count(o, "steps", d->n_steps) && cli_json_put(o, "last", rates_json(&r)) &&
                    cli_json_put(o, "prompt", phase_json(&d->ended[SLUICE_PHASE_PROMPT])) &&
                    cli_json_put(o, "generation", phase_json(&d->ended[SLUICE_PHASE_GENERATION])) &&
                    cli_json_put(o, "layers", layers_json(d));
    return cli_json_whole(o, ok);
}

int top_json(const struct top_list *l, double now, const char *command) {
    json_t *a = json_array();
    bool ok = true;
    for (size_t i = 0; ok && i < l->n; i++) {
        ok = json_array_append_new(a, process_json(&l->p[i], now)) == 0;
    }
    json_t *o = json_pack("{s:o}", "processes", a); /* takes the array over in any case */
    return cli_json_print(command, cli_json_whole(o, ok), JSON_INDENT(2) | JSON_REAL_PRECISION(9));
}
