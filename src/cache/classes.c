/*
 * classes.c - how a cache is divided among bundles of different sizes.
 *
 * Layers differ (a Q6_K down projection in some layers only, say). Slots of the largest size for all
 * would waste up to a third; so bundles within 6 % of each other share a class, and the budget is
 * divided among classes in proportion to their bytes in the expert index, which is also in proportion to how
 * often they are used, every layer being visited once per token.
 *
 * Apart from slots_cut.c, which owns the memory, so that replaying a trace divides a budget by the same
 * code as the engine.
 */
#include "cache/classes.h"

#include <stdlib.h>

#define CLASSES_STAGING ((uint64_t)64 << 20) /* bytes a class gets when nothing is kept */

static int item_cmp(const void *a, const void *b) {
    const struct classes_item *x = a, *y = b;
    if (x->slot_bytes != y->slot_bytes) {
        return x->slot_bytes < y->slot_bytes ? 1 : -1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

uint32_t classes_divide(struct classes_item *item, uint32_t n, uint64_t align, struct classes_class *classes,
                        uint32_t *class_of) {
    uint32_t n_classes = 0;
    qsort(item, n, sizeof *item, item_cmp);
    for (uint32_t i = 0; i < n; i++) {
        struct classes_class *c = n_classes ? &classes[n_classes - 1] : NULL;
        if (!c || item[i].slot_bytes < c->slot_bytes - c->slot_bytes / 16) {
            c = &classes[n_classes++];
            *c = (struct classes_class){.slot_bytes = (item[i].slot_bytes + align - 1) / align * align};
        }
        c->bundles += item[i].n_expert;
        c->top_k = item[i].top_k > c->top_k ? item[i].top_k : c->top_k;
        class_of[i] = n_classes - 1;
    }
    return n_classes;
}

uint64_t classes_bank(const struct classes_class *classes, uint32_t n) {
    uint64_t index = 0;
    for (uint32_t i = 0; i < n; i++) {
        index += classes[i].slot_bytes * classes[i].bundles;
    }
    return index;
}

uint32_t classes_share(const struct classes_class *c, uint64_t budget, uint64_t index) {
    /* budget * (slot_bytes * bundles / index) / slot_bytes, exactly: a budget of the expert index holds the expert
     * index. */
    uint64_t n = budget >= index ? c->bundles
                 : budget        ? (uint64_t)((unsigned __int128)budget * c->bundles / index)
                                 : CLASSES_STAGING / c->slot_bytes;
    if (n < c->top_k) {
        n = c->top_k;
    }
    return (uint32_t)(n < c->bundles ? n : c->bundles);
}
