/*
 * fish.c - completion for fish.
 */
#include <string.h>

#include "pages.h"

static void put_text(FILE *out, const char *text) {
    fputc('\'', out);
    pages_escape(out, text, "'\\", false);
    fputc('\'', out);
}

static void put_option(FILE *out, const char *command, const struct cli_option *o) {
    char words[PAGES_WORDS_MAX][PAGES_WORD_MAX], help[PAGES_SHORT_MAX];
    fprintf(out, "complete -c sluice -n '__sluice_in %s'", command);
    if (o->letter) {
        fprintf(out, " -s %c", o->letter);
    }
    if (o->also) {
        fprintf(out, " -l %s", o->also + 2);
    }
    fprintf(out, " -l %s", o->name + 2);
    switch (pages_option_value(o)) {
    case PAGES_NOTHING:
        break;
    case PAGES_FILE:
    case PAGES_MODEL:
        fputs(" -r -F", out);
        break;
    case PAGES_DIR:
        fputs(" -x -a '(__fish_complete_directories)'", out);
        break;
    case PAGES_ANY: {
        const size_t n = pages_words(o, words);
        fputs(o->optional ? "" : " -x", out);
        for (size_t i = 0; i < n; i++) {
            fprintf(out, "%s%s", i ? " " : " -a '", words[i]);
        }
        fputs(n ? "'" : "", out);
        break;
    }
    }
    pages_short(o, help);
    fputs(" -d ", out);
    put_text(out, help);
    fputc('\n', out);
}

static void put_command(FILE *out, const struct cli_command *c) {
    const struct cli_option *o;
    const char *name = cli_command_word(c);
    const enum pages_value value = pages_command_value(c);
    fprintf(out, "\ncomplete -c sluice -n '__sluice_in' -a %s -d ", name);
    put_text(out, c->summary);
    fputc('\n', out);
    for (struct cli_walk w = {0}; (o = cli_next_option(c, &w));) {
        put_option(out, name, o);
    }
    fprintf(out, "complete -c sluice -n '__sluice_in %s' -s h -l help -d 'the help page'\n", name);
    if (c->stop_at_arg) {
        fprintf(out, "complete -c sluice -n '__sluice_in %s' -a '(__fish_complete_subcommand --fcs-skip=2)'\n", name);
    } else if (value == PAGES_FILE || value == PAGES_MODEL) {
        fprintf(out, "complete -c sluice -n '__sluice_in %s' -F\n", name);
    }
}

void fish_completion(FILE *out) {
    fputs("# Completion of sluice for fish, made from its option tables by sluice-pages.\n"
          "\n"
          "# Is the command on the line this one, or with no argument: is there none yet?\n"
          "function __sluice_in\n"
          "    set -l words (commandline -opc)\n"
          "    if test (count $argv) -eq 0\n"
          "        test (count $words) -eq 1\n"
          "    else\n"
          "        test (count $words) -gt 1; and test \"$words[2]\" = \"$argv[1]\"\n"
          "    end\n"
          "end\n"
          "\n"
          "complete -c sluice -f\n"
          "complete -c sluice -n '__sluice_in' -s h -l help -d 'the list of commands'\n"
          "complete -c sluice -n '__sluice_in' -l version -d 'what this is built of'\n"
          "complete -c sluice -n '__sluice_in --version' -l json -d 'for programs'\n",
          out);
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        put_command(out, *c);
    }
}
