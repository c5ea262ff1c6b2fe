/*
 * plan.h - what `sluice plan` found out, between the file that finds out and those that print.
 */
#ifndef SLUICE_CLI_PLAN_H
#define SLUICE_CLI_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/args.h"
#include "memory/predict.h"
#include "run/dry.h"
#include "run/info.h"
#include "run/probe.h"
#include "run/speed.h"
#include "sluice.h"

enum {
    PLAN_DISK_MAX = 5,    /* numbers of I/O threads that are tried */
    PLAN_ROUNDS = 3,      /* times that each is */
    PLAN_ROWS_MAX = 24,   /* caches that are predicted */
    PLAN_TEXT = 512,      /* bytes of a reason */
    PLAN_COMMAND = 10240, /* bytes of a command line: a path of which every letter is quoted */
};

/* How it will run. */
enum outlook_mode {
    PLAN_UNKNOWN,   /* cannot be told */
    PLAN_RESIDENT,  /* everything fits in memory */
    PLAN_STREAMING, /* some experts will be read again and again */
    PLAN_NONE,      /* not at all */
};

/* Disk speed with so many reads in flight. */
struct outlook_disk {
    uint32_t threads;         /* I/O threads: reads in flight */
    double rate[PLAN_ROUNDS]; /* bytes per second, ascending; n of them */
    uint32_t n;               /* measured */
};

/* One cache. */
struct outlook_row {
    char name[32];            /* "auto", "all", "2000 MiB", "0" */
    uint64_t cache_bytes;     /* slot memory that the engine would cut; 0: none is kept between uses */
    uint64_t total_bytes;     /* memory of the process with it; 0: not known */
    uint64_t peak_bytes;      /* of that, what it will have touched at its peak; 0: not known */
    bool fits;                /* within the limit */
    bool is_auto;             /* what a run takes by itself */
    char why_not[PLAN_TEXT];  /* why it does not fit; "" */
    struct predict_row speed; /* prediction */
};

struct outlook {
    const struct cli_config *config; /* the command line */
    struct sluice_settings settings; /* what a run would have */
    struct sluice_gguf *gguf;        /* the header, owned */
    struct sluice_info info;         /* of it */
    struct sluice_log log;           /* llama.cpp's */
    uint64_t tokens;                 /* of the prompt that is planned for */
    int threads;                     /* that compute */
    uint64_t present_bytes;          /* of the files, what is there */
    uint64_t whole_bytes;            /* of the files, what there is when they are complete */

    struct sluice_dry dry;     /* memory; valid if dry_why is "" */
    char dry_why[PLAN_TEXT];   /* why there is none */
    struct sluice_plan memory; /* the memory plan that a run makes; valid if has_memory */
    bool has_memory;           /* see above: it fits, or it does not and the rows are told anyway */
    uint64_t all_bytes;        /* slot memory of all experts; 0: not known */
    enum outlook_mode mode;    /* how it will run */
    char mode_why[PLAN_TEXT];  /* why, in words */
    uint32_t smaller_ctx;      /* a context with which it fits, where it does not with the one asked for; 0: none */

    struct outlook_disk disk[PLAN_DISK_MAX]; /* what was measured */
    size_t n_disk;                           /* of them; 0: not measured */
    char disk_why[PLAN_TEXT];                /* why not */

    struct sluice_speed speed; /* processor; valid if speed_why is "" */
    char speed_why[PLAN_TEXT]; /* why there is none */

    struct predict_input input;             /* what the predictions came from */
    struct predict_row resident;            /* stock llama.cpp with everything in memory */
    bool resident_fits;                     /* it would be */
    uint64_t resident_bytes;                /* memory of that; 0: not known */
    struct outlook_row rows[PLAN_ROWS_MAX]; /* by cache, ascending but for those asked for by --budgets */
    size_t n_rows;                          /* of them */
    char command[PLAN_COMMAND];             /* ready to copy; "": there is none */
};

/* What a process with that memory plan will have touched at its peak: all but what is promised and never used. */
uint64_t outlook_peak(const struct outlook *p, const struct sluice_plan *memory);

/* Write the page for people, or the JSON object, to standard output, after filling p->command. Returns an exit code
 * after printing one line. */
int outlook_show(struct outlook *p);

#endif
