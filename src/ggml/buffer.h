/* buffer.h - where tensors live: buffers of a device, the weights in them, and the dense weights beside those. */
#ifndef SLUICE_GGML_BUFFER_H
#define SLUICE_GGML_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ggml-backend.h"
#include "ggml.h"
#include "ggml/stream_weight.h"
#include "sluice.h"

struct sluice_device;

/* Fill the device's buffer type. */
void buffer_type_init(struct sluice_device *d);

/* A weights buffer over [ptr, ptr + size), which should lie in a mapped model file. NULL: no memory, reported. */
ggml_backend_buffer_t buffer_from_host_ptr(struct sluice_device *d, void *ptr, size_t size);

/*
 * After loading, once per file: give back what was read of the experts, and have the dense weights
 * read ahead if they are to stay in the page cache.
 */
void buffer_advise_pages(struct sluice_device *d);

/* A graph with this operation is being planned: note which dense weights of mapped models it reads. */
void buffer_note_dense(struct sluice_device *d, const struct ggml_tensor *op);

/* Somebody else is going to compute this operation: keep the streamed weights that it reads readable in place. */
void buffer_leave_in_place(struct sluice_device *d, const struct ggml_tensor *op);

/*
 * Before the first block of a model is computed: its dense weights go where the settings say. `w` is
 * one of its streamed weights. Later calls cost one load. Fails when locking is not allowed; and when the mapping was
 * lost, then for every context of the model and for good.
 */
int buffer_settle_dense(const struct ggml_tensor *w, struct sluice_error *err);

/* Dense weights of all models that stream, for the plan. */
struct buffer_dense {
    uint64_t bytes;  /* of them */
    uint64_t held;   /* of those, in anonymous memory */
    bool guessed;    /* of some model no graph is known yet: bytes is all of its files but the experts */
    bool in_mapping; /* some stay in the page cache */
};
void buffer_dense_sum(struct sluice_device *d, struct buffer_dense *sum);

/*
 * Call `visit` for every streamed weight of every mapped file, until it fails; returns what it returned.
 * Weights stay while it runs. It may call engines, but nothing that waits for dense weights.
 */
int buffer_each_weight(struct sluice_device *d, stream_visit_fn visit, void *ud);

/* The streamed weight behind a MUL_MAT_ID's src[0], of whatever device, or NULL: its data is in memory. */
const struct stream_weight *buffer_weight(const struct ggml_tensor *w);

/* Is it a weight that was to stream and could not be registered? llama.cpp goes on as if nothing had been said. */
bool buffer_refused(const struct ggml_tensor *w);

#endif
