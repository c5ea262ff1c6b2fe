/* classes.h - how a cache is divided among bundles of different sizes. Arithmetic only. */
#ifndef SLUICE_CACHE_CLASSES_H
#define SLUICE_CACHE_CLASSES_H

#include <stdint.h>

/* Bundles of one layer. */
struct classes_item {
    uint64_t slot_bytes; /* memory that one of them needs */
    uint32_t n_expert;   /* how many there are */
    uint32_t top_k;      /* how many a token uses */
    uint32_t id;         /* the caller's name for the layer; among equals the lower one comes first */
};

/* Slots of one size, for all layers whose bundles are about that large. */
struct classes_class {
    uint64_t slot_bytes; /* memory of one slot */
    uint32_t bundles;    /* bundles of its layers */
    uint32_t top_k;      /* the largest top-k of its layers */
};

/*
 * Divide n layers into classes, largest first: sorts item[], fills class_of[] (by place in the sorted
 * item[]) and classes[]; both have room for n. `align` is what slots are multiples of. Returns the
 * number of classes.
 */
uint32_t classes_divide(struct classes_item *item, uint32_t n, uint64_t align, struct classes_class *classes,
                        uint32_t *class_of);

/* The slot memory of all bundles, bytes. */
uint64_t classes_bank(const struct classes_class *classes, uint32_t n);

/* How many slots a class gets from the budget. `index` is the slot memory of all bundles of all classes. */
uint32_t classes_share(const struct classes_class *c, uint64_t budget, uint64_t index);

#endif
