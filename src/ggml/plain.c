/*
 * plain.c - expert matmuls of ours on weights that do not stream.
 *
 * A program that reads its weights into memory itself, or maps no model file, has put them into a buffer of ours all
 * the same, and the CPU backend computes them as it would without us. Two things it does not look at: whether ids name
 * an expert (it would read beyond the weights), and whether the weight was taken at all: llama.cpp goes on when a
 * buffer refuses a tensor.
 */
#include "ggml/plain.h"

#include "ggml/backend.h"
#include "cache/error.h"

void plain_begin(struct plain *p) {
    p->ids = NULL;
}

enum ggml_status plain_check(struct plain *p, struct collect *c, const struct ggml_tensor *node,
                             struct sluice_error *err) {
    const struct ggml_tensor *w = node->src[0], *ids = node->src[2];
    if (buffer_refused(w)) {
        sluice_fail(err, SLUICE_ERR_FORMAT, "tensor %s was refused when the model was loaded", w->name);
        return GGML_STATUS_FAILED;
    }
    device_note_plain("the program reads the weights into memory itself");
    device_print_mode();
    if (ids == p->ids && w->ne[2] == p->n_expert) {
        return GGML_STATUS_SUCCESS; /* the matmuls of a block share them */
    }
    const enum ggml_status status = collect_flush(c); /* the ids may be an output of nodes collected so far */
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    p->ids = ids;
    p->n_expert = w->ne[2];
    return route_check(ids, w->ne[2], err) ? GGML_STATUS_FAILED : GGML_STATUS_SUCCESS;
}
