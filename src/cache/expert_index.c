/*
 * index.c - which bytes are expert e of layer l.
 *
 * The catalog is filled while a model loads: ggml shows us every expert tensor with its shape and
 * its address inside the mapped file, so no file is parsed here and no architecture is known. The
 * tensors of one layer form a group; expert e of all of them is a bundle, read and evicted as one,
 * because a router that picks an expert needs all its parts within the same block.
 *
 * Grouping is the one place where names are read: "blk.7.ffn_up_exps.weight" and
 * "blk.7.ffn_down_exps.weight" share "blk.7.". Only memory layout depends on it. Should a model
 * name its tensors otherwise, they are bundles of one part each: same bytes, a little more
 * bookkeeping. Expert counts must agree too, which keeps a second, smaller index of the same layer
 * (GroveMoE's adjugate experts) apart.
 *
 * Windows: direct reads start and end at multiples of the alignment, slices do not. Each part of a
 * slot is as large as the outward-rounded window can get, the read lands in place, and the weight
 * pointer is window + (offset mod alignment). No bounce buffer, whatever the offsets are.
 */
#include "cache/expert_index.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cache/error.h"

void index_init(struct expert_index *b) {
    memset(b, 0, sizeof *b);
}

void index_free(struct expert_index *b) {
    for (uint32_t i = 0; i < b->n_files; i++) {
        if (b->files[i]) {
            stream_file_close(&b->files[i]->io);
            free(b->files[i]);
        }
    }
    free(b->files);
    free(b->tensors);
    free(b->groups);
    memset(b, 0, sizeof *b);
}

/* Make room for one more entry of `size` bytes in the array *p of *n entries; the new one is zeroed. */
static bool index_grow(void **p, uint32_t *n, size_t size) {
    if (*n >= UINT32_MAX / 2) {
        return false;
    }
    /* Grow by doubling at powers of two: entries are few, and ids stay stable. */
    if ((*n & (*n - 1)) == 0) {
        size_t cap = *n ? (size_t)*n * 2 : 1;
        void *q = reallocarray(*p, cap, size);
        if (!q) {
            return false;
        }
        *p = q;
    }
    memset((char *)*p + (size_t)*n * size, 0, size);
    (*n)++;
    return true;
}

int index_add_file(struct expert_index *b, int fd, const char *path, bool want_direct, uint32_t *file,
                   struct sluice_error *err) {
    struct stat st;
    if (fstat(fd, &st)) {
        return sluice_fail(err, SLUICE_ERR_IO, "%s: cannot stat", path);
    }
    uint32_t free_entry = b->n_files;
    for (uint32_t i = 0; i < b->n_files; i++) {
        if (!b->files[i]) {
            free_entry = i;
        } else if (b->files[i]->io.dev == st.st_dev && b->files[i]->io.ino == st.st_ino &&
                   b->files[i]->io.size == (uint64_t)st.st_size) {
            *file = i;
            b->files[i]->refs++;
            return sluice_ok(err);
        }
    }
    struct index_file *f = calloc(1, sizeof *f);
    if (!f) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "%s: out of memory", path);
    }
    int rc = stream_file_open_fd(&f->io, fd, path, want_direct, err);
    if (rc) {
        free(f);
        return rc;
    }
    if (free_entry == b->n_files && !index_grow((void **)&b->files, &b->n_files, sizeof *b->files)) {
        stream_file_close(&f->io);
        free(f);
        return sluice_fail(err, SLUICE_ERR_MEMORY, "%s: out of memory", path);
    }
    f->refs = 1;
    b->files[free_entry] = f;
    *file = free_entry;
    return sluice_ok(err);
}

void index_drop_file(struct expert_index *b, uint32_t file) {
    assert(file < b->n_files && b->files[file] && b->files[file]->refs > 0);
    if (--b->files[file]->refs == 0) {
        stream_file_close(&b->files[file]->io);
        free(b->files[file]);
        b->files[file] = NULL;
    }
}

/* Length of the name up to and including its second-last dot; 0: it has none. */
static size_t index_prefix_length(const char *name) {
    size_t last = 0, before = 0;
    for (size_t i = 0; name[i]; i++) {
        if (name[i] == '.') {
            before = last;
            last = i + 1;
        }
    }
    return before;
}

/* Bytes that a slice's window can take at most. */
static uint64_t index_window_max(const struct expert_index *b, const struct index_tensor *t) {
    const uint64_t a = b->files[t->file]->io.align;
    const uint64_t rounded = (t->slice + a - 1) / a * a;
    /* Aligned slices at aligned offsets need no slack; all others may touch one block more. */
    return (t->offset % a == 0 && t->slice % a == 0) ? rounded : rounded + a;
}

/* Recompute sizes and windows of a group after its tensors changed. */
static void index_layout_group(struct expert_index *b, struct index_group *g) {
    g->slot_bytes = g->weight_bytes = 0;
    for (uint32_t p = 0; p < g->n_parts; p++) {
        const struct index_tensor *t = &b->tensors[g->tensor[p]];
        const uint64_t a = b->files[t->file]->io.align;
        g->window[p] = (g->slot_bytes + a - 1) / a * a;
        g->slot_bytes = g->window[p] + index_window_max(b, t);
        g->weight_bytes += t->slice;
    }
}

/* The group that tensor t (name and n_expert set) belongs to, made if need be; UINT32_MAX: no memory. */
static uint32_t index_find_group(struct expert_index *b, const struct index_tensor *t, uint64_t owner) {
    const size_t len = index_prefix_length(t->name);
    uint32_t free_entry = b->n_groups;
    for (uint32_t i = 0; i < b->n_groups; i++) {
        struct index_group *g = &b->groups[i];
        if (g->n_parts == 0) {
            free_entry = i;
        } else if (len && g->owner == owner && g->n_expert == t->n_expert && g->n_parts < INDEX_PARTS_MAX &&
                   strlen(g->prefix) == len && memcmp(g->prefix, t->name, len) == 0) {
            return i;
        }
    }
    if (free_entry == b->n_groups && !index_grow((void **)&b->groups, &b->n_groups, sizeof *b->groups)) {
        return UINT32_MAX;
    }
    struct index_group *g = &b->groups[free_entry];
    memset(g, 0, sizeof *g);
    memcpy(g->prefix, t->name, len);
    g->owner = owner;
    g->n_expert = t->n_expert;
    b->live_groups++;
    return free_entry;
}

int index_add_tensor(struct expert_index *b, uint32_t file, uint64_t owner, const char *name, uint64_t offset,
                     uint64_t slice, uint32_t n_expert, uint32_t top_k, uint32_t *tensor, struct sluice_error *err) {
    assert(file < b->n_files && b->files[file]);
    const uint64_t size = b->files[file]->io.size;
    if (slice == 0 || n_expert == 0 || offset > size || slice > (size - offset) / n_expert) {
        return sluice_fail(err, SLUICE_ERR_FORMAT, "%s: tensor %s lies outside the file", b->files[file]->io.path,
                           name);
    }
    uint32_t id = 0;
    while (id < b->n_tensors && b->tensors[id].live) {
        id++;
    }
    if (id == b->n_tensors && !index_grow((void **)&b->tensors, &b->n_tensors, sizeof *b->tensors)) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "tensor %s: out of memory", name);
    }
    struct index_tensor *t = &b->tensors[id];
    memset(t, 0, sizeof *t);
    strncpy(t->name, name, sizeof t->name - 1);
    t->offset = offset;
    t->slice = slice;
    t->n_expert = n_expert;
    t->file = file;
    t->group = index_find_group(b, t, owner);
    if (t->group == UINT32_MAX) {
        return sluice_fail(err, SLUICE_ERR_MEMORY, "tensor %s: out of memory", name);
    }
    struct index_group *g = &b->groups[t->group];
    t->part = g->n_parts;
    t->live = true;
    g->tensor[g->n_parts++] = id;
    if (top_k > n_expert) {
        top_k = n_expert;
    }
    if (g->top_k < top_k || g->top_k == 0) {
        g->top_k = top_k ? top_k : 1;
    }
    index_layout_group(b, g);
    b->files[file]->refs++;
    b->live_tensors++;
    *tensor = id;
    return sluice_ok(err);
}

void index_remove_tensor(struct expert_index *b, uint32_t tensor) {
    assert(tensor < b->n_tensors && b->tensors[tensor].live);
    struct index_tensor *t = &b->tensors[tensor];
    struct index_group *g = &b->groups[t->group];
    /* Close the gap; the parts behind it move down. */
    for (uint32_t p = t->part; p + 1 < g->n_parts; p++) {
        g->tensor[p] = g->tensor[p + 1];
        b->tensors[g->tensor[p]].part = p;
    }
    g->n_parts--;
    t->live = false;
    b->live_tensors--;
    if (g->n_parts) {
        index_layout_group(b, g);
    } else {
        b->live_groups--;
    }
    index_drop_file(b, t->file);
}

uint64_t index_weight_bytes(const struct expert_index *b) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < b->n_groups; i++) {
        /* No overflow: every slice lies within a file, so the sum is at most the sum of file sizes. */
        sum += b->groups[i].n_parts ? b->groups[i].weight_bytes * b->groups[i].n_expert : 0;
    }
    return sum;
}

uint64_t index_token_slot_bytes(const struct expert_index *b, uint64_t *layer) {
    uint64_t sum = 0, max = 0;
    for (uint32_t i = 0; i < b->n_groups; i++) {
        const struct index_group *g = &b->groups[i];
        const uint64_t need = g->n_parts ? g->slot_bytes * g->top_k : 0;
        sum += need;
        max = need > max ? need : max;
    }
    if (layer) {
        *layer = max;
    }
    return sum;
}

struct index_window index_window_of(const struct expert_index *b, uint32_t tensor, uint32_t expert) {
    const struct index_tensor *t = &b->tensors[tensor];
    assert(t->live && expert < t->n_expert);
    const struct stream_file *f = &b->files[t->file]->io;
    const uint64_t start = t->offset + (uint64_t)expert * t->slice;
    const uint64_t aligned = start / f->align * f->align;
    const uint64_t end = (start + t->slice + f->align - 1) / f->align * f->align;
    return (struct index_window){.file = f, .offset = aligned, .len = end - aligned, .skip = start - aligned};
}
