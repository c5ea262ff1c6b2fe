/* show.h - what `sluice top` sees of this process: between step.c and plan/stat_file.c. */
#ifndef SLUICE_BACKEND_SHOW_H
#define SLUICE_BACKEND_SHOW_H

#include "backend/step.h"

/* One more step. The caller holds the log's lock. */
void show_add(struct stat_data *d, const struct sluice_step *s);

/* Bring the file, if there is one, up to the counters *st at time t. The caller holds the log's lock. */
void show_write(struct step_log *log, const struct sluice_stats *st, double t);

/* A split ended at time t: in a long step, now and then, show its progress. */
void show_split(double t);

#endif
