/* buffer_impl.h - between buffer.c (what ggml asks of a buffer) and settle.c (its file's dense weights). */
#ifndef SLUICE_GGML_BUFFER_IMPL_H
#define SLUICE_GGML_BUFFER_IMPL_H

#include "ggml/dense.h"
#include "ggml/device.h"
#include "ggml/maps.h"
#include "ggml/pages.h"
#include "ggml/stream_weight.h"

/* Where the dense weights of a file are. */
enum dense_state {
    DENSE_COLLECTING, /* in the mapping; graphs that are planned tell which they are */
    DENSE_SETTLED,    /* where the settings want them */
    DENSE_LOST,       /* a part of the mapping is gone: nothing of this model is computed any more */
};

struct sluice_buffer {
    struct sluice_device *device;   /* whose */
    void *base;                     /* first byte */
    bool own;                       /* base is to be freed */
    bool mapped;                    /* a mapped file: tensors in it stream */
    uint32_t file;                  /* index in the expert index, when mapped */
    uint64_t offset;                /* file offset of base, bytes, when mapped */
    uint64_t owner;                 /* which load this is */
    uint32_t top_k;                 /* experts per token that the load announced */
    struct stream_weight **weights; /* tensors registered, for removal */
    struct pages_range *ranges;     /* the bytes of the mapping under each; in another order */
    int fd;                         /* the file, for advice on its page cache; -1 when not mapped */
    uint64_t file_size;             /* its size, bytes */
    uint64_t experts;               /* of them, experts as its header says, bytes; 0: unknown */
    struct maps_id id;              /* which mappings are of that file */
    bool advised;                   /* buffer_advise_pages is done with it */
    _Atomic int state;              /* enum dense_state; set under dense_lock */
    struct sluice_error lost;       /* what to say in DENSE_LOST; under dense_lock */
    struct dense dense;             /* which they are; under dense_lock */
    uint64_t dense_noted;           /* copies of its sums, bytes, under `lock` of the device */
    uint64_t dense_held;            /* the same */
    size_t n, cap;                  /* how many, and room */
    struct sluice_buffer *next;     /* in the list of the device, when mapped */
};

/* The buffer that a tensor lies in, if it is one of ours over a mapped file, of whatever device. Else NULL. */
struct sluice_buffer *buffer_of(const struct ggml_tensor *t);

#endif
