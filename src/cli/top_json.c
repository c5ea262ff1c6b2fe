/*
 * top_json.c - what `sluice top` knows, for programs: one JSON object in base units.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/args.h"
#include "cli/top.h"
#include "runner/utf8.h"

/* Put `value` into `object`, taking it over. False when either is NULL or memory is short. */
static bool put(json_t *object, const char *key, json_t *value) {
    return json_object_set_new(object, key, value) == 0;
}

static bool put_count(json_t *object, const char *key, uint64_t n) {
    return put(object, key, json_integer((json_int_t)n));
}

/* Text of another process: made valid UTF-8. */
static bool put_text(json_t *object, const char *key, const char *text) {
    size_t n = 0;
    char *clean = sluice_utf8_clean(text, strlen(text), &n);
    const bool ok = clean && put(object, key, json_stringn(clean, n));
    free(clean);
    return ok;
}

static json_t *sums_json(const struct stat_sums *s) {
    json_t *o = json_object();
    if (!(put_count(o, "steps", s->steps) && put_count(o, "tokens", s->tokens) &&
          put(o, "wall_seconds", json_real(s->wall_s)) && put(o, "stall_seconds", json_real(s->stall_s)) &&
          put(o, "expert_seconds", json_real(s->expert_s)) && put(o, "other_seconds", json_real(s->other_s)) &&
          put(o, "bookkeeping_seconds", json_real(s->bookkeeping_s)) && put_count(o, "read_bytes", s->read_bytes) &&
          put_count(o, "reads", s->reads) && put_count(o, "routed", s->routed) && put_count(o, "hits", s->hits) &&
          put_count(o, "misses", s->misses) && put_count(o, "hit_bytes", s->hit_bytes) &&
          put_count(o, "miss_bytes", s->miss_bytes) && put_count(o, "evictions", s->evictions) &&
          put_count(o, "minor_faults", s->minor_faults) && put_count(o, "major_faults", s->major_faults) &&
          put(o, "cpu_seconds", json_real(s->cpu_s)))) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static json_t *rates_json(const struct top_rates *r) {
    static const char *const part[] = {"stall", "experts", "other", "bookkeeping"};
    json_t *o = json_object();
    bool ok = put(o, "phase", json_string(r->prompt ? "prompt" : "generation")) &&
              put(o, "tokens_per_second", json_real(r->tokens_per_s)) &&
              put(o, "read_bytes_per_second", json_real(r->bytes_per_s)) && put(o, "hit_rate", json_real(r->hits)) &&
              put(o, "hit_rate_of_bytes", json_real(r->hit_bytes));
    for (int i = 0; i < 4; i++) {
        ok = ok && put(o, part[i], json_real(r->part[i]));
    }
    if (!ok) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static json_t *layers_json(const struct stat_data *d) {
    json_t *a = json_array();
    for (uint64_t i = 0; i < d->n_layers; i++) {
        json_t *o = json_object();
        if (!put_count(o, "resident", d->layer[i].resident) || !put_count(o, "experts", d->layer[i].experts)) {
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

static json_t *process_json(const struct top_process *p, double now) {
    const struct stat_data *d = &p->d;
    const struct top_rates r = top_rates_of(d);
    json_t *o = json_object();
    if (!(put_count(o, "pid", d->pid) && put_text(o, "program", d->program) && put_text(o, "sluice", d->version) &&
          put_text(o, "model", d->model) && put_text(o, "mode", d->mode) && put_count(o, "threads", d->threads) &&
          put(o, "age_seconds", json_real(now > d->updated ? now - d->updated : 0)) &&
          put_count(o, "memory_bytes", p->memory) && put_count(o, "cache_bytes", d->cache_bytes) &&
          put_count(o, "bank_bytes", d->bank_bytes) && put_count(o, "slots", d->slots) &&
          put_count(o, "resident", d->resident) && put_count(o, "blocks", d->blocks) &&
          put_count(o, "read_bytes", d->read_bytes) && put_count(o, "hits", d->hits) &&
          put_count(o, "misses", d->misses) && put_count(o, "steps", d->n_steps) && put(o, "last", rates_json(&r)) &&
          put(o, "prompt", sums_json(&d->sums[SLUICE_PHASE_PROMPT])) &&
          put(o, "generation", sums_json(&d->sums[SLUICE_PHASE_GENERATION])) && put(o, "layers", layers_json(d)))) {
        json_decref(o);
        return NULL;
    }
    return o;
}

int top_json(const struct top_list *l, double now, const char *command) {
    json_t *o = json_object(), *a = json_array();
    bool ok = true;
    for (size_t i = 0; ok && i < l->n; i++) {
        ok = json_array_append_new(a, process_json(&l->p[i], now)) == 0;
    }
    ok = put(o, "processes", a) && ok; /* takes the array over in any case */
    char *page = ok ? json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(o);
    if (!page) {
        return cli_fail(CLI_EXIT_FAILED, command, "no memory for the JSON object");
    }
    ok = cli_write(command, page, strlen(page)) && cli_write(command, "\n", 1);
    free(page);
    return ok ? CLI_EXIT_OK : CLI_EXIT_FAILED;
}
