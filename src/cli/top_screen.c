/*
 * top_screen.c - the live view of `sluice top`.
 *
 * curses draws; what it draws is the page of top_show.c, cut to the terminal whatever its size is.
 * Terminals that cannot place the cursor (TERM=dumb, a pipe) are not drawn on: the caller prints a
 * snapshot there. curses restores the terminal when SIGINT or SIGTERM end the program.
 */
#include <curses.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <term.h>
#include <unistd.h>

#include "cli/args.h"
#include "cli/top.h"
#include "run/runner.h"

enum { REFRESH_MS = 333 };

struct view {
    uint64_t pid; /* chosen; 0: none yet */
    bool only;    /* the command line chose it: no other is shown */
};

/* Where the chosen process is in the list; l->n: it is not there. */
static size_t chosen_at(const struct view *v, const struct top_list *l) {
    size_t i = 0;
    while (i < l->n && l->p[i].d.pid != v->pid) {
        i++;
    }
    return i;
}

/* False: no memory. */
static bool draw(const struct view *v, const struct top_list *l) {
    int rows, wide, at = 0;
    getmaxyx(stdscr, rows, wide);
    erase();
    const size_t chosen = chosen_at(v, l);
    char *page = NULL;
    char head[TOP_WIDTH] = "sluice top   q quits";
    if (l->n > 1) {
        snprintf(head, sizeof head, "sluice top   q quits   process %zu of %zu, arrows or 1..9 choose", chosen + 1,
                 l->n);
    }
    attron(A_REVERSE);
    mvaddnstr(at++, 0, head, wide);
    attroff(A_REVERSE);
    if (chosen == l->n) {
        mvaddnstr(at, 0, v->only ? "the process has ended" : "no process streams", wide);
    } else {
        page = top_page(&l->p[chosen], sluice_clock(), wide - 1, rows - at, true);
        for (char *line = page, *end; line && (end = strchr(line, '\n')); line = end + 1) {
            mvaddnstr(at++, 0, line, (int)(end - line));
        }
    }
    free(page);
    refresh();
    return page || chosen == l->n;
}

/* Choose the process `by` places on, or the one with number `to`; stay when there is none. */
static void choose(struct view *v, const struct top_list *l, int by, int to) {
    size_t at = chosen_at(v, l);
    if (l->n == 0 || v->only) {
        return;
    }
    if (to >= 0 && (size_t)to < l->n) {
        at = (size_t)to;
    } else if (at == l->n) {
        at = 0; /* it has ended */
    } else {
        at = (at + l->n + (size_t)(by + (int)l->n)) % l->n;
    }
    v->pid = l->p[at].d.pid;
}

/* A key, or none in time. False: leave. */
static bool key(struct view *v, const struct top_list *l, int c) {
    switch (c) {
    case 'q':
    case 'Q':
        return false;
    case KEY_UP:
    case KEY_LEFT:
        choose(v, l, -1, -1);
        break;
    case KEY_DOWN:
    case KEY_RIGHT:
    case '\t':
        choose(v, l, 1, -1);
        break;
    default: /* a number, KEY_RESIZE, which asks for nothing but drawing again, or nothing */
        if (c >= '1' && c <= '9') {
            choose(v, l, 0, c - '1');
        }
        break;
    }
    return true;
}

/* Can the cursor be placed there? */
static bool drawable(void) {
    return tigetstr("cup") != NULL && tigetstr("cup") != (char *)-1;
}

static int loop(struct view *v, const char *command) {
    for (bool more = true; more;) {
        struct top_list *l = top_find(v->only ? v->pid : 0);
        if (l && l->n && chosen_at(v, l) == l->n) {
            choose(v, l, 0, 0);
        }
        if (!l || !draw(v, l)) {
            free(l);
            endwin();
            return cli_fail(CLI_EXIT_FAILED, command, "no memory");
        }
        const int c = getch(); /* ERR after REFRESH_MS */
        more = key(v, l, c);
        free(l);
    }
    return CLI_EXIT_OK;
}

int top_screen(uint64_t pid, const char *command) {
    struct view v = {.pid = pid, .only = pid != 0};
    if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)) {
        return -1;
    }
    SCREEN *screen = newterm(NULL, stdout, stdin); /* unlike initscr it returns when TERM is unknown */
    if (!screen) {
        return -1;
    }
    int rc = -1;
    if (drawable()) {
        cbreak();
        noecho();
        keypad(stdscr, TRUE);
        curs_set(0);
        timeout(REFRESH_MS);
        rc = loop(&v, command);
    }
    endwin();
    delscreen(screen);
    return rc;
}
