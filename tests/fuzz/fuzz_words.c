/*
 * fuzz_words.c - what a user types: settings, the environment, addresses, and command lines.
 *
 * An input is lines. The first is a command line for `sluice run`, of words parted by blanks; the second one of `sluice
 * replay` (whose lists of budgets and thresholds are then taken apart), the third of `sluice bench` (likewise); all
 * others are settings, NAME=VALUE or SLUICE_NAME=VALUE for the environment, and every value is read as a size, an
 * address and whatever else the window reads from texts.
 *
 * What must hold: a setting that is refused changes nothing and says why; settings in force can be set again from what
 * was read; an address is spelled as it was understood.
 */
#include "fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/replay.c" /* its table, and how it reads lists */
#include "plan/address.h"
#include "plan/settings.h"
#include "window/guard.h"

/* What cli/replay.c prints with; nothing is replayed here. */
void replay_print(const struct replay_report *r) {
    (void)r;
}
