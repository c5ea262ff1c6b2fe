/*
 * man.c - manual pages, in the man(7) macros, which every man program knows.
 *
 * The texts of the help pages are wrapped by hand. Here paragraphs are filled anew, except those that begin with blanks
 * (tables of keys) and examples, which stay as they are.
 */
#include <ctype.h>
#include <string.h>

#include "memory/settings.h"
#include "pages.h"
#include "sluice.h"

/* Text for roff: n bytes of it, newlines included. A line must not begin with a control character. */
static void put(FILE *out, const char *text, size_t n) {
    bool begin = true;
    for (size_t i = 0; i < n && text[i]; i++) {
        if (begin && (text[i] == '.' || text[i] == '\'')) {
            fputs("\\&", out);
        }
        switch (text[i]) {
        case '\\':
            fputs("\\e", out);
            break;
        case '-':
            fputs("\\-", out);
            break;
        case '\'':
            fputs("\\(aq", out);
            break;
        case '`':
            fputs("\\(ga", out);
            break;
        case '^':
            fputs("\\(ha", out);
            break;
        case '~':
            fputs("\\(ti", out);
            break;
        default:
            fputc(text[i], out);
        }
        begin = text[i] == '\n';
    }
}

static void put_all(FILE *out, const char *text) {
    put(out, text, strlen(text));
}

/* One font for one word: B or I. */
static void put_font(FILE *out, char font, const char *text, size_t n) {
    fprintf(out, "\\f%c", font);
    put(out, text, n);
    fputs("\\fR", out);
}

/* How a command is called: what is typed as it is in bold, what is replaced in italics. */
static void put_usage(FILE *out, const char *usage) {
    for (int words = 0; *usage; words++) {
        const size_t lead = strspn(usage, " [("); /* "[-f FILE]": what is before and after the word itself is neither */
        const size_t word = strcspn(usage + lead, " ]).");
        const size_t tail = strspn(usage + lead + word, "]).");
        const size_t capitals = strspn(usage + lead, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
        put(out, usage, lead);
        usage += lead;
        if (capitals && capitals == word) {
            put_font(out, 'I', usage, word);
        } else if (usage[0] == '-' || words < 2) { /* "sluice run" */
            put_font(out, 'B', usage, word);
        } else {
            put(out, usage, word);
        }
        put(out, usage + word, tail);
        usage += word + tail;
    }
    fputc('\n', out);
}

/* The end of a paragraph: an empty line, or the end of the text. */
static size_t paragraph(const char *text) {
    const char *end = strstr(text, "\n\n");
    return end ? (size_t)(end - text) : strlen(text);
}

static bool is_example(const char *text) {
    return strncmp(text, "Example: ", 9) == 0;
}

/* Lines as they are, without the first bytes of each: `first` of the first, at most so many blanks of the others. */
static void put_lines(FILE *out, const char *text, size_t n, size_t first, size_t others) {
    fputs(".RS 4\n.nf\n", out);
    const char *end = text + n;
    for (size_t skip = first; text < end; skip = others) {
        const size_t blank = strspn(text, " ");
        text += skip == first ? first : blank < skip ? blank : skip;
        size_t len = strcspn(text, "\n");
        len = len > (size_t)(end - text) ? (size_t)(end - text) : len;
        put(out, text, len);
        fputc('\n', out);
        text += len + (text + len < end);
    }
    fputs(".fi\n.RE\n", out);
}

/* The paragraphs of a text that are examples, or that are not. */
static void put_text(FILE *out, const char *text, bool examples) {
    bool first = true;
    while (*text) {
        const size_t n = paragraph(text);
        if (is_example(text) == examples) {
            fputs(first ? "" : ".PP\n", out);
            first = false;
        }
        if (is_example(text) && examples) {
            put_lines(out, text, n, 9, 9);
        } else if (!is_example(text) && !examples && text[0] == ' ') {
            put_lines(out, text, n, 2, 2);
        } else if (!is_example(text) && !examples) {
            put(out, text, n);
            fputc('\n', out);
        }
        text += n;
        text += strspn(text, "\n");
    }
}

static bool has(const char *text, bool examples) {
    while (text && *text) {
        if (is_example(text) == examples) {
            return true;
        }
        text += paragraph(text);
        text += strspn(text, "\n");
    }
    return false;
}

static void put_option(FILE *out, const struct cli_option *o) {
    fputs(".TP\n", out);
    if (o->letter) {
        fprintf(out, "\\fB\\-%c\\fR, ", o->letter);
    }
    if (o->also) {
        put_font(out, 'B', o->also, strlen(o->also));
        fputs(", ", out);
    }
    put_font(out, 'B', o->name, strlen(o->name));
    if (o->metavar) {
        fputc(' ', out);
        put_font(out, 'I', o->metavar, strlen(o->metavar));
    }
    fputc('\n', out);
    put_all(out, o->help);
    fputc('\n', out);
}

/* The settings among the options can be given in the environment, too: SLUICE_ and the setting's name in capitals. */
static void put_environment(FILE *out, const struct cli_command *c) {
    const struct cli_option *o;
    char name[SETTINGS_NAME];
    bool first = true;
    for (struct cli_walk w = {0}; (o = cli_next_option(c, &w));) {
        if (o->set != cli_set_setting) {
            continue;
        }
        fputs(first ? ".SH ENVIRONMENT\nOptions win over the environment.\n" : "", out);
        first = false;
        settings_variable(o->setting, name);
        fprintf(out, ".TP\n\\fB%s\\fR", name);
        if (o->fixed) {
            fputc('=', out);
            put_all(out, o->fixed);
        }
        fputs("\nthe same as\n.B ", out);
        put_all(out, o->name);
        fputc('\n', out);
    }
}

static void put_head(FILE *out, const char *date, const char *name, const char *help) {
    fputs(".\\\" Made from sluice's option tables by sluice-pages.\n.TH ", out);
    for (const char *s = name; *s; s++) {
        fputc(toupper((unsigned char)*s), out);
    }
    fprintf(out, " 1 \"%s\" \"sluice %s\" \"User Commands\"\n.SH NAME\n", date, sluice_version());
    put_all(out, name);
    fputs(" \\- ", out);
    put_all(out, help);
    fputs("\n.SH SYNOPSIS\n", out);
}

static void put_command(FILE *out, const char *date, const struct cli_command *c) {
    const struct cli_option *o;
    char name[128];
    snprintf(name, sizeof name, "sluice-%s", cli_command_word(c));
    put_head(out, date, name, c->summary);
    put_usage(out, c->usage);
    fputs(".SH DESCRIPTION\n", out);
    put_text(out, c->about, false);
    fputs(".SH OPTIONS\n", out);
    for (struct cli_walk w = {0}; (o = cli_next_option(c, &w));) {
        if (w.first) {
            fputs(".SS ", out);
            put_all(out, w.group->heading);
            fputc('\n', out);
        }
        put_option(out, o);
    }
    fputs(".SS Help\n.TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\na page with these options\n", out);
    put_environment(out, c);
    if (has(c->notes, false)) {
        fputs(".SH NOTES\n", out);
        put_text(out, c->notes, false);
    }
    if (has(c->notes, true)) {
        fputs(".SH EXAMPLES\n", out);
        put_text(out, c->notes, true);
    }
    fputs(".SH SEE ALSO\n.BR sluice (1)\n", out);
}

static void put_main(FILE *out, const char *date) {
    put_head(out, date, "sluice", "run Mixture-of-Experts models that are bigger than memory");
    put_usage(out, "sluice COMMAND [options]");
    fputs(".br\n.B sluice \\-\\-version\n.RB [ \\-\\-json ]\n.SH DESCRIPTION\n", out);
    put_text(out, cli_about, false);
    fputs(".SH COMMANDS\n", out);
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        fprintf(out, ".TP\n.BR sluice\\-%s (1)\n", cli_command_word(*c));
        put_all(out, (*c)->summary);
        fputc('\n', out);
    }
    fputs(".SH OPTIONS\n.TP\n.BR \\-h \", \" \\-\\-help\nthe list of commands; after a command, its options\n"
          ".TP\n.BR \\-\\-version \" [\" \\-\\-json ]\nwhat this is built of\n"
          ".SH EXIT STATUS\n0, 1 for a failure while running, 2 for a wrong command line.\n.SH SEE ALSO\n",
          out);
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        fprintf(out, ".BR sluice\\-%s (1)%s\n", cli_command_word(*c), c[1] ? "," : "");
    }
    fputs(".PP\nThe documents are installed in share/doc/sluice.\n", out);
}

void man_page(FILE *out, const char *date, const struct cli_command *c) {
    if (c) {
        put_command(out, date, c);
    } else {
        put_main(out, date);
    }
}
