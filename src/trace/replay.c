/*
 * replay.c - what a cache would have done with a trace.
 *
 * The cache here is the engine's without memory and files: the same policies (cache/policy.h), the
 * same division of the budget (cache/classes.h), and for every block the same calls in the same
 * order as engine_begin_block and engine_acquire make them: the policies hear of the visit and of every token's
 * routing, what is there is pinned, what is missing gets a slot and evicts something that is not pinned, then all are
 * touched in the order in which the engine has them. So for a trace that our engine wrote, without reading ahead, the
 * counters come out equal to the last hit (tests/cli/replay.sh).
 *
 * Where it cannot be exact:
 *   - A prompt that misses more experts of a layer than may be read at once (slots, or settings.staging_bytes).
 *     The engine lets them pass through in the order in which reads end; here in their own order.
 *   - Reading ahead: it moves the evictions. The trace says that it was on.
 *   - A budget that was changed on the way.
 *   - Layers that differ in their number of experts: the head has one number, the largest.
 *
 * A trace without slot sizes (of another program) is replayed in one pool of bytes, which is how that
 * project's figures came about: LRU over 4000 MiB gives the hits that its phone measured.
 *
 * Rows that the trace marks as dropped were routed and never asked of the cache: here neither, whatever the policy and
 * options are. So a trace that was recorded with dropping in force still replays to the engine's counters; what the
 * lossless run would have read it cannot tell, since the cache, the text and the routing are another's.
 *
 * Lossy settings leave out rows before they reach the cache: ranks from n_expert_used on; with `drop`
 * in generation what is a miss and has a weight under drop / top-k, but for the token's strongest
 * expert. Weights are what the router gave, over the ranks that are kept. Left-out rows change what
 * the cache holds afterwards. With what_if nothing is left out, and what would have been is counted:
 * the reads that the setting saves against the lossless run, all else equal.
 */
#include "trace/replay.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cache/classes.h"
#include "cache/error.h"
#include "cache/policy.h"
#include "trace/blocks.h"
#include "trace/offline.h"

enum { REPLAY_WINDOW = 64 }; /* experts held at once when not all of a block fit, as the engine */

/* Slots of one size, or the pool. */
struct replay_class {
    struct policy *policy;        /* orders what is there; slots are bundles minus first */
    uint32_t first, bundles;      /* its bundles */
    uint64_t room, used;          /* bytes */
    struct offline_future future; /* Belady's; its arrays are owned */
    uint32_t *future_first;       /* the same array, writable */
    uint32_t *future_block;       /* the same */
};

struct replay {
    const struct trace *t;               /* what is replayed */
    const struct replay_options *o;      /* how */
    struct replay_result *r;             /* what is counted */
    struct replay_class *classes;        /* by class */
    uint32_t n_classes;                  /* entries */
    uint32_t class_of[TRACE_LAYERS_MAX]; /* by layer */
    uint32_t first[TRACE_LAYERS_MAX];    /* by layer: its first bundle */
    uint64_t size[TRACE_LAYERS_MAX];     /* by layer: what an expert takes in the cache, bytes */
    uint32_t n_bundles;                  /* of all layers */
    uint8_t *there;                      /* by bundle: it is in the cache */
    uint8_t *pinned;                     /* by bundle: the current block holds it */
    uint32_t *seen;                      /* by bundle: number of the last block that asked for it */
    uint32_t block;                      /* number of the current block, from 1 */
    uint32_t *want;                      /* experts that the block asks for, in order */
    uint32_t n_want;                     /* entries */
};

const char *replay_policy_name(enum replay_policy p) {
    static const char *const names[] = {"lru", "cycle", "lfu", "belady"};
    return names[p];
}

/* ---- making and freeing ---------------------------------------------------------------------- */

static void replay_free(struct replay *x) {
    for (uint32_t i = 0; i < x->n_classes && x->classes; i++) {
        policy_destroy(x->classes[i].policy);
        free(x->classes[i].future_first);
        free(x->classes[i].future_block);
    }
    free(x->classes);
    free(x->there);
    free(x->pinned);
    free(x->seen);
    free(x->want);
    free(x);
}

/* Number the bundles and divide the budget. False: no memory. */
static bool replay_divide(struct replay *x, bool classes) {
    const struct trace_head *h = &x->t->head;
    struct classes_item *item = calloc(h->n_layers, sizeof *item);
    struct classes_class *cut = calloc(h->n_layers, sizeof *cut);
    uint32_t *class_of = calloc(h->n_layers, sizeof *class_of);
    x->classes = calloc(h->n_layers, sizeof *x->classes);
    const bool ok = item && cut && class_of && x->classes;
    if (ok) {
        for (uint32_t i = 0; i < h->n_layers; i++) {
            const struct trace_layer *l = &h->layers[i];
            item[i] = (struct classes_item){.slot_bytes = l->slot_bytes ? l->slot_bytes : l->expert_bytes,
                                            .n_expert = h->n_expert,
                                            .top_k = l->top_k ? l->top_k : h->n_expert_used,
                                            .id = i};
        }
        x->n_classes = classes_divide(item, h->n_layers, h->align ? h->align : 4096, cut, class_of);
        for (uint32_t i = 0; i < h->n_layers; i++) {
            const uint32_t layer = item[i].id;
            x->first[layer] = x->n_bundles;
            x->class_of[layer] = classes ? class_of[i] : 0;
            x->size[layer] = classes ? cut[class_of[i]].slot_bytes : h->layers[layer].expert_bytes;
            x->n_bundles += h->n_expert;
        }
        const uint64_t index = classes_bank(cut, x->n_classes);
        uint32_t first = 0;
        for (uint32_t i = 0; i < x->n_classes && classes; i++) {
            const uint32_t n = classes_share(&cut[i], x->o->budget, index);
            x->classes[i] = (struct replay_class){.first = first, .bundles = cut[i].bundles};
            x->classes[i].room = n * cut[i].slot_bytes;
            first += cut[i].bundles;
            x->r->slots += n;
            x->r->cache_bytes += x->classes[i].room;
        }
        if (!classes) {
            uint64_t weights = 0;
            for (uint32_t i = 0; i < h->n_layers; i++) {
                weights += h->layers[i].expert_bytes;
            }
            x->n_classes = 1;
            x->classes[0] = (struct replay_class){.bundles = x->n_bundles, .room = x->o->budget};
            x->r->cache_bytes = x->o->budget;
            x->r->slots = x->o->budget / (weights / h->n_layers);
        }
    }
    free(item);
    free(cut);
    free(class_of);
    return ok;
}

/* Is this row left out whatever the cache holds? */
static bool replay_cut_off(const struct replay *x, const struct trace_row *row) {
    return x->o->n_expert_used && row->slot >= x->o->n_expert_used;
}

/* When each bundle of a class is used, as far as that is known before: rows that `drop` leaves out are in it. */
static bool replay_foretell(struct replay *x, uint32_t class_id) {
    const struct trace *t = x->t;
    struct replay_class *c = &x->classes[class_id];
    c->future_first = calloc((size_t)c->bundles + 1, sizeof *c->future_first);
    uint32_t *at = calloc((size_t)c->bundles + 1, sizeof *at);
    bool ok = c->future_first && at;
    /* Twice the same: first count, then fill. Of several rows of a block the later ones find `block` equal. */
    for (int fill = 0; fill < 2 && ok; fill++) {
        uint32_t block = 0;
        for (size_t first = 0; first < t->n_rows; block++) {
            const size_t end = blocks_end(t, first);
            for (size_t i = first; i < end; i++) {
                const struct trace_row *row = &t->rows[i];
                if (x->class_of[row->layer] != class_id || row->dropped || (replay_cut_off(x, row) && !x->o->what_if)) {
                    continue;
                }
                const uint32_t b = x->first[row->layer] + row->expert - c->first;
                if (!fill) {
                    c->future_first[b + 1]++;
                } else {
                    c->future_block[at[b]++] = block;
                }
            }
            first = end;
        }
        if (!fill) {
            for (uint32_t b = 0; b < c->bundles; b++) {
                c->future_first[b + 1] += c->future_first[b];
                at[b + 1] = c->future_first[b + 1];
            }
            c->future_block = calloc((size_t)c->future_first[c->bundles] + 1, sizeof *c->future_block);
            ok = c->future_block != NULL;
        }
    }
    free(at);
    c->future = (struct offline_future){.first = c->future_first, .block = c->future_block};
    return ok;
}

static struct policy *replay_policy_create(struct replay *x, uint32_t class_id) {
    struct replay_class *c = &x->classes[class_id];
    const struct trace_head *h = &x->t->head;
    const struct policy_shape shape = {.n_slots = c->bundles,
                                       .n_groups = h->n_groups > h->n_layers ? h->n_groups : h->n_layers,
                                       .n_bundles = c->bundles};
    switch (x->o->policy) {
    case REPLAY_LRU:
        return policy_create(SLUICE_POLICY_LRU, &shape);
    case REPLAY_CYCLE:
        return policy_create(SLUICE_POLICY_CYCLE, &shape);
    case REPLAY_LFU:
        return offline_lfu(&shape);
    case REPLAY_BELADY:
        return replay_foretell(x, class_id) ? offline_belady(&shape, &c->future) : NULL;
    case REPLAY_POLICIES:
        break;
    }
    return NULL;
}

static struct replay *replay_create(const struct trace *t, const struct replay_options *o, struct replay_result *r) {
    struct replay *x = calloc(1, sizeof *x);
    if (!x) {
        return NULL;
    }
    *x = (struct replay){.t = t, .o = o, .r = r};
    r->classes =
        o->division == REPLAY_CLASSES || (o->division == REPLAY_AS_RECORDED && t->head.layers[0].slot_bytes != 0);
    bool ok = replay_divide(x, r->classes);
    x->there = calloc(x->n_bundles + 1, 1);
    x->pinned = calloc(x->n_bundles + 1, 1);
    x->seen = calloc(x->n_bundles + 1, sizeof *x->seen);
    x->want = calloc(t->head.n_expert, sizeof *x->want);
    ok = ok && x->there && x->pinned && x->seen && x->want;
    for (uint32_t i = 0; i < x->n_classes && ok; i++) {
        x->classes[i].policy = replay_policy_create(x, i);
        ok = x->classes[i].policy != NULL;
    }
    if (!ok) {
        replay_free(x);
        return NULL;
    }
    return x;
}

/* ---- one block ------------------------------------------------------------------------------- */

/* For policy_victim: ud is what replay_evictable needs to know. */
struct replay_view {
    const struct replay *x; /* all */
    uint32_t first;         /* of the class */
};

static bool replay_evictable(void *ud, uint32_t slot) {
    const struct replay_view *v = ud;
    return !v->x->pinned[v->first + slot];
}

/* Make room for `size` bytes. False: all that is there is pinned. */
static bool replay_make_room(struct replay *x, struct replay_class *c, uint64_t size) {
    struct replay_view view = {x, c->first};
    while (c->used + size > c->room) {
        const uint32_t slot = policy_victim(c->policy, replay_evictable, &view);
        if (slot == UINT32_MAX) {
            return false;
        }
        policy_remove(c->policy, slot);
        x->there[c->first + slot] = 0;
        /* The size of what goes is its layer's: bundles of a layer lie together. In a class all are equal. */
        const uint32_t bundle = c->first + slot;
        uint32_t layer = 0;
        while (bundle - x->first[layer] >= x->t->head.n_expert) {
            layer++;
        }
        c->used -= x->size[layer];
        x->r->evictions++;
    }
    return true;
}

/* Ask for the experts x->want of a layer: count, place, touch. */
static void replay_acquire(struct replay *x, uint32_t layer, struct replay_counts *n) {
    struct replay_class *c = &x->classes[x->class_of[layer]];
    const uint64_t bytes = x->t->head.layers[layer].expert_bytes, size = x->size[layer];
    const uint32_t first = x->first[layer];
    const bool all = x->n_want * size <= c->room;
    const bool keeps = x->o->budget > 0;
    uint32_t window = REPLAY_WINDOW;
    for (uint32_t at = 0; at < x->n_want;) {
        const uint32_t end = all || x->n_want - at < window ? x->n_want : at + window;
        uint32_t granted = at;
        for (uint32_t i = at; i < end; i++) {
            x->pinned[first + x->want[i]] = x->there[first + x->want[i]] ? 2 : 0;
        }
        for (; granted < end; granted++) {
            const uint32_t b = first + x->want[granted];
            if (x->pinned[b] == 0) {
                if (keeps && !replay_make_room(x, c, size)) {
                    break;
                }
                x->there[b] = x->pinned[b] = 1;
                c->used += size;
            }
        }
        for (uint32_t i = granted; i < end; i++) {
            x->pinned[first + x->want[i]] = 0;
        }
        if (granted == at) { /* not even one fits: it passes through */
            n->misses++;
            n->miss_bytes += bytes;
            at++;
            continue;
        }
        for (uint32_t i = at; i < granted; i++) {
            const uint32_t b = first + x->want[i];
            const bool hit = x->pinned[b] == 2;
            *(hit ? &n->hits : &n->misses) += 1;
            *(hit ? &n->hit_bytes : &n->miss_bytes) += bytes;
            if (keeps) {
                policy_touch(c->policy, b - c->first, layer, b - c->first);
            }
        }
        for (uint32_t i = at; i < granted; i++) {
            x->pinned[first + x->want[i]] = 0;
            if (!keeps) {
                x->there[first + x->want[i]] = 0;
            }
        }
        c->used = keeps ? c->used : 0;
        at = granted;
    }
}

/* A row of a token asks for its expert. */
static void replay_want(struct replay *x, const struct trace_row *row) {
    const uint32_t b = x->first[row->layer] + row->expert;
    if (x->seen[b] != x->block) {
        x->seen[b] = x->block;
        x->want[x->n_want++] = row->expert;
    }
}

static double replay_weight(const struct trace_row *row) {
    return isfinite(row->weight) ? (double)row->weight : 0;
}

/* One token's rows [from, to): decide what is left out, collect the rest. */
static void replay_token(struct replay *x, size_t from, size_t to, struct replay_counts *n) {
    const struct replay_options *o = x->o;
    double all = 0, kept = 0;
    uint32_t n_kept = 0;
    size_t top = to; /* the strongest of those that n_expert_used keeps */
    for (size_t i = from; i < to; i++) {
        const struct trace_row *row = &x->t->rows[i];
        if (row->dropped) {
            continue;
        }
        all += replay_weight(row);
        if (!replay_cut_off(x, row)) {
            kept += replay_weight(row);
            n_kept++;
            top = top == to || row->weight > x->t->rows[top].weight ? i : top;
        }
    }
    const double scale = kept > 0 ? all / kept : 1; /* the router spreads its weight over those that are left */
    for (size_t i = from; i < to; i++) {
        const struct trace_row *row = &x->t->rows[i];
        if (row->dropped) {
            continue;
        }
        const uint32_t b = x->first[row->layer] + row->expert;
        const bool missing = !x->there[b];
        bool lost = replay_cut_off(x, row);
        if (!lost && o->drop > 0 && row->phase == TRACE_GENERATION && n_kept) {
            n->examined++;
            lost = missing && i != top && isfinite(row->weight) && (double)row->weight * scale < o->drop / n_kept;
        }
        n->weight += replay_weight(row);
        if (lost) {
            n->lost++;
            n->lost_weight += replay_weight(row);
            if (missing) {
                n->lost_reads++;
                n->lost_bytes += x->t->head.layers[row->layer].expert_bytes;
            }
        }
        if (!lost || o->what_if) {
            replay_want(x, row);
        }
    }
}

/* The policy hears of a token's routing. */
static void replay_use(struct replay *x, size_t from, size_t to, uint32_t ago) {
    for (size_t i = from; i < to; i++) {
        const struct trace_row *row = &x->t->rows[i];
        struct replay_class *c = &x->classes[x->class_of[row->layer]];
        if (!replay_cut_off(x, row) || x->o->what_if) {
            policy_use(c->policy, row->layer, x->first[row->layer] + row->expert - c->first, ago);
        }
    }
}

static int replay_in_order(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

int replay_run(const struct trace *t, const struct replay_options *o, struct replay_result *r,
               struct sluice_error *err) {
    memset(r, 0, sizeof *r);
    if (!(o->drop >= 0 && o->drop <= 1) || o->policy >= REPLAY_POLICIES) {
        return sluice_fail(err, SLUICE_ERR_ARG, "drop: a threshold is within 0..1");
    }
    struct replay *x = replay_create(t, o, r);
    if (!x) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "out of memory for replaying %s", t->head.model);
    }
    for (size_t first = 0; first < t->n_rows;) {
        const size_t end = blocks_end(t, first);
        const uint32_t layer = t->rows[first].layer;
        struct replay_counts *n = &r->phase[t->rows[first].phase];
        x->block++;
        x->n_want = 0;
        uint32_t tokens = 0;
        for (size_t at = first; at < end; at = blocks_token_end(t, at, end)) {
            tokens++;
        }
        for (uint32_t i = 0; i < x->n_classes; i++) {
            policy_visit(x->classes[i].policy, layer, tokens);
        }
        uint32_t ago = tokens;
        for (size_t at = first; at < end;) {
            const size_t next = blocks_token_end(t, at, end);
            replay_use(x, at, next, --ago);
            replay_token(x, at, next, n);
            n->steps += layer == 0;
            at = next;
        }
        if (tokens > 1) {
            qsort(x->want, x->n_want, sizeof *x->want, replay_in_order); /* as route.c has them */
        }
        n->blocks++;
        n->routed += x->n_want;
        replay_acquire(x, layer, n);
        first = end;
    }
    replay_free(x);
    return sluice_ok(err);
}

int replay_facts(const struct trace *t, struct replay_facts *f, struct sluice_error *err) {
    const struct trace_head *h = &t->head;
    memset(f, 0, sizeof *f);
    uint32_t *seen = calloc((size_t)h->n_layers * h->n_expert, sizeof *seen);
    uint32_t *most = calloc(h->n_layers, sizeof *most);
    if (!seen || !most) {
        free(seen);
        free(most);
        return sluice_fail(err, SLUICE_ERR_MEMORY, "out of memory");
    }
    uint32_t block = 0;
    f->turns = 1;
    for (size_t first = 0; first < t->n_rows;) {
        const size_t end = blocks_end(t, first);
        const uint32_t layer = t->rows[first].layer;
        struct replay_counts *n = &f->phase[t->rows[first].phase];
        n->blocks++;
        block++;
        f->turns += first > 0 && t->rows[first].turn != t->rows[first - 1].turn;
        for (size_t i = first; i < end; i++) {
            const struct trace_row *row = &t->rows[i];
            uint32_t *s = &seen[(size_t)layer * h->n_expert + row->expert];
            f->weights = f->weights || isfinite(row->weight);
            n->weight += replay_weight(row);
            n->lost += row->dropped;
            n->lost_weight += row->dropped ? replay_weight(row) : 0;
            n->steps += layer == 0 && (i == first || row->slot <= t->rows[i - 1].slot);
            if (*s == block || row->dropped) {
                continue;
            }
            *s = block;
            n->routed++;
            *(row->residency ? &n->hits : &n->misses) += 1;
            *(row->residency ? &n->hit_bytes : &n->miss_bytes) += h->layers[layer].expert_bytes;
        }
        for (size_t i = first; i < end;) {
            const size_t next = blocks_token_end(t, i, end);
            most[layer] = next - i > most[layer] ? (uint32_t)(next - i) : most[layer];
            i = next;
        }
        first = end;
    }
    for (uint32_t i = 0; i < h->n_layers; i++) {
        f->bank_bytes += h->layers[i].expert_bytes * h->n_expert;
        f->token_bytes += h->layers[i].expert_bytes * most[i];
        f->token_slot_bytes +=
            (h->layers[i].slot_bytes ? h->layers[i].slot_bytes : h->layers[i].expert_bytes) * most[i];
    }
    free(seen);
    free(most);
    return sluice_ok(err);
}
