/*
 * bench_json.c - the report for programs: everything, raw values included, in base units (bytes,
 * seconds, tokens), so that each figure can be computed again. Fields are added, never renamed.
 */
#include <math.h>
#include <string.h>

#include "cli/json.h"
#include "cli/bench.h"

extern char **environ;

/* A number; null for none, which JSON has no number for. */
static bool put_real(json_t *object, const char *key, double x) {
    return cli_json_put(object, key, isfinite(x) ? json_real(x) : json_null());
}

/* NULL becomes null. */
static bool put_text(json_t *object, const char *key, const char *text) {
    return cli_json_put(object, key, cli_json_text(text));
}

static json_t *interval_json(const struct bench_interval *v) {
    json_t *o = json_object();
    return cli_json_whole(o,
                          put_real(o, "median", v->mid) && put_real(o, "low", v->low) && put_real(o, "high", v->high));
}

static json_t *state_json(const struct bench_state *s) {
    json_t *o = json_object();
    return cli_json_whole(o, put_real(o, "load_average", s->load >= 0 ? s->load : NAN) &&
                                 put_real(o, "mhz", s->mhz > 0 ? s->mhz : NAN) &&
                                 put_real(o, "steal_seconds", s->steal_s >= 0 ? s->steal_s : NAN) &&
                                 cli_json_count(o, "available_bytes", s->available));
}

/* The generated tokens of a run, column by column. */
static json_t *steps_json(const struct bench_run *r) {
    json_t *o = json_object(), *wall = json_array(), *stall = json_array(), *bytes = json_array(), *hits = json_array(),
           *misses = json_array();
    bool ok = o && wall && stall && bytes && hits && misses;
    for (size_t i = 0; ok && i < r->csv.n; i++) {
        const struct bench_step *s = &r->csv.steps[i];
        if (s->generation) {
            ok = json_array_append_new(wall, json_real(s->wall_s)) == 0 &&
                 json_array_append_new(stall, json_real(s->stall_s)) == 0 &&
                 json_array_append_new(bytes, json_integer((json_int_t)s->read_bytes)) == 0 &&
                 json_array_append_new(hits, json_integer((json_int_t)s->hits)) == 0 &&
                 json_array_append_new(misses, json_integer((json_int_t)s->misses)) == 0;
        }
    }
    /* json_object_set_new takes its value over even when it fails: all five are called. */
    const bool a = cli_json_put(o, "wall_seconds", wall), b = cli_json_put(o, "wait_seconds", stall),
               c = cli_json_put(o, "read_bytes", bytes), d = cli_json_put(o, "hits", hits),
               e = cli_json_put(o, "misses", misses);
    return cli_json_whole(o, ok && a && b && c && d && e);
}

static json_t *run_json(const struct bench_run *r) {
    json_t *o = json_object();
    const char *how = r->failed        ? "failed"
                      : r->interrupted ? "interrupted"
                      : r->stopped     ? "stopped"
                      : r->started     ? "complete"
                                       : "not started";
    return cli_json_whole(
        o, put_text(o, "state", how) && cli_json_count(o, "round", (uint64_t)r->round) &&
               cli_json_count(o, "order", (uint64_t)r->order) && put_real(o, "seconds", r->ended.seconds) &&
               cli_json_put(o, "exit_code", r->ended.signal ? json_null() : json_integer(r->ended.code)) &&
               cli_json_put(o, "signal", r->ended.signal ? json_integer(r->ended.signal) : json_null()) &&
               put_text(o, "message", r->failed ? r->message : NULL) && put_text(o, "mode", r->mode) &&
               put_text(o, "dropped", bench_dropped_name(r->dropped)) &&
               cli_json_put(o, "warmed", json_boolean(r->warmed)) &&
               cli_json_put(o, "before", state_json(&r->before)) && cli_json_put(o, "after", state_json(&r->after)) &&
               cli_json_count(o, "peak_bytes", r->peak) &&
               put_text(o, "peak_of", r->peak_of_cgroup ? "cgroup" : "process") &&
               cli_json_count(o, "kills", r->kills) && cli_json_count(o, "cache_bytes", r->cache_bytes) &&
               put_real(o, "load_seconds", r->load_s) && put_real(o, "first_token_seconds", r->first_token_s) &&
               cli_json_count(o, "prompt_tokens", r->prompt_tokens) && put_real(o, "prompt_seconds", r->prompt_s) &&
               cli_json_count(o, "tokens", r->tokens) && put_real(o, "wall_seconds", r->wall_s) &&
               put_real(o, "tokens_per_second", r->wall_s > 0 ? (double)r->tokens / r->wall_s : NAN) &&
               put_real(o, "wait_seconds", r->stall_s) && put_real(o, "cpu_seconds", r->cpu_s) &&
               cli_json_count(o, "read_bytes", r->read_bytes) && cli_json_count(o, "hits", r->hits) &&
               cli_json_count(o, "misses", r->misses) && cli_json_count(o, "major_faults", r->major_faults) &&
               cli_json_put(o, "steps", steps_json(r)));
}

static json_t *runs_json(const struct bench *b, const struct bench_entry *e) {
    json_t *list = json_array();
    bool ok = list != NULL;
    for (int64_t i = 0; ok && i < b->config->bench.runs; i++) {
        if (e->runs[i].order) {
            ok = json_array_append_new(list, run_json(&e->runs[i])) == 0;
        }
    }
    return cli_json_whole(list, ok);
}

static json_t *options_json(const struct bench_variant *v) {
    json_t *list = json_array();
    bool ok = list != NULL;
    for (int i = 0; ok && v && i < v->n_words; i++) {
        ok = json_array_append_new(list, cli_json_text(v->words[i])) == 0;
    }
    return cli_json_whole(list, ok);
}

static json_t *entry_json(const struct bench *b, const struct bench_entry *e) {
    static const char *const kinds[] = {"stream", "resident", "mmap"};
    json_t *o = json_object();
    return cli_json_whole(
        o, put_text(o, "name", e->name) && put_text(o, "kind", kinds[e->kind]) &&
               put_text(o, "budget", e->kind == BENCH_STREAM ? e->budget : NULL) &&
               cli_json_put(o, "options", options_json(e->variant)) &&
               put_text(o, "skipped", e->skipped[0] ? e->skipped : NULL) &&
               cli_json_put(o, "tokens_per_second", interval_json(&e->rate)) &&
               put_real(o, "slowest_run", e->rate_least) && put_real(o, "fastest_run", e->rate_most) &&
               cli_json_put(o, "ratio", interval_json(&e->ratio)) &&
               cli_json_put(o, "ratio_to_plain", interval_json(&e->plain_ratio)) &&
               put_real(o, "read_bytes_per_token", e->token_bytes) && put_real(o, "hit_share", e->hit_share) &&
               put_real(o, "wait_share", e->stall_share) && put_real(o, "load_seconds", e->load_s) &&
               put_real(o, "first_token_seconds", e->first_token_s) &&
               put_real(o, "prompt_tokens_per_second", e->prompt_rate) && cli_json_count(o, "peak_bytes", e->peak) &&
               put_real(o, "bound_tokens_per_second", e->bound) && put_real(o, "share_of_bound", e->share) &&
               cli_json_put(o, "runs", runs_json(b, e)));
}

static json_t *entries_json(const struct bench *b) {
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < b->n_entries; i++) {
        ok = json_array_append_new(list, entry_json(b, &b->entries[i])) == 0;
    }
    return cli_json_whole(list, ok);
}

/* What of the environment reaches the runs. */
static json_t *environment_json(void) {
    json_t *o = json_object();
    bool ok = o != NULL;
    for (char **p = environ; ok && *p; p++) {
        const char *equals = strchr(*p, '=');
        char name[64];
        if (equals && equals - *p < (int)sizeof name &&
            (strncmp(*p, "SLUICE_", 7) == 0 || strncmp(*p, "OMP_", 4) == 0)) {
            memcpy(name, *p, (size_t)(equals - *p));
            name[equals - *p] = '\0';
            ok = put_text(o, name, equals + 1);
        }
    }
    return cli_json_whole(o, ok);
}

static json_t *settings_json(const struct bench *b) {
    const struct cli_bench *c = &b->config->bench;
    const char *kept_by = !b->memory ? NULL : b->cgroup ? "cgroup" : b->ceiling ? "sluice" : "nothing";
    json_t *o = json_object();
    return cli_json_whole(
        o, put_text(o, "model", b->config->model) && put_text(o, "budgets", c->budgets) &&
               put_text(o, "baselines", c->baselines) && cli_json_count(o, "prompt_tokens", (uint64_t)c->prompt) &&
               put_text(o, "prompt_file", b->config->prompt_file) && cli_json_count(o, "tokens", (uint64_t)c->gen) &&
               cli_json_count(o, "runs", (uint64_t)c->runs) &&
               cli_json_count(o, "threads",
                              (uint64_t)(b->config->n_threads ? b->config->n_threads : sluice_cpu_count())) &&
               cli_json_count(o, "lanes", (uint64_t)b->settings.io_threads) &&
               put_real(o, "max_seconds", c->max_seconds) && put_real(o, "probe_seconds", c->probe_seconds) &&
               put_text(o, "drop_caches", c->drop) &&
               cli_json_put(o, "memory_limit_bytes", b->memory ? json_integer((json_int_t)b->memory) : json_null()) &&
               put_text(o, "memory_limit_kept_by", kept_by) &&
               put_text(o, "no_cgroup_because", b->memory && !b->cgroup ? b->no_cgroup : NULL) &&
               cli_json_put(o, "environment", environment_json()));
}

static json_t *machine_json(const struct bench *b) {
    const struct bench_machine *m = &b->machine;
    json_t *o = json_object();
    return cli_json_whole(o, put_text(o, "processor", m->processor) &&
                                 cli_json_count(o, "processors", (uint64_t)sluice_cpu_count()) &&
                                 cli_json_count(o, "memory_bytes", m->memory) && put_text(o, "kernel", m->kernel) &&
                                 put_text(o, "disk", m->disk) && put_text(o, "file_system", m->file_system));
}

static json_t *model_json(const struct bench *b) {
    json_t *o = json_object();
    return cli_json_whole(o, put_text(o, "architecture", b->gguf->architecture) && put_text(o, "name", b->gguf->name) &&
                                 cli_json_count(o, "bank_bytes", b->info.expert_bytes) &&
                                 cli_json_count(o, "dense_bytes", b->info.dense_bytes) &&
                                 cli_json_count(o, "token_demand_bytes", b->info.token_bytes) &&
                                 cli_json_count(o, "layer_demand_bytes", b->info.layer_bytes));
}

static json_t *probes_json(const struct bench *b) {
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < b->n_probes; i++) {
        const struct sluice_probe *p = &b->probes[i];
        json_t *o = json_object();
        o = cli_json_whole(o, put_text(o, "when", i < b->n_probes_before ? "before" : "after") &&
                                  cli_json_count(o, "bytes", p->bytes) && cli_json_count(o, "slices", p->slices) &&
                                  put_real(o, "seconds", p->seconds) &&
                                  put_real(o, "bytes_per_second", p->per_second) &&
                                  cli_json_put(o, "direct", json_boolean(p->direct)));
        ok = json_array_append_new(list, o) == 0;
    }
    return cli_json_whole(list, ok);
}

static json_t *bound_json(const struct bench *b) {
    static const char *const from[] = {"unknown", "resident baseline", "tokens of 'all' without a miss"};
    json_t *o = json_object();
    return cli_json_whole(o, put_real(o, "bytes_per_second", b->disk) && cli_json_put(o, "probes", probes_json(b)) &&
                                 put_real(o, "compute_seconds_per_token", b->compute ? b->compute_s : NAN) &&
                                 put_text(o, "compute_from", from[b->compute]) &&
                                 cli_json_count(o, "compute_tokens", b->compute_steps));
}

char *bench_json(const struct bench *b, size_t *n) {
    json_t *o = json_object();
    o = cli_json_whole(o, cli_json_count(o, "sluice_bench", 1) && put_text(o, "sluice", sluice_version()) &&
                              put_text(o, "llama_cpp", SLUICE_LLAMA_VERSION) && put_text(o, "started", b->started) &&
                              cli_json_put(o, "complete", json_boolean(!b->interrupted)) &&
                              cli_json_put(o, "settings", settings_json(b)) &&
                              cli_json_put(o, "machine", machine_json(b)) && cli_json_put(o, "model", model_json(b)) &&
                              cli_json_put(o, "bound", bound_json(b)) &&
                              put_text(o, "reference", b->reference >= 0 ? b->entries[b->reference].name : NULL) &&
                              cli_json_put(o, "variants", entries_json(b)));
    char *page = o ? json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(o);
    *n = page ? strlen(page) : 0;
    return page;
}
