/*
 * stat_file.h - the file in which a process that streams shows its counters to `sluice top`.
 *
 * One file per process, PID.stat, in a directory of the user's that nobody else can enter. The layout
 * is fixed for a version.
 */
#ifndef SLUICE_OBSERVE_STAT_FILE_H
#define SLUICE_OBSERVE_STAT_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "observe/counters.h"
#include "sluice.h"

enum {
    STAT_VERSION = 3,      /* changes with any field below */
    STAT_LAYERS_MAX = 512, /* MoE layers shown; more are not */
    STAT_STEPS = 16,       /* last steps kept */
    STAT_DIRS = 2,         /* directories that may hold files: see stat_dir */
    STAT_PATH_MAX = 512    /* bytes of a directory's path with its terminator */
};

/* One MoE layer: how many of its experts are in memory. */
struct stat_layer {
    uint32_t resident; /* experts that have a slot */
    uint32_t experts;  /* experts that there are */
};

/* Fields of eight bytes and their multiples only: no holes, one layout everywhere. */
struct stat_data {
    uint64_t pid;                             /* of the process, in its own namespace */
    uint64_t pid_namespace;                   /* inode of that; 0: unknown */
    uint64_t start_ticks;                     /* when it started, as /proc/PID/stat says: tells a reused pid */
    double updated;                           /* when this was written, seconds of CLOCK_MONOTONIC */
    char version[16];                         /* of sluice */
    char program[32];                         /* its name */
    char model[512];                          /* path of the model's first file */
    char mode[512];                           /* the mode line: settings in force */
    uint64_t threads;                         /* compute threads; 0: unknown */
    struct sluice_stats stats;                /* counters, which move within a step as well */
    struct step_sums ended[COUNTERS_PHASES];  /* finished steps, by enum sluice_phase */
    uint64_t n_steps;                         /* steps so far, both phases */
    struct sluice_step step[STAT_STEPS];      /* step i is at i % STAT_STEPS */
    uint64_t n_layers;                        /* entries of the next */
    struct stat_layer layer[STAT_LAYERS_MAX]; /* in the order of the model */
};

enum { STAT_WORDS = sizeof(struct stat_data) / 8 };

/* What is in the file. */
struct stat_layout {
    uint64_t magic;                    /* STAT_MAGIC */
    uint64_t version;                  /* STAT_VERSION */
    uint64_t size;                     /* of this struct, bytes */
    _Atomic uint64_t seq;              /* odd while the words are being written */
    _Atomic uint64_t word[STAT_WORDS]; /* a struct stat_data */
};

#define STAT_MAGIC 0x7461747365636c73u /* "slcestat" in a hex dump of a little-endian machine */

/*
 * Directory number i < STAT_DIRS of this user: $XDG_RUNTIME_DIR/sluice-UID, then /tmp/sluice-UID; or the one that
 * SLUICE_PUBLISH_DIR names, alone. False: there is no such. Writers take the first that is there, readers look in all,
 * since `sluice top` may run with another environment.
 */
bool stat_dir(int i, char buf[STAT_PATH_MAX]);

/*
 * Open a directory after checking that it is one, the user's, and closed to all others; symbolic
 * links are not followed. Returns a descriptor, or -1 with *err set.
 */
int stat_open_dir(const char *path, struct sluice_error *err);

/* When a process started, in the kernel's ticks since boot; 0: there is no such process, or it is dead. */
uint64_t stat_start_ticks(pid_t pid);

/* The inode of this process's pid namespace; 0: unknown. */
uint64_t stat_pid_namespace(void);

/* ---- writing ---- */

struct stat_file;

/* Make this process's file, of zeros. On failure *out is NULL. */
int stat_create(struct stat_file **out, struct sluice_error *err);

/*
 * Show *d. Never waits for readers. pid, pid_namespace and start_ticks are filled in. One writer at a
 * time.
 */
void stat_write(struct stat_file *f, const struct stat_data *d);

/* Remove the file; in a forked child only forget it. NULL is fine. */
void stat_remove(struct stat_file *f);

/* ---- reading ---- */

/*
 * Read a file that anyone may have damaged. SLUICE_ERR_FORMAT when it is not what it should be (size,
 * version, ranges), SLUICE_ERR_IO when it cannot be read, SLUICE_ERR_STATE when its writer stopped in the
 * middle of writing. *out is complete and consistent, or not to be used.
 */
int stat_read(int fd, struct stat_data *out, struct sluice_error *err);

/* ---- whose is it ---- */

enum stat_whose {
    STAT_THERE,     /* of a process that is there: *out is what it shows */
    STAT_STALE,     /* of one that is not: it may be removed */
    STAT_ELSEWHERE, /* of one that cannot be seen from here, or the file has just gone */
    STAT_DAMAGED,   /* it cannot be understood; *err says why */
};

/* Read the file `name`, PID.stat, in the directory `dir`, a descriptor. */
enum stat_whose stat_look(int dir, const char *name, struct stat_data *out, struct sluice_error *err);

/* Told of the file `name` of a process: what it shows, or NULL and why that cannot be understood. */
typedef void stat_seen(void *ud, uint64_t pid, const char *name, const struct stat_data *d,
                       const struct sluice_error *why);

/*
 * Look at the files in a directory, a descriptor that stays open. Those of dead processes are removed. `seen` is called
 * for those of processes that are there and for damaged ones; NULL: nobody asks.
 */
void stat_sweep(int dir, stat_seen *seen, void *ud);

#endif
