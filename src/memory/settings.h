/* settings.h - which settings can be in force together. Reading them is in include/sluice.h. */
#ifndef SLUICE_MEMORY_SETTINGS_H
#define SLUICE_MEMORY_SETTINGS_H

#include "sluice.h"

enum { SETTINGS_NAME = 64 /* bytes of the name of an environment variable */ };

/* The environment variable of a setting: "io_threads" -> SLUICE_IO_THREADS. */
void settings_variable(const char *name, char out[SETTINGS_NAME]);

/* What a setting is that is one of some words: "dense", "cache_policy", "io", "kernel", "drop_renorm". */
const char *settings_word(const struct sluice_settings *s, const char *name);

/* Settings from code or text, as a whole: SLUICE_ERR_ARG, with the reason. */
int settings_check(const struct sluice_settings *s, struct sluice_error *err);

/* A threshold for leaving out experts, with that kind of cache. */
int settings_check_drop(double below, enum sluice_cache_mode cache, struct sluice_error *err);

#endif
