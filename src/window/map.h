/* map.h - the cache map: what of the model is in memory, and how often it is used. */
#ifndef SLUICE_WINDOW_MAP_H
#define SLUICE_WINDOW_MAP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "window/window.h"

/* An expert of one layer. */
struct map_expert {
    uint32_t uses; /* as it was told last */
    float heat;    /* uses, decayed */
    uint8_t byte;  /* what the map says */
};

/* What is remembered from map to map, for the heat. Zeroed: nothing. */
struct window_map {
    uint32_t layers;                     /* entries of the next two */
    uint32_t experts[WINDOW_LAYERS_MAX]; /* of each */
    uint32_t first[WINDOW_LAYERS_MAX];   /* where its experts begin below */
    uint32_t n;                          /* experts of all layers: entries of the next */
    struct map_expert *expert;           /* owned */
    uint32_t cap;                        /* entries allocated */
};

/* Look at all layers and make the map as docs/window.md has it. `layer` is scratch. NULL: no memory. */
json_t *map_json(struct window_map *m, const struct window_source *source, struct window_layer *layer);

/* Free what it owns. */
void map_free(struct window_map *m);

#endif
