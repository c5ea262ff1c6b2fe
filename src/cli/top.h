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
    TOP_PROCESSES = 64, /* shown at most */
    TOP_WIDTH = 256     /* bytes of a line with its terminator */
};

struct top_process {
    struct stat_data d; /* what it shows, checked */
    uint64_t memory;    /* its resident set now, bytes; 0: unknown */
};

struct top_list {
    size_t n;                            /* how many there are */
    size_t damaged;                      /* files that could not be understood */
    char complaint[512];                 /* about the last of those; "": there was none */
    struct top_process p[TOP_PROCESSES]; /* n entries, ascending by pid */
};

/* ---- top.c ---- */

/*
 * Look through the directories of this user. Files of dead processes are removed. `pid` not 0: list that
 * process only. By malloc; NULL: no memory.
 */
struct top_list *top_find(uint64_t pid);

/* ---- top_show.c ---- */

/*
 * A page about a process: at most `rows` lines, each with a line break, of at most `width` columns of printable ASCII.
 * map_rows: a line per layer where that fits, else a cell per layer. By malloc; NULL: no memory.
 */
char *top_page(const struct top_process *p, double now, int width, int rows, bool map_rows);

/* All of them as one JSON object on standard output. Returns an exit code. */
int top_json(const struct top_list *l, double now, const char *command);

/* ---- top_screen.c ---- */

/*
 * The live view, until the user leaves. Returns an exit code, or -1 when this is no terminal that can
 * be drawn on.
 */
int top_screen(uint64_t pid, const char *command);

#endif
