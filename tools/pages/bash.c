/*
 * bash.c - completion for bash. It needs nothing of the package bash-completion, which only loads it when it is there:
 * sourcing the file is enough.
 */
#include <string.h>

#include "pages.h"

static void put_names(FILE *out, const struct cli_option *o, const char *between) {
    if (o->letter) {
        fprintf(out, "-%c%s", o->letter, between);
    }
    if (o->also) {
        fprintf(out, "%s%s", o->also, between);
    }
    fputs(o->name, out);
}

/* What completes a value. */
static void put_value(FILE *out, const struct cli_option *o) {
    char words[PAGES_WORDS_MAX][PAGES_WORD_MAX];
    switch (pages_option_value(o)) {
    case PAGES_FILE:
        fputs("_sluice_files; return", out);
        return;
    case PAGES_MODEL:
        fputs("_sluice_models; return", out);
        return;
    case PAGES_DIR:
        fputs("_sluice_directories; return", out);
        return;
    default:
        break;
    }
    const size_t n = pages_words(o, words);
    fputs("_sluice_words '", out);
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "%s%s", i ? " " : "", words[i]);
    }
    fputs("'; return", out);
}

static void put_command(FILE *out, const struct cli_command *c) {
    const struct cli_option *o;
    fprintf(out, "    %s)\n        case $prev in\n", cli_command_word(c));
    for (struct cli_walk w = {0}; (o = cli_next_option(c, &w));) {
        if (o->metavar && !o->optional) {
            fputs("        ", out);
            put_names(out, o, " | ");
            fputs(") ", out);
            put_value(out, o);
            fputs(" ;;\n", out);
        }
    }
    fputs("        esac\n        options='", out);
    for (struct cli_walk w = {0}; (o = cli_next_option(c, &w));) {
        put_names(out, o, " ");
        fputc(' ', out);
    }
    static const char *const arguments[] = {
        [PAGES_NOTHING] = "", [PAGES_ANY] = "", [PAGES_FILE] = "files", [PAGES_MODEL] = "models", [PAGES_DIR] = ""};
    fprintf(out, "-h --help'\n        arguments=%s\n        ;;\n",
            c->stop_at_arg ? "program" : arguments[pages_command_value(c)]);
}

void bash_completion(FILE *out) {
    fputs("# Completion of sluice for bash, made from its option tables by sluice-pages.\n"
          "\n"
          "_sluice_words() { mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$cur\"); }\n"
          "_sluice_files() {\n"
          "    mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
          "    compopt -o filenames 2>/dev/null\n"
          "}\n"
          "_sluice_directories() {\n"
          "    mapfile -t COMPREPLY < <(compgen -d -- \"$cur\")\n"
          "    compopt -o filenames 2>/dev/null\n"
          "}\n"
          "_sluice_models() {\n"
          "    mapfile -t COMPREPLY < <(compgen -f -X '!*.[gG][gG][uU][fF]' -- \"$cur\"; compgen -d -- \"$cur\")\n"
          "    compopt -o filenames 2>/dev/null\n"
          "}\n"
          "\n"
          "_sluice() {\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev='' options='' arguments='' i first=0\n"
          "    COMPREPLY=()\n"
          "    if ((COMP_CWORD <= 1)); then\n"
          "        _sluice_words '",
          out);
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        fprintf(out, "%s ", cli_command_word(*c));
    }
    fputs("-h --help --version'\n"
          "        return\n"
          "    fi\n"
          "    if [[ ${COMP_WORDS[1]} == --version ]]; then\n"
          "        _sluice_words --json\n"
          "        return\n"
          "    fi\n"
          "    # What follows -- belongs to a program.\n"
          "    for ((i = 2; i < COMP_CWORD; i++)); do\n"
          "        if [[ ${COMP_WORDS[i]} == -- ]]; then\n"
          "            first=$((i + 1))\n"
          "            break\n"
          "        fi\n"
          "    done\n"
          "    if ((first)); then\n"
          "        if [[ ${COMP_WORDS[1]} == exec ]] && ((first == COMP_CWORD)); then\n"
          "            mapfile -t COMPREPLY < <(compgen -c -- \"$cur\")\n"
          "        else\n"
          "            _sluice_files\n"
          "        fi\n"
          "        return\n"
          "    fi\n"
          "    ((COMP_CWORD > 2)) && prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
          "    # bash cuts --name=value into three words.\n"
          "    if [[ $cur == = ]]; then\n"
          "        cur=''\n"
          "    elif [[ $prev == = ]]; then\n"
          "        prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
          "    fi\n"
          "    case ${COMP_WORDS[1]} in\n",
          out);
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        put_command(out, *c);
    }
    fputs("    esac\n"
          "    if [[ $cur == -* ]]; then\n"
          "        _sluice_words \"$options\"\n"
          "        return\n"
          "    fi\n"
          "    case $arguments in\n"
          "    files) _sluice_files ;;\n"
          "    models) _sluice_models ;;\n"
          "    program) mapfile -t COMPREPLY < <(compgen -c -- \"$cur\") ;;\n"
          "    *) _sluice_words \"$options\" ;;\n"
          "    esac\n"
          "}\n"
          "complete -F _sluice sluice\n",
          out);
}
