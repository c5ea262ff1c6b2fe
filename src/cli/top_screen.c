/*
 * top_screen.c - the live view of `sluice top`.
 *
 * curses draws; what it draws is the page of top_text.c, cut to the terminal whatever its size is.
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
    uint64_t pid;            /* chosen; 0: none yet */
    bool only;               /* the command line chose it: no other is shown */
    char (*line)[TOP_WIDTH]; /* TOP_LINES lines, owned */
};

static void draw(struct view *v, const struct top_list *l) {
    int rows, wide, at = 0;
    getmaxyx(stdscr, rows, wide);
    erase();
    size_t chosen = 0;
    while (chosen < l->n && l->p[chosen].d.pid != v->pid) {
        chosen++;
    }
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
        const int n = top_page(&l->p[chosen], sluice_clock(), wide - 1, rows - at, true, v->line);
        for (int i = 0; i < n; i++) {
            mvaddnstr(at + i, 0, v->line[i], wide);
        }
    }
    refresh();
}

/* Choose the process `by` places on, or the one with number `to`; stay when there is none. */
static void choose(struct view *v, const struct top_list *l, int by, int to) {
    size_t at = 0;
    if (l->n == 0 || v->only) {
        return;
    }
    while (at < l->n && l->p[at].d.pid != v->pid) {
        at++;
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
    bool more = true;
    while (more) {
        struct top_list l;
        if (!top_find(&l, v->only ? v->pid : 0)) {
            top_free(&l);
            endwin();
            return cli_fail(CLI_EXIT_FAILED, command, "no memory");
        }
        bool there = false;
        for (size_t i = 0; i < l.n; i++) {
            there = there || l.p[i].d.pid == v->pid;
        }
        if (!there && l.n) {
            choose(v, &l, 0, 0);
        }
        draw(v, &l);
        const int c = getch(); /* ERR after REFRESH_MS */
        more = key(v, &l, c);
        top_free(&l);
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
        v.line = calloc(TOP_LINES, sizeof *v.line);
        cbreak();
        noecho();
        keypad(stdscr, TRUE);
        curs_set(0);
        timeout(REFRESH_MS);
        rc = v.line ? loop(&v, command) : CLI_EXIT_FAILED;
    }
    endwin();
    delscreen(screen);
    free(v.line);
    return rc;
}
