/*
 * policy_cycle.c - evict what is expected to be used latest.
 *
 * Layers are visited in a fixed cycle, so the distance to a bundle's layer is known: it is the
 * earliest time that the bundle can be used. Whether it will be used then is a matter of how often
 * the router picks it. With p the chance of a use per visit, the expected wait is
 *
 *     distance to its layer  +  n_groups * (1 - p) / p        (in layers)
 *
 * and the victim is the bundle that maximises it. LRU looks only backwards and evicts the layers
 * that come next; here they are the last to go, so there is no cliff at one token's demand.
 *
 * p is the mean of two decaying frequencies, with half-lives of 4 and of 64 visits: what the text is
 * about now, and what the model likes in general. A visit is a token: of a prompt's block every token counts as one,
 * so that what the prompt leaves in the cache is what its text was routed to, the end of it most; blocks of few tokens
 * (several users, who generate a token each) are one visit. By replay of real traces (`sluice replay`, 2026-11-30, one
 * pool of bytes; MiB per generated token; half-life 8 is one frequency alone):
 *
 *     trace, budget MiB      LRU    half-life 8   4 and 64   Belady
 *     Qwen3-30B k6    500    785        562          558       432
 *     Qwen3-30B k6   2000    344        300          294       163
 *     Qwen3-30B k6   4000    156        135          135        58
 *     Gemma-4   k6   2000    257        237          228       132
 *     gpt-oss   k2   2000    627        560          555       364
 *
 * Tried and left out (docs/benchmarks.md, "Policy by replay"): other half-lives and mixtures, which gain 1 % on
 * one trace and lose it on another; the router's probabilities of experts that it did not pick, which gain 13 % of the
 * bytes of a random router's trace and 1 % of a trained one's, at a second multiplication of each router; weighting
 * uses by the router's weight (within 0.5 % either way); not admitting a miss that would itself be the victim (at most
 * 0.6 % fewer bytes, at 500 MiB, nothing above: the freshly used, unlikely bundle is the next victim anyway).
 *
 * Cost: within a group the order can only change when the group is visited, so every group keeps its
 * worst bundle until then, and finding a victim compares one candidate per group.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cache/policy.h"

#define CYCLE_SHORT 4.0  /* half-life of the quick frequency, visits */
#define CYCLE_LONG  64.0 /* half-life of the slow one, visits */

enum {
    CYCLE_TEXT = 32,   /* tokens of a block from which it is a piece of text, and each counts as a visit */
    CYCLE_AGES = 1024, /* decay factors tabulated; older uses count as this old */
    CYCLE_NONE = -1,   /* no slot */
};

/* How often a bundle is used. Kept for all bundles: what was evicted is remembered. */
struct cycle_bundle {
    float quick, slow; /* frequencies at the visit `seen`, 0..1 */
    uint32_t seen;     /* number of the group's visit when it was last brought up to date */
};

struct cycle_slot {
    uint32_t group, bundle; /* what is in it */
    int32_t prev, next;     /* other slots of the group */
    bool used;              /* holds a bundle */
};

struct cycle_group {
    uint32_t visits; /* so far */
    uint32_t span;   /* of these, the last block's */
    int32_t head;    /* its slots, or CYCLE_NONE */
    int32_t worst;   /* the slot least likely to be used, while known, or CYCLE_NONE */
};

struct cycle {
    struct policy base;           /* first: a policy is a pointer to it */
    struct policy_shape shape;    /* as created */
    uint32_t now;                 /* group visited last */
    struct cycle_slot *slots;     /* by slot */
    struct cycle_group *groups;   /* by group */
    struct cycle_bundle *bundles; /* by bundle */
    float quick[CYCLE_AGES];      /* decay of the quick frequency by age in visits */
    float slow[CYCLE_AGES];       /* the same of the slow one */
};

static struct policy *cycle_create(const struct policy_shape *shape) {
    struct cycle *p = calloc(1, sizeof *p);
    if (!p) {
        return NULL;
    }
    *p = (struct cycle){.base = {&policy_cycle}, .shape = *shape};
    p->slots = calloc(shape->n_slots ? shape->n_slots : 1, sizeof *p->slots);
    p->groups = calloc(shape->n_groups ? shape->n_groups : 1, sizeof *p->groups);
    p->bundles = calloc(shape->n_bundles ? shape->n_bundles : 1, sizeof *p->bundles);
    if (!p->slots || !p->groups || !p->bundles) {
        policy_destroy(&p->base);
        return NULL;
    }
    for (uint32_t i = 0; i < shape->n_groups; i++) {
        p->groups[i].head = p->groups[i].worst = CYCLE_NONE;
    }
    for (int i = 0; i < CYCLE_AGES; i++) {
        p->quick[i] = (float)exp2(-i / CYCLE_SHORT);
        p->slow[i] = (float)exp2(-i / CYCLE_LONG);
    }
    return &p->base;
}

static void cycle_destroy(struct policy *policy) {
    struct cycle *p = (struct cycle *)policy;
    free(p->slots);
    free(p->groups);
    free(p->bundles);
    free(p);
}

static void cycle_visit(struct policy *policy, uint32_t group, uint32_t rows) {
    struct cycle *p = (struct cycle *)policy;
    assert(group < p->shape.n_groups);
    struct cycle_group *g = &p->groups[group];
    p->now = group;
    g->span = rows < CYCLE_TEXT ? 1 : rows;
    g->visits += g->span;
    g->worst = CYCLE_NONE;
}

static void cycle_use(struct policy *policy, uint32_t group, uint32_t bundle, uint32_t ago) {
    struct cycle *p = (struct cycle *)policy;
    struct cycle_group *g = &p->groups[group];
    struct cycle_bundle *b = &p->bundles[bundle];
    const uint32_t visit = g->visits - (ago < g->span ? ago : g->span - (g->span > 0));
    const uint32_t age = visit - b->seen;
    if (visit > b->seen) { /* several uses within a visit are one */
        const uint32_t i = age < CYCLE_AGES ? age : CYCLE_AGES - 1;
        b->quick = b->quick * p->quick[i] + (1.0f - p->quick[1]);
        b->slow = b->slow * p->slow[i] + (1.0f - p->slow[1]);
        b->seen = visit;
        g->worst = CYCLE_NONE;
    }
}

/* The chance that a visit of its group uses the bundle. */
static float cycle_chance(const struct cycle *p, uint32_t group, uint32_t bundle) {
    const struct cycle_bundle *b = &p->bundles[bundle];
    const uint32_t age = p->groups[group].visits - b->seen;
    const uint32_t i = age < CYCLE_AGES ? age : CYCLE_AGES - 1;
    return 0.5f * (b->quick * p->quick[i] + b->slow * p->slow[i]);
}

static void cycle_remove(struct policy *policy, uint32_t slot) {
    struct cycle *p = (struct cycle *)policy;
    struct cycle_slot *s = &p->slots[slot];
    if (!s->used) {
        return;
    }
    struct cycle_group *g = &p->groups[s->group];
    if (s->prev != CYCLE_NONE) {
        p->slots[s->prev].next = s->next;
    } else {
        g->head = s->next;
    }
    if (s->next != CYCLE_NONE) {
        p->slots[s->next].prev = s->prev;
    }
    if (g->worst == (int32_t)slot) {
        g->worst = CYCLE_NONE;
    }
    s->used = false;
}

static void cycle_place(struct policy *policy, uint32_t slot, uint32_t group, uint32_t bundle) {
    struct cycle *p = (struct cycle *)policy;
    assert(slot < p->shape.n_slots && group < p->shape.n_groups && bundle < p->shape.n_bundles);
    struct cycle_slot *s = &p->slots[slot];
    struct cycle_group *g = &p->groups[group];
    if (!s->used || s->bundle != bundle) {
        cycle_remove(policy, slot);
        *s = (struct cycle_slot){.group = group, .bundle = bundle, .prev = CYCLE_NONE, .next = g->head, .used = true};
        if (g->head != CYCLE_NONE) {
            p->slots[g->head].prev = (int32_t)slot;
        }
        g->head = (int32_t)slot;
        g->worst = CYCLE_NONE;
    }
}

static void cycle_touch(struct policy *policy, uint32_t slot, uint32_t group, uint32_t bundle) {
    cycle_place(policy, slot, group, bundle);
    ((struct cycle *)policy)->groups[group].worst = CYCLE_NONE;
}

static void cycle_move(struct policy *policy, uint32_t from, uint32_t to) {
    const struct cycle *p = (struct cycle *)policy;
    const struct cycle_slot s = p->slots[from];
    assert(s.used && !p->slots[to].used);
    cycle_remove(policy, from);
    cycle_place(policy, to, s.group, s.bundle); /* frequencies belong to the bundle */
}

static void cycle_carry(struct policy *policy, const struct policy *source, uint32_t group, uint32_t bundle,
                        uint32_t bundle_there, uint32_t n) {
    struct cycle *p = (struct cycle *)policy;
    const struct cycle *from = (const struct cycle *)source;
    assert(group < p->shape.n_groups && bundle + n <= p->shape.n_bundles && p->groups[group].head == CYCLE_NONE);
    p->now = from->now;
    p->groups[group].visits = from->groups[group].visits;
    p->groups[group].span = from->groups[group].span;
    memcpy(p->bundles + bundle, from->bundles + bundle_there, n * sizeof *p->bundles);
}

/* The slot of group g that is least likely to be used, among the evictable; remembered if it is so of all. */
static int32_t cycle_worst(struct cycle *p, uint32_t group, policy_evictable_fn evictable, void *ud) {
    struct cycle_group *g = &p->groups[group];
    if (g->worst != CYCLE_NONE && evictable(ud, (uint32_t)g->worst)) {
        return g->worst;
    }
    int32_t worst = CYCLE_NONE;
    float least = 0;
    bool all = true;
    for (int32_t i = g->head; i != CYCLE_NONE; i = p->slots[i].next) {
        const float chance = cycle_chance(p, group, p->slots[i].bundle);
        if (!evictable(ud, (uint32_t)i)) {
            all = false;
        } else if (worst == CYCLE_NONE || chance < least) {
            worst = i;
            least = chance;
        }
    }
    g->worst = all ? worst : CYCLE_NONE;
    return worst;
}

static uint32_t cycle_victim(struct policy *policy, policy_evictable_fn evictable, void *ud) {
    struct cycle *p = (struct cycle *)policy;
    const uint32_t n = p->shape.n_groups;
    uint32_t victim = UINT32_MAX;
    float longest = -1;
    for (uint32_t group = 0; group < n; group++) {
        const int32_t slot = cycle_worst(p, group, evictable, ud);
        if (slot == CYCLE_NONE) {
            continue;
        }
        const uint32_t ahead = (group + n - p->now) % n;
        float chance = cycle_chance(p, group, p->slots[slot].bundle);
        chance = chance < 1e-6f ? 1e-6f : chance > 1 ? 1 : chance;
        const float wait = (float)(ahead ? ahead : n) + (float)n * (1 - chance) / chance;
        if (wait > longest) {
            longest = wait;
            victim = (uint32_t)slot;
        }
    }
    return victim;
}

const struct policy_ops policy_cycle = {
    .create = cycle_create,
    .destroy = cycle_destroy,
    .visit = cycle_visit,
    .use = cycle_use,
    .place = cycle_place,
    .touch = cycle_touch,
    .remove = cycle_remove,
    .move = cycle_move,
    .carry = cycle_carry,
    .victim = cycle_victim,
};
