/*
 * quiet.c - what must hold of the process between two models, and of the counters at any time.
 *
 * Between two models nothing is loaded: then every descriptor and thread that the last one needed must be gone. What
 * stays for good (libraries, the counters' file, OpenMP's team of the main thread) is there after the first round
 * already, so later ones are compared with that one, exactly. Memory cannot be compared exactly - the allocator keeps
 * what it likes - so it is only measured here; tests/endurance/ looks at how it goes over many rounds.
 *
 * glibc raises its thresholds when large blocks are freed: then the buffers of contexts come from the threads' arenas,
 * of which the free end is never given back, and resident memory wanders between 20 and 50 MiB with nothing loaded,
 * over hundreds of rounds (malloc's own count of what it had given out stayed at 7.3 MiB). With fixed thresholds it
 * shows what is in use.
 *
 * Counters are one snapshot, taken under one lock, while other threads compute. The sums that include/sluice.h promises
 * must hold in every snapshot, and what counts up must never count down.
 */
#include <dirent.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "soak.h"

/* Entries of a directory of /proc; its own descriptor is not counted. */
static uint32_t entries(const char *path, uint32_t own) {
    DIR *d = opendir(path);
    uint32_t n = 0;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        n += e->d_name[0] != '.';
    }
    if (d) {
        closedir(d);
    }
    return n > own ? n - own : 0;
}

void soak_quiet_begin(void) {
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    mallopt(M_TRIM_THRESHOLD, 128 << 10);
}

struct soak_quiet soak_quiet_measure(void) {
    malloc_trim(0); /* what lies free between pieces in use is no leak, and hides one */
    struct soak_quiet q = {.fds = entries("/proc/self/fd", 1), .threads = entries("/proc/self/task", 0)};
    char line[256];
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "RssAnon: %" SCNu64, &q.anon_kib) == 1) {
            break;
        }
    }
    if (f) {
        fclose(f);
    }
    const struct mallinfo2 m = mallinfo2();
    q.heap_kib = (m.uordblks + m.hblkhd) >> 10;
    return q;
}

/* Everything that counts up, and so must not go down. */
static uint32_t counts(const struct sluice_stats *st, uint64_t n[SOAK_COUNTS]) {
    uint32_t k = 0;
    const struct sluice_phase_stats *phase[] = {&st->prompt, &st->generation};
    for (int i = 0; i < 2; i++) {
        const struct sluice_phase_stats *p = phase[i];
        const uint64_t of[] = {p->blocks,    p->tokens,     p->routed,     p->hits, p->misses,
                               p->hit_bytes, p->miss_bytes, p->read_bytes, p->reads};
        memcpy(n + k, of, sizeof of);
        k += sizeof of / sizeof of[0];
    }
    const uint64_t of[] = {st->evictions,           st->foreseen.asked,  st->foreseen.begun, st->foreseen.used,
                           st->foreseen.read_bytes, st->foreseen.pauses, st->submits,        st->queue_sum};
    memcpy(n + k, of, sizeof of);
    return k + (uint32_t)(sizeof of / sizeof of[0]);
}

/* One phase alone. NULL: all is well. */
static const char *phase_wrong(const struct sluice_phase_stats *p) {
    return p->hits + p->misses != p->routed          ? "hits and misses are not what was asked for"
           : p->hits && !p->hit_bytes                ? "hits without bytes"
           : p->misses && !p->miss_bytes             ? "misses without bytes"
           : (p->reads == 0) != (p->read_bytes == 0) ? "reads without bytes, or the other way"
           : p->routed < p->blocks                   ? "fewer experts than blocks"
           : p->stall_s < 0 || p->compute_s < 0      ? "negative times"
           : p->drop.examined || p->drop.dropped     ? "something was left out"
                                                     : NULL;
}

bool soak_counters_ok(struct soak_counters *last, const struct sluice_stats *st, uint64_t budget, char *why,
                      size_t cap) {
    uint64_t now[SOAK_COUNTS];
    const uint32_t n = counts(st, now);
    const char *wrong = phase_wrong(&st->prompt);
    wrong = wrong ? wrong : phase_wrong(&st->generation);
    wrong = wrong                                                 ? wrong
            : st->resident > st->slots                            ? "more is resident than there are slots"
            : st->foreseen.begun > st->foreseen.asked             ? "more was begun ahead than asked for"
            : st->foreseen.used > st->foreseen.begun              ? "more was used of what was read ahead than begun"
            : st->foreseen.read_bytes > st->generation.read_bytes ? "more was read ahead than in all"
            : st->layer_bytes > st->token_bytes                   ? "a layer needs more than a token"
            : st->token_bytes > st->bank_bytes                    ? "a token needs more than there is"
            : budget && st->cache_bytes > budget                  ? "the cache is larger than its budget"
            : st->submits > st->queue_sum                         ? "reads were queued, and none is outstanding"
                                                                  : NULL;
    for (uint32_t i = 0; i < n && !wrong; i++) {
        wrong = now[i] < last->count[i] ? "something counted down" : NULL;
    }
    memcpy(last->count, now, n * sizeof now[0]);
    if (wrong) {
        snprintf(why, cap,
                 "%s (routed %" PRIu64 "+%" PRIu64 ", hits %" PRIu64 "+%" PRIu64 ", misses %" PRIu64 "+%" PRIu64
                 ", resident %" PRIu64 " of %" PRIu64 ", cache %" PRIu64 " of %" PRIu64 ", ahead %" PRIu64 " %" PRIu64
                 " %" PRIu64 ")",
                 wrong, st->prompt.routed, st->generation.routed, st->prompt.hits, st->generation.hits,
                 st->prompt.misses, st->generation.misses, st->resident, st->slots, st->cache_bytes, budget,
                 st->foreseen.asked, st->foreseen.begun, st->foreseen.used);
    }
    return !wrong;
}
