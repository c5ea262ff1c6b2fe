/*
 * top_json.c - what `sluice top` knows, for programs: one JSON object in base units.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/json.h"
#include "cli/args.h"
#include "cli/top.h"

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
