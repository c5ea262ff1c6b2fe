/*
 * predict.c - see predict.h.
 *
 * Three questions, each with its own uncertainty: how much of a token's experts is not in the cache, how long reading
 * that takes, and how much of the reading hides behind computing.
 *
 * Misses. Routing is not known before a model runs. If it had no locality at all, a cache with a share f of the experts
 * would miss 1 - f; real routings repeat, some much more than others. So the expectation comes from recorded routings
 * sent through the engine's own policy (`sluice replay`, docs/plan.md says how), those of models with a similar number
 * of experts per expert used counting more, since that ratio says how much of the expert index a token touches. What
 * the range is made of is the two extremes: no locality, and the most local of the recordings.
 *
 * Reading ahead reads more than it uses. In the runs of docs/benchmarks.md ("Generation inside 6 GiB", "What the parts
 * gain") the surplus was about 7 % of a token's bytes, less where the disk has no idle time or nearly nothing is
 * missing.
 *
 * Overlap. A token takes the longer of computing and reading, and a share of the shorter that does not hide: the first
 * read of a block waits for the router, and the router for the block before. Constants below, from the same runs.
 */
#include "memory/predict.h"

#include <math.h>
#include <stddef.h>

/* ---- measured constants ----------------------------------------------------------------------- */

/*
 * Share of the shorter of reading and computing that does not hide. From docs/benchmarks.md, "Generation inside 6 GiB"
 * and "What the parts gain" (2026-11-30), (token - longer) / shorter: with lookahead 0.0 to 0.18 at 500 to 4000 MiB,
 * without 0.36 to 0.57, without a cache, where nothing is read ahead, 0.6.
 */
static const struct predict_range UNHIDDEN_AHEAD = {.low = 0.35, .mid = 0.12, .high = 0.0};
static const struct predict_range UNHIDDEN_DEMAND = {.low = 0.8, .mid = 0.5, .high = 0.25};

/* Processor seconds per byte read directly by four threads: 0.052 s per GiB (docs/benchmarks.md, "Threads or
 * io_uring"). */
static const double READ_CPU_S = 0.052 / (1024.0 * 1024 * 1024);

/*
 * What a real token has beside its matmuls and as many cheap operations as it has: attention, rotations, sorting,
 * llama.cpp's part around a graph, sampling. Resident tokens of small models against made-up ones, ms (2 cores,
 * 2026-11-30): 6 layers with a large vocabulary 1.30 and 0.98, 24 layers 2.71 and 1.34, 48 layers 6.6 and 2.3, the demo
 * model 1.0 to 1.2 and 0.22: 52 to 130 microseconds per layer. Of a large model's token it is a hundredth.
 */
static const double LAYER_S = 75e-6, TOKEN_S = 200e-6;

/*
 * A block that misses something sleeps until it has arrived: two wakings and reads that nothing hides. Of large experts
 * it is a part of the reading; of small ones it is most of it. The demo model needs 2.8 to 6.5 ms for a token of which
 * it reads 1.1 MiB, 6 blocks; at the disk's rate for its slices those bytes alone would take 1.6 ms.
 */
static const double BLOCK_READ_S = 450e-6;

/* A token without misses, streamed against resident: 50.1 to 48.2 ms (docs/benchmarks.md, "Everything in the cache").
 */
static const double STREAMED = 1.04;

/* Starts of a computation that a streamed block has and a resident one has not: its own, and the rest's again. */
static const double BLOCK_STARTS = 3;

/* What lookahead reads for nothing: at most this share of a token's bytes, of what is missing, and of what is there. */
static const double AHEAD_TOKEN = 0.07, AHEAD_MISSING = 0.6, AHEAD_THERE = 0.15;

enum { CURVE_POINTS = 9 };

/* The share of the expert index that the cache of each point holds. */
static const double curve_share[CURVE_POINTS] = {0.0, 0.03, 0.06, 0.12, 0.18, 0.24, 0.35, 0.5, 0.75};

/*
 * What a recorded routing misses, share of a token's bytes, at each point; at 1 it is 0. By `sluice replay` with the
 * default policy, generation, 2026-11-30; docs/plan.md has the command and where the traces come from. They are short,
 * so the last points hold what is read for the first time.
 */
static const struct curve {
    const char *name;            /* for the reader */
    double ratio;                /* experts per expert used */
    double misses[CURVE_POINTS]; /* see above */
} curves[] = {
    {"Qwen3-30B-A3B, 6 of 128", 21.3, {1, 0.711, 0.570, 0.373, 0.251, 0.171, 0.079, 0.037, 0.029}},
    {"Gemma-4-26B-A4B, 6 of 128", 21.3, {1, 0.707, 0.559, 0.377, 0.268, 0.197, 0.101, 0.043, 0.036}},
    {"gpt-oss-120b, 2 of 128", 64, {1, 0.641, 0.485, 0.344, 0.268, 0.212, 0.143, 0.109, 0.109}},
    {"demo, 4 of 32", 8, {1, 0.986, 0.929, 0.834, 0.758, 0.683, 0.564, 0.415, 0.193}},
    {"made-up Qwen3-30B-A3B, 8 of 128", 16, {1, 0.678, 0.487, 0.284, 0.182, 0.119, 0.067, 0.054, 0.053}},
};

enum { CURVES = sizeof curves / sizeof curves[0] };

/* How fast a recording's weight falls with the distance of its ratio: standard deviation of a natural logarithm. */
static const double CURVE_NEAR = 0.25;

/* ---- misses ----------------------------------------------------------------------------------- */

/* What one recording misses. Linear between the points, and from the last one to none at 1. */
static double curve_at(const struct curve *c, double share) {
    for (int i = 1; i < CURVE_POINTS; i++) {
        if (share < curve_share[i]) {
            const double t = (share - curve_share[i - 1]) / (curve_share[i] - curve_share[i - 1]);
            return c->misses[i - 1] + t * (c->misses[i] - c->misses[i - 1]);
        }
    }
    const double last = curve_share[CURVE_POINTS - 1];
    return c->misses[CURVE_POINTS - 1] * (1 - share) / (1 - last);
}

void predict_misses(double share, double experts, double top_k, struct predict_range *out) {
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    const double ratio = top_k > 0 && experts >= top_k ? experts / top_k : 1;
    double sum = 0, weights = 0, best = 1;
    for (size_t i = 0; i < CURVES; i++) {
        const double far = log(ratio / curves[i].ratio) / CURVE_NEAR, here = curve_at(&curves[i], share);
        const double weight = exp(-far * far / 2) + 1e-9; /* far from all of them: the mean of all */
        sum += weight * here;
        weights += weight;
        best = here < best ? here : best;
    }
    out->low = 1 - share;
    out->mid = sum / weights;
    out->high = best;
    out->mid = out->mid > out->low ? out->low : out->mid;
}

/* ---- time ------------------------------------------------------------------------------------- */

static const struct predict_range unknown = {-1, -1, -1};

/* Bytes that a token reads, if `missing` of its bytes are not there. */
static double bytes_read(const struct predict_input *in, double missing, bool ahead) {
    double wasted = 0;
    if (ahead) {
        wasted = fmin(AHEAD_TOKEN, fmin(AHEAD_MISSING * missing, AHEAD_THERE * (1 - missing)));
    }
    return (double)in->token_bytes * (missing + wasted);
}

/* Seconds of a token that reads nothing, from those of a made-up one. */
static double resident_seconds(const struct predict_input *in, double compute_s) {
    return compute_s + in->layers * LAYER_S + TOKEN_S;
}

/* Seconds of a token that reads `bytes`; negative: not known. */
static double token_seconds(const struct predict_input *in, double compute_s, double bytes, double disk,
                            double unhidden) {
    if (compute_s <= 0 || (bytes > 0 && disk <= 0)) {
        return -1;
    }
    const int threads = in->threads > 0 ? in->threads : 1;
    const double missing = fmin(1, bytes / (double)in->token_bytes), misses = 1 - pow(1 - missing, in->top_k);
    const double starts = in->moe_layers * (BLOCK_STARTS * in->graph_s + misses * BLOCK_READ_S);
    const double busy = resident_seconds(in, compute_s) * STREAMED + starts + bytes * READ_CPU_S / threads;
    const double reading = bytes > 0 ? bytes / disk : 0;
    return fmax(busy, reading) + unhidden * fmin(busy, reading);
}

static double per_second(double seconds) {
    return seconds > 0 ? 1 / seconds : -1;
}

static void speeds(struct predict_row *row) {
    row->tokens_per_s.low = per_second(row->token_s.low);
    row->tokens_per_s.mid = per_second(row->token_s.mid);
    row->tokens_per_s.high = per_second(row->token_s.high);
}

void predict_cache(const struct predict_input *in, uint64_t cache_bytes, struct predict_row *row) {
    struct predict_range missing = {1, 1, 1};
    const bool cached = cache_bytes > 0, ahead = cached && in->lookahead;
    *row = (struct predict_row){.read_bytes = unknown, .token_s = unknown, .tokens_per_s = unknown};
    if (in->bank_bytes == 0 || in->token_bytes == 0) {
        return;
    }
    if (cached) {
        predict_misses((double)cache_bytes / (double)in->bank_bytes, in->experts, in->top_k, &missing);
    }
    row->read_bytes.low = bytes_read(in, missing.low, ahead);
    row->read_bytes.mid = bytes_read(in, missing.mid, ahead);
    row->read_bytes.high = bytes_read(in, missing.high, ahead);
    const struct predict_range *u = ahead ? &UNHIDDEN_AHEAD : &UNHIDDEN_DEMAND;
    row->token_s.low = token_seconds(in, in->compute_s.low, row->read_bytes.low, in->disk.low, u->low);
    row->token_s.mid = token_seconds(in, in->compute_s.mid, row->read_bytes.mid, in->disk.mid, u->mid);
    row->token_s.high = token_seconds(in, in->compute_s.high, row->read_bytes.high, in->disk.high, u->high);
    speeds(row);
}

void predict_resident(const struct predict_input *in, struct predict_row *row) {
    *row = (struct predict_row){.token_s = unknown, .tokens_per_s = unknown};
    if (in->compute_s.mid > 0) {
        row->token_s.low = resident_seconds(in, in->compute_s.low);
        row->token_s.mid = resident_seconds(in, in->compute_s.mid);
        row->token_s.high = resident_seconds(in, in->compute_s.high);
        speeds(row);
    }
}
