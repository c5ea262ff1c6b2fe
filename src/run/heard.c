/*
 * heard.c - see heard.h.
 *
 * llama.h has no function for these sizes, its log has. The lines are those of the pinned release (docs/ggml.md, 27),
 * and are recognised by as little of their text as tells them apart. What is not recognised stays unknown, never
 * becomes wrong; tests/cli/plan.sh compares the sums with what a run then takes.
 */
#include "run/heard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number after `key`, or false. */
static bool number_after(const char *line, const char *key, double *out) {
    const char *at = strstr(line, key);
    char *end;
    if (!at) {
        return false;
    }
    at += strlen(key);
    const double x = strtod(at, &end);
    if (end == at || !(x >= 0) || x > 1e12) {
        return false;
    }
    *out = x;
    return true;
}

/* "sched_reserve:        CPU compute buffer size =    32.01 MiB": remember it by its name. */
static void hear_compute(struct sluice_heard *h, const char *line, const char *at) {
    double mib;
    char name[sizeof h->compute[0].name];
    const char *from = strstr(line, ": ");
    from = from && from < at ? from + 2 : line;
    from += strspn(from, " ");
    const char *to = at;
    while (to > from && to[-1] == ' ') {
        to--;
    }
    snprintf(name, sizeof name, "%.*s", (int)(to - from), from);
    if (!number_after(at, "compute buffer size =", &mib)) {
        return;
    }
    uint32_t i = 0;
    while (i < h->n_compute && strcmp(h->compute[i].name, name) != 0) {
        i++;
    }
    if (i == sizeof h->compute / sizeof h->compute[0]) {
        return;
    }
    h->n_compute += i == h->n_compute;
    memcpy(h->compute[i].name, name, sizeof name);
    h->compute[i].mib = mib; /* a context may be planned twice: the last time counts */
}

/* "nodes = 1879 / 1879": the graph of one token is the second, where there are two. */
static uint32_t hear_count(const char *line, const char *key) {
    double n;
    const char *at = strstr(line, key);
    if (!at || !number_after(at, key, &n)) {
        return 0;
    }
    const char *slash = at + strcspn(at, "/,\n");
    if (*slash == '/') {
        number_after(slash, "/", &n);
    }
    return n < UINT32_MAX ? (uint32_t)n : 0;
}

void sluice_hear(struct sluice_heard *h, const char *line) {
    const char *compute = strstr(line, "compute buffer size =");
    const size_t function = strcspn(line, ":");
    double mib;
    if (compute) {
        hear_compute(h, line, compute);
    } else if (strstr(line, ": graph") && strstr(line, "nodes = ")) {
        h->nodes = hear_count(line, "nodes = ");
        h->splits = hear_count(line, "splits = ");
    } else if (!strstr(line, "buffer size") && number_after(line, "size = ", &mib) && strstr(line, " MiB")) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)(function < sizeof name ? function : sizeof name - 1), line);
        const bool held = strstr(name, "memory_recurrent") || strstr(name, "comp_state");
        if (held || strstr(name, "kv_cache")) {
            h->kv = true;
            h->kv_mib += mib;
            h->held_mib += held ? mib : 0;
        }
    }
}

uint64_t sluice_heard_compute(const struct sluice_heard *h) {
    double mib = 0;
    for (uint32_t i = 0; i < h->n_compute; i++) {
        mib += h->compute[i].mib;
    }
    return (uint64_t)(mib * 1024 * 1024);
}
