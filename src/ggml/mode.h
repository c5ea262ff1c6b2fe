/* mode.h - what a device does, in lines for its user. Each function takes the locks that it needs. */
#ifndef SLUICE_GGML_MODE_H
#define SLUICE_GGML_MODE_H

#include <stdbool.h>
#include <stddef.h>

#include "sluice.h"

struct sluice_device;

/* sluice_mode_line, sluice_warning_line, sluice_get_plan and sluice_plan_line of a device. */
int mode_line(struct sluice_device *d, char *buf, size_t cap);
int mode_warning(const struct sluice_device *d, char *buf, size_t cap);
bool mode_plan(struct sluice_device *d, struct sluice_plan *out);
int mode_plan_line(struct sluice_device *d, char *buf, size_t cap);

/* Print them, once in the life of the device, for host programs that asked for no silence. Costs a load. */
void mode_print(struct sluice_device *d);

#endif
