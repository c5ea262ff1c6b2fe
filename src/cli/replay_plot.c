/*
 * replay_plot.c - hit rate against budget, as an SVG picture.
 *
 * One panel per trace, one curve per policy, budgets on a logarithmic axis, one token's demand as a
 * dashed line: that is where LRU falls off its cliff. Lossless replays only. Plain SVG, no script, no
 * style sheet: it shows in a browser, in a README and in a printed page.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/replay.h"

enum {
    PLOT_WIDTH = 720,  /* of the picture */
    PLOT_HEIGHT = 400, /* of a panel */
    PLOT_LEFT = 60,    /* where the axes are */
    PLOT_RIGHT = 600,  /* the names of the curves stand right of it */
    PLOT_TOP = 50,
    PLOT_BOTTOM = 340,
};

static const double MIB = 1024.0 * 1024.0;

static const char *const colours[REPLAY_POLICIES] = {
    [REPLAY_LRU] = "#c0392b", [REPLAY_CYCLE] = "#1f6fb4", [REPLAY_LFU] = "#b8860b", [REPLAY_BELADY] = "#444444"};

/* Where a budget is, from left to right; `from` and `to` are the ends of the axis. */
static double plot_x(double budget, double from, double to) {
    const double span = log2(to / from);
    return span > 0 ? PLOT_LEFT + (PLOT_RIGHT - PLOT_LEFT) * log2(budget / from) / span
                    : (PLOT_LEFT + PLOT_RIGHT) / 2.0;
}

static double plot_y(double percent) {
    return PLOT_BOTTOM - (PLOT_BOTTOM - PLOT_TOP) * percent / 100;
}

/* Text of a file: markup's characters are replaced. */
static void plot_text(FILE *f, const char *text) {
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        fputc(c < 32 || c == '<' || c == '>' || c == '&' || c >= 127 ? '?' : c, f);
    }
}

static bool plot_shown(const struct replay_line *l) {
    return l->budget > 0 && !l->lossy.n_expert_used && l->lossy.drop <= 0;
}

static void plot_axes(FILE *f, const struct replay_report *r, double from, double to) {
    fprintf(f, "<text x=\"%d\" y=\"28\" font-size=\"15\">Experts found in memory, %%: ", PLOT_LEFT);
    const char *name = strrchr(r->path, '/');
    plot_text(f, name ? name + 1 : r->path);
    fputs("</text>\n", f);
    for (int y = 0; y <= 100; y += 20) {
        fprintf(f,
                "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%d</text>\n",
                PLOT_LEFT, PLOT_RIGHT, plot_y(y), plot_y(y), PLOT_LEFT - 8, plot_y(y) + 4, y);
    }
    double last = -1e9;
    for (size_t i = 0; i < r->n_lines; i++) { /* ascending within the first policy */
        const double b = (double)r->lines[i].budget;
        if (!plot_shown(&r->lines[i]) || r->lines[i].policy != r->lines[0].policy || plot_x(b, from, to) < last + 40) {
            continue;
        }
        last = plot_x(b, from, to);
        fprintf(f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.4g</text>\n", last, PLOT_BOTTOM + 20, b / MIB);
    }
    fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">cache, MiB</text>\n", (PLOT_LEFT + PLOT_RIGHT) / 2,
            PLOT_BOTTOM + 42);
    const double demand = (double)r->facts.token_bytes;
    if (demand >= from && demand <= to) {
        const double x = plot_x(demand, from, to);
        fprintf(f,
                "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"#888\" stroke-dasharray=\"5 4\"/>"
                "<text x=\"%.1f\" y=\"%d\" fill=\"#666\">one token's demand</text>\n",
                x, x, PLOT_TOP, PLOT_BOTTOM, x + 5, PLOT_TOP + 12);
    }
}

static void plot_panel(FILE *f, const struct replay_report *r, size_t at) {
    double from = 0, to = 0;
    for (size_t i = 0; i < r->n_lines; i++) {
        const double b = (double)r->lines[i].budget;
        if (plot_shown(&r->lines[i])) {
            from = from == 0 || b < from ? b : from;
            to = b > to ? b : to;
        }
    }
    if (from == 0) {
        return; /* no budget above 0 */
    }
    fprintf(f, "<g transform=\"translate(0 %zu)\">\n", at * PLOT_HEIGHT);
    plot_axes(f, r, from, to);
    double names[REPLAY_POLICIES];
    int n_names = 0;
    for (int policy = 0; policy < REPLAY_POLICIES; policy++) {
        double end = -1;
        for (size_t i = 0; i < r->n_lines; i++) {
            const struct replay_line *l = &r->lines[i];
            if ((int)l->policy != policy || !plot_shown(l)) {
                continue;
            }
            if (end < 0) {
                fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colours[policy]);
            }
            end = plot_y(replay_hit_rate(&l->result.phase[TRACE_GENERATION]));
            fprintf(f, "%.1f,%.1f ", plot_x((double)l->budget, from, to), end);
        }
        if (end < 0) {
            continue;
        }
        for (int i = 0; i < n_names;) { /* names may not cover each other */
            /* Half a unit of slack: names[i] + 14 may be a rounding less than 14 away, and would be moved there for
             * ever. */
            const bool covers = fabs(names[i] - end) < 13.5;
            end = covers ? names[i] + 14 : end;
            i = covers ? 0 : i + 1;
        }
        names[n_names++] = end;
        fprintf(f, "\"/>\n<text x=\"%d\" y=\"%.1f\" fill=\"%s\">%s</text>\n", PLOT_RIGHT + 8, end + 4, colours[policy],
                replay_policy_name((enum replay_policy)policy));
    }
    fputs("</g>\n", f);
}

int replay_plot(const struct replay_report *r, size_t n, const char *path) {
    const char *command = r->plan->config->command;
    FILE *f = fopen(path, "we");
    if (!f) {
        return cli_fail(CLI_EXIT_FAILED, command, "%s: cannot write: %s", path, strerror(errno));
    }
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%zu\" viewBox=\"0 0 %d %zu\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            PLOT_WIDTH, n * PLOT_HEIGHT, PLOT_WIDTH, n * PLOT_HEIGHT);
    for (size_t i = 0; i < n; i++) {
        plot_panel(f, &r[i], i);
    }
    fputs("</svg>\n", f);
    const bool bad = ferror(f) != 0;
    if (fclose(f) || bad) {
        return cli_fail(CLI_EXIT_FAILED, command, "%s: cannot write: %s", path, strerror(errno));
    }
    return CLI_EXIT_OK;
}
