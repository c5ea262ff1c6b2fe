/*
 * top.h - shared by the files of `sluice top`: which processes stream, and how one is shown.
 */
#ifndef SLUICE_CLI_TOP_H
#define SLUICE_CLI_TOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observe/stat_file.h"

enum {
    TOP_PROCESSES = 64,              /* shown at most */
    TOP_WIDTH = 256,                 /* bytes of a line with its terminator */
    TOP_LINES = STAT_LAYERS_MAX + 32 /* lines of a page, at most */
};

struct top_process {
    struct stat_data d; /* what it shows, checked */
    uint64_t memory;    /* its resident set now, bytes; 0: unknown */
};

struct top_list {
    struct top_process *p; /* n entries, ascending by pid; owned */
    size_t n;              /* how many */
    size_t damaged;        /* files that could not be understood */
    char complaint[512];   /* about the last of those; "": there was none */
};

/* What the last steps, those of the newest one's phase, say. All 0 when there was none. */
struct top_rates {
    bool prompt;            /* the phase is the prompt */
    double tokens_per_s;    /* tokens per second of the steps' wall time */
    double bytes_per_s;     /* read, likewise */
    double hits, hit_bytes; /* fractions 0..1, by count and by bytes */
    double part[4];         /* fractions of the wall time: stall, experts, other, bookkeeping */
};

/* ---- top_find.c ---- */

/*
 * Look through the directories of this user. Files of dead processes are removed. `pid` not 0: that
 * process only. False: no memory.
 */
bool top_find(struct top_list *l, uint64_t pid);

/* Free its memory. Accepts a zeroed struct. */
void top_free(struct top_list *l);

/* ---- top_text.c ---- */

struct top_rates top_rates_of(const struct stat_data *d);

/*
 * A page about a process, of printable ASCII, at most `width` columns and `rows` lines. map_rows: a
 * line per layer where that fits, else a cell per layer. Returns the number of lines.
 */
int top_page(const struct top_process *p, double now, int width, int rows, bool map_rows,
             char line[TOP_LINES][TOP_WIDTH]);

/* ---- top_json.c ---- */

/* All of them as one JSON object on standard output. Returns an exit code. */
int top_json(const struct top_list *l, double now, const char *command);

/* ---- top_screen.c ---- */

/*
 * The live view, until the user leaves. Returns an exit code, or -1 when this is no terminal that can
 * be drawn on.
 */
int top_screen(uint64_t pid, const char *command);

#endif
