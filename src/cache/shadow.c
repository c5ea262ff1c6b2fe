/*
 * shadow.c - the expert cache without memory and files: what would be in it.
 *
 * With drop_reproducible it decides what is left out, so that the real cache, whose content depends on
 * everything that ran before and on when reads end, has no say. It makes the calls to the engine's own
 * policies that engine_begin_block and engine_acquire make, in their order, over the engine's own division of
 * the budget: of a process that has just started, without reading ahead, the two hold the same
 * (tests/gates/lossy.sh). trace/replay.c does the same for a trace with other policies and divisions.
 *
 * Every bundle has a number of its own, its slot for the policy, so nothing is ever moved.
 */
#include "cache/shadow.h"

#include <stdlib.h>

#include "cache/classes.h"
#include "cache/policy.h"

enum { SHADOW_WINDOW = 64 }; /* experts asked for at once where a block's do not all fit, as ggml/hold.c */

/* Slots of one size. */
struct shadow_class {
    struct policy *policy;   /* orders what is there; its slots are bundles minus first */
    uint32_t first, bundles; /* its bundles */
    uint32_t room, used;     /* slots that there are, and taken */
};

struct shadow {
    struct shadow_class *classes; /* by class */
    uint32_t n_classes;           /* entries */
    uint32_t n_groups;            /* entries of the next two */
    uint32_t *class_of;           /* by group id */
    uint32_t *first;              /* by group id: its first bundle */
    uint8_t *there;               /* by bundle: it is in the cache */
    uint8_t *pinned;              /* by bundle: the block that asks holds it */
};

void shadow_destroy(struct shadow *s) {
    if (!s) {
        return;
    }
    for (uint32_t i = 0; i < s->n_classes && s->classes; i++) {
        policy_destroy(s->classes[i].policy);
    }
    free(s->classes);
    free(s->class_of);
    free(s->first);
    free(s->there);
    free(s->pinned);
    free(s);
}

/* Number the bundles and divide the budget. False: no memory. */
static bool shadow_divide(struct shadow *s, const struct engine_group *group, uint32_t n,
                          const struct engine_arena *arena, enum sluice_policy policy) {
    struct classes_item *item = calloc(n, sizeof *item);
    struct classes_class *cut = calloc(n, sizeof *cut);
    uint32_t *class_of = calloc(n, sizeof *class_of);
    bool ok = item && cut && class_of;
    uint32_t bundles = 0;
    for (uint32_t i = 0; i < n && ok; i++) {
        item[i] = (struct classes_item){
            .slot_bytes = group[i].slot_bytes, .n_expert = group[i].n_expert, .top_k = group[i].top_k, .id = i};
    }
    s->n_classes = ok ? classes_divide(item, n, arena->align, cut, class_of) : 0;
    for (uint32_t i = 0; i < n && ok; i++) {
        const struct engine_group *g = &group[item[i].id];
        s->first[g->group] = bundles;
        s->class_of[g->group] = class_of[i];
        bundles += g->n_expert;
    }
    const uint64_t index = ok ? classes_bank(cut, s->n_classes) : 0;
    uint32_t first = 0;
    for (uint32_t i = 0; i < s->n_classes && ok; i++) {
        const struct policy_shape shape = {
            .n_slots = cut[i].bundles, .n_groups = arena->n_groups, .n_bundles = cut[i].bundles};
        s->classes[i] = (struct shadow_class){.policy = policy_create(policy, &shape),
                                              .first = first,
                                              .bundles = cut[i].bundles,
                                              .room = classes_share(&cut[i], arena->budget, index)};
        first += cut[i].bundles;
        ok = s->classes[i].policy != NULL;
        s->n_classes = ok ? s->n_classes : i;
    }
    s->there = calloc((size_t)bundles + 1, 1);
    s->pinned = calloc((size_t)bundles + 1, 1);
    free(item);
    free(cut);
    free(class_of);
    return ok && s->there && s->pinned;
}

struct shadow *shadow_create(const struct engine_group *group, uint32_t n, const struct engine_arena *arena,
                             enum sluice_policy policy) {
    struct shadow *s = n && arena->budget ? calloc(1, sizeof *s) : NULL;
    if (!s) {
        return NULL;
    }
    s->n_groups = arena->n_groups;
    s->classes = calloc(n, sizeof *s->classes);
    s->class_of = calloc(s->n_groups, sizeof *s->class_of);
    s->first = calloc(s->n_groups, sizeof *s->first);
    if (!s->classes || !s->class_of || !s->first || !shadow_divide(s, group, n, arena, policy)) {
        shadow_destroy(s);
        return NULL;
    }
    return s;
}

void shadow_visit(struct shadow *s, uint32_t group, const struct engine_routing *r) {
    for (uint32_t i = 0; i < s->n_classes; i++) {
        policy_visit(s->classes[i].policy, group, r->tokens);
    }
    const struct shadow_class *c = &s->classes[s->class_of[group]];
    for (uint32_t i = 0; i < r->n; i++) {
        const uint32_t bundle = s->first[group] - c->first + (uint32_t)r->expert[i];
        for (int32_t k = r->first[i]; k < r->first[i + 1]; k++) {
            policy_use(c->policy, group, bundle, r->tokens - 1 - (uint32_t)r->list[k] / r->top_k);
        }
    }
}

bool shadow_has(const struct shadow *s, uint32_t group, int32_t expert) {
    return s->there[s->first[group] + (uint32_t)expert];
}

/* For policy_victim. */
struct shadow_view {
    const struct shadow *s; /* all */
    uint32_t first;         /* of the class */
};

static bool shadow_evictable(void *ud, uint32_t slot) {
    const struct shadow_view *v = ud;
    return !v->s->pinned[v->first + slot];
}

/* Room for one more. False: all that is there is pinned. */
static bool shadow_make_room(struct shadow *s, struct shadow_class *c) {
    if (c->used < c->room) {
        return true;
    }
    struct shadow_view view = {s, c->first};
    const uint32_t slot = policy_victim(c->policy, shadow_evictable, &view);
    if (slot == UINT32_MAX) {
        return false;
    }
    policy_remove(c->policy, slot);
    s->there[c->first + slot] = 0;
    c->used--;
    return true;
}

void shadow_acquire(struct shadow *s, uint32_t group, const int32_t *expert, uint32_t n) {
    struct shadow_class *c = &s->classes[s->class_of[group]];
    const uint32_t base = s->first[group];
    const bool all = n <= c->room;
    for (uint32_t at = 0; at < n;) {
        const uint32_t end = all || n - at < SHADOW_WINDOW ? n : at + SHADOW_WINDOW;
        uint32_t granted = at;
        for (uint32_t i = at; i < end; i++) {
            s->pinned[base + (uint32_t)expert[i]] = s->there[base + (uint32_t)expert[i]];
        }
        for (; granted < end; granted++) {
            const uint32_t b = base + (uint32_t)expert[granted];
            if (!s->pinned[b]) {
                if (!shadow_make_room(s, c)) {
                    break;
                }
                s->there[b] = s->pinned[b] = 1;
                c->used++;
            }
        }
        for (uint32_t i = at; i < granted; i++) {
            const uint32_t b = base + (uint32_t)expert[i];
            policy_touch(c->policy, b - c->first, group, b - c->first);
        }
        for (uint32_t i = at; i < end; i++) {
            s->pinned[base + (uint32_t)expert[i]] = 0;
        }
        at = granted > at ? granted : at + 1; /* not even one has room: it passes through */
    }
}
