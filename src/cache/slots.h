/* slots.h - the slot arena: one allocation, cut into slots by size class, and what lies in each. */
#ifndef SLUICE_CACHE_SLOTS_H
#define SLUICE_CACHE_SLOTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sluice.h"
#include "cache/expert_index.h"
#include "cache/policy.h"

enum part_state {
    PART_EMPTY,   /* not read */
    PART_READING, /* requests are under way */
    PART_READY,   /* its bytes are there; stored with release order after they arrived */
    PART_FAILED,  /* a request failed, and all have ended: may be asked for again */
};

#define SLOTS_NONE          UINT32_MAX /* in slot.group: nothing lies in it; in table_of_group: no such group */
#define SLOT_PENDING_FAILED (1u << 31) /* in slot.pending: a request of the part failed */

struct slot {
    char *data;                                /* slot_bytes of its class */
    uint32_t class_id;                         /* index into slots.classes */
    uint32_t group, expert;                    /* the bundle in it; group SLOTS_NONE: none */
    bool foreseen;                             /* read ahead of its use, and not used since */
    uint32_t pins;                             /* blocks that use it now; guarded by the engine's lock */
    _Atomic uint32_t inflight;                 /* read requests not ended, all parts */
    _Atomic uint32_t pending[INDEX_PARTS_MAX]; /* the same, by part, and SLOT_PENDING_FAILED */
    _Atomic uint32_t state[INDEX_PARTS_MAX];   /* enum part_state */
    const char *weights[INDEX_PARTS_MAX];      /* where in data each part's weights begin */
};

/* Slots of one size, for all groups whose bundles are about that large. */
struct slot_class {
    uint64_t slot_bytes;   /* memory of one slot */
    char *data;            /* address space for a slot per bundle; memory only under the first n */
    uint32_t first, n;     /* its slots: [first, first + n); up to first + bundles the numbers are its own too */
    uint32_t bundles;      /* bundles of its groups: more slots than that are useless */
    uint32_t top_k;        /* the largest top-k of its groups: fewer slots than that cannot run a block at once */
    uint32_t n_free;       /* free slots */
    uint32_t *free_list;   /* their indices, a stack */
    struct policy *policy; /* order of the others, numbered from 0 */
};

struct slots {
    void *memory;               /* the mapping: address space for all bundles */
    uint64_t mapped;            /* its length, bytes */
    uint64_t bytes;             /* slot memory in it: sum of n * slot_bytes */
    struct slot *slot;          /* by index */
    uint32_t n_numbers;         /* entries: one per bundle, most of them without memory */
    uint32_t n_slots;           /* of those, slots that there are: sum of n */
    struct slot_class *classes; /* by class */
    uint32_t n_classes;         /* entries */
    uint32_t *class_of_group;   /* by group id, for groups that are live */
    uint32_t *table_of_group;   /* by group id: where its experts begin in table; SLOTS_NONE: not in the arena */
    uint32_t *resident;         /* by group id: bundles that have a slot */
    uint32_t n_groups;          /* entries of the three above */
    int32_t *table;             /* by group's table + expert: the slot, or -1 */
    uint32_t *uses;             /* likewise: tokens that were routed to the bundle, wraps around */
};

/*
 * Allocate and cut an arena for all live groups of the expert index. `budget` bytes are shared among the
 * classes in proportion to their part of the expert index, but every class gets at least slots for one
 * block, and none more than it has bundles. With budget 0 the arena is staging only: room for a
 * block, or about 64 MiB a class if that is more. *s is zeroed on failure.
 */
int slots_create(struct slots *s, const struct expert_index *b, uint64_t budget, enum sluice_policy policy,
                 struct sluice_error *err);

/*
 * Make *s, zeroed or an arena, as slots_create would for this index. What lies in it of groups that are still there
 * stays, with its order for the policy and its use counts, as far as it fits: what the policy would evict goes first.
 * There is never more slot memory than the larger of both arenas. No slot may be pinned or being read. On failure
 * (SLUICE_ERR_MEMORY) it may hold less than before, nothing else.
 */
int slots_cut(struct slots *s, const struct expert_index *b, uint64_t budget, enum sluice_policy policy,
              struct sluice_error *err);

/*
 * A group is about to go, or its bundles change: nothing of it stays, and a later group of its number is another one.
 * Its slots may not be pinned or being read. Nothing happens if the arena does not know it.
 */
void slots_forget(struct slots *s, uint32_t group);

/* Was the group there when the arena was cut, and was not forgotten since? */
bool slots_knows(const struct slots *s, uint32_t group);

/*
 * Make it as slots_create would have with this budget, keeping what lies in it as far as it fits:
 * what the policy would evict goes first. No slot may be pinned or being read. On failure
 * (SLUICE_ERR_MEMORY, when growing) everything is as it was.
 */
int slots_resize(struct slots *s, uint64_t budget, struct sluice_error *err);

/* How much slot memory slots_create would cut from that budget, in *bytes. */
int slots_measure(const struct expert_index *b, uint64_t budget, uint64_t *bytes, struct sluice_error *err);

/* Free everything. No slot may be pinned or being read. Accepts a zeroed struct. */
void slots_destroy(struct slots *s);

/* The slot that holds a bundle, or -1. */
int32_t slots_find(const struct slots *s, uint32_t group, uint32_t expert);

/*
 * A slot for a bundle that has none: a free one, or one evicted from the same class (*evicted tells).
 * It enters the table with all parts empty. UINT32_MAX: all are pinned or being read.
 */
uint32_t slots_place(struct slots *s, const struct expert_index *b, uint32_t group, uint32_t expert, bool *evicted);

/* A block of `rows` tokens of a group begins, for the policies. */
void slots_visit(struct slots *s, uint32_t group, uint32_t rows);

/* A token of the block, which `ago` others follow, is routed to a bundle, in a slot or not, for the policy. */
void slots_use(struct slots *s, uint32_t group, uint32_t expert, uint32_t ago);

/* Note that a bundle was placed ahead of its use, for the policy. */
void slots_foresee(struct slots *s, uint32_t slot);

/* Note that a bundle is about to be computed, for the policy. */
void slots_touch(struct slots *s, uint32_t slot);

/* Take a bundle out of the table; its slot becomes free. It may not be pinned or being read. */
void slots_drop(struct slots *s, uint32_t slot);

/* Take all bundles out. No slot may be pinned or being read. */
void slots_empty(struct slots *s);

/* Slots that nothing lies in. */
uint64_t slots_free(const struct slots *s);

/* Can the slot be evicted: nobody uses it and no read into it is under way? */
bool slots_idle(const struct slot *s);

#endif
