/*
 * options.h - the option tables that several commands share.
 */
#ifndef SLUICE_CLI_OPTIONS_H
#define SLUICE_CLI_OPTIONS_H

#include "cli/args.h"

extern const struct cli_option cli_model_options[];    /* -m, -c, -t, --ubatch, --n-expert-used */
extern const struct cli_option cli_cache_options[];    /* the settings of sluice.h */
extern const struct cli_option cli_measure_options[];  /* --csv */
extern const struct cli_option cli_lossy_options[];    /* --drop-cold-experts and what belongs to it */
extern const struct cli_option cli_window_options[];   /* --window, --allow-remote */
extern const struct cli_option cli_sampling_options[]; /* -n, --temp and so on */

#endif
