/*
 * stat_read.c - showing counters to `sluice top`: the reader's end.
 *
 * Reads with pread and does not map: a file that is cut short under a mapping kills who looks at it,
 * and the file belongs to another process. The sequence is read before and after the words, in reads
 * of their own; system calls keep that order.
 *
 * Nothing in the file is believed: it has exactly the size of the layout, the right version, text
 * that ends, numbers within their ranges. What passes can be divided by and printed; what it says may
 * still be wrong, which hurts nobody.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "observe/stat_file.h"
#include "cache/error.h"

enum { READ_TRIES = 1000 };

static bool read_at(int fd, void *to, size_t n, size_t at) {
    ssize_t got;
    do {
        got = pread(fd, to, n, (off_t)at);
    } while (got < 0 && errno == EINTR);
    return got == (ssize_t)n;
}

static bool ends(const char *text, size_t n) {
    return memchr(text, '\0', n) != NULL;
}

/* Is it within its ranges? */
static bool data_ok(const struct stat_data *d) {
    bool ok = ends(d->version, sizeof d->version) && ends(d->program, sizeof d->program) &&
              ends(d->model, sizeof d->model) && ends(d->mode, sizeof d->mode) && d->pid > 0 && d->pid <= INT32_MAX &&
              d->n_layers <= STAT_LAYERS_MAX && d->stats.resident <= d->stats.slots && d->updated >= 0 &&
              d->updated <= 1e12;
    for (size_t i = 0; ok && i < COUNTERS_PHASES; i++) {
        ok = counters_sane(&d->ended[i]);
    }
    for (size_t i = 0; ok && i < STAT_STEPS; i++) {
        const struct step_sums one = {.sum = d->step[i]};
        ok = (unsigned)one.sum.phase <= SLUICE_PHASE_GENERATION && counters_sane(&one);
    }
    for (size_t i = 0; ok && i < d->n_layers; i++) {
        ok = d->layer[i].resident <= d->layer[i].experts;
    }
    return ok;
}

int stat_read(int fd, struct stat_data *out, struct sluice_error *err) {
    struct stat st;
    uint64_t head[3], before, after;
    if (fstat(fd, &st)) {
        return sluice_fail(err, SLUICE_ERR_IO, "%s", strerror(errno));
    }
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid()) {
        return sluice_fail(err, SLUICE_ERR_FORMAT, "not a file of this user's");
    }
    if (st.st_size != (off_t)sizeof(struct stat_layout) || !read_at(fd, head, sizeof head, 0) ||
        head[0] != STAT_MAGIC || head[2] != sizeof(struct stat_layout)) {
        return sluice_fail(err, SLUICE_ERR_FORMAT, "not counters of a sluice process");
    }
    if (head[1] != STAT_VERSION) {
        return sluice_fail(err, SLUICE_ERR_FORMAT, "counters of another version of sluice");
    }
    for (int i = 0; i < READ_TRIES; i++) {
        if (!read_at(fd, &before, sizeof before, offsetof(struct stat_layout, seq)) ||
            !read_at(fd, out, sizeof *out, offsetof(struct stat_layout, word)) ||
            !read_at(fd, &after, sizeof after, offsetof(struct stat_layout, seq))) {
            return sluice_fail(err, SLUICE_ERR_IO, "cannot be read");
        }
        if (before == after && before % 2 == 0) {
            return data_ok(out) ? sluice_ok(err) : sluice_fail(err, SLUICE_ERR_FORMAT, "damaged counters");
        }
        sched_yield();
    }
    return sluice_fail(err, SLUICE_ERR_STATE, "its writer stopped in the middle of writing");
}
