/*
 * args.h - one strict option parser for all commands, and the values that it fills.
 */
#ifndef SLUICE_CLI_ARGS_H
#define SLUICE_CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    CLI_EXIT_OK = 0,       /* it did what was asked */
    CLI_EXIT_FAILED = 1,   /* something went wrong while it ran */
    CLI_EXIT_USAGE = 2,    /* the command line or a setting has no meaning */
    CLI_NOT_GIVEN = -2,    /* an integer option whose default depends on the command */
    CLI_SETTINGS_MAX = 32, /* settings that one command line may give */
    CLI_VARIANTS_MAX = 16, /* of one `sluice bench` */
    CLI_RUNS_MAX = 100     /* of each of its rows */
};

/* A setting of sluice.h given on the command line. Applied after the environment. */
struct cli_setting {
    const char *name;  /* as sluice_settings_set wants it, static */
    const char *value; /* its text, from argv or static */
};

/* What only `sluice bench` takes. Text points into argv. */
struct cli_bench {
    const char *budgets;                    /* --budgets, a list with commas */
    const char *baselines;                  /* --baseline, a list with commas; NULL: none */
    const char *variants[CLI_VARIANTS_MAX]; /* each --variant: "NAME: options" */
    const char *memory;                     /* --memory, a size; NULL: no limit */
    const char *drop;                       /* --drop-caches: machine, model or no; NULL: machine, else model */
    const char *json;                       /* --json FILE; NULL: not given */
    const char *keep;                       /* --keep DIR; NULL: nothing is kept */
    size_t n_variants;                      /* used entries of variants */
    int64_t gen;                            /* tokens generated and measured per run */
    int64_t prompt;                         /* tokens of the prompt */
    int64_t runs;                           /* of each variant */
    double max_seconds;                     /* a run is stopped after so long */
    double probe_seconds;                   /* each of the disk's probes reads for so long; 0: none */
};

/* What only `sluice replay` takes. Text points into argv; NULL: not given. */
struct cli_replay {
    const char *policy;  /* --policy, a list with commas */
    const char *budget;  /* --budget, a list with commas */
    const char *divide;  /* --divide: classes or pool */
    const char *drop;    /* --drop, a list with commas */
    const char *predict; /* --predict: MiB/s and tokens/s */
    const char *plot;    /* --plot FILE */
};

/* What only `sluice eval` takes. Text points into argv; NULL: not given. */
struct cli_eval {
    const char *ref;      /* --ref FILE */
    const char *ref_save; /* --ref-save FILE */
    bool other_model;     /* --ref-other-model */
    bool decode;          /* --decode */
    int64_t chunks;       /* --chunks N; 0: all */
};

/* What only `sluice serve` takes. Text points into argv; NULL: not given. */
struct cli_serve {
    const char *host;   /* --host, where llama-server listens */
    const char *server; /* --server, the program */
    int64_t port;       /* --port; 0: a free one */
    int64_t parallel;   /* --parallel, requests at once */
    bool no_window;     /* --no-window */
    bool verbose;       /* --verbose */
};

/* What only `sluice plan` takes. Text points into argv; NULL: not given. */
struct cli_plan {
    const char *budgets;  /* --budgets, a list with commas */
    double probe_seconds; /* the disk is read for so long in all; 0: not at all */
};

/* What the command line says. Text points into argv. */
struct cli_config {
    const char *command;                           /* "sluice run": what messages start with */
    const char *model;                             /* -m; NULL: not given */
    const char *prompt;                            /* -p; NULL: not given */
    const char *prompt_file;                       /* -f; NULL: not given */
    const char *system;                            /* --system; NULL: none */
    const char *chat_template;                     /* --chat-template; NULL: the model's own */
    int64_t n_predict;                             /* tokens to generate; -1: no limit; or CLI_NOT_GIVEN */
    int64_t n_ctx;                                 /* context, tokens; 0: as the model was trained */
    int64_t n_threads;                             /* compute threads; 0: one per processor */
    int64_t n_prompt;                              /* use so many tokens of the prompt; 0: all */
    int64_t n_ubatch;                              /* prompt tokens per batch; 0: chosen */
    int64_t n_expert_used;                         /* experts per token; 0: as the model says */
    double temp;                                   /* see sluice_sampling */
    double top_p;                                  /* see sluice_sampling */
    double min_p;                                  /* see sluice_sampling */
    int64_t top_k;                                 /* see sluice_sampling */
    int64_t seed;                                  /* -1: a random one */
    const char *prompt_cache;                      /* --prompt-cache; NULL: not given */
    bool ignore_eos;                               /* --ignore-eos */
    const char *csv;                               /* --csv; NULL: not given */
    const char *route_trace;                       /* --route-trace; NULL: not given */
    const char *route_probs;                       /* --route-probs; NULL: not given */
    struct cli_bench bench;                        /* of `sluice bench` */
    struct cli_replay replay;                      /* of `sluice replay` */
    struct cli_eval eval;                          /* of `sluice eval` */
    struct cli_serve serve;                        /* of `sluice serve` */
    struct cli_plan plan;                          /* of `sluice plan` */
    bool resident;                                 /* --resident */
    bool compare;                                  /* --compare-resident */
    bool json;                                     /* --json */
    bool once;                                     /* --once */
    bool quiet;                                    /* --quiet */
    bool help;                                     /* --help: nothing else was checked */
    struct cli_setting settings[CLI_SETTINGS_MAX]; /* in the order given */
    size_t n_settings;                             /* used entries */
    char **args;                                   /* what is not an option, points into argv */
    int n_args;                                    /* number of them */
    int n_plain;                                   /* of those, the ones that came before "--" */
};

/*
 * One row per option: options.h has the table. The setter stores the value and returns false when it has no meaning;
 * the parser then prints "COMMAND: --name VALUE: must be EXPECT". The help page, the manual page and the completions
 * are made from the same rows, so that an option cannot exist without its help.
 */
struct cli_option {
    const char *name;    /* "--threads" */
    char letter;         /* 't' for -t; 0: none */
    const char *metavar; /* "N"; NULL: takes no value */
    bool (*set)(const struct cli_option *o, const char *value, struct cli_config *c);
    size_t offset;        /* of the field in cli_config that the generic setters fill */
    double min, max;      /* range of a number */
    const char *expect;   /* what a good value is, after "must be"; NULL: min..max */
    const char *setting;  /* name of a sluice.h setting, for cli_set_setting */
    const char *fixed;    /* its value, for an option without one */
    const char *also;     /* another name for the same, "--ctx"; NULL: none */
    const char *optional; /* its value when none is given; NULL: one must be. The next argument is one only if it begins
                             with a digit or '[' */
    const char *only;     /* the commands whose row this is: "info plan"; NULL: all that have no row of their own */
    const char *help;     /* may contain newlines */
};

/* Options with a heading. */
struct cli_group {
    const char *heading; /* "Cache" */
    const char *names;   /* "--cache --cache-floor", in the order of the help page */
};

/* A command: what it takes, what its help says, what it does. */
struct cli_command {
    const char *name;                 /* "sluice run" */
    const char *summary;              /* what it is for: its line in `sluice --help` */
    const char *usage;                /* the line after "usage: " */
    const char *about;                /* paragraphs, wrapped by hand */
    const char *notes;                /* examples and the like, printed after the options; NULL: none */
    int (*run)(struct cli_config *c); /* does it, with a command line without --help; returns the exit code */
    int max_args;                     /* arguments that are no options */
    int64_t n_ctx;                    /* context when -c is not given; 0: 4096 */
    bool stop_at_arg;                 /* the first of them ends the options: the rest belongs to a program */
    struct cli_group groups[10];      /* its options; ends with heading NULL */
};

/* A walk over the options of a command, in the order of its help page. All zero at the beginning. */
struct cli_walk {
    const struct cli_group *group; /* of the option that was returned */
    const char *rest;              /* names of this group that are left */
    bool first;                    /* the option is the first of its group */
};

/* The next option; NULL: there is none. */
const struct cli_option *cli_next_option(const struct cli_command *cmd, struct cli_walk *w);

/* "run" of "sluice run" */
const char *cli_command_word(const struct cli_command *cmd);

/* The generic setters. */
bool cli_set_text(const struct cli_option *o, const char *value, struct cli_config *c);    /* const char * field */
bool cli_set_true(const struct cli_option *o, const char *value, struct cli_config *c);    /* bool field */
bool cli_set_integer(const struct cli_option *o, const char *value, struct cli_config *c); /* int64_t field */
bool cli_set_real(const struct cli_option *o, const char *value, struct cli_config *c);    /* double field */
bool cli_set_choice(const struct cli_option *o, const char *value,
                    struct cli_config *c); /* one of the words of expect */
bool cli_set_setting(const struct cli_option *o, const char *value, struct cli_config *c); /* adds to settings */

/*
 * Fill *c with the defaults, then from argv[1..]. Returns 0, or CLI_EXIT_USAGE after printing one
 * line. With --help it stops at once with c->help set.
 */
int cli_parse(const struct cli_command *cmd, int argc, char **argv, struct cli_config *c);

/* Was this setting (as in sluice.h) given as an option? */
bool cli_given(const struct cli_config *c, const char *setting);

/* Does the command have an option of this name ("--memory")? */
bool cli_has_option(const struct cli_command *cmd, const char *name);

/*
 * Have `print` write a page about `what` and write it to standard output as a whole. Returns an exit code after
 * printing one line.
 */
int cli_print(const char *command, void (*print)(FILE *out, const void *what), const void *what);

/* The next item of a list with commas, cut to fit; *list moves on. False: there is none. NULL is a list without any. */
bool cli_next_item(const char **list, char *item, size_t cap);

/* Print the help page to standard output. Returns an exit code. */
int cli_help(const struct cli_command *cmd);

/* Print "COMMAND: message" and a newline to standard error; returns `code`. */
int cli_fail(int code, const char *command, const char *format, ...) __attribute__((format(printf, 3, 4)));

/*
 * Write to standard output and flush. False, after printing one line, when that failed: the text is
 * the result of the command, so the command must fail too.
 */
bool cli_write(const char *command, const char *text, size_t n);

#endif
