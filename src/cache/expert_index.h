/* index.h - the catalog: which bytes of which file are expert e of which tensor. */
#ifndef SLUICE_CACHE_EXPERT_INDEX_H
#define SLUICE_CACHE_EXPERT_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "sluice.h"
#include "cache/file.h"

enum {
    INDEX_PARTS_MAX = 8, /* slices in a bundle: gate, up, down and room for unusual blocks */
    INDEX_NAME_MAX = 64, /* as ggml's tensor names, terminator included */
};

/* One expert tensor: n_expert slices of the same size, back to back in a file. */
struct index_tensor {
    char name[INDEX_NAME_MAX]; /* for messages, and for the group when nothing else tells it */
    uint64_t offset;           /* file offset of expert 0, bytes */
    uint64_t slice;            /* bytes of one expert, also the distance to the next */
    uint32_t n_expert;         /* slices */
    uint32_t file;             /* index into index.files */
    uint32_t group;            /* index into index.groups */
    uint32_t part;             /* which part of the group's bundles its slices are */
    bool live;                 /* false: a free entry */
};

/*
 * Expert tensors that a router uses together (gate, up and down of one layer). Expert e of all of
 * them is the bundle (group, e), the unit of residency.
 */
struct index_group {
    char prefix[INDEX_NAME_MAX];      /* of the tensor names, up to the last but one dot */
    uint64_t owner;                   /* which load it came from: groups never span two loads */
    uint32_t n_expert;                /* bundles */
    uint32_t n_parts;                 /* tensors; 0: a free entry */
    uint32_t tensor[INDEX_PARTS_MAX]; /* indices into index.tensors, in order of registration */
    uint64_t window[INDEX_PARTS_MAX]; /* where in a slot each part's read window begins, bytes */
    uint64_t slot_bytes;              /* memory that a bundle needs, windows rounded outward, bytes */
    uint64_t weight_bytes;            /* weight bytes of a bundle, no rounding */
    uint32_t top_k;                   /* experts that a token uses here, as far as known; at least 1 */
};

struct index_file {
    struct stream_file io; /* descriptors and alignment */
    uint32_t refs;         /* live tensors in it, and callers that may add some */
};

struct expert_index {
    struct index_tensor *tensors;          /* by id; grows, entries are reused */
    struct index_group *groups;            /* by id; grows, entries are reused */
    struct index_file **files;             /* by id; pointers, so that a reader's pointer survives growth */
    uint32_t n_tensors, n_groups, n_files; /* entries, free ones included */
    uint32_t live_tensors;                 /* tensors registered now */
    uint32_t live_groups;                  /* groups with tensors now */
};

/* Everything empty. */
void index_init(struct expert_index *b);

/* Close all files, free all memory. */
void index_free(struct expert_index *b);

/*
 * Find (by device and inode) or open the file behind fd and return its index in *file. The caller
 * holds a reference, until index_drop_file; so do tensors. The last one to go closes the file.
 */
int index_add_file(struct expert_index *b, int fd, const char *path, bool want_direct, uint32_t *file,
                   struct sluice_error *err);

/* Give back the reference of one index_add_file. */
void index_drop_file(struct expert_index *b, uint32_t file);

/*
 * Register a tensor of n_expert slices of `slice` bytes from `offset` of `file`; its id comes back
 * in *tensor. It joins the group of the same owner whose tensors share its name up to the
 * second-last dot and its expert count. SLUICE_ERR_FORMAT when the slices do not lie within the
 * file (checked without overflow).
 */
int index_add_tensor(struct expert_index *b, uint32_t file, uint64_t owner, const char *name, uint64_t offset,
                     uint64_t slice, uint32_t n_expert, uint32_t top_k, uint32_t *tensor, struct sluice_error *err);

/* Forget a tensor; the last one of a group frees the group. */
void index_remove_tensor(struct expert_index *b, uint32_t tensor);

/* Sum over live groups of the bytes of all bundles, weights only. */
uint64_t index_weight_bytes(const struct expert_index *b);

/* Slot bytes that one token needs: all groups, top_k bundles each; *layer: the largest group's part. */
uint64_t index_token_slot_bytes(const struct expert_index *b, uint64_t *layer);

/* The file range to read for a slice: where it starts, how long, and where in it the slice begins. */
struct index_window {
    const struct stream_file *file; /* to read from */
    uint64_t offset;                /* aligned file offset, bytes */
    uint64_t len;                   /* aligned length, bytes */
    uint64_t skip;                  /* bytes from the window's start to the slice's start */
};

/* The window of expert `expert` of tensor `tensor`. Both must exist. */
struct index_window index_window_of(const struct expert_index *b, uint32_t tensor, uint32_t expert);

#endif
