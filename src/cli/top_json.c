/*
 * top_json.c - what `sluice top` knows, for programs: one JSON object in base units.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/json.h"
#include "cli/args.h"
#include "cli/top.h"

static bool put_text(json_t *object, const char *key, const char *text) {
    return cli_json_put(object, key, cli_json_text(text));
}

static json_t *rates_json(const struct top_rates *r) {
    static const char *const part[] = {"stall", "experts", "other", "bookkeeping"};
    json_t *o = json_object();
    bool ok = cli_json_put(o, "phase", json_string(r->prompt ? "prompt" : "generation")) &&
              cli_json_put(o, "tokens_per_second", json_real(r->tokens_per_s)) &&
              cli_json_put(o, "read_bytes_per_second", json_real(r->bytes_per_s)) &&
              cli_json_put(o, "hit_rate", json_real(r->hits)) &&
              cli_json_put(o, "hit_rate_of_bytes", json_real(r->hit_bytes));
    for (int i = 0; i < 4; i++) {
        ok = ok && cli_json_put(o, part[i], json_real(r->part[i]));
    }
    return cli_json_whole(o, ok);
}

static json_t *layers_json(const struct stat_data *d) {
    json_t *a = json_array();
    for (uint64_t i = 0; i < d->n_layers; i++) {
        json_t *o = json_object();
        if (!cli_json_count(o, "resident", d->layer[i].resident) ||
            !cli_json_count(o, "experts", d->layer[i].experts)) {
            json_decref(o);
            o = NULL;
        }
        if (json_array_append_new(a, o)) {
            json_decref(a);
            return NULL;
        }
    }
    return a;
}

static json_t *phase_json(const struct step_sums *s) {
    json_t *o = json_object();
    return cli_json_whole(o, counters_json(o, COUNTERS_TOP, &(struct counters_at){.ended = s}));
}

static json_t *process_json(const struct top_process *p, double now) {
    const struct stat_data *d = &p->d;
    const struct top_rates r = top_rates_of(d);
    struct sluice_phase_stats all = d->stats.prompt;
    json_t *o = json_object();
    counters_add(&all, &d->stats.generation);
    const bool ok = cli_json_count(o, "pid", d->pid) && put_text(o, "program", d->program) &&
                    put_text(o, "sluice", d->version) && put_text(o, "model", d->model) &&
                    put_text(o, "mode", d->mode) && cli_json_count(o, "threads", d->threads) &&
                    cli_json_put(o, "age_seconds", json_real(now > d->updated ? now - d->updated : 0)) &&
                    cli_json_count(o, "memory_bytes", p->memory) &&
                    counters_json(o, COUNTERS_TOP, &(struct counters_at){.stats = &d->stats}) &&
                    counters_json(o, COUNTERS_TOTAL, &(struct counters_at){.live = &all}) &&
                    cli_json_count(o, "steps", d->n_steps) && cli_json_put(o, "last", rates_json(&r)) &&
                    cli_json_put(o, "prompt", phase_json(&d->ended[SLUICE_PHASE_PROMPT])) &&
                    cli_json_put(o, "generation", phase_json(&d->ended[SLUICE_PHASE_GENERATION])) &&
                    cli_json_put(o, "layers", layers_json(d));
    return cli_json_whole(o, ok);
}

int top_json(const struct top_list *l, double now, const char *command) {
    json_t *o = json_object(), *a = json_array();
    bool ok = true;
    for (size_t i = 0; ok && i < l->n; i++) {
        ok = json_array_append_new(a, process_json(&l->p[i], now)) == 0;
    }
    ok = cli_json_put(o, "processes", a) && ok; /* takes the array over in any case */
    char *page = ok ? json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(o);
    if (!page) {
        return cli_fail(CLI_EXIT_FAILED, command, "no memory for the JSON object");
    }
    ok = cli_write(command, page, strlen(page)) && cli_write(command, "\n", 1);
    free(page);
    return ok ? CLI_EXIT_OK : CLI_EXIT_FAILED;
}
