/* test_slots.c - the arena: size classes, their shares of the budget, and what lies in which slot. */
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cache/slots.h"

enum { SIZE = 1 << 20 };

struct fixture {
    struct expert_index index;
    struct slots slots;
    uint32_t file;
    int fd;
    char path[64];
    struct sluice_error err;
};

static void begin(struct fixture *f) {
    memset(f, 0, sizeof *f);
    f->fd = unit_file(f->path, SIZE);
    index_init(&f->index);
    assert_int_equal(index_add_file(&f->index, f->fd, f->path, true, &f->file, &f->err), SLUICE_OK);
}

static void end(struct fixture *f) {
    slots_destroy(&f->slots);
    index_free(&f->index);
    close(f->fd);
    unlink(f->path);
}

/* A layer of two tensors; all layers share the same bytes of the file, which is nobody's business. */
static uint32_t add_layer(struct fixture *f, int layer, uint64_t slice, uint32_t n, uint32_t top_k) {
    uint32_t id = 0;
    for (int p = 0; p < 2; p++) {
        char name[INDEX_NAME_MAX];
        snprintf(name, sizeof name, "blk.%d.part%d.weight", layer, p);
        assert_int_equal(
            index_add_tensor(&f->index, f->file, 1, name, 32 + (uint64_t)p * 64, slice, n, top_k, &id, &f->err),
            SLUICE_OK);
    }
    return f->index.tensors[id].group;
}

static void create(struct fixture *f, uint64_t budget) {
    slots_destroy(&f->slots);
    assert_int_equal(slots_create(&f->slots, &f->index, budget, SLUICE_POLICY_LRU, &f->err), SLUICE_OK);
    /* A plan that is made before the arena is cut must name the same number. */
    uint64_t bytes = 0;
    assert_int_equal(slots_measure(&f->index, budget, &bytes, &f->err), SLUICE_OK);
    assert_int_equal(bytes, f->slots.bytes);
}

/* What must hold at any time. */
static void check_invariants(const struct fixture *f) {
    const struct slots *s = &f->slots;
    uint64_t bytes = 0;
    uint32_t taken = 0, in_table = 0, entries = 0;
    const char *end_of_last = s->memory;
    for (uint32_t c = 0; c < s->n_classes; c++) {
        const struct slot_class *k = &s->classes[c];
        bytes += k->slot_bytes * k->n;
        for (uint32_t i = 0; i < k->n; i++) {
            const struct slot *x = &s->slot[k->first + i];
            assert_int_equal(x->class_id, c);
            assert_int_equal((uintptr_t)x->data % 4096, 0);
            assert_true(x->data >= end_of_last); /* slots do not overlap */
            end_of_last = x->data + k->slot_bytes;
            if (x->group == UINT32_MAX) {
                continue;
            }
            taken++;
            assert_int_equal(slots_find(s, x->group, x->expert), k->first + i);
            const struct index_group *g = &f->index.groups[x->group];
            for (uint32_t p = 0; p < g->n_parts; p++) {
                const struct index_window w = index_window_of(&f->index, g->tensor[p], x->expert);
                assert_ptr_equal(x->weights[p], x->data + g->window[p] + w.skip);
                assert_true(g->window[p] + w.len <= k->slot_bytes); /* windows lie inside the slot */
            }
        }
        for (uint32_t i = 0; i < k->n_free; i++) {
            const uint32_t slot = k->free_list[i];
            assert_true(slot >= k->first && slot < k->first + k->n);
            assert_int_equal(s->slot[slot].group, UINT32_MAX);
        }
        taken += k->n_free;
    }
    assert_int_equal(taken, s->n_slots);
    assert_int_equal(bytes, s->bytes);
    assert_true(end_of_last <= (const char *)s->memory + s->mapped);
    for (uint32_t g = 0; g < f->index.n_groups; g++) {
        for (uint32_t e = 0; f->index.groups[g].n_parts && e < f->index.groups[g].n_expert; e++, entries++) {
            const int32_t slot = slots_find(s, g, e);
            assert_true(slot >= -1 && slot < (int32_t)s->n_numbers);
            if (slot >= 0) {
                in_table++;
                assert_int_equal(s->slot[slot].group, g);
                assert_int_equal(s->slot[slot].expert, e);
            }
        }
    }
    uint32_t free_slots = 0;
    for (uint32_t c = 0; c < s->n_classes; c++) {
        free_slots += s->classes[c].n_free;
    }
    assert_int_equal(in_table + free_slots, s->n_slots);
}

static void test_classes(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    /* Sizes in windows of 4 KiB: 26+26, 25+25 (within a sixteenth), 17+17, 3+3. */
    const uint32_t a = add_layer(&f, 0, 100 << 10, 8, 2), b = add_layer(&f, 1, 96 << 10, 8, 3);
    const uint32_t c = add_layer(&f, 2, 64 << 10, 8, 2), d = add_layer(&f, 3, 8 << 10, 8, 2);
    create(&f, 0);
    const struct slots *s = &f.slots;
    assert_int_equal(s->n_classes, 3);
    assert_int_equal(s->class_of_group[a], s->class_of_group[b]);
    assert_int_not_equal(s->class_of_group[a], s->class_of_group[c]);
    assert_int_not_equal(s->class_of_group[c], s->class_of_group[d]);
    const struct slot_class *first = &s->classes[s->class_of_group[a]];
    assert_int_equal(first->bundles, 16);
    assert_int_equal(first->top_k, 3);
    for (uint32_t g = 0; g < 4; g++) {
        const struct slot_class *k = &s->classes[s->class_of_group[g]];
        assert_true(k->slot_bytes >= f.index.groups[g].slot_bytes);
        assert_true(k->slot_bytes - k->slot_bytes / 8 <= f.index.groups[g].slot_bytes); /* little waste */
        assert_true(k->n <= k->bundles && k->n >= k->top_k);
    }
    check_invariants(&f);
    end(&f);
}

static void test_shares(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    uint64_t all = 0;
    for (int i = 0; i < 12; i++) {
        const uint32_t g = add_layer(&f, i, i % 3 ? 8 << 10 : 12 << 10, 64, 4);
        all += f.index.groups[g].slot_bytes * 64;
    }
    for (uint64_t part = 2; part <= 10; part++) {
        const uint64_t budget = all * part / 10;
        create(&f, budget);
        assert_true(f.slots.bytes <= budget);
        assert_true(f.slots.bytes + 2 * (32 << 10) >= budget); /* less than a slot of each class is left over */
        double filled[2];
        assert_int_equal(f.slots.n_classes, 2);
        for (uint32_t c = 0; c < 2; c++) {
            filled[c] = (double)f.slots.classes[c].n / f.slots.classes[c].bundles;
        }
        assert_true(filled[0] - filled[1] < 0.02 && filled[1] - filled[0] < 0.02); /* the same part of every class */
        check_invariants(&f);
    }
    /* With too little for a block, a block fits all the same; with too much, nothing is wasted. */
    create(&f, 1);
    for (uint32_t c = 0; c < f.slots.n_classes; c++) {
        assert_int_equal(f.slots.classes[c].n, 4);
    }
    create(&f, (uint64_t)1 << 40);
    for (uint32_t c = 0; c < f.slots.n_classes; c++) {
        assert_int_equal(f.slots.classes[c].n, f.slots.classes[c].bundles);
    }
    end(&f);
}

/* A budget of exactly what the expert index needs must hold the expert index: for any sizes and counts. */
static void test_room_for_all(void **state) {
    (void)state;
    uint64_t seed = 11;
    for (int round = 0; round < 60; round++) {
        struct fixture f;
        begin(&f);
        const int layers = 1 + (int)(unit_random(&seed) % 8);
        for (int i = 0; i < layers; i++) {
            add_layer(&f, i, 1000 + unit_random(&seed) % 10000, 1 + unit_random(&seed) % 40, 1);
        }
        create(&f, (uint64_t)1 << 40);
        const uint64_t need = f.slots.bytes;
        uint32_t bundles = f.slots.n_slots;
        create(&f, need);
        assert_int_equal(f.slots.n_slots, bundles);
        end(&f);
    }
}

static void test_staging(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint32_t g = add_layer(&f, 0, 1 << 13, 64, 4);
    create(&f, 0);
    /* Small bundles: about 64 MiB would be more than all of them. */
    assert_int_equal(f.slots.classes[f.slots.class_of_group[g]].n, 64);
    slots_destroy(&f.slots);
    assert_int_equal(f.slots.n_slots, 0);
    slots_destroy(&f.slots); /* a zeroed one is accepted */
    end(&f);
}

static void test_place_evict_drop(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint32_t g = add_layer(&f, 0, 5000, 16, 4);
    create(&f, 1); /* four slots */
    struct slots *s = &f.slots;
    bool evicted = true;
    for (uint32_t e = 0; e < 4; e++) {
        assert_int_equal(slots_find(s, g, e), -1);
        const uint32_t slot = slots_place(s, &f.index, g, e, &evicted);
        assert_int_not_equal(slot, UINT32_MAX);
        assert_false(evicted);
        slots_touch(s, slot);
        assert_int_equal(slots_find(s, g, e), slot);
    }
    check_invariants(&f);
    /* The oldest goes; a touch makes it the youngest. */
    slots_touch(s, (uint32_t)slots_find(s, g, 0));
    uint32_t slot = slots_place(s, &f.index, g, 9, &evicted);
    slots_touch(s, slot);
    assert_true(evicted);
    assert_int_equal(slots_find(s, g, 1), -1);
    assert_true(slots_find(s, g, 0) >= 0);
    /* Pinned or being read: it stays, and the next goes. */
    s->slot[slots_find(s, g, 2)].pins = 1;
    atomic_store(&s->slot[slots_find(s, g, 3)].inflight, 1);
    assert_false(slots_idle(&s->slot[slots_find(s, g, 2)]));
    assert_false(slots_idle(&s->slot[slots_find(s, g, 3)]));
    slot = slots_place(s, &f.index, g, 10, &evicted);
    slots_touch(s, slot);
    assert_true(evicted);
    assert_int_equal(slots_find(s, g, 0), -1);
    check_invariants(&f);
    s->slot[slots_find(s, g, 9)].pins = 1;
    s->slot[slots_find(s, g, 10)].pins = 1;
    assert_int_equal(slots_place(s, &f.index, g, 11, &evicted), UINT32_MAX);
    check_invariants(&f);
    for (uint32_t i = 0; i < s->n_numbers; i++) {
        s->slot[i].pins = 0;
        atomic_store(&s->slot[i].inflight, 0);
    }
    /* A dropped bundle's slot is free: nothing is evicted for the next. */
    slots_drop(s, (uint32_t)slots_find(s, g, 9));
    assert_int_equal(slots_find(s, g, 9), -1);
    check_invariants(&f);
    slot = slots_place(s, &f.index, g, 12, &evicted);
    slots_touch(s, slot);
    assert_false(evicted);
    check_invariants(&f);
    end(&f);
}

/* A placed bundle starts with nothing read, whatever was in the slot before. */
static void test_relabelled_is_empty(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint32_t g = add_layer(&f, 0, 5000, 16, 1);
    create(&f, 1); /* one slot */
    bool evicted;
    const uint32_t slot = slots_place(&f.slots, &f.index, g, 0, &evicted);
    slots_touch(&f.slots, slot);
    atomic_store(&f.slots.slot[slot].state[0], PART_READY);
    atomic_store(&f.slots.slot[slot].state[1], PART_FAILED);
    assert_int_equal(slots_place(&f.slots, &f.index, g, 5, &evicted), slot);
    assert_true(evicted);
    assert_int_equal(atomic_load(&f.slots.slot[slot].state[0]), PART_EMPTY);
    assert_int_equal(atomic_load(&f.slots.slot[slot].state[1]), PART_EMPTY);
    slots_touch(&f.slots, slot);
    check_invariants(&f);
    end(&f);
}

static void test_random(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    uint32_t group[6];
    for (int i = 0; i < 6; i++) {
        group[i] = add_layer(&f, i, i % 2 ? 5000 : 9000, 24, 2);
    }
    create(&f, 600 << 10);
    struct slots *s = &f.slots;
    uint64_t seed = 5;
    for (int step = 0; step < 6000; step++) {
        const uint32_t g = group[unit_random(&seed) % 6], e = unit_random(&seed) % 24;
        int32_t slot = slots_find(s, g, e);
        const uint32_t what = unit_random(&seed) % 8;
        if (slot < 0) {
            bool evicted;
            const struct slot_class *c = &s->classes[s->class_of_group[g]];
            const uint32_t n_free = c->n_free;
            const uint32_t got = slots_place(s, &f.index, g, e, &evicted);
            if (got != UINT32_MAX) {
                assert_int_equal(evicted, n_free == 0);
                assert_int_equal(s->slot[got].class_id, s->class_of_group[g]);
                slots_touch(s, got);
            }
        } else if (what == 0 && slots_idle(&s->slot[slot])) {
            slots_drop(s, (uint32_t)slot);
        } else if (what < 3) {
            s->slot[slot].pins ^= 1;
        } else {
            slots_touch(s, (uint32_t)slot);
        }
        if (step % 50 == 0) {
            check_invariants(&f);
        }
    }
    for (uint32_t i = 0; i < s->n_numbers; i++) {
        s->slot[i].pins = 0;
    }
    end(&f);
}

/* ---- resize ---------------------------------------------------------------------------------- */

/* Every byte of a slot, from what is in it. */
static uint8_t mark(uint32_t group, uint32_t expert, uint64_t at) {
    return unit_byte(((uint64_t)group << 40) + ((uint64_t)expert << 28) + at);
}

/* Place and use a bundle, and fill all of its slot. Its parts are in different states. */
static uint32_t put(struct fixture *f, uint32_t group, uint32_t expert) {
    struct slots *s = &f->slots;
    bool evicted;
    const uint32_t slot = slots_place(s, &f->index, group, expert, &evicted);
    assert_int_not_equal(slot, UINT32_MAX);
    slots_touch(s, slot);
    struct slot *x = &s->slot[slot];
    for (uint64_t i = 0; i < s->classes[x->class_id].slot_bytes; i++) {
        x->data[i] = (char)mark(group, expert, i);
    }
    x->foreseen = expert % 2;
    atomic_store(&x->state[0], PART_READY);
    atomic_store(&x->state[1], expert % 3 ? PART_EMPTY : PART_FAILED);
    return slot;
}

/* Is the bundle there, whole, in the state in which put left it? */
static bool intact(const struct fixture *f, uint32_t group, uint32_t expert) {
    const struct slots *s = &f->slots;
    const int32_t slot = slots_find(s, group, expert);
    if (slot < 0) {
        return false;
    }
    const struct slot *x = &s->slot[slot];
    for (uint64_t i = 0; i < s->classes[x->class_id].slot_bytes; i++) {
        assert_int_equal((uint8_t)x->data[i], mark(group, expert, i));
    }
    assert_int_equal(x->foreseen, expert % 2);
    assert_int_equal(atomic_load(&x->state[0]), PART_READY);
    assert_int_equal(atomic_load(&x->state[1]), expert % 3 ? PART_EMPTY : PART_FAILED);
    return true;
}

/* Is there memory at p? Asked of the kernel, which says EFAULT instead of raising a signal. */
static bool readable(const char *p) {
    int end[2];
    assert_int_equal(pipe(end), 0);
    const ssize_t n = write(end[1], p, 1);
    assert_true(n == 1 || errno == EFAULT);
    close(end[0]);
    close(end[1]);
    return n == 1;
}

/* Memory under the slots that there are, none under the others. */
static void check_memory(const struct fixture *f) {
    const struct slots *s = &f->slots;
    for (uint32_t c = 0; c < s->n_classes; c++) {
        const struct slot_class *k = &s->classes[c];
        for (uint32_t i = 0; i < k->bundles; i++) {
            assert_int_equal(readable(s->slot[k->first + i].data), i < k->n);
            assert_int_equal(readable(s->slot[k->first + i].data + k->slot_bytes - 1), i < k->n);
        }
    }
}

/* Larger and smaller at random, against a list of what is there in the order of use. */
static void test_resize(void **state) {
    (void)state;
    enum { EXPERTS = 24, STEPS = 400 };
    struct fixture f;
    begin(&f);
    const uint32_t group[2] = {add_layer(&f, 0, 5000, EXPERTS, 2), add_layer(&f, 1, 5000, EXPERTS, 2)};
    create(&f, 300 << 10);
    struct slots *s = &f.slots;
    assert_int_equal(s->n_classes, 1);
    const uint64_t slot_bytes = s->classes[0].slot_bytes;
    uint32_t order[2 * EXPERTS], n = 0; /* group index * EXPERTS + expert, longest ago first */
    uint64_t seed = 3;
    uint32_t shrunk = 0, grown = 0;
    for (int step = 0; step < STEPS; step++) {
        for (uint32_t k = unit_random(&seed) % 12; k > 0; k--) {
            const uint32_t b = unit_random(&seed) % (2 * EXPERTS);
            const int32_t slot = slots_find(s, group[b / EXPERTS], b % EXPERTS);
            uint32_t at = 0;
            while (at < n && order[at] != b) {
                at++;
            }
            assert_int_equal(slot >= 0, at < n);
            if (at == n && n == s->n_slots) {
                at = 0; /* the one used longest ago goes */
            }
            if (at < n) {
                memmove(&order[at], &order[at + 1], (n - at - 1) * sizeof *order);
                n--;
            }
            order[n++] = b;
            if (slot < 0) {
                put(&f, group[b / EXPERTS], b % EXPERTS);
            } else {
                slots_touch(s, (uint32_t)slot);
            }
        }
        const uint32_t before = s->n_slots, want = 2 + unit_random(&seed) % (2 * EXPERTS - 1);
        assert_int_equal(slots_resize(s, want * slot_bytes, &f.err), SLUICE_OK);
        assert_int_equal(s->n_slots, want);
        shrunk += want < before && n > want;
        grown += want > before;
        if (n > want) {
            memmove(order, order + n - want, want * sizeof *order);
            n = want;
        }
        for (uint32_t i = 0; i < n; i++) {
            assert_true(intact(&f, group[order[i] / EXPERTS], order[i] % EXPERTS));
        }
        assert_int_equal(s->n_slots - s->classes[0].n_free, n); /* and nothing else */
        check_invariants(&f);
        if (step % 20 == 0) {
            check_memory(&f);
        }
    }
    assert_true(shrunk > 20 && grown > 20);
    end(&f);
}

/* Several classes; to staging and back. What slots_create would cut from that budget is there. */
static void test_resize_as_created(void **state) {
    (void)state;
    struct fixture f, g;
    begin(&f);
    begin(&g);
    for (int i = 0; i < 6; i++) {
        add_layer(&f, i, i % 2 ? 5000 : 40000, 24, 3);
        add_layer(&g, i, i % 2 ? 5000 : 40000, 24, 3);
    }
    create(&f, 2 << 20);
    const uint64_t budgets[] = {8 << 20, 0, 1, 3 << 20, UINT64_C(1) << 40, 4 << 20, 0, 2 << 20};
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        create(&g, budgets[i]);
        assert_int_equal(slots_resize(&f.slots, budgets[i], &f.err), SLUICE_OK);
        assert_int_equal(f.slots.n_classes, 2);
        for (uint32_t c = 0; c < 2; c++) {
            assert_int_equal(f.slots.classes[c].n, g.slots.classes[c].n);
        }
        assert_int_equal(f.slots.bytes, g.slots.bytes);
        uint64_t measured = 0;
        assert_int_equal(slots_measure(&f.index, budgets[i], &measured, &f.err), SLUICE_OK);
        assert_int_equal(measured, f.slots.bytes);
        check_invariants(&f);
        check_memory(&f);
    }
    end(&g);
    end(&f);
}

/* Memory that was given back comes back as zeroes; what was carried over is intact. */
static void test_resize_untouched(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint32_t g = add_layer(&f, 0, 5000, 16, 2);
    create(&f, 1 << 20);
    struct slots *s = &f.slots;
    const uint64_t slot_bytes = s->classes[0].slot_bytes;
    for (uint32_t e = 0; e < 16; e++) {
        put(&f, g, e);
    }
    assert_int_equal(slots_resize(s, 4 * slot_bytes, &f.err), SLUICE_OK);
    for (uint32_t e = 12; e < 16; e++) {
        assert_true(intact(&f, g, e));
    }
    assert_int_equal(slots_resize(s, 16 * slot_bytes, &f.err), SLUICE_OK);
    for (uint32_t i = 4; i < 16; i++) {
        for (uint64_t k = 0; k < slot_bytes; k++) {
            assert_int_equal(s->slot[i].data[k], 0);
        }
    }
    end(&f);
}

/* Bytes of data mappings that this process may have, as the kernel counts them now. */
static uint64_t data_bytes(void) {
    char line[256];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) && sscanf(line, "VmData: %llu kB", &kib) != 1) {
    }
    fclose(file);
    assert_true(kib > 0);
    return kib * 1024;
}

/* The first class could grow and the second cannot: all is as it was. */
static void test_resize_no_memory(void **state) {
    (void)state;
    if (!unit_limit_holds()) {
        skip();
    }
    struct fixture f;
    begin(&f);
    const uint32_t big = add_layer(&f, 0, 40000, 24, 2), small = add_layer(&f, 1, 5000, 24, 2);
    create(&f, 1);
    struct slots *s = &f.slots;
    assert_int_equal(s->n_classes, 2);
    for (uint32_t e = 0; e < 2; e++) {
        put(&f, big, e);
        put(&f, small, e);
    }
    const uint64_t large = s->classes[0].slot_bytes * 22; /* what the large ones take when all are to fit */
    struct rlimit before, little;
    assert_int_equal(getrlimit(RLIMIT_DATA, &before), 0);
    for (int enough = 0; enough < 2; enough++) {
        little = (struct rlimit){.rlim_cur = data_bytes() + large + (enough ? 8 * s->classes[1].slot_bytes : 0),
                                 .rlim_max = before.rlim_max};
        if (!enough) {
            little.rlim_cur -= large / 2; /* not even for these */
        }
        assert_int_equal(setrlimit(RLIMIT_DATA, &little), 0);
        const int rc = slots_resize(s, 16 << 20, &f.err);
        assert_int_equal(setrlimit(RLIMIT_DATA, &before), 0);
        assert_int_equal(rc, SLUICE_ERR_MEMORY);
        assert_int_equal(s->n_slots, 4);
        check_invariants(&f);
        check_memory(&f);
        for (uint32_t e = 0; e < 2; e++) {
            assert_true(intact(&f, big, e));
            assert_true(intact(&f, small, e));
        }
    }
    assert_int_equal(slots_resize(s, 16 << 20, &f.err), SLUICE_OK);
    assert_int_equal(s->n_slots, 48);
    check_invariants(&f);
    check_memory(&f);
    for (uint32_t e = 0; e < 2; e++) {
        assert_true(intact(&f, big, e));
        assert_true(intact(&f, small, e));
    }
    end(&f);
}

static void test_empty(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint32_t g = add_layer(&f, 0, 5000, 16, 2);
    create(&f, 1 << 20);
    for (uint32_t e = 0; e < 9; e++) {
        put(&f, g, e);
    }
    slots_empty(&f.slots);
    check_invariants(&f);
    assert_int_equal(f.slots.resident[g], 0);
    assert_int_equal(f.slots.classes[0].n_free, 16);
    put(&f, g, 3);
    assert_int_equal(f.slots.resident[g], 1);
    end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_room_for_all),
        cmocka_unit_test(test_staging),
        cmocka_unit_test(test_place_evict_drop),
        cmocka_unit_test(test_relabelled_is_empty),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_resize),
        cmocka_unit_test(test_resize_as_created),
        cmocka_unit_test(test_resize_untouched),
        cmocka_unit_test(test_resize_no_memory),
        cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
