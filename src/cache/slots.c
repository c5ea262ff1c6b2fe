/*
 * slots.c - where expert weights live.
 *
 * One anonymous mapping, made once: address space for every bundle, memory only for as many slots as
 * the budget allows, so that the budget can change while bundles stay where they are. Evicting a bundle is relabelling
 * its slot; no memory is returned or faulted again. Engines that commit pages on a miss and give them back by madvise
 * on eviction measured 20-30 % of a token in that churn, and it makes every size a multiple of the page size. Here
 * nothing depends on the page size.
 *
 * Size classes (classes.c): bundles of about the same size share slots of one size, and the budget is divided
 * among classes in proportion to their bytes in the expert index.
 *
 * Which slot holds a bundle is a direct table over (group, expert): a few kilobytes, no hashing.
 *
 * Locking: none here. The engine's lock guards everything but the atomics in struct slot, which
 * reader threads write.
 */
#include "cache/slots.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cache/check.h"
#include "cache/classes.h"
#include "cache/error.h"
#include "cache/page.h"

#define SLOTS_HUGE     ((uint64_t)2 << 20) /* alignment that lets the kernel use huge pages */
#define SLOTS_NO_GROUP UINT32_MAX

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

int slots_create(struct slots *s, const struct expert_index *b, uint64_t budget, enum sluice_policy policy,
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
            s->slot[c->first + k] = (struct slot){.data = at, .class_id = i, .group = SLOTS_NO_GROUP};
        }
        at = (char *)(((uintptr_t)at + SLOTS_HUGE - 1) / SLOTS_HUGE * SLOTS_HUGE);
    }
    rc = slots_resize(s, budget, err);
    if (rc) {
        goto fail;
    }
    return sluice_ok(err);
fail:
    slots_destroy(s);
    return rc;
}

/* Carry what lies in one slot over to a free one of its class. */
static void slots_move(struct slots *s, struct slot_class *c, uint32_t from, uint32_t to) {
    struct slot *x = &s->slot[c->first + from], *y = &s->slot[c->first + to];
    memcpy(y->data, x->data, c->slot_bytes);
    y->group = x->group;
    y->expert = x->expert;
    y->foreseen = x->foreseen;
    for (uint32_t p = 0; p < INDEX_PARTS_MAX; p++) {
        y->weights[p] = x->weights[p] ? y->data + (x->weights[p] - x->data) : NULL;
        atomic_store_explicit(&y->pending[p], atomic_load(&x->pending[p]), memory_order_relaxed);
        atomic_store_explicit(&y->state[p], atomic_load(&x->state[p]), memory_order_relaxed);
    }
    s->table[s->table_of_group[x->group] + x->expert] = (int32_t)(c->first + to);
    x->group = SLOTS_NO_GROUP;
    policy_move(c->policy, from, to);
}

/* For policy_victim while a class shrinks: nothing is in use. */
static bool slots_any(void *ud, uint32_t index) {
    (void)ud;
    (void)index;
    return true;
}

/* Let go of what does not fit into n slots and have the rest in the first n. */
static void slots_gather(struct slots *s, struct slot_class *c, uint32_t n) {
    while (c->n - c->n_free > n) {
        slots_drop(s, c->first + policy_victim(c->policy, slots_any, NULL));
    }
    uint32_t to = 0;
    for (uint32_t from = n; from < c->n; from++) {
        if (s->slot[c->first + from].group == SLOTS_NO_GROUP) {
            continue;
        }
        while (s->slot[c->first + to].group != SLOTS_NO_GROUP) {
            to++;
        }
        slots_move(s, c, from, to);
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
            slots_gather(s, c, n);
            slots_back(c, n); /* if the kernel has no room for another mapping, the memory just stays */
        }
        c->n = n;
        c->n_free = 0;
        for (uint32_t k = n; k-- > 0;) {
            if (s->slot[c->first + k].group == SLOTS_NO_GROUP) {
                c->free_list[c->n_free++] = c->first + k; /* a stack: the lowest address is taken first */
            }
        }
        s->n_slots += n;
        s->bytes += n * c->slot_bytes;
    }
    return sluice_ok(err);
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
    SLUICE_CHECK(x->group != SLOTS_NO_GROUP && slots_idle(x));
    struct slot_class *c = &s->classes[x->class_id];
    policy_remove(c->policy, slot - c->first);
    s->table[s->table_of_group[x->group] + x->expert] = -1;
    s->resident[x->group]--;
    x->group = SLOTS_NO_GROUP;
    c->free_list[c->n_free++] = slot;
}

void slots_empty(struct slots *s) {
    for (uint32_t i = 0; i < s->n_numbers; i++) {
        if (s->slot[i].group != SLOTS_NO_GROUP) {
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
