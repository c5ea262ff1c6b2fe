/*
 * zsh.c - completion for zsh: the function _sluice, which compinit finds by its first line.
 */
#include <string.h>

#include "pages.h"

/* What follows an option, as _arguments wants it: ":METAVAR:(auto 0)". */
static void put_value(FILE *out, const struct cli_option *o) {
    char words[PAGES_WORDS_MAX][PAGES_WORD_MAX];
    const enum pages_value value = pages_option_value(o);
    if (value == PAGES_NOTHING) {
        return;
    }
    fputs(o->optional ? "::" : ":", out);
    pages_escape(out, o->metavar, ":\\", true);
    fputc(':', out);
    switch (value) {
    case PAGES_FILE:
        fputs("_files", out);
        return;
    case PAGES_MODEL:
        fputs("_files -g \"*.gguf(-.)\"", out);
        return;
    case PAGES_DIR:
        fputs("_files -/", out);
        return;
    default:
        break;
    }
    const size_t n = pages_words(o, words);
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "%s%s", i ? " " : "(", words[i]);
    }
    fputs(n ? ")" : " ", out); /* a blank: an action that completes nothing */
}

static void put_option(FILE *out, const struct cli_option *o) {
    char letter[3] = {'-', o->letter, 0}, help[PAGES_SHORT_MAX];
    const char *names[] = {o->letter ? letter : NULL, o->also, o->name};
    pages_short(o, help);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!names[i]) {
            continue;
        }
        fputs("            '", out); /* no list of exclusions: a repeated option takes its last value */
        fprintf(out, "*%s%s[", names[i], o->metavar && names[i][1] == '-' ? "=" : "");
        pages_escape(out, help, "[]\\", true);
        fputc(']', out);
        put_value(out, o);
        fputs("' \\\n", out);
    }
}

static void put_command(FILE *out, const struct cli_command *c) {
    const struct cli_option *o;
    static const char *const arguments[] = {[PAGES_NOTHING] = "",
                                            [PAGES_ANY] = "'*:PID: '",
                                            [PAGES_FILE] = "'*:file:_files'",
                                            [PAGES_MODEL] = "'*:model:_files -g \"*.gguf(-.)\"'",
                                            [PAGES_DIR] = ""};
    fprintf(out, "    %s)\n        _arguments \\\n", cli_command_word(c));
    for (struct cli_walk w = {0}; (o = cli_next_option(c, &w));) {
        put_option(out, o);
    }
    fprintf(out, "            '(- *)'{-h,--help}'[the help page]' \\\n            %s\n        ;;\n",
            c->stop_at_arg ? "'*::program:_normal'" : arguments[pages_command_value(c)]);
}

void zsh_completion(FILE *out) {
    fputs("#compdef sluice\n"
          "# Completion of sluice for zsh, made from its option tables by sluice-pages.\n"
          "\n"
          "_sluice() {\n"
          "    local -a commands=(\n",
          out);
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        fprintf(out, "        '%s:", cli_command_word(*c));
        pages_escape(out, (*c)->summary, ":\\", true);
        fputs("'\n", out);
    }
    fputs("        '--help:the list of commands'\n"
          "        '--version:what this is built of'\n"
          "    )\n"
          "    if ((CURRENT == 2)); then\n"
          "        _describe -t commands command commands\n"
          "        return\n"
          "    fi\n"
          "    local command=$words[2]\n"
          "    shift words\n"
          "    ((CURRENT--))\n"
          "    case $command in\n"
          "    --version) compadd -- --json ;;\n",
          out);
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        put_command(out, *c);
    }
    fputs("    esac\n"
          "}\n"
          "\n"
          "_sluice \"$@\"\n",
          out);
}
