/* machine.h - what the machine is, and in which state a measurement found it. */
#ifndef SLUICE_BENCH_MACHINE_H
#define SLUICE_BENCH_MACHINE_H

#include <stdint.h>

/* What does not change. "" and 0: not to be found out. */
struct bench_machine {
    char kernel[128];     /* "Linux 6.1.0-18-amd64" */
    char processor[128];  /* "model name" of /proc/cpuinfo */
    char disk[128];       /* the block device that the model lies on: "vda (...)" or "254:0" */
    char file_system[64]; /* "ext4" */
    uint64_t memory;      /* bytes of the machine */
};

/* What changes. Read before and after a run. */
struct bench_state {
    double load;        /* load average of one minute; -1: unknown */
    double mhz;         /* mean clock of the processors now; 0: unknown */
    double steal_s;     /* processor seconds since boot that the hypervisor gave to others; -1: unknown */
    uint64_t available; /* MemAvailable, bytes; 0: unknown */
};

/* Find out about the machine and the disk behind `path`. `root` is put before /proc and /sys ("" outside tests). */
void bench_machine_read(struct bench_machine *m, const char *path, const char *root);

/* The state now. */
void bench_state_read(struct bench_state *s, const char *root);

#endif
