/* shadow.h - the expert cache without memory and files: what would be in it. */
#ifndef SLUICE_CACHE_SHADOW_H
#define SLUICE_CACHE_SHADOW_H

#include <stdbool.h>
#include <stdint.h>

#include "sluice.h"
#include "cache/engine.h"

struct shadow;

/* An empty one, divided as the engine divides `arena` among these n groups. NULL: no memory, or no cache. */
struct shadow *shadow_create(const struct engine_group *group, uint32_t n, const struct engine_arena *arena,
                             enum sluice_policy policy);
void shadow_destroy(struct shadow *s);

/* A block of a group begins, as engine_begin_block. */
void shadow_visit(struct shadow *s, uint32_t group, const struct engine_routing *r);

/* Is the expert in it? */
bool shadow_has(const struct shadow *s, uint32_t group, int32_t expert);

/* A block asks for n distinct experts, as engine_acquire does. */
void shadow_acquire(struct shadow *s, uint32_t group, const int32_t *expert, uint32_t n);

#endif
