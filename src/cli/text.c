/*
 * text.c - see text.h.
 */
#include "cli/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/args.h"

enum { TEXT_MAX = 1 << 30 }; /* bytes; no context holds that much */

bool cli_text_add(struct cli_text *t, const char *data, size_t n) {
    if (n > TEXT_MAX - t->n) {
        return false;
    }
    if (t->n + n > t->cap) {
        size_t cap = 2 * (t->n + n) + 256;
        char *more = realloc(t->data, cap);
        if (!more) {
            return false;
        }
        t->data = more;
        t->cap = cap;
    }
    if (n) {
        memcpy(t->data + t->n, data, n);
    }
    t->n += n;
    return true;
}

void cli_text_free(struct cli_text *t) {
    free(t->data);
    memset(t, 0, sizeof *t);
}

int cli_text_read(struct cli_text *t, const char *path, const char *command) {
    bool standard = strcmp(path, "-") == 0;
    const char *name = standard ? "standard input" : path;
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    char part[16384];
    ssize_t n = 0;
    int rc = 0;
    if (fd < 0) {
        return cli_fail(CLI_EXIT_FAILED, command, "%s: %s", name, strerror(errno));
    }
    while (rc == 0 && ((n = read(fd, part, sizeof part)) > 0 || (n < 0 && errno == EINTR))) {
        if (n > 0 && !cli_text_add(t, part, (size_t)n)) {
            rc = cli_fail(CLI_EXIT_FAILED, command, "%s: too long for memory", name);
        }
    }
    if (rc == 0 && n < 0) {
        rc = cli_fail(CLI_EXIT_FAILED, command, "%s: %s", name, strerror(errno));
    }
    if (!standard) {
        close(fd);
    }
    return rc;
}
