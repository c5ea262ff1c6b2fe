/*
 * pages.c - sluice-pages: writes the manual pages and the completions for bash, zsh and fish.
 *
 *   sluice-pages DIRECTORY DATE
 *
 * It is linked from the same objects as sluice, but for main.c: what is written here is what the commands parse by, and
 * there is no list of options besides. The build runs it (CMakeLists.txt) and installs what it wrote.
 *
 * What can follow an option is not in the tables, and need not be: a metavariable FILE is a file; and of the sentence
 * that refuses a bad value ("must be cycle or lru") those words are offered that the option's own setter accepts.
 */
#include "pages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum pages_value pages_option_value(const struct cli_option *o) {
    if (!o->metavar) {
        return PAGES_NOTHING;
    }
    if (strcmp(o->metavar, "MODEL") == 0) {
        return PAGES_MODEL;
    }
    if (strcmp(o->metavar, "FILE") == 0 || strcmp(o->metavar, "PATH") == 0) {
        return PAGES_FILE;
    }
    return strcmp(o->metavar, "DIR") == 0 ? PAGES_DIR : PAGES_ANY;
}

enum pages_value pages_command_value(const struct cli_command *c) {
    if (c->max_args == 0) {
        return PAGES_NOTHING;
    }
    if (strstr(c->usage, "PID")) {
        return PAGES_ANY;
    }
    char model[96]; /* "sluice info MODEL": the argument itself, not the value of an option */
    snprintf(model, sizeof model, "%s MODEL", c->name);
    return strncmp(c->usage, model, strlen(model)) == 0 ? PAGES_MODEL : PAGES_FILE;
}

/* One word that could be typed: letters, or a lone 0. */
static bool is_word(const char *text, size_t n) {
    if (n == 1 && text[0] == '0') {
        return true;
    }
    return n && n < PAGES_WORD_MAX && strspn(text, "abcdefghijklmnopqrstuvwxyz") >= n;
}

/* Where the next ", ", " or " or " and " begins; the end of the text if there is none. */
static const char *next_cut(const char *text, size_t *skip) {
    static const char *const cuts[] = {", ", " or ", " and "};
    const char *first = text + strlen(text);
    *skip = 0;
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        const char *at = strstr(text, cuts[i]);
        if (at && at < first) {
            first = at;
            *skip = strlen(cuts[i]);
        }
    }
    return first;
}

size_t pages_words(const struct cli_option *o, char words[PAGES_WORDS_MAX][PAGES_WORD_MAX]) {
    static const char list[] = "a list of ";
    struct cli_config *scratch = o->metavar && o->expect ? calloc(1, sizeof *scratch) : NULL;
    size_t n = 0, skip;
    if (!scratch) {
        return 0;
    }
    const char *at = o->expect + (strncmp(o->expect, list, sizeof list - 1) == 0 ? sizeof list - 1 : 0);
    while (*at && n < PAGES_WORDS_MAX) {
        const char *end = next_cut(at, &skip);
        const size_t len = (size_t)(end - at);
        if (is_word(at, len)) {
            snprintf(words[n], PAGES_WORD_MAX, "%.*s", (int)len, at);
            n += o->set(o, words[n], scratch); /* it may keep a pointer to the word, in what is freed here */
        }
        at = end + skip;
    }
    free(scratch);
    return n;
}

void pages_short(const struct cli_option *o, char out[PAGES_SHORT_MAX]) {
    static const char *const ends[] = {";", " (", ". "};
    char line[1024];
    snprintf(line, sizeof line, "%s", o->help);
    for (char *p = line; *p; p++) {
        *p = *p == '\n' ? ' ' : *p;
    }
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        char *at = strstr(line, ends[i]);
        if (at) {
            *at = '\0';
        }
    }
    const bool whole = strlen(line) < PAGES_SHORT_MAX;
    size_t n = strlen(line);
    if (!whole) { /* whole words, and room for the dots */
        for (n = PAGES_SHORT_MAX - 4; n && line[n] != ' '; n--) {
        }
    }
    snprintf(out, PAGES_SHORT_MAX, "%.*s%s", (int)n, line, whole ? "" : "...");
}

void pages_escape(FILE *out, const char *text, const char *special, bool quoted) {
    for (; *text; text++) {
        if (*text == '\'' && quoted) {
            fputs("'\\''", out);
            continue;
        }
        if (strchr(special, *text)) {
            fputc('\\', out);
        }
        fputc(*text, out);
    }
}

/* Open dir/name, have it written, close it: a manual page of *c (NULL: of sluice), or by `writer`. */
static int write_file(const char *dir, const char *name, const char *date, const struct cli_command *c,
                      void (*writer)(FILE *)) {
    char path[4096];
    const int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *out = n > 0 && (size_t)n < sizeof path ? fopen(path, "w") : NULL;
    if (!out) {
        return cli_fail(CLI_EXIT_FAILED, "sluice-pages", "%s/%s: %s", dir, name, strerror(errno));
    }
    if (writer) {
        writer(out);
    } else {
        man_page(out, date, c);
    }
    const bool bad = ferror(out) != 0;
    return fclose(out) != 0 || bad ? cli_fail(CLI_EXIT_FAILED, "sluice-pages", "%s: %s", path, strerror(errno)) : 0;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        return cli_fail(CLI_EXIT_USAGE, "sluice-pages", "usage: sluice-pages DIRECTORY DATE");
    }
    const char *dir = argv[1], *date = argv[2];
    if (mkdir(dir, 0777) != 0 && errno != EEXIST) {
        return cli_fail(CLI_EXIT_FAILED, "sluice-pages", "%s: %s", dir, strerror(errno));
    }
    int rc = write_file(dir, "sluice.1", date, NULL, NULL);
    for (const struct cli_command *const *c = cli_commands; *c && rc == 0; c++) {
        char name[128];
        snprintf(name, sizeof name, "sluice-%s.1", cli_command_word(*c));
        rc = write_file(dir, name, date, *c, NULL);
    }
    rc = rc ? rc : write_file(dir, "sluice.bash", date, NULL, bash_completion);
    rc = rc ? rc : write_file(dir, "_sluice", date, NULL, zsh_completion);
    return rc ? rc : write_file(dir, "sluice.fish", date, NULL, fish_completion);
}
