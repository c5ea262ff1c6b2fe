/*
 * args.c - see args.h.
 *
 * Not getopt_long: that one accepts abbreviations ("--cache" for a later "--cache-something" changes
 * meaning when an option is added), permutes argv, which would eat options of the program that
 * `sluice exec` starts, and leaves the checking of values to a hundred hand-written cases. Here every
 * option is one row of a table; numbers must be numbers to their last character; an option given
 * twice takes its last value, as everywhere else.
 */
#include "cli/args.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"
#include "sluice.h"

int cli_fail(int code, const char *command, const char *format, ...) {
    va_list args;
    char line[1024];
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (char *p = line; *p; p++) { /* a name may hold anything: one line stays one line, and moves no cursor */
        *p = *p == '\n' || *p == '\r' ? ' ' : (unsigned char)*p < ' ' || *p == 127 ? '?' : *p;
    }
    fprintf(stderr, "%s: %s\n", command, line);
    return code;
}

bool cli_write(const char *command, const char *text, size_t n) {
    if (fwrite(text, 1, n, stdout) == n && fflush(stdout) == 0) {
        return true;
    }
    cli_fail(0, command, "standard output: %s", strerror(errno));
    return false;
}

int cli_print(const char *command, void (*print)(FILE *out, const void *what), const void *what) {
    char *page = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&page, &n);
    if (out) {
        print(out, what);
    }
    const bool made = out && fclose(out) == 0; /* fclose fails when the page did not fit into memory */
    const bool ok = made ? cli_write(command, page, n) : cli_fail(0, command, "no memory for the page");
    free(page);
    return ok ? CLI_EXIT_OK : CLI_EXIT_FAILED;
}

bool cli_set_text(const struct cli_option *o, const char *value, struct cli_config *c) {
    *(const char **)(void *)((char *)c + o->offset) = value;
    return value[0] != '\0' || o->min == 0;
}

bool cli_set_true(const struct cli_option *o, const char *value, struct cli_config *c) {
    (void)value;
    *(bool *)((char *)c + o->offset) = true;
    return true;
}

bool cli_set_integer(const struct cli_option *o, const char *value, struct cli_config *c) {
    char *end;
    if (!((value[0] >= '0' && value[0] <= '9') || (value[0] == '-' && value[1] >= '0' && value[1] <= '9'))) {
        return false; /* strtoll would skip blanks and take a plus */
    }
    errno = 0;
    long long n = strtoll(value, &end, 10);
    if (*end || errno || (double)n < o->min || (double)n > o->max) {
        return false;
    }
    *(int64_t *)(void *)((char *)c + o->offset) = n;
    return true;
}

bool cli_set_real(const struct cli_option *o, const char *value, struct cli_config *c) {
    char *end;
    if (!value[0] || value[strspn(value, "0123456789.")]) {
        return false; /* no sign, exponent, hexadecimal, infinity or nan */
    }
    double x = strtod(value, &end);
    if (*end || !isfinite(x) || x < o->min || x > o->max) {
        return false;
    }
    *(double *)(void *)((char *)c + o->offset) = x;
    return true;
}

bool cli_set_choice(const struct cli_option *o, const char *value, struct cli_config *c) {
    const size_t n = strlen(value);
    *(const char **)(void *)((char *)c + o->offset) = value;
    for (const char *at = o->expect; *at; at += strspn(at, ", ")) { /* "machine, model or no" */
        const size_t word = strcspn(at, ", ");
        if (word == n && strncmp(at, value, n) == 0 && strcmp(value, "or") != 0) {
            return true;
        }
        at += word;
    }
    return false;
}

bool cli_set_setting(const struct cli_option *o, const char *value, struct cli_config *c) {
    struct sluice_settings scratch;
    const char *text = o->fixed ? o->fixed : value;
    sluice_settings_default(&scratch);
    if (sluice_settings_set(&scratch, o->setting, text, NULL) != 0) {
        return false;
    }
    size_t at = 0; /* a repeat replaces */
    while (at < c->n_settings && strcmp(c->settings[at].name, o->setting) != 0) {
        at++;
    }
    if (at == CLI_SETTINGS_MAX) {
        return false; /* more settings than rows exist: cannot happen */
    }
    c->settings[at] = (struct cli_setting){.name = o->setting, .value = text};
    c->n_settings += at == c->n_settings;
    return true;
}

const char *cli_command_word(const struct cli_command *cmd) {
    const char *blank = strchr(cmd->name, ' ');
    return blank ? blank + 1 : cmd->name;
}

/* Is this word of `len` bytes one of a list with blanks? */
static bool has_word(const char *list, const char *word, size_t len) {
    for (; *list; list += strspn(list, " ")) {
        const size_t n = strcspn(list, " ");
        if (n == len && strncmp(list, word, n) == 0) {
            return true;
        }
        list += n;
    }
    return false;
}

/* The command's own row for a name of `len` bytes, else that of all commands. */
static const struct cli_option *find_row(const struct cli_command *cmd, const char *name, size_t len) {
    const char *word = cli_command_word(cmd);
    const struct cli_option *shared = NULL;
    for (const struct cli_option *o = cli_options; o->name; o++) {
        if (strlen(o->name) != len || strncmp(o->name, name, len) != 0) {
            continue;
        }
        if (o->only && has_word(o->only, word, strlen(word))) {
            return o;
        }
        shared = o->only ? shared : o;
    }
    return shared;
}

const struct cli_option *cli_next_option(const struct cli_command *cmd, struct cli_walk *w) {
    w->first = !w->group || !*w->rest;
    if (w->first) {
        w->group = w->group ? w->group + 1 : cmd->groups;
        w->rest = w->group->names;
    }
    if (!w->group->heading) {
        return NULL;
    }
    const size_t n = strcspn(w->rest, " ");
    const struct cli_option *o = find_row(cmd, w->rest, n);
    assert(o);
    w->rest += n + strspn(w->rest + n, " ");
    return o;
}

/* The row for "--name" or "-x" of `len` bytes; NULL when there is none. */
static const struct cli_option *find_option(const struct cli_command *cmd, const char *arg, size_t len) {
    const struct cli_option *o;
    for (struct cli_walk w = {0}; (o = cli_next_option(cmd, &w));) {
        if ((strlen(o->name) == len && strncmp(o->name, arg, len) == 0) ||
            (o->also && strlen(o->also) == len && strncmp(o->also, arg, len) == 0) ||
            (o->letter && len == 2 && arg[0] == '-' && arg[1] == o->letter)) {
            break;
        }
    }
    return o;
}

bool cli_given(const struct cli_config *c, const char *setting) {
    for (size_t i = 0; i < c->n_settings; i++) {
        if (strcmp(c->settings[i].name, setting) == 0) {
            return true;
        }
    }
    return false;
}

bool cli_has_option(const struct cli_command *cmd, const char *name) {
    return find_option(cmd, name, strlen(name)) != NULL;
}

static int bad_value(const struct cli_command *cmd, const struct cli_option *o, const char *spelled, int spelled_len,
                     const char *value) {
    if (o->expect) {
        return cli_fail(CLI_EXIT_USAGE, cmd->name, "%.*s %s: must be %s", spelled_len, spelled, value, o->expect);
    }
    if (o->set == cli_set_real) {
        return cli_fail(CLI_EXIT_USAGE, cmd->name, "%.*s %s: must be %g..%g", spelled_len, spelled, value, o->min,
                        o->max);
    }
    return cli_fail(CLI_EXIT_USAGE, cmd->name, "%.*s %s: must be %.0f..%.0f", spelled_len, spelled, value, o->min,
                    o->max);
}

/* Is the argument after an option whose value may be left out its value? */
static bool begins_value(const char *arg) {
    return (arg[0] >= '0' && arg[0] <= '9') || arg[0] == '[';
}

/* One option at argv[*at]; steps over its value. */
static int parse_option(const struct cli_command *cmd, int argc, char **argv, int *at, struct cli_config *c) {
    const char *arg = argv[*at], *value = NULL;
    const char *equals = arg[1] == '-' ? strchr(arg, '=') : NULL;
    size_t len = equals ? (size_t)(equals - arg) : strlen(arg);
    const struct cli_option *o = find_option(cmd, arg, len);
    if (!o) {
        return cli_fail(CLI_EXIT_USAGE, cmd->name, "unknown option %.*s (see %s --help)", (int)len, arg, cmd->name);
    }
    if (!o->metavar) {
        if (equals) {
            return cli_fail(CLI_EXIT_USAGE, cmd->name, "%.*s takes no value", (int)len, arg);
        }
    } else if (equals) {
        value = equals + 1;
    } else if (o->optional && (*at + 1 == argc || !begins_value(argv[*at + 1]))) {
        value = o->optional;
    } else if (*at + 1 < argc) {
        value = argv[++*at];
    } else {
        return cli_fail(CLI_EXIT_USAGE, cmd->name, "%s needs a value: %s", arg, o->metavar);
    }
    if (!o->set(o, value, c)) {
        return bad_value(cmd, o, arg, (int)len, value ? value : "");
    }
    return 0;
}

static void set_defaults(const struct cli_command *cmd, struct cli_config *c) {
    memset(c, 0, sizeof *c);
    c->command = cmd->name;
    c->n_predict = CLI_NOT_GIVEN;
    c->n_ctx = cmd->n_ctx ? cmd->n_ctx : 4096;
    c->temp = 0.8; /* llama.cpp's own defaults */
    c->top_k = 40;
    c->top_p = 0.95;
    c->min_p = 0.05;
    c->seed = -1;
    c->plan.probe_seconds = 2;
    c->bench = (struct cli_bench){
        .budgets = "auto", .gen = 64, .prompt = 64, .runs = 3, .max_seconds = 300, .probe_seconds = 2};
    c->serve = (struct cli_serve){.host = "127.0.0.1", .port = 8080, .parallel = 4};
}

int cli_parse(const struct cli_command *cmd, int argc, char **argv, struct cli_config *c) {
    set_defaults(cmd, c);
    bool options = true, dashes = false;
    int n = 0; /* arguments are moved to the front of argv + 1, in order */
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (options && strcmp(arg, "--") == 0) {
            options = false;
            c->n_plain = n;
            dashes = true;
        } else if (options && (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0)) {
            c->help = true;
            return 0;
        } else if (options && arg[0] == '-' && arg[1]) {
            int rc = parse_option(cmd, argc, argv, &i, c);
            if (rc) {
                return rc;
            }
        } else {
            argv[1 + n++] = argv[i];
            options = options && !cmd->stop_at_arg;
        }
    }
    c->args = argv + 1;
    c->n_args = n;
    c->n_plain = dashes ? c->n_plain : n;
    if (n > cmd->max_args) {
        return cli_fail(CLI_EXIT_USAGE, cmd->name, "unexpected argument %s (see %s --help)", c->args[cmd->max_args],
                        cmd->name);
    }
    return 0;
}

bool cli_next_item(const char **list, char *item, size_t cap) {
    if (!*list) {
        return false;
    }
    const size_t n = strcspn(*list, ",");
    snprintf(item, cap, "%.*s", (int)n, *list);
    *list = (*list)[n] ? *list + n + 1 : NULL;
    return true;
}

/* One option of the help page: name in a column, help beside it, further lines indented. */
static void print_option(FILE *out, const struct cli_option *o) {
    enum { COLUMN = 26 };
    char left[80];
    char letter[8] = "    ";
    if (o->letter) {
        snprintf(letter, sizeof letter, "-%c, ", o->letter);
    }
    snprintf(left, sizeof left, "  %s%s%s%s%s%s", letter, o->also ? o->also : "", o->also ? ", " : "", o->name,
             o->metavar ? " " : "", o->metavar ? o->metavar : "");
    fprintf(out, "%-*s", COLUMN, left);
    if (strlen(left) > COLUMN - 2) {
        fprintf(out, "\n%*s", COLUMN, "");
    }
    for (const char *p = o->help; *p; p++) {
        fputc(*p, out);
        if (*p == '\n') {
            fprintf(out, "%*s", COLUMN, "");
        }
    }
    fputc('\n', out);
}

static void print_help(FILE *out, const void *what) {
    const struct cli_command *cmd = what;
    const struct cli_option *o;
    fprintf(out, "usage: %s\n\n%s\n", cmd->usage, cmd->about);
    for (struct cli_walk w = {0}; (o = cli_next_option(cmd, &w));) {
        if (w.first) {
            fprintf(out, "\n%s\n", w.group->heading);
        }
        print_option(out, o);
    }
    fprintf(out, "\n  -h, --help            this page\n");
    if (cmd->notes) {
        fprintf(out, "\n%s\n", cmd->notes);
    }
}

int cli_help(const struct cli_command *cmd) {
    return cli_print(cmd->name, print_help, cmd);
}
