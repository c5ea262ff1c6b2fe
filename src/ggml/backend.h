/* backend.h - the device as ggml sees it. */
#ifndef SLUICE_GGML_BACKEND_H
#define SLUICE_GGML_BACKEND_H

#include <stdbool.h>

#include "cache/engine.h"
#include "ggml-backend.h"
#include "sluice.h"

struct sluice_device;

/* Who sees what ggml hands to the backends of a private device, before they do. */
struct backend_spy {
    void *ud;                                                       /* first argument of the functions */
    void (*asked)(void *ud, const struct ggml_tensor *op);          /* would the device compute it? */
    void (*shown)(void *ud, struct ggml_cgraph *graph);             /* a split that will be computed */
    enum ggml_status (*split)(void *ud, struct ggml_cgraph *graph); /* one that is; what it fails with is returned */
};

/*
 * Make *d, which is zeroed, a device for these settings: its engine, the functions that ggml calls. `budget` is asked
 * with *d how much memory the experts may have. plugin: loaded by a host program. SLUICE_ERR_STATE: it is one already.
 */
int backend_setup(struct sluice_device *d, const struct sluice_settings *s, bool plugin, engine_budget_fn budget,
                  struct sluice_error *err);

/*
 * A device that is not registered, for tests of ggml by ggml: like the registered one in every function, but nobody
 * hears of what it computes, and rows are gathered in `rows_bytes`. NULL: *err says why.
 */
struct sluice_device *backend_create_private(const struct sluice_settings *s, engine_budget_fn budget,
                                             const struct backend_spy *spy, size_t rows_bytes,
                                             struct sluice_error *err);

/* Nothing of it is in use. NULL does nothing. */
void backend_free_private(struct sluice_device *d);

/* The device as ggml takes it. */
ggml_backend_dev_t backend_dev(struct sluice_device *d);

/* Nodes that the kernel computed so far for one of our backends. */
uint64_t backend_kernel_nodes(ggml_backend_t backend);

/* The interface version of a registry; that of ours. */
int backend_api_version(ggml_backend_reg_t reg);
int backend_api_ours(void);

#endif
