/* resize.h - for sluice-logits: change settings of the plug-in while it runs, its cache's budget at random. */
#ifndef SLUICE_TESTS_RESIZE_H
#define SLUICE_TESTS_RESIZE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Begin, once models are loaded. Where a plug-in is loaded a thread changes the budget from now on, at any
 * time; without one (GGML_BACKEND_PATH not set) nothing is done, here and below. False: said why.
 */
bool resize_start(uint64_t seed);

/* Perhaps change it now, between two tokens. Any thread. */
void resize_between(void);

/* End the thread. False when a change failed (said why) or there was none. Prints how many there were. */
bool resize_stop(void);

/*
 * Change what the plug-in leaves out (sluice_set_drop_cold_experts), after asking for what must be refused. Without a
 * plug-in nothing. False: said why.
 */
bool resize_drop(double below);

/* How many experts the plug-in has in memory; without one 0. False: said why. */
bool resize_resident(uint64_t *n);

#endif
