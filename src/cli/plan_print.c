/*
 * plan_print.c - `sluice plan` for people.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/plan.h"

static const double MIB = 1024 * 1024;

/* "17.28 GiB", "45.0 MiB", "1.31 GiB/s", "0.166 s", "4096 tokens" */
static void value_text(const struct outlook_fact *f, char *buf, size_t cap) {
    const double x = f->value;
    if (f->source == PLAN_NOT_KNOWN) {
        snprintf(buf, cap, "-");
    } else if (strcmp(f->unit, "bytes") == 0) {
        snprintf(buf, cap, x >= 1024 * MIB ? "%.2f GiB" : "%.1f MiB", x >= 1024 * MIB ? x / 1024 / MIB : x / MIB);
    } else if (strcmp(f->unit, "bytes/s") == 0) {
        snprintf(buf, cap, "%.0f MiB/s", x / MIB);
    } else if (strcmp(f->unit, "seconds") == 0) {
        snprintf(buf, cap, x < 0.01 ? "%.3f ms" : "%.1f ms", x * 1000);
    } else if (strcmp(f->unit, "tokens/s") == 0) {
        snprintf(buf, cap, x < 100 ? "%.2f tok/s" : "%.0f tok/s", x);
    } else {
        snprintf(buf, cap, "%.0f%s%s", x, f->unit[0] ? " " : "", f->unit);
    }
}

static void print_facts(const struct outlook *p, FILE *out) {
    struct outlook_fact f[PLAN_FACTS_MAX];
    const size_t n = outlook_facts(p, f);
    for (size_t i = 0; i < n; i++) {
        char value[64];
        value_text(&f[i], value, sizeof value);
        fprintf(out, "  %-25s%14s  %-10s%s\n", f[i].label, value, outlook_source_name(f[i].source), f[i].how);
    }
}

static void print_lanes(const struct outlook *p, FILE *out) {
    fprintf(out, "\nDisk, random experts of this file, measured:\n");
    if (p->n_lanes == 0) {
        fprintf(out, "  unknown: %s\n", p->disk_why);
        return;
    }
    fprintf(out, "  %-18s%10s%20s\n", "reads in flight", "MiB/s", "slowest..fastest");
    for (size_t i = 0; i < p->n_lanes; i++) {
        const struct outlook_lanes *l = &p->lanes[i];
        char span[48];
        snprintf(span, sizeof span, "%.0f..%.0f", l->rate[0] / MIB, l->rate[l->n - 1] / MIB);
        fprintf(out, "  %-18" PRIu32 "%10.0f%20s%s\n", l->lanes, l->rate[l->n / 2] / MIB, span,
                l->lanes == (uint32_t)p->settings.io_threads ? "  as run reads" : "");
    }
}

/* "3.48 (2.1..4.4)"; "unknown" */
static void range_text(const struct predict_range *r, double unit, const char *format, char *buf, size_t cap) {
    char low[24], mid[24], high[24];
    if (r->low < 0 || r->mid < 0 || r->high < 0) {
        snprintf(buf, cap, "unknown");
        return;
    }
    const double a = r->low < r->high ? r->low : r->high, b = r->low < r->high ? r->high : r->low;
    snprintf(low, sizeof low, format, a / unit);
    snprintf(mid, sizeof mid, format, r->mid / unit);
    snprintf(high, sizeof high, format, b / unit);
    snprintf(buf, cap, "%s (%s..%s)", mid, low, high);
}

static const char *speed_format(const struct predict_range *r) {
    return r->mid < 100 ? "%.2f" : "%.0f";
}

static const char *bytes_format(const struct predict_range *r) {
    return r->mid < 100 * MIB ? "%.2f" : "%.0f";
}

static void print_rows(const struct outlook *p, FILE *out) {
    char speed[96], bytes[96], cache[32], total[32];
    if (p->n_rows == 0 && p->resident.tokens_per_s.mid < 0) {
        return;
    }
    fprintf(out, "\nGeneration to expect, derived (in brackets: no locality and a slow disk, to much of both):\n");
    fprintf(out, "  %-12s%10s%12s%28s%26s\n", "cache", "MiB", "memory MiB", "tokens per second", "MiB read per token");
    for (size_t i = 0; i < p->n_rows; i++) {
        const struct outlook_row *r = &p->rows[i];
        range_text(&r->speed.tokens_per_s, 1, speed_format(&r->speed.tokens_per_s), speed, sizeof speed);
        range_text(&r->speed.read_bytes, MIB, bytes_format(&r->speed.read_bytes), bytes, sizeof bytes);
        snprintf(cache, sizeof cache, r->cache_bytes < 100 * 1024 * 1024 ? "%.1f" : "%.0f",
                 (double)r->cache_bytes / MIB);
        snprintf(total, sizeof total, "%.0f", (double)r->total_bytes / MIB);
        fprintf(out, "  %-12s%10s%12s%28s%26s%s\n", r->name, cache, r->total_bytes ? total : "-", speed, bytes,
                r->fits ? "" : "  does not fit");
    }
    range_text(&p->resident.tokens_per_s, 1, speed_format(&p->resident.tokens_per_s), speed, sizeof speed);
    snprintf(total, sizeof total, "%.0f", (double)p->resident_bytes / MIB);
    fprintf(out, "  %-12s%10s%12s%28s%26s%s\n", "--resident", "-", p->resident_bytes ? total : "-", speed, "-",
            p->resident_bytes && !p->resident_fits ? "  does not fit" : "");
}

void outlook_print(const struct outlook *p, FILE *out) {
    const char *mode = outlook_mode_name(p->mode);
    fprintf(out, "%s\n%s: %s\n\n", p->gguf->shards[0].path, mode ? mode : "unknown", p->mode_why);
    print_facts(p, out);
    print_lanes(p, out);
    print_rows(p, out);
    if (p->command[0]) {
        fprintf(out, "\n%s%s\n  %s\n", p->smaller_ctx ? "It fits with a smaller context" : "Recommended",
                p->present_bytes < p->whole_bytes ? ", when the download is complete:" : ":", p->command);
    }
    if (p->mode == PLAN_RESIDENT && p->info.expert_tensors && p->command[0]) {
        fprintf(out, "  (each expert is read when it is first used; with --resident all are read at the start)\n");
    }
}
