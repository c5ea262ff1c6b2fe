/* test_expert_index.c - the catalog: which bytes are which expert, and what belongs together. */
#include "unit.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cache/expert_index.h"

enum { SIZE = 1 << 20, OWNER = 1 };

struct fixture {
    struct expert_index index;
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
    index_free(&f->index);
    close(f->fd);
    unlink(f->path);
}

static int try_add(struct fixture *f, uint64_t owner, const char *name, uint64_t offset, uint64_t slice, uint32_t n,
                   uint32_t *id) {
    return index_add_tensor(&f->index, f->file, owner, name, offset, slice, n, 2, id, &f->err);
}

static uint32_t add(struct fixture *f, uint64_t owner, const char *name, uint64_t offset, uint64_t slice, uint32_t n) {
    uint32_t id = UINT32_MAX;
    assert_int_equal(try_add(f, owner, name, offset, slice, n, &id), SLUICE_OK);
    return id;
}

static uint32_t group_of(const struct fixture *f, uint32_t tensor) {
    return f->index.tensors[tensor].group;
}

static void test_grouping(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint32_t gate = add(&f, OWNER, "blk.7.ffn_gate_exps.weight", 0, 1000, 8);
    const uint32_t up = add(&f, OWNER, "blk.7.ffn_up_exps.weight", 8000, 1000, 8);
    const uint32_t other = add(&f, OWNER, "blk.17.ffn_up_exps.weight", 16000, 1000, 8);
    const uint32_t down = add(&f, OWNER, "blk.7.ffn_down_exps.weight", 24000, 500, 8);
    assert_int_equal(group_of(&f, gate), group_of(&f, up));
    assert_int_equal(group_of(&f, gate), group_of(&f, down));
    assert_int_not_equal(group_of(&f, gate), group_of(&f, other));
    assert_int_equal(f.index.tensors[gate].part, 0);
    assert_int_equal(f.index.tensors[up].part, 1);
    assert_int_equal(f.index.tensors[down].part, 2);
    assert_int_equal(f.index.groups[group_of(&f, gate)].weight_bytes, 2500);
    assert_int_equal(f.index.live_groups, 2);
    assert_int_equal(f.index.live_tensors, 4);
    assert_int_equal(index_weight_bytes(&f.index), 8 * 2500 + 8 * 1000);
    /* Another count of experts, another load: apart. */
    const uint32_t second = add(&f, OWNER, "blk.7.ffn_gate_chexps.weight", 0, 1000, 4);
    assert_int_not_equal(group_of(&f, second), group_of(&f, gate));
    const uint32_t again = add(&f, OWNER + 1, "blk.7.ffn_gate_exps.weight", 0, 1000, 8);
    assert_int_not_equal(group_of(&f, again), group_of(&f, gate));
    /* Names that say nothing are bundles of their own, also when they are equal. */
    const uint32_t odd1 = add(&f, OWNER, "experts", 0, 10, 8), odd2 = add(&f, OWNER, "experts", 0, 10, 8);
    const uint32_t odd3 = add(&f, OWNER, "x.experts", 0, 10, 8), odd4 = add(&f, OWNER, "x.experts", 0, 10, 8);
    assert_int_not_equal(group_of(&f, odd1), group_of(&f, odd2));
    assert_int_not_equal(group_of(&f, odd3), group_of(&f, odd4));
    end(&f);
}

static void test_more_parts_than_fit(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    uint32_t id[INDEX_PARTS_MAX + 1];
    for (uint32_t i = 0; i <= INDEX_PARTS_MAX; i++) {
        char name[INDEX_NAME_MAX];
        snprintf(name, sizeof name, "blk.0.part%u.weight", i);
        id[i] = add(&f, OWNER, name, 0, 100, 8);
    }
    assert_int_equal(group_of(&f, id[0]), group_of(&f, id[INDEX_PARTS_MAX - 1]));
    assert_int_not_equal(group_of(&f, id[0]), group_of(&f, id[INDEX_PARTS_MAX]));
    end(&f);
}

static void test_long_name(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    char name[300];
    memset(name, 'n', sizeof name);
    for (size_t i = 2; i < sizeof name; i += 3) {
        name[i] = '.';
    }
    name[sizeof name - 1] = 0;
    const uint32_t id = add(&f, OWNER, name, 0, 100, 8);
    assert_int_equal(strlen(f.index.tensors[id].name), INDEX_NAME_MAX - 1);
    assert_true(strlen(f.index.groups[group_of(&f, id)].prefix) < INDEX_NAME_MAX);
    end(&f);
}

static void test_windows(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t align = f.index.files[f.file]->io.align;
    uint64_t seed = 3;
    for (int round = 0; round < 300; round++) {
        const uint32_t n = 1 + unit_random(&seed) % 16;
        const uint64_t slice = round % 5 == 0 ? align * (1 + unit_random(&seed) % 4) : 1 + unit_random(&seed) % 20000;
        uint64_t offset = unit_random(&seed) % (SIZE - slice * n + 1);
        if (round % 3 == 0) {
            offset -= offset % align;
        }
        uint32_t parts[3];
        for (uint32_t p = 0; p < 3; p++) {
            char name[INDEX_NAME_MAX];
            snprintf(name, sizeof name, "blk.%d.part%u.weight", round, p);
            parts[p] = add(&f, OWNER, name, offset, slice, n);
        }
        const struct index_group *g = &f.index.groups[group_of(&f, parts[0])];
        uint64_t end_of_last = 0;
        for (uint32_t p = 0; p < 3; p++) {
            assert_true(g->window[p] >= end_of_last); /* parts do not overlap */
            assert_int_equal(g->window[p] % align, 0);
            for (uint32_t e = 0; e < n; e++) {
                const struct index_window w = index_window_of(&f.index, parts[p], e);
                const uint64_t start = offset + e * slice;
                assert_int_equal(w.offset % align, 0);
                assert_int_equal(w.len % align, 0);
                assert_int_equal(w.offset + w.skip, start);
                assert_true(w.skip < align);
                assert_true(w.offset + w.len >= start + slice);        /* covers the slice */
                assert_true(w.offset + w.len < start + slice + align); /* and no block more */
                const uint64_t next = p < 2 ? g->window[p + 1] : g->slot_bytes;
                assert_true(g->window[p] + w.len <= next); /* fits where it is to be read */
            }
            end_of_last = g->window[p] + index_window_of(&f.index, parts[p], 0).len;
        }
        index_remove_tensor(&f.index, parts[1]); /* those behind move down */
        assert_int_equal(g->n_parts, 2);
        assert_int_equal(f.index.tensors[parts[2]].part, 1);
        assert_int_equal(g->weight_bytes, 2 * slice);
        index_remove_tensor(&f.index, parts[0]);
        if (round < 299) { /* the last keeps the file open */
            add(&f, OWNER + 1, "keep.me.open", 0, 1, 1);
        }
        index_remove_tensor(&f.index, parts[2]);
    }
    end(&f);
}

static void test_outside_the_file(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    uint32_t id = 77;
    const struct {
        uint64_t offset, slice;
        uint32_t n;
    } bad[] = {
        {0, 0, 8},                              /* nothing */
        {0, 100, 0},                            /* no experts */
        {0, SIZE + 1, 1},                       /* one byte too many */
        {1, SIZE, 1},                           /* the same at the end */
        {SIZE, 1, 1},                           /* begins where the file ends */
        {SIZE + 1, 1, 1},                       /* begins behind it */
        {UINT64_MAX, 1, 1},                     /* offset + slice is 0 */
        {UINT64_MAX - 7, 8, 1},                 /* the same */
        {0, (uint64_t)1 << 62, 4},              /* slice * n is 0 */
        {0, UINT64_MAX / 3 + 1, 3},             /* slice * n wraps to something small */
        {SIZE - 100, 51, 2},                    /* the second slice ends behind the file */
        {4096, ((uint64_t)1 << 33), UINT32_MAX} /* a lot */
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(try_add(&f, OWNER, "blk.0.x.weight", bad[i].offset, bad[i].slice, bad[i].n, &id),
                         SLUICE_ERR_FORMAT);
        assert_non_null(strstr(f.err.message, f.path));
        assert_non_null(strstr(f.err.message, "blk.0.x.weight"));
    }
    assert_int_equal(id, 77);
    assert_int_equal(f.index.live_tensors, 0);
    assert_int_equal(f.index.live_groups, 0);
    /* To the last byte is within. */
    add(&f, OWNER, "blk.0.x.weight", SIZE - 100, 50, 2);
    add(&f, OWNER, "blk.0.y.weight", 0, SIZE, 1);
    end(&f);
}

static void test_ids_are_reused(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    uint32_t id[50];
    for (int i = 0; i < 50; i++) {
        char name[INDEX_NAME_MAX];
        snprintf(name, sizeof name, "blk.%d.x.weight", i);
        id[i] = add(&f, OWNER, name, (uint64_t)i * 100, 10, 8);
        assert_int_equal(id[i], i);
    }
    index_remove_tensor(&f.index, 20);
    index_remove_tensor(&f.index, 30);
    assert_int_equal(f.index.live_groups, 48);
    const uint32_t a = add(&f, OWNER, "blk.100.x.weight", 0, 10, 4), b = add(&f, OWNER, "blk.101.x.weight", 0, 10, 4);
    assert_true((a == 20 && b == 30) || (a == 30 && b == 20));
    assert_int_equal(f.index.n_tensors, 50);
    assert_int_equal(f.index.n_groups, 50);
    assert_int_equal(f.index.groups[group_of(&f, a)].n_expert, 4);
    assert_int_equal(f.index.groups[group_of(&f, a)].n_parts, 1);
    /* A freed group takes in no tensor by its old name. */
    index_remove_tensor(&f.index, 10);
    const uint32_t c = add(&f, OWNER + 1, "blk.10.x.weight", 0, 10, 8);
    assert_int_equal(f.index.groups[group_of(&f, c)].n_parts, 1);
    end(&f);
}

static void test_files(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    /* The same file by another descriptor is the same entry. */
    const int dup_fd = dup(f.fd);
    uint32_t again = UINT32_MAX;
    assert_int_equal(index_add_file(&f.index, dup_fd, "other name", true, &again, &f.err), SLUICE_OK);
    assert_int_equal(again, f.file);
    close(dup_fd);
    char path[64];
    const int fd = unit_file(path, 5000);
    uint32_t second = UINT32_MAX;
    assert_int_equal(index_add_file(&f.index, fd, path, false, &second, &f.err), SLUICE_OK);
    assert_int_not_equal(second, f.file);
    /* Files end when neither a caller nor a tensor refers to them. */
    const uint32_t t = add(&f, OWNER, "blk.0.x.weight", 0, 10, 8);
    index_drop_file(&f.index, second);
    assert_null(f.index.files[second]);
    index_drop_file(&f.index, f.file);
    index_drop_file(&f.index, f.file); /* asked for twice */
    assert_non_null(f.index.files[f.file]);
    index_remove_tensor(&f.index, t);
    assert_null(f.index.files[f.file]);
    /* The entry is reused. */
    assert_int_equal(index_add_file(&f.index, fd, path, false, &second, &f.err), SLUICE_OK);
    assert_true(second < 2);
    assert_int_equal(index_add_file(&f.index, -1, "closed", false, &again, &f.err), SLUICE_ERR_IO);
    close(fd);
    unlink(path);
    end(&f);
}

static void test_token_demand(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    uint64_t layer = 1;
    assert_int_equal(index_token_slot_bytes(&f.index, &layer), 0);
    assert_int_equal(layer, 0);
    const uint32_t a = add(&f, OWNER, "blk.0.x.weight", 0, 10000, 8);      /* top_k 2 */
    const uint32_t b = add(&f, OWNER, "blk.1.x.weight", 100000, 30000, 1); /* at most 1 */
    const uint64_t sa = f.index.groups[group_of(&f, a)].slot_bytes, sb = f.index.groups[group_of(&f, b)].slot_bytes;
    assert_int_equal(index_token_slot_bytes(&f.index, &layer), 2 * sa + sb);
    assert_int_equal(layer, 2 * sa > sb ? 2 * sa : sb);
    /* An unknown top-k counts as one; the largest announced counts. */
    uint32_t c = 0;
    assert_int_equal(index_add_tensor(&f.index, f.file, OWNER, "blk.2.x.weight", 0, 10, 8, 0, &c, &f.err), SLUICE_OK);
    assert_int_equal(f.index.groups[group_of(&f, c)].top_k, 1);
    assert_int_equal(index_add_tensor(&f.index, f.file, OWNER, "blk.2.y.weight", 0, 10, 8, 99, &c, &f.err), SLUICE_OK);
    assert_int_equal(f.index.groups[group_of(&f, c)].top_k, 8);
    end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grouping),
        cmocka_unit_test(test_more_parts_than_fit),
        cmocka_unit_test(test_long_name),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_outside_the_file),
        cmocka_unit_test(test_ids_are_reused),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_token_demand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
