/*
 * slots_cut.c - the memory of the slots: cut from a budget, made larger and smaller, cut anew for other models.
 *
 * One anonymous mapping: address space for every bundle, memory only for as many slots as the budget allows, so that
 * the budget can change while bundles stay where they are. Nothing depends on the page size.
 *
 * Size classes (classes.c): bundles of about the same size share slots of one size, and the budget is divided
 * among classes in proportion to their bytes in the expert index.
 *
 * When models come or go, classes and the sizes of slots change. Then all is laid out anew in another mapping, and what
 * the policies would keep is carried over one expert at a time; each old slot's memory is given back before the next.
 * So there are never two arenas, and what was warm stays warm.
 *
 * Locking: as slots.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cache/check.h"
#include "cache/classes.h"
#include "cache/error.h"
#include "cache/page.h"
#include "cache/slots.h"

#define SLOTS_HUGE ((uint64_t)2 << 20) /* alignment that lets the kernel use huge pages */

/* Decide classes and fill class_of_group, table_of_group. Arrays are allocated; n of classes stays 0. */
static int slots_classify(struct slots *s, const struct expert_index *b, uint64_t *n_table, struct sluice_error *err) {
    s->n_groups = b->n_groups;
    s->class_of_group = calloc(b->n_groups, sizeof *s->class_of_group);
    s->table_of_group = calloc(b->n_groups, sizeof *s->table_of_group);
    s->resident = calloc(b->n_groups, sizeof *s->resident);
    s->classes = calloc(b->n_groups, sizeof *s->classes);
    struct classes_item *item = calloc(b->n_groups, sizeof *item);
    struct classes_class *cut = calloc(b->n_groups, sizeof *cut);
    uint32_t *class_of = calloc(b->n_groups, sizeof *class_of);
    int rc = SLUICE_OK;
    if (!s->class_of_group || !s->table_of_group || !s->resident || !s->classes || !item || !cut || !class_of) {
        rc = sluice_fail(err, SLUICE_ERR_MEMORY, "expert cache: out of memory");
        goto done;
    }
    uint32_t n = 0;
    uint64_t align = STREAM_FILE_ALIGN;
    for (uint32_t i = 0; i < b->n_groups; i++) {
        const struct index_group *g = &b->groups[i];
        if (g->n_parts) {
            item[n++] =
                (struct classes_item){.slot_bytes = g->slot_bytes, .n_expert = g->n_expert, .top_k = g->top_k, .id = i};
        }
    }
    for (uint32_t i = 0; i < b->n_files; i++) {
        if (b->files[i] && b->files[i]->io.align > align) {
            align = b->files[i]->io.align;
        }
    }
    s->n_classes = classes_divide(item, n, align, cut, class_of);
    for (uint32_t i = 0; i < s->n_classes; i++) {
        s->classes[i].slot_bytes = cut[i].slot_bytes;
        s->classes[i].bundles = cut[i].bundles;
        s->classes[i].top_k = cut[i].top_k;
    }
    *n_table = 0;
    for (uint32_t i = 0; i < b->n_groups; i++) {
        s->table_of_group[i] = SLOTS_NONE;
    }
    for (uint32_t i = 0; i < n; i++) {
        s->class_of_group[item[i].id] = class_of[i];
        s->table_of_group[item[i].id] = (uint32_t)*n_table;
        *n_table += item[i].n_expert;
    }
    if (*n_table >= INT32_MAX) {
        rc = sluice_fail(err, SLUICE_ERR_FORMAT, "too many experts");
    }
done:
    free(item);
    free(cut);
    free(class_of);
    return rc;
}

/* How many slots a class gets from the budget; `index` is the slot memory of all bundles. */
static uint32_t slots_share(const struct slot_class *c, uint64_t budget, uint64_t index) {
    const struct classes_class cut = {.slot_bytes = c->slot_bytes, .bundles = c->bundles, .top_k = c->top_k};
    return classes_share(&cut, budget, index);
}

/* The slot memory of all bundles, bytes. */
static uint64_t slots_bank(const struct slots *s) {
    uint64_t index = 0;
    for (uint32_t i = 0; i < s->n_classes; i++) {
        index += s->classes[i].slot_bytes * s->classes[i].bundles;
    }
    return index;
}

int slots_measure(const struct expert_index *b, uint64_t budget, uint64_t *bytes, struct sluice_error *err) {
    struct slots s = {0};
    uint64_t n_table = 0;
    const int rc = slots_classify(&s, b, &n_table, err);
    *bytes = 0;
    for (uint32_t i = 0; i < s.n_classes && rc == SLUICE_OK; i++) {
        *bytes += s.classes[i].slot_bytes * slots_share(&s.classes[i], budget, slots_bank(&s));
    }
    slots_destroy(&s);
    return rc;
}

/* Give memory to the slots [c->n, n) of a class, or take it from [n, c->n). False: no memory. */
static bool slots_back(const struct slot_class *c, uint32_t n) {
    const uint64_t now = stream_page_up(c->n * c->slot_bytes);
    const uint64_t then = stream_page_up(n * c->slot_bytes);
    if (then > now) {
        return mprotect(c->data + now, then - now, PROT_READ | PROT_WRITE) == 0;
    }
    if (then < now) {
        /* A new mapping in its place: gives the memory back and is not counted against the process. */
        if (mmap(c->data + then, now - then, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
                 0) == MAP_FAILED) {
            return false;
        }
        madvise(c->data + then, now - then, MADV_HUGEPAGE);
    }
    return true;
}

/* Address space and all that is known of the slots, which have no memory yet. *s is zeroed on failure. */
static int slots_lay_out(struct slots *s, const struct expert_index *b, enum sluice_policy policy,
                         struct sluice_error *err) {
    memset(s, 0, sizeof *s);
    uint64_t n_table = 0;
    int rc = slots_classify(s, b, &n_table, err);
    if (rc) {
        goto fail;
    }
    s->mapped = SLOTS_HUGE;
    for (uint32_t i = 0; i < s->n_classes; i++) {
        struct slot_class *c = &s->classes[i];
        c->first = s->n_numbers;
        s->n_numbers += c->bundles;
        s->mapped += (c->slot_bytes * c->bundles + SLOTS_HUGE - 1) / SLOTS_HUGE * SLOTS_HUGE;
    }
    s->slot = calloc(s->n_numbers, sizeof *s->slot);
    s->table = malloc(n_table * sizeof *s->table);
    s->uses = calloc(n_table, sizeof *s->uses);
    if (!s->slot || !s->table || !s->uses) {
        rc = sluice_fail(err, SLUICE_ERR_MEMORY, "expert cache: out of memory");
        goto fail;
    }
    memset(s->table, 0xff, n_table * sizeof *s->table); /* all -1 */
    s->memory = mmap(NULL, s->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s->memory == MAP_FAILED) {
        s->memory = NULL;
        rc = sluice_fail(err, SLUICE_ERR_MEMORY, "expert cache: no address space for %llu MiB: %s",
                         (unsigned long long)(s->mapped >> 20), strerror(errno));
        goto fail;
    }
    madvise(s->memory, s->mapped, MADV_HUGEPAGE); /* a wish; kernels without it say EINVAL */
    char *at = (char *)(((uintptr_t)s->memory + SLOTS_HUGE - 1) / SLOTS_HUGE * SLOTS_HUGE);
    for (uint32_t i = 0; i < s->n_classes; i++) {
        struct slot_class *c = &s->classes[i];
        const struct policy_shape shape = {
            .n_slots = c->bundles, .n_groups = s->n_groups, .n_bundles = (uint32_t)n_table};
        c->policy = policy_create(policy, &shape);
        c->free_list = calloc(c->bundles, sizeof *c->free_list);
        if (!c->policy || !c->free_list) {
            rc = sluice_fail(err, SLUICE_ERR_MEMORY, "expert cache: out of memory");
            goto fail;
        }
        c->data = at;
        for (uint32_t k = 0; k < c->bundles; k++, at += c->slot_bytes) {
            s->slot[c->first + k] = (struct slot){.data = at, .class_id = i, .group = SLOTS_NONE};
        }
        at = (char *)(((uintptr_t)at + SLOTS_HUGE - 1) / SLOTS_HUGE * SLOTS_HUGE);
    }
    return SLUICE_OK;
fail:
    slots_destroy(s);
    return rc;
}

/* Carry what lies in slot x, `bytes` of it, over to the free slot number `number` of s: the same arena or its next. */
static void slots_move(struct slots *s, struct slot *x, uint32_t number, uint64_t bytes) {
    struct slot *y = &s->slot[number];
    memcpy(y->data, x->data, bytes);
    y->group = x->group;
    y->expert = x->expert;
    y->foreseen = x->foreseen;
    for (uint32_t p = 0; p < INDEX_PARTS_MAX; p++) {
        y->weights[p] = x->weights[p] ? y->data + (x->weights[p] - x->data) : NULL;
        atomic_store_explicit(&y->pending[p], atomic_load(&x->pending[p]), memory_order_relaxed);
        atomic_store_explicit(&y->state[p], atomic_load(&x->state[p]), memory_order_relaxed);
    }
    s->table[s->table_of_group[x->group] + x->expert] = (int32_t)number;
    x->group = SLOTS_NONE;
}

/* For policy_victim while a class shrinks: nothing is in use. */
static bool slots_any(void *ud, uint32_t index) {
    (void)ud;
    (void)index;
    return true;
}

/* Have what lies in the class in its first n slots, which is enough. `known`: to the policy. */
static void slots_gather(struct slots *s, struct slot_class *c, uint32_t n, bool known) {
    uint32_t to = 0;
    for (uint32_t from = n; from < c->n; from++) {
        if (s->slot[c->first + from].group == SLOTS_NONE) {
            continue;
        }
        while (s->slot[c->first + to].group != SLOTS_NONE) {
            to++;
        }
        slots_move(s, &s->slot[c->first + from], c->first + to, c->slot_bytes);
        if (known) {
            policy_move(c->policy, from, to);
        }
    }
}

int slots_resize(struct slots *s, uint64_t budget, struct sluice_error *err) {
    const uint64_t index = slots_bank(s);
    /* Grow first: it can fail, and then what grew shrinks again. */
    for (uint32_t i = 0; i < s->n_classes; i++) {
        const struct slot_class *c = &s->classes[i];
        const uint32_t n = slots_share(c, budget, index);
        if (n > c->n && !slots_back(c, n)) {
            const int error = errno;
            while (i-- > 0) {
                struct slot_class grown = s->classes[i];
                grown.n = slots_share(&grown, budget, index);
                if (grown.n > s->classes[i].n) {
                    slots_back(&grown, s->classes[i].n);
                }
            }
            return sluice_fail(err, SLUICE_ERR_MEMORY, "expert cache: cannot allocate %llu MiB: %s",
                               (unsigned long long)(budget >> 20), strerror(error));
        }
    }
    s->bytes = 0;
    s->n_slots = 0;
    for (uint32_t i = 0; i < s->n_classes; i++) {
        struct slot_class *c = &s->classes[i];
        const uint32_t n = slots_share(c, budget, index);
        if (n < c->n) {
            while (c->n - c->n_free > n) {
                slots_drop(s, c->first + policy_victim(c->policy, slots_any, NULL));
            }
            slots_gather(s, c, n, true);
            slots_back(c, n); /* if the kernel has no room for another mapping, the memory just stays */
        }
        c->n = n;
        c->n_free = 0;
        for (uint32_t k = n; k-- > 0;) {
            if (s->slot[c->first + k].group == SLOTS_NONE) {
                c->free_list[c->n_free++] = c->first + k; /* a stack: the lowest address is taken first */
            }
        }
        s->n_slots += n;
        s->bytes += n * c->slot_bytes;
    }
    return sluice_ok(err);
}

/* ---- another set of groups ------------------------------------------------------------------- */

/* An expert that stays when the arena is cut anew. */
struct slots_kept {
    uint32_t group, expert; /* which */
};

/*
 * What of `s` stays when `to` takes its place, in order[], what the policies evict first at the beginning. What finds
 * no room in the classes of `to`, which get room[] slots, is dropped; `left` is scratch for the classes of both. Where
 * classes become one, the fullest gives first: their policies know nothing of each other. Afterwards no policy of
 * `s` knows of a slot. Returns how many stay.
 */
static uint32_t slots_choose(struct slots *s, const struct slots *to, const uint32_t *room, uint32_t *left,
                             struct slots_kept *order) {
    uint32_t n = 0, *excess = left + s->n_classes;
    for (uint32_t g = 0; g < s->n_groups; g++) {
        excess[to->class_of_group[g]] += s->resident[g]; /* of a group that is gone nothing is there */
    }
    for (uint32_t i = 0; i < to->n_classes; i++) {
        excess[i] -= excess[i] < room[i] ? excess[i] : room[i];
    }
    for (uint32_t i = 0; i < s->n_classes; i++) {
        left[i] = s->classes[i].n - s->classes[i].n_free;
    }
    for (;;) {
        uint32_t most = 0;
        for (uint32_t i = 1; i < s->n_classes; i++) {
            most = left[i] > left[most] ? i : most;
        }
        if (s->n_classes == 0 || left[most] == 0) {
            return n;
        }
        left[most]--;
        const struct slot_class *c = &s->classes[most];
        const uint32_t victim = policy_victim(c->policy, slots_any, NULL);
        SLUICE_CHECK(victim < c->n);
        const struct slot *x = &s->slot[c->first + victim];
        if (excess[to->class_of_group[x->group]]) {
            excess[to->class_of_group[x->group]]--;
            slots_drop(s, c->first + victim);
        } else {
            policy_remove(c->policy, victim);
            order[n++] = (struct slots_kept){x->group, x->expert};
        }
    }
}

/* Of what stays, drop what would be evicted first until one expert more has room at any moment of carrying over. */
static void slots_spare(struct slots *s, const struct slots *to, uint64_t most, const struct slots_kept *order,
                        uint32_t n) {
    uint64_t before = 0, after = 0, one = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t slot = to->classes[to->class_of_group[order[i].group]].slot_bytes;
        before += s->classes[s->class_of_group[order[i].group]].slot_bytes;
        after += slot;
        one = slot > one ? slot : one;
    }
    for (uint32_t i = 0; i < n && (before > after ? before : after) + one > most; i++) {
        before -= s->classes[s->class_of_group[order[i].group]].slot_bytes;
        after -= to->classes[to->class_of_group[order[i].group]].slot_bytes;
        slots_drop(s, (uint32_t)slots_find(s, order[i].group, order[i].expert));
    }
}

/* Carry what lies in slot x over to `to`. False: no memory. */
static bool slots_carry(struct slots *to, const struct expert_index *b, struct slot *x) {
    const uint32_t group = x->group;
    const struct index_group *g = &b->groups[group];
    struct slot_class *c = &to->classes[to->class_of_group[group]];
    SLUICE_CHECK(slots_knows(to, group) && x->expert < g->n_expert && slots_find(to, group, x->expert) < 0);
    for (uint32_t p = 0; p < g->n_parts; p++) {
        SLUICE_CHECK(x->weights[p] == x->data + g->window[p] + index_window_of(b, g->tensor[p], x->expert).skip);
    }
    if (!slots_back(c, c->n + 1)) {
        return false;
    }
    slots_move(to, x, c->first + c->n++, g->slot_bytes);
    to->resident[group]++;
    to->n_slots++;
    to->bytes += c->slot_bytes;
    return true;
}

/* Carry over what lies in `s`, from the end of each class, so that its memory can be given back before the next. */
static void slots_carry_all(struct slots *s, struct slots *to, const struct expert_index *b) {
    bool room = true;
    for (uint32_t i = 0; i < s->n_classes; i++) {
        struct slot_class *c = &s->classes[i];
        uint32_t kept = 0;
        for (uint32_t k = 0; k < c->n; k++) {
            kept += s->slot[c->first + k].group != SLOTS_NONE;
        }
        slots_gather(s, c, kept, false);
        room = slots_back(c, kept) && room;
        c->n = kept;
        for (; room && c->n; c->n--) {
            room = slots_carry(to, b, &s->slot[c->first + c->n - 1]) && slots_back(c, c->n - 1);
        }
    }
}

int slots_cut(struct slots *s, const struct expert_index *b, uint64_t budget, enum sluice_policy policy,
              struct sluice_error *err) {
    struct slots to;
    int rc = slots_lay_out(&to, b, policy, err);
    if (rc == SLUICE_ERR_MEMORY && s->memory) {
        slots_destroy(s); /* addresses are limited too (ulimit -v): cold is better than not at all */
        rc = slots_lay_out(&to, b, policy, err);
    }
    if (rc) {
        return rc;
    }
    const uint32_t n_here = s->n_slots - (uint32_t)slots_free(s);
    struct slots_kept *order = calloc((size_t)n_here + 1, sizeof *order);
    uint32_t *left = calloc((size_t)s->n_classes + to.n_classes + 1, sizeof *left);
    uint32_t *room = calloc((size_t)to.n_classes + 1, sizeof *room);
    if (!order || !left || !room) {
        slots_destroy(&to);
        rc = sluice_fail(err, SLUICE_ERR_MEMORY, "expert cache: out of memory");
        goto done;
    }
    uint64_t most = 0;
    for (uint32_t i = 0; i < to.n_classes; i++) {
        room[i] = slots_share(&to.classes[i], budget, slots_bank(&to));
        most += room[i] * to.classes[i].slot_bytes;
    }
    const uint32_t n = slots_choose(s, &to, room, left, order);
    slots_spare(s, &to, most > s->bytes ? most : s->bytes, order, n);
    slots_carry_all(s, &to, b);
    for (uint32_t g = 0; g < s->n_groups; g++) {
        if (slots_knows(s, g)) {
            const uint32_t from = s->table_of_group[g], into = to.table_of_group[g], n_expert = b->groups[g].n_expert;
            memcpy(to.uses + into, s->uses + from, n_expert * sizeof *s->uses);
            policy_carry(to.classes[to.class_of_group[g]].policy, s->classes[s->class_of_group[g]].policy, g, into,
                         from, n_expert);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        const int32_t slot = slots_find(&to, order[i].group, order[i].expert);
        if (slot >= 0) {
            struct slot_class *c = &to.classes[to.slot[slot].class_id];
            policy_place(c->policy, (uint32_t)slot - c->first, order[i].group,
                         to.table_of_group[order[i].group] + order[i].expert);
        }
    }
    slots_destroy(s);
    *s = to;
    rc = slots_resize(s, budget, err);
done:
    free(order);
    free(left);
    free(room);
    return rc;
}

int slots_create(struct slots *s, const struct expert_index *b, uint64_t budget, enum sluice_policy policy,
                 struct sluice_error *err) {
    memset(s, 0, sizeof *s);
    const int rc = slots_cut(s, b, budget, policy, err);
    if (rc) {
        slots_destroy(s);
    }
    return rc;
}

void slots_destroy(struct slots *s) {
    for (uint32_t i = 0; i < s->n_numbers && s->slot; i++) {
        SLUICE_CHECK(slots_idle(&s->slot[i]));
    }
    for (uint32_t i = 0; i < s->n_classes; i++) {
        policy_destroy(s->classes[i].policy);
        free(s->classes[i].free_list);
    }
    if (s->memory) {
        munmap(s->memory, s->mapped);
    }
    free(s->classes);
    free(s->class_of_group);
    free(s->table_of_group);
    free(s->resident);
    free(s->slot);
    free(s->table);
    free(s->uses);
    memset(s, 0, sizeof *s);
}
