/*
 * test_page.c - pages of 4, 16 and 64 KiB: what is mapped, protected, given back and replaced is whole pages, and a
 * page that two share is treated as the one that must not lose it. The kernel's pages are what they are; a stand-in
 * for the calls (tests/gates/pagesize.c) behaves as if they were larger, and judges every address and length.
 */
#include "unit.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pagesize.h"
#include "ggml/dense.h"
#include "ggml/maps.h"
#include "ggml/pages.h"
#include "cache/page.h"
#include "cache/slots.h"

enum { N_WEIGHTS = 12 };

static const size_t sizes[] = {4096, 16384, 65536};

/* Bytes of the weights, one after another; every second one is experts'. No multiple of any page, but of 32. */
static const size_t lengths[N_WEIGHTS] = {7008,  300000, 32, 250016, 4096,   65536,
                                          70048, 500000, 96, 131072, 200032, 999968};

/* A model file, mapped, with where its weights are. */
struct fixture {
    char path[64];
    int fd;
    size_t size;
    char *start, *want; /* the mapping, and the same bytes elsewhere */
    struct pages_range dense[N_WEIGHTS / 2], experts[N_WEIGHTS / 2];
    struct stream_file file;
    struct maps_file found;
    struct sluice_error err;
};

static struct fixture *current; /* for what is told of advice */
static unsigned given_back;     /* pieces that DONTNEED was said of */

static void begin(struct fixture *f) {
    memset(f, 0, sizeof *f);
    size_t at = 1000032; /* where the data begins */
    for (int i = 0; i < N_WEIGHTS; i++) {
        f->size = at + lengths[i];
        at = (f->size + 31) / 32 * 32;
    }
    f->fd = unit_file(f->path, f->size);
    assert_int_equal(pwrite(f->fd, "GGUF", 4, 0), 4);
    assert_int_equal(fsync(f->fd), 0);
    f->want = malloc(f->size);
    assert_non_null(f->want);
    assert_int_equal(pread(f->fd, f->want, f->size, 0), f->size);
    f->start = mmap(NULL, f->size, PROT_READ, MAP_SHARED, f->fd, 0);
    assert_true(f->start != MAP_FAILED && (uintptr_t)f->start % stream_page_size() == 0);
    at = 1000032;
    for (int i = 0; i < N_WEIGHTS; i++) {
        struct pages_range *r = i % 2 ? &f->experts[i / 2] : &f->dense[i / 2];
        *r = (struct pages_range){.start = f->start + at, .len = lengths[i]};
        at = (at + lengths[i] + 31) / 32 * 32;
    }
    assert_int_equal(stream_file_open_fd(&f->file, f->fd, f->path, true, &f->err), SLUICE_OK);
    assert_int_equal(maps_find(f->start, f->size, &f->found, &f->err), SLUICE_OK);
    current = f;
}

static void end(struct fixture *f) {
    assert_int_equal(munmap(f->start, f->size), 0);
    stream_file_close(&f->file);
    close(f->found.fd);
    close(f->fd);
    unlink(f->path);
    free(f->want);
    current = NULL;
}

static bool same(const struct fixture *f, const struct pages_range *r) {
    return memcmp(r->start, f->want + (r->start - f->start), r->len) == 0;
}

static bool meets(const struct pages_range *r, uintptr_t at, size_t len) {
    return (uintptr_t)r->start < at + len && at < (uintptr_t)r->start + r->len;
}

/* What is given back holds no byte of a dense weight. */
static void no_dense(uintptr_t at, size_t len, int advice) {
    if (advice == MADV_DONTNEED) {
        given_back++;
        for (int i = 0; i < N_WEIGHTS / 2; i++) {
            assert_false(meets(&current->dense[i], at, len));
        }
    }
}

static void test_rounding(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t page = sizes[i];
        pagesize_set(page);
        assert_int_equal(stream_page_size(), page);
        assert_int_equal(stream_page_down(0), 0);
        assert_int_equal(stream_page_up(0), 0);
        assert_int_equal(stream_page_down(page - 1), 0);
        assert_int_equal(stream_page_up(1), page);
        assert_int_equal(stream_page_down(3 * page), 3 * page);
        assert_int_equal(stream_page_up(3 * page), 3 * page);
        assert_int_equal(stream_page_up(3 * page + 1), 4 * page);
    }
    pagesize_set(0);
    assert_int_equal(stream_page_size(), sysconf(_SC_PAGESIZE));
}

/* A judge that finds nothing wrong would prove nothing. */
static void test_judge(void **state) {
    (void)state;
    pagesize_set(16384);
    char *p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED && (uintptr_t)p % 16384 == 0);
    assert_int_equal(madvise(p, 16384, MADV_DONTNEED), 0);
    assert_int_equal(pagesize_wrong(), 0);
    assert_int_equal(madvise(p + 4096, 16384, MADV_DONTNEED), 0);
    assert_int_equal(pagesize_wrong(), 1);
    assert_int_equal(madvise(p, 4096, MADV_DONTNEED), 0);
    assert_int_equal(pagesize_wrong(), 2);
    assert_int_equal(mprotect(p, 4096, PROT_READ), 0);
    assert_int_equal(pagesize_wrong(), 3);
    assert_int_equal(munmap(p, 65536), 0);
    assert_int_equal(pagesize_wrong(), 3);
    assert_int_equal(pagesize_calls(), 5);
    pagesize_set(0);
}

static void test_slots(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        pagesize_set(sizes[i]);
        struct fixture f;
        begin(&f);
        struct expert_index index;
        struct slots slots;
        uint32_t file, id;
        index_init(&index);
        assert_int_equal(index_add_file(&index, f.fd, f.path, true, &file, &f.err), SLUICE_OK);
        /* Slots of 12 and of 20 KiB: neither of pages, nor a fraction of one. */
        assert_int_equal(index_add_tensor(&index, file, 1, "blk.0.ffn_up_exps.weight", 4096, 5000, 40, 4, &id, &f.err),
                         SLUICE_OK);
        assert_int_equal(index_add_tensor(&index, file, 1, "blk.1.ffn_up_exps.weight", 4096, 16000, 30, 4, &id, &f.err),
                         SLUICE_OK);
        assert_int_equal(slots_create(&slots, &index, 400000, SLUICE_POLICY_LRU, &f.err), SLUICE_OK);
        const uint64_t budgets[] = {400000, 130000, 500000, 0, 300000, 170000, 1 << 20};
        for (size_t k = 0; k < sizeof budgets / sizeof *budgets; k++) {
            assert_int_equal(slots_resize(&slots, budgets[k], &f.err), SLUICE_OK);
            for (uint32_t c = 0; c < slots.n_classes; c++) { /* all of it is there */
                memset(slots.classes[c].data, 0x5a, slots.classes[c].n * slots.classes[c].slot_bytes);
            }
        }
        assert_int_equal(pagesize_wrong(), 0);
        assert_true(pagesize_calls() > 10);
        slots_destroy(&slots);
        index_free(&index);
        end(&f);
        assert_int_equal(pagesize_wrong(), 0);
    }
    pagesize_set(0);
}

static void test_advice(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        pagesize_set(sizes[i]);
        struct fixture f;
        begin(&f);
        given_back = 0;
        pagesize_advised = no_dense;
        pages_advise(f.fd, f.start, f.size, f.experts, N_WEIGHTS / 2, true, true);
        pagesize_advised = NULL;
        assert_int_equal(pagesize_wrong(), 0);
        assert_true(given_back >= 4);
        for (int k = 0; k < N_WEIGHTS / 2; k++) {
            assert_true(same(&f, &f.dense[k]) && same(&f, &f.experts[k]));
        }
        end(&f);
    }
    pagesize_set(0);
}

static void test_dense(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t page = sizes[i];
        pagesize_set(page);
        struct fixture f;
        begin(&f);
        struct dense d = {0};
        const struct dense_map m = {.start = f.start,
                                    .id = f.found.id,
                                    .file = &f.file,
                                    .experts = f.experts,
                                    .n_experts = N_WEIGHTS / 2,
                                    .threads = 2};
        for (int k = 0; k < N_WEIGHTS / 2; k++) {
            assert_true(dense_note(&d, f.dense[k].start, f.dense[k].len));
        }
        assert_int_equal(dense_hold(&d, &m, &f.err), SLUICE_OK);
        assert_true(d.held.n > 1 && d.held_bytes % page == 0);
        assert_memory_equal(f.start, f.want, f.size); /* nothing changed for who reads */
        dense_fence(&d, &m);
        assert_true(d.fenced.n >= 4);
        for (size_t k = 0; k < d.fenced.n; k++) {
            assert_int_equal((uintptr_t)d.fenced.range[k].start % page, 0);
            assert_int_equal(d.fenced.range[k].len % page, 0);
        }
        for (int k = 0; k < N_WEIGHTS / 2; k++) {
            assert_false(dense_is_fenced(&d, f.dense[k].start, f.dense[k].len));
            assert_true(same(&f, &f.dense[k]));
        }
        /* The largest is fenced but for the pages that it shares, and comes back when a graph reads it in place. */
        const struct pages_range *last = &f.experts[N_WEIGHTS / 2 - 1];
        assert_true(dense_is_fenced(&d, last->start + page, last->len - 2 * page));
        assert_int_equal(dense_leave(&d, &m, last->start, last->len, &f.err), SLUICE_OK);
        assert_true(same(&f, last));
        assert_int_equal(pagesize_wrong(), 0);
        assert_true(pagesize_calls() > 10);
        dense_free(&d);
        end(&f);
    }
    pagesize_set(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounding), cmocka_unit_test(test_judge), cmocka_unit_test(test_slots),
        cmocka_unit_test(test_advice),   cmocka_unit_test(test_dense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
