/*
 * pages.h - what the manual pages and the shells' completions are made from: the commands' own option tables.
 */
#ifndef SLUICE_TOOLS_PAGES_H
#define SLUICE_TOOLS_PAGES_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/args.h"
#include "cli/list.h"

enum {
    PAGES_WORDS_MAX = 8, /* values of one option that can be listed */
    PAGES_WORD_MAX = 32, /* bytes of such a value, terminator included */
    PAGES_SHORT_MAX = 90 /* bytes of an option's help in a shell's menu, likewise */
};

/* What may follow an option, or a command. */
enum pages_value {
    PAGES_NOTHING, /* it takes no value */
    PAGES_ANY,     /* a number, a size, a text: nothing that can be completed, or the words of pages_words */
    PAGES_FILE,    /* any file */
    PAGES_MODEL,   /* a GGUF file */
    PAGES_DIR      /* a directory */
};

enum pages_value pages_option_value(const struct cli_option *o);
enum pages_value pages_command_value(const struct cli_command *c); /* its arguments that are no options */

/*
 * The words that an option's `expect` offers and its own setter accepts: "cycle", "lru". Returns their number, at most
 * PAGES_WORDS_MAX.
 */
size_t pages_words(const struct cli_option *o, char words[PAGES_WORDS_MAX][PAGES_WORD_MAX]);

/* The beginning of an option's help, on one line, for a menu. */
void pages_short(const struct cli_option *o, char out[PAGES_SHORT_MAX]);

/* Write `text` with a backslash before each byte of `special`, and as the shells want a ' inside '...' where `quoted`.
 */
void pages_escape(FILE *out, const char *text, const char *special, bool quoted);

/* The writers: each a whole file. man_page with command NULL is sluice(1); its date is "2026-11-30". */
void man_page(FILE *out, const char *date, const struct cli_command *c);
void bash_completion(FILE *out);
void zsh_completion(FILE *out);
void fish_completion(FILE *out);

#endif
