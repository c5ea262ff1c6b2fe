/*
 * process.c - what memory this process has now.
 *
 * Three of the kernel's sums answer it: what is in memory and anonymous, what is in memory and
 * mapped from files, and what was allocated (VmData, the private writable mappings). The difference
 * of the last and the first is memory that was promised and is not touched yet: compute buffers and
 * the KV cache of a program that has just loaded a model. A cache sized without it is what gets a
 * process killed at its first long prompt.
 *
 * Stacks of threads are promised too, 8 MiB each, and practically never used: a server with forty
 * threads would lose 320 MiB of cache to them. glibc puts a guard page that nobody may touch below
 * each, which tells them in the list of mappings.
 */
#include "memory/process.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "memory/cgroup.h"

enum {
    PROCESS_PATH = 4096,         /* bytes of a path */
    PROCESS_GUARD = 64 << 10,    /* bytes: a larger untouchable mapping is no guard, but room for a heap */
    PROCESS_STACK_MAX = 8 << 20, /* bytes: a larger mapping above a guard is no stack by default */
};

/* Bytes of private writable memory that lies directly above a guard. */
static uint64_t process_stacks(const char *path) {
    FILE *f = fopen(path, "re");
    if (!f) {
        return 0;
    }
    char *line = NULL;
    size_t cap = 0;
    uint64_t stacks = 0, guard_end = 0;
    while (getline(&line, &cap, f) > 0) {
        uint64_t start, end, inode;
        char access[8];
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %*s %*s %" SCNu64, &start, &end, access, &inode) != 4) {
            continue;
        }
        if (guard_end && start == guard_end && inode == 0 && strcmp(access, "rw-p") == 0 &&
            end - start <= PROCESS_STACK_MAX) {
            stacks += end - start;
        }
        guard_end = inode == 0 && strcmp(access, "---p") == 0 && end - start <= PROCESS_GUARD ? end : 0;
    }
    free(line);
    fclose(f);
    return stacks;
}

void plan_process_resident(struct plan_process *p, const char *root) {
    char path[PROCESS_PATH];
    *p = (struct plan_process){0};
    if ((size_t)snprintf(path, sizeof path, "%s/proc/self/status", root) < sizeof path) {
        plan_field_in(path, "RssAnon:", 1024, &p->anon);
        plan_field_in(path, "RssFile:", 1024, &p->files);
        plan_field_in(path, "RssShmem:", 1024, &p->shared);
        plan_field_in(path, "VmData:", 1024, &p->data);
        p->anon += p->shared;
    }
}

void plan_process_read(struct plan_process *p, const char *root) {
    char path[PROCESS_PATH];
    plan_process_resident(p, root);
    if ((size_t)snprintf(path, sizeof path, "%s/proc/self/maps", root) < sizeof path) {
        p->stacks = process_stacks(path);
    }
}

uint64_t plan_process_peak(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0; /* Linux counts KiB */
}
