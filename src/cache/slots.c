/*
 * slots.c - where expert weights live.
 *
 * Here: which slot holds what. Evicting a bundle is relabelling its slot; no memory is returned or faulted again.
 * Engines that commit pages on a miss and give them back by madvise on eviction measured 20-30 % of a token in that
 * churn, and it makes every size a multiple of the page size. The memory itself, and how it changes its size:
 * slots_cut.c.
 *
 * Which slot holds a bundle is a direct table over (group, expert): a few kilobytes, no hashing.
 *
 * Locking: none here. The engine's lock guards everything but the atomics in struct slot, which
 * reader threads write.
 */
#include "cache/slots.h"

#include "cache/check.h"

bool slots_idle(const struct slot *s) {
    return s->pins == 0 && atomic_load_explicit(&s->inflight, memory_order_acquire) == 0;
}

uint64_t slots_free(const struct slots *s) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->n_classes; i++) {
        n += s->classes[i].n_free;
    }
    return n;
}

int32_t slots_find(const struct slots *s, uint32_t group, uint32_t expert) {
    return s->table[s->table_of_group[group] + expert];
}

bool slots_knows(const struct slots *s, uint32_t group) {
    return group < s->n_groups && s->table_of_group[group] != SLOTS_NONE;
}

void slots_forget(struct slots *s, uint32_t group) {
    for (uint32_t i = 0; slots_knows(s, group) && s->resident[group] && i < s->n_numbers; i++) {
        if (s->slot[i].group == group) {
            slots_drop(s, i);
        }
    }
    if (slots_knows(s, group)) {
        s->table_of_group[group] = SLOTS_NONE;
    }
}

/* For policy_victim: ud is the slots, `index` counts from the class's first slot. */
struct class_view {
    const struct slots *slots; /* all */
    uint32_t first;            /* of the class */
};

static bool class_evictable(void *ud, uint32_t index) {
    const struct class_view *v = ud;
    return slots_idle(&v->slots->slot[v->first + index]);
}

void slots_drop(struct slots *s, uint32_t slot) {
    struct slot *x = &s->slot[slot];
    SLUICE_CHECK(x->group != SLOTS_NONE && slots_idle(x));
    struct slot_class *c = &s->classes[x->class_id];
    policy_remove(c->policy, slot - c->first);
    s->table[s->table_of_group[x->group] + x->expert] = -1;
    s->resident[x->group]--;
    x->group = SLOTS_NONE;
    c->free_list[c->n_free++] = slot;
}

void slots_empty(struct slots *s) {
    for (uint32_t i = 0; i < s->n_numbers; i++) {
        if (s->slot[i].group != SLOTS_NONE) {
            slots_drop(s, i);
        }
    }
}

uint32_t slots_place(struct slots *s, const struct expert_index *b, uint32_t group, uint32_t expert, bool *evicted) {
    SLUICE_CHECK(slots_find(s, group, expert) < 0);
    struct slot_class *c = &s->classes[s->class_of_group[group]];
    *evicted = false;
    if (c->n_free == 0) {
        struct class_view view = {s, c->first};
        const uint32_t victim = policy_victim(c->policy, class_evictable, &view);
        if (victim == UINT32_MAX) {
            return UINT32_MAX;
        }
        slots_drop(s, c->first + victim);
        *evicted = true;
    }
    const uint32_t slot = c->free_list[--c->n_free];
    struct slot *x = &s->slot[slot];
    x->group = group;
    x->expert = expert;
    x->foreseen = false;
    const struct index_group *g = &b->groups[group];
    for (uint32_t p = 0; p < g->n_parts; p++) {
        x->weights[p] = x->data + g->window[p] + index_window_of(b, g->tensor[p], expert).skip;
        atomic_store_explicit(&x->pending[p], 0, memory_order_relaxed);
        atomic_store_explicit(&x->state[p], PART_EMPTY, memory_order_relaxed);
    }
    s->table[s->table_of_group[group] + expert] = (int32_t)slot;
    s->resident[group]++;
    return slot;
}

void slots_foresee(struct slots *s, uint32_t slot) {
    struct slot *x = &s->slot[slot];
    struct slot_class *c = &s->classes[x->class_id];
    x->foreseen = true;
    policy_place(c->policy, slot - c->first, x->group, s->table_of_group[x->group] + x->expert);
}

void slots_touch(struct slots *s, uint32_t slot) {
    const struct slot *x = &s->slot[slot];
    struct slot_class *c = &s->classes[x->class_id];
    policy_touch(c->policy, slot - c->first, x->group, s->table_of_group[x->group] + x->expert);
}

void slots_visit(struct slots *s, uint32_t group, uint32_t rows) {
    for (uint32_t i = 0; i < s->n_classes; i++) {
        policy_visit(s->classes[i].policy, group, rows);
    }
}

void slots_use(struct slots *s, uint32_t group, uint32_t expert, uint32_t ago) {
    const uint32_t bundle = s->table_of_group[group] + expert;
    s->uses[bundle]++;
    policy_use(s->classes[s->class_of_group[group]].policy, group, bundle, ago);
}
