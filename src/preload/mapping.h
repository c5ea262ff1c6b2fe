/*
 * mapping.h - the one switch of mapping.c, for programs that link it in.
 */
#ifndef SLUICE_PRELOAD_MAPPING_H
#define SLUICE_PRELOAD_MAPPING_H

#include <stdbool.h>

/*
 * From now on map model files without reading them (true, the default) or as asked for (false, what
 * `sluice run --resident` wants: plain llama.cpp). Any thread; mappings that exist stay as they are.
 */
void sluice_mapping_set_lazy(bool lazy);

#endif
