/* child.h - one measured process: started, watched, stopped in time. */
#ifndef SLUICE_BENCH_CHILD_H
#define SLUICE_BENCH_CHILD_H

#include <stdbool.h>

#include "bench/cgroup.h"
#include "sluice.h"

/* What to start. */
struct bench_child {
    char **argv;                                /* of the program, ends with NULL; argv[0] is only its name */
    const char *program;                        /* the file to execute */
    const char *out;                            /* file that gets its standard output */
    const char *err;                            /* file that gets its standard error */
    const struct bench_cgroup *group;           /* it enters this before it starts; NULL: none */
    double max_s;                               /* seconds after which it is asked to stop */
    bool (*interrupted)(void *user);            /* polled: true stops it */
    void (*tick)(void *user, double elapsed_s); /* about four times a second; may be NULL */
    void *user;                                 /* argument of both */
};

/* How it ended. */
struct bench_ended {
    double seconds;   /* from start to end */
    int code;         /* exit code; -1: a signal */
    int signal;       /* that killed it; 0: none */
    bool timed_out;   /* it was asked to stop because of max_s */
    bool interrupted; /* it was asked to stop because of the user */
    bool killed;      /* it did not stop when it was asked, and was killed */
};

/*
 * Start the child and wait for its end. Asking is SIGINT, on which `sluice run` prints what it has; a
 * child that does not end then is killed. Fails when it cannot be started, with the reason.
 */
int bench_child_run(const struct bench_child *c, struct bench_ended *out, struct sluice_error *err);

#endif
