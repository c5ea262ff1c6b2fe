/*
 * supervise.h - one child process that is kept company: its output read, its end noticed, ended with us.
 *
 * One thread, one place to sleep. Not for a process with other threads: signals are blocked in the caller's thread.
 */
#ifndef SLUICE_CLI_SUPERVISE_H
#define SLUICE_CLI_SUPERVISE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum {
    SUPERVISE_LINE = 1024, /* bytes of a line with its terminator; a longer one comes in pieces */
    SUPERVISE_TAIL = 12    /* lines that are kept */
};

/* What there is to do. */
enum supervise_event {
    SUPERVISE_NOTHING, /* time is up, or only lines came */
    SUPERVISE_FD,      /* the caller's descriptor is ready */
    SUPERVISE_ASKED,   /* SIGINT, SIGTERM or SIGHUP came: see `asked` */
    SUPERVISE_ENDED    /* the child is gone: see `status` */
};

struct supervised {
    void (*line)(void *user, const char *line); /* called with each line of the child's output, without newline */
    void *user;                                 /* its first argument */
    int out;                                    /* a descriptor that gets the standard output; 0: it comes as lines */
    int entry;                                  /* of the cgroup.procs of a group that it enters first; 0: none */
    char part[SUPERVISE_LINE];                  /* the beginning of a line */
    char tail[SUPERVISE_TAIL][SUPERVISE_LINE];  /* the last lines, a ring */
    size_t n_part;                              /* bytes in `part` */
    size_t n_lines;                             /* lines so far; the last one is tail[(n_lines - 1) % SUPERVISE_TAIL] */
    sigset_t before;                            /* the signal mask to go back to */
    pid_t pid;                                  /* the child; 0: it was waited for, or there never was one */
    int signals;                                /* signalfd */
    int log;                                    /* reading end of its output; -1: closed by all writers */
    int asked;                                  /* signal that the last supervise_wait saw; 0: none */
    int status;                                 /* as waitpid has it */
};

/*
 * Start `program` with argv and the present environment, standard input empty, its outputs to us (but see `out`), in a
 * process group of its own (Ctrl-C on the terminal reaches us alone), to be killed by the kernel if we die. From here
 * on SIGINT, SIGTERM, SIGHUP (unless it is ignored: nohup) and SIGCHLD are blocked and come as events. Returns 0, or an
 * errno value; then nothing is left to be done.
 */
int supervise_start(struct supervised *s, const char *program, char **argv);

/* Sleep until something happens: at most timeout_ms, or (with fd >= 0) until poll's `events` of fd. Reads the log. */
enum supervise_event supervise_wait(struct supervised *s, int fd, short events, int timeout_ms);

/*
 * Pass `sig` on and wait; kill the child after grace_s seconds, or at once when another signal comes. Returns true when
 * it ended without being killed. Does nothing when there is no child any more.
 */
bool supervise_stop(struct supervised *s, int sig, double grace_s);

/* The i-th line of the tail, oldest first; NULL: there are not so many. */
const char *supervise_tail(const struct supervised *s, size_t i);

/* Close everything, restore the signal mask. The child must have ended. */
void supervise_free(struct supervised *s);

#endif
