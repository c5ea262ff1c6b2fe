/* api.h - the device that is registered in this process. Its public functions (sluice.h) have no handle: api.c. */
#ifndef SLUICE_API_API_H
#define SLUICE_API_API_H

#include "ggml/device.h"
#include "sluice.h"

/* Not set up before api_setup. */
extern struct sluice_device api_device;

/* Set it up. SLUICE_ERR_STATE: it is. */
int api_setup(const struct sluice_settings *s, bool plugin, struct sluice_error *err);

#endif
