/*
 * plan_json.c - `sluice plan --json`.
 *
 * What is not known is null, with the reason beside it. Bytes and counts are integers.
 */
#include <stdio.h>
#include <string.h>

#include "cli/json.h"
#include "cli/plan.h"
#include "cli/summary.h"

/* A text, or null for "". */
static json_t *text_or_null(const char *text) {
    return text[0] ? cli_json_text(text) : json_null();
}

static json_t *fact_json(const struct outlook_fact *f) {
    json_t *o = json_object();
    const bool whole = !f->unit[0] || strcmp(f->unit, "bytes") == 0 || strcmp(f->unit, "tokens") == 0;
    json_t *value = f->source == PLAN_NOT_KNOWN ? json_null()
                    : whole                     ? json_integer((json_int_t)f->value)
                                                : json_real(f->value);
    const bool ok = cli_json_put(o, "value", value) && cli_json_put(o, "unit", json_string(f->unit)) &&
                    cli_json_put(o, "source", json_string(outlook_source_name(f->source))) &&
                    cli_json_put(o, f->source == PLAN_NOT_KNOWN ? "reason" : "how", cli_json_text(f->how));
    return cli_json_whole(o, ok);
}

static json_t *facts_json(const struct outlook *p) {
    struct outlook_fact f[PLAN_FACTS_MAX];
    const size_t n = outlook_facts(p, f);
    json_t *o = json_object();
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        ok = cli_json_put(o, f[i].key, fact_json(&f[i]));
    }
    return cli_json_whole(o, ok);
}

/* low is the smaller number, whichever is worse. */
static json_t *range_json(const struct predict_range *r) {
    if (r->low < 0 || r->mid < 0 || r->high < 0) {
        return json_null();
    }
    json_t *o = json_object();
    const bool up = r->low <= r->high;
    const bool ok = cli_json_put(o, "low", json_real(up ? r->low : r->high)) &&
                    cli_json_put(o, "mid", json_real(r->mid)) &&
                    cli_json_put(o, "high", json_real(up ? r->high : r->low));
    return cli_json_whole(o, ok);
}

static json_t *lanes_json(const struct outlook *p) {
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < p->n_lanes; i++) {
        const struct outlook_lanes *l = &p->lanes[i];
        const struct predict_range r = {.low = l->rate[0], .mid = l->rate[l->n / 2], .high = l->rate[l->n - 1]};
        json_t *o = json_object();
        o = cli_json_whole(o, cli_json_count(o, "lanes", l->lanes) &&
                                  cli_json_put(o, "bytes_per_second", range_json(&r)) &&
                                  cli_json_put(o, "source", json_string("measured")));
        ok = json_array_append_new(list, o) == 0;
    }
    return cli_json_whole(list, ok);
}

/* Why a prediction is null; null when it is not. */
static json_t *why_unknown(const struct outlook *p, const struct predict_row *r) {
    if (r->tokens_per_s.mid >= 0) {
        return json_null();
    }
    return text_or_null(p->speed_why[0]  ? p->speed_why
                        : p->disk_why[0] ? p->disk_why
                                         : "it is not known how many bytes a token reads");
}

static json_t *row_json(const struct outlook *p, const struct outlook_row *r) {
    json_t *o = json_object();
    const bool ok =
        cli_json_put(o, "name", json_string(r->name)) && cli_json_put(o, "auto", json_boolean(r->is_auto)) &&
        cli_json_count(o, "cache_bytes", r->cache_bytes) &&
        cli_json_put(o, "memory_bytes", r->total_bytes ? json_integer((json_int_t)r->total_bytes) : json_null()) &&
        cli_json_put(o, "peak_bytes", r->peak_bytes ? json_integer((json_int_t)r->peak_bytes) : json_null()) &&
        cli_json_put(o, "fits", p->has_memory ? json_boolean(r->fits) : json_null()) &&
        cli_json_put(o, "why_not", text_or_null(r->why_not)) &&
        cli_json_put(o, "tokens_per_second", range_json(&r->speed.tokens_per_s)) &&
        cli_json_put(o, "read_bytes_per_token", range_json(&r->speed.read_bytes)) &&
        cli_json_put(o, "source", json_string("derived")) && cli_json_put(o, "reason", why_unknown(p, &r->speed));
    return cli_json_whole(o, ok);
}

static json_t *rows_json(const struct outlook *p) {
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < p->n_rows; i++) {
        ok = json_array_append_new(list, row_json(p, &p->rows[i])) == 0;
    }
    return cli_json_whole(list, ok);
}

static json_t *resident_json(const struct outlook *p) {
    json_t *o = json_object();
    const bool ok = cli_json_put(o, "memory_bytes",
                                 p->resident_bytes ? json_integer((json_int_t)p->resident_bytes) : json_null()) &&
                    cli_json_put(o, "fits", p->resident_bytes ? json_boolean(p->resident_fits) : json_null()) &&
                    cli_json_put(o, "tokens_per_second", range_json(&p->resident.tokens_per_s)) &&
                    cli_json_put(o, "source", json_string("derived")) &&
                    cli_json_put(o, "reason", why_unknown(p, &p->resident));
    return cli_json_whole(o, ok);
}

static json_t *plan_json(const struct outlook *p) {
    const char *mode = outlook_mode_name(p->mode);
    json_t *o = json_object();
    const bool ok = cli_json_put(o, "sluice", json_string(sluice_version())) &&
                    cli_json_put(o, "model", cli_json_text(p->gguf->shards[0].path)) &&
                    cli_json_put(o, "architecture", cli_json_text(p->gguf->architecture)) &&
                    cli_json_put(o, "mode", mode ? json_string(mode) : json_null()) &&
                    cli_json_put(o, "why", cli_json_text(p->mode_why)) && cli_json_put(o, "facts", facts_json(p)) &&
                    cli_json_put(o, "memory", p->has_memory ? cli_plan_json(&p->memory) : json_null()) &&
                    cli_json_put(o, "disk", p->n_lanes ? lanes_json(p) : json_null()) &&
                    cli_json_put(o, "disk_reason", text_or_null(p->disk_why)) &&
                    cli_json_put(o, "budgets", rows_json(p)) && cli_json_put(o, "resident", resident_json(p)) &&
                    cli_json_put(o, "smaller_context", p->smaller_ctx ? json_integer(p->smaller_ctx) : json_null()) &&
                    cli_json_put(o, "command", text_or_null(p->command));
    return cli_json_whole(o, ok);
}

bool outlook_print_json(const struct outlook *p, FILE *out) {
    json_t *o = plan_json(p);
    const bool ok = o && json_dumpf(o, out, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0 && fputc('\n', out) != EOF;
    json_decref(o);
    return ok;
}
