/*
 * rates.c - how fast it goes at the moment.
 *
 * Two questions have different answers in a prompt and in a generation. A generation's steps are short: tokens per
 * second are the steps that ended, divided by the time from the end of one to the end of another, which is exact
 * although samples are taken at other moments, and is what the user waits for (sampling included, which a step of a
 * stock program does not see). A prompt is one step of minutes: its tokens are counted by the blocks, as they pass
 * through the layers, until it has ended and its own time is known.
 *
 * Slow models end a step every few seconds. So a rate looks back two seconds and as much further as it takes to see two
 * steps, but never over a pause: after a question, the minutes in which the user typed it are not part of the speed.
 */
#include "window/rates.h"

#include <string.h>

#define RATES_BACK  2.0 /* seconds that a rate looks back at least */
#define RATES_PAUSE 3.0 /* seconds without a block after which nothing runs */
#define RATES_READ  0.9 /* seconds over which reading is measured */

static const struct rates_sample *rates_at(const struct rates *r, uint64_t back) {
    return &r->sample[(r->n - 1 - back) % RATES_SAMPLES];
}

/* Samples that there are. */
static uint64_t rates_have(const struct rates *r) {
    return r->n < RATES_SAMPLES ? r->n : RATES_SAMPLES;
}

/* The youngest sample that is at least `age` seconds older than the last; the oldest, if none is. NULL: there is one.
 */
static const struct rates_sample *rates_back(const struct rates *r, double age) {
    const uint64_t have = rates_have(r);
    for (uint64_t i = 1; i < have; i++) {
        if (rates_at(r, 0)->t - rates_at(r, i)->t >= age) {
            return rates_at(r, i);
        }
    }
    return have > 1 ? rates_at(r, have - 1) : NULL;
}

void rates_add(struct rates *r, const struct window_numbers *now, double t) {
    const double layers = now->stats.layers ? now->stats.layers : 1;
    struct rates_sample s = {.t = t};
    for (int i = 0; i < COUNTERS_PHASES; i++) {
        const struct sluice_phase_stats *p = counters_phase(&now->stats, i);
        s.blocks[i] = p->blocks;
        s.ended[i] = now->ended[i];
        counters_add(&s.all, p);
    }
    s.done = (double)now->stats.prompt.rows / layers;
    const struct rates_sample *last = r->n ? rates_at(r, 0) : NULL;
    for (int i = 0; i < COUNTERS_PHASES && last; i++) {
        const bool ended = s.ended[i].steps != last->ended[i].steps; /* a dense model moves no blocks */
        if (ended || s.blocks[i] != last->blocks[i]) {
            if (r->moved[i] == 0 || t - r->moved[i] > RATES_PAUSE) {
                r->since[i] = last->t;
            }
            r->moved[i] = t;
        }
    }
    r->sample[r->n++ % RATES_SAMPLES] = s;
    const struct rates_sample *b = rates_back(r, RATES_READ);
    if (b && t - b->t >= RATES_READ && s.all.read_bytes >= b->all.read_bytes) {
        const double rate = (double)(s.all.read_bytes - b->all.read_bytes) / (t - b->t);
        r->best = rate > r->best ? rate : r->best;
    }
}

/* Tokens per second of steps that ended, or -1. */
static double rates_steps(const struct rates *r, int phase) {
    const struct rates_sample *now = rates_at(r, 0);
    const struct step_sums *to = &now->ended[phase];
    const uint64_t have = rates_have(r);
    double rate = -1;
    for (uint64_t i = 1; i < have; i++) {
        const struct rates_sample *s = rates_at(r, i);
        const struct step_sums *from = &s->ended[phase];
        if (s->t < r->since[phase]) {
            break;
        }
        if (to->steps <= from->steps) {
            continue;
        }
        /* Before the first step of this turn ended there is no end to count from: then its own length is the time. */
        const bool running = from->ended >= r->since[phase] && from->ended > 0;
        if (!running && rate >= 0) {
            break;
        }
        const double dt = running ? to->ended - from->ended : to->sum.wall_s - from->sum.wall_s;
        rate = dt > 0 ? (double)(to->sum.tokens - from->sum.tokens) / dt : rate;
        if (now->t - s->t >= RATES_BACK && to->steps - from->steps >= 2) {
            break;
        }
    }
    return rate;
}

/* Prompt tokens per second through the layers, or -1. */
static double rates_done(const struct rates *r) {
    const struct rates_sample *now = rates_at(r, 0), *from = NULL;
    const uint64_t have = rates_have(r);
    for (uint64_t i = 1; i < have && rates_at(r, i)->t >= r->since[SLUICE_PHASE_PROMPT]; i++) {
        from = rates_at(r, i);
        if (now->t - from->t >= RATES_BACK && from->done < now->done) {
            break;
        }
    }
    return from && now->t > from->t && now->done > from->done ? (now->done - from->done) / (now->t - from->t) : -1;
}

void rates_get(const struct rates *r, double t, struct rates_now *out) {
    *out = (struct rates_now){.phase = -1, .hits = -1, .hit_bytes = -1, .part = {-1, -1, -1, -1}};
    for (int i = 0; i < COUNTERS_PHASES; i++) {
        out->active[i] = r->n && r->moved[i] > 0 && t - r->moved[i] <= RATES_PAUSE;
        out->tokens_per_s[i] = -1;
        if (out->active[i]) {
            const double steps = rates_steps(r, i);
            const double done = i == SLUICE_PHASE_PROMPT ? rates_done(r) : -1;
            out->tokens_per_s[i] = steps >= 0 ? steps : done;
            out->phase = out->phase < 0 || r->moved[i] >= r->moved[out->phase] ? i : out->phase;
        }
    }
    const struct rates_sample *b = r->n ? rates_back(r, RATES_READ) : NULL;
    if (!b) {
        return;
    }
    const struct rates_sample *now = rates_at(r, 0);
    if (now->t > b->t && now->all.read_bytes >= b->all.read_bytes && t - now->t <= RATES_PAUSE) {
        out->bytes_per_s = (double)(now->all.read_bytes - b->all.read_bytes) / (now->t - b->t);
    }
    b = rates_back(r, RATES_BACK);
    const double hits = (double)(now->all.hits - b->all.hits),
                 routed = hits + (double)(now->all.misses - b->all.misses);
    const double bytes = (double)(now->all.hit_bytes - b->all.hit_bytes);
    const double asked = bytes + (double)(now->all.miss_bytes - b->all.miss_bytes);
    out->hits = routed > 0 ? hits / routed : -1;
    out->hit_bytes = asked > 0 ? bytes / asked : -1;
    double part[4] = {0}, sum = 0;
    for (int i = 0; i < COUNTERS_PHASES; i++) {
        const struct sluice_step *x = &b->ended[i].sum, *y = &now->ended[i].sum;
        part[0] += y->expert_s - x->expert_s;
        part[1] += y->stall_s - x->stall_s;
        part[2] += y->other_s - x->other_s;
        part[3] += y->bookkeeping_s - x->bookkeeping_s;
    }
    for (int i = 0; i < 4; i++) {
        sum += part[i];
    }
    for (int i = 0; i < 4 && sum > 0; i++) {
        out->part[i] = part[i] / sum;
    }
}
