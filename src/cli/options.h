/*
 * options.h - the one table of options, and the lists of names that several commands share.
 */
#ifndef SLUICE_CLI_OPTIONS_H
#define SLUICE_CLI_OPTIONS_H

#include "cli/args.h"

extern const struct cli_option cli_options[]; /* ends with name NULL */

extern const char cli_model_options[];    /* -m, -c, -t, --ubatch, --n-expert-used */
extern const char cli_cache_options[];    /* the settings of sluice.h */
extern const char cli_measure_options[];  /* --csv */
extern const char cli_lossy_options[];    /* --drop-cold-experts and what belongs to it */
extern const char cli_window_options[];   /* --window, --allow-remote */
extern const char cli_sampling_options[]; /* -n, --temp and so on */

#endif
