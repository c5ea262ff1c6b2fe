/*
 * times.c - see times.h.
 *
 * The percentages are of the sum of the steps' wall time. They add up to 100 because every part is
 * measured, not because one of them is what the others leave.
 */
#include "cli/times.h"

#include <inttypes.h>

void cli_times_add(struct cli_times *t, const struct sluice_step *step) {
    struct sluice_step *s = &t->sum;
    const uint64_t submits = s->submits + step->submits;
    if (submits) {
        s->queue_mean =
            (s->queue_mean * (double)s->submits + step->queue_mean * (double)step->submits) / (double)submits;
    }
    t->steps++;
    s->submits = submits;
    s->queue_max = step->queue_max > s->queue_max ? step->queue_max : s->queue_max;
    s->wall_s += step->wall_s;
    s->stall_s += step->stall_s;
    s->expert_s += step->expert_s;
    s->other_s += step->other_s;
    s->bookkeeping_s += step->bookkeeping_s;
    s->cold_bytes += step->cold_bytes;
    s->evictions += step->evictions;
    s->minor_faults += step->minor_faults;
    s->major_faults += step->major_faults;
    s->cpu_s += step->cpu_s;
}

void cli_times_print(const struct cli_times *t, FILE *out) {
    const struct sluice_step *s = &t->sum;
    if (t->steps == 0 || s->wall_s <= 0) {
        return;
    }
    fprintf(out,
            "  %-12swaiting for reads %.1f %%, experts %.1f %%, other layers %.1f %%, bookkeeping %.1f %%; %" PRIu64
            " major faults\n",
            "", 100 * s->stall_s / s->wall_s, 100 * s->expert_s / s->wall_s, 100 * s->other_s / s->wall_s,
            100 * s->bookkeeping_s / s->wall_s, s->major_faults);
}
