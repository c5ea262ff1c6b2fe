/*
 * map.c - the cache map.
 *
 * One byte per expert, in base64: 8 KiB for a model of 48 layers by 128 experts, once a second, where JSON numbers
 * would be 30 KiB. The high bits are where the expert is, the low ones its heat: 63 * sqrt(p), p the share of the
 * layer's tokens that used it. The root because a router that likes nothing in particular gives p = 6/128, which must
 * not look like nothing.
 *
 * The engine counts uses and never forgets; heat is their decay by tokens, not by time, so that the picture stays while
 * nothing runs. Nobody has to look all the time: what was counted since the last look is added as it is then.
 */
#include "window/map.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAP_HALF_LIFE 64.0 /* tokens after which a use counts half */

/* Room for n experts. False: no memory. */
static bool map_reserve(struct window_map *m, uint32_t n) {
    if (m->cap && n <= m->cap) { /* a layer may have no experts, but there is always an array */
        return true;
    }
    const uint32_t cap = n < 4096 ? 4096 : n + n / 2;
    struct map_expert *expert = reallocarray(m->expert, cap, sizeof *expert);
    if (!expert) {
        return false;
    }
    m->expert = expert;
    m->cap = cap;
    return true;
}

/* Layer i as it is now; its experts begin at m->first[i]. */
static void map_layer(struct window_map *m, uint32_t i, const struct window_layer *layer) {
    struct map_expert *x = m->expert + m->first[i];
    double added = 0, sum = 0;
    bool anew = false;
    for (uint32_t e = 0; e < layer->experts; e++) {
        anew = anew || layer->uses[e] < x[e].uses; /* the cache was made anew, and the counts with it */
    }
    if (anew) {
        memset(x, 0, layer->experts * sizeof *x);
    }
    for (uint32_t e = 0; e < layer->experts; e++) {
        added += layer->uses[e] - (double)x[e].uses;
    }
    const float decay = (float)exp2(-added / layer->top_k / MAP_HALF_LIFE);
    for (uint32_t e = 0; e < layer->experts; e++) {
        x[e].heat = x[e].heat * decay + (float)(layer->uses[e] - x[e].uses);
        x[e].uses = layer->uses[e];
        sum += (double)x[e].heat;
    }
    for (uint32_t e = 0; e < layer->experts; e++) {
        const double p = sum > 0 ? (double)x[e].heat * layer->top_k / sum : 0;
        const uint8_t h = (uint8_t)(63 * sqrt(p < 1 ? p : 1) + 0.5);
        x[e].byte = (uint8_t)(layer->state[e] << 6 | h);
    }
}

/* Read all layers. False: no memory. */
static bool map_read(struct window_map *m, const struct window_source *source, struct window_layer *layer) {
    uint32_t i = 0, n = 0;
    for (; i < WINDOW_LAYERS_MAX && source->layer(source->ud, i, layer); i++) {
        if (n + layer->experts > WINDOW_MAP_MAX) {
            break;
        }
        if (!map_reserve(m, n + layer->experts)) {
            return false;
        }
        if (i >= m->layers || m->experts[i] != layer->experts || m->first[i] != n) {
            m->layers = i; /* another model: nothing is known of this layer and those after it */
            memset(m->expert + n, 0, layer->experts * sizeof *m->expert);
        }
        m->experts[i] = layer->experts;
        m->first[i] = n;
        m->layers = m->layers > i ? m->layers : i + 1;
        map_layer(m, i, layer);
        n += layer->experts;
    }
    m->layers = i;
    m->n = n;
    return true;
}

/* The bytes of n experts in base64, by malloc. NULL: no memory. */
static char *map_base64(const struct map_expert *p, uint32_t n, size_t *length) {
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = malloc((size_t)n / 3 * 4 + 8), *to = text;
    for (uint32_t i = 0; text && i < n; i += 3) {
        const uint32_t have = n - i < 3 ? n - i : 3;
        const uint32_t x = (uint32_t)p[i].byte << 16 | (have > 1 ? (uint32_t)p[i + 1].byte << 8 : 0) |
                           (have > 2 ? (uint32_t)p[i + 2].byte : 0);
        *to++ = digit[x >> 18];
        *to++ = digit[x >> 12 & 63];
        *to++ = have > 1 ? digit[x >> 6 & 63] : '=';
        *to++ = have > 2 ? digit[x & 63] : '=';
    }
    *length = (size_t)(to - text);
    return text;
}

json_t *map_json(struct window_map *m, const struct window_source *source, struct window_layer *layer) {
    if (!map_read(m, source, layer)) {
        return NULL;
    }
    size_t n = 0;
    char *data = map_base64(m->expert, m->n, &n);
    json_t *layers = json_array();
    for (uint32_t i = 0; i < m->layers; i++) {
        json_array_append_new(
            layers, json_pack("{s:I,s:I}", "first", (json_int_t)m->first[i], "experts", (json_int_t)m->experts[i]));
    }
    json_t *o = json_pack("{s:o,s:o}", "layers", layers, "data", data ? json_stringn_nocheck(data, n) : NULL);
    free(data);
    return o;
}

void map_free(struct window_map *m) {
    free(m->expert);
    *m = (struct window_map){0};
}
