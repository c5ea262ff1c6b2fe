/* show.h - what `sluice top` sees of this process: between step.c and observe/stat_file.c. */
#ifndef SLUICE_GGML_SHOW_H
#define SLUICE_GGML_SHOW_H

#include "ggml/step.h"

/* A step ended at time t. The caller holds the log's lock; log->last are the counters now. */
void show_step(struct step_log *log, const struct sluice_step *s, double t);

/* A split ended at time t: in a long step, now and then, show its progress. */
void show_split(double t);

/* This program's name, as `ps` has it: at most n bytes with the terminator. "": unknown. */
void show_program(char *name, int n);

#endif
