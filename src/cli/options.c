/*
 * options.c - all options of all commands, once each; see args.h.
 *
 * The rows are the documentation: help pages, manual pages and completions are made from them. A command lists the
 * names of those that it has, under headings. Where the same name takes another value in some command, or needs other
 * words there, that command has a row of its own (`only`).
 */
#include "cli/options.h"

#include <stddef.h>

#define TOKENS    16777216 /* no context is larger */
#define FILE_NAME "a file name"

/* The kinds of values. */
#define FIELD(field)             .offset = offsetof(struct cli_config, field)
#define TEXT(field, what)        .set = cli_set_text, FIELD(field), .min = 1, .expect = what
#define ANY_TEXT(field)          .set = cli_set_text, FIELD(field)
#define CHOICE(field, what)      .set = cli_set_choice, FIELD(field), .expect = what
#define FLAG(field)              .set = cli_set_true, FIELD(field)
#define INTEGER(field, from, to) .set = cli_set_integer, FIELD(field), .min = from, .max = to
#define REAL(field, from, to)    .set = cli_set_real, FIELD(field), .min = from, .max = to
#define SETTING(name, what)      .set = cli_set_setting, .setting = name, .expect = what
#define SWITCH(name, value)      .set = cli_set_setting, .setting = name, .fixed = value

static bool set_variant(const struct cli_option *o, const char *value, struct cli_config *c) {
    (void)o;
    if (c->bench.n_variants == CLI_VARIANTS_MAX) {
        return false;
    }
    c->bench.variants[c->bench.n_variants++] = value;
    return true;
}

const char cli_model_options[] = "--model --ctx-size --threads --ubatch --n-expert-used --resident";
const char cli_cache_options[] = "--cache --cache-floor --memory --staging --dense --cache-policy --force-cache --io "
                                 "--io-threads --no-direct-io --no-lookahead --no-publish";
const char cli_measure_options[] = "--csv --route-trace --route-probs";
const char cli_lossy_options[] = "--drop-cold-experts --drop-renorm --drop-in-prefill --drop-reproducible --cold-model";
const char cli_window_options[] = "--window --allow-remote";
const char cli_sampling_options[] = "--n-predict --temp --top-k --top-p --min-p --seed";

const struct cli_option cli_options[] = {
    {"--model", 'm', "MODEL", TEXT(model, FILE_NAME), .help = "the GGUF file; of a split model the first shard"},
    {"--ctx-size", 'c', "N", INTEGER(n_ctx, 0, TOKENS),
     .help = "context in tokens (4096, eval: 512 or the reference's; 0: as the model\nwas trained)", .also = "--ctx"},
    {"--threads", 't', "N", INTEGER(n_threads, 1, 512),
     .help = "compute threads (one per processor that this process may use)"},
    {"--ubatch", 0, "N", INTEGER(n_ubatch, 1, 16384),
     .help = "prompt tokens per micro-batch, each of which reads nearly all experts once\n"
             "(chosen: as few micro-batches as memory allows). The output is that of\n"
             "llama.cpp with the same micro-batch (-b N -ub N)"},
    {"--n-expert-used", 0, "K", INTEGER(n_expert_used, 1, 1024),
     .help = "experts per token instead of the model's own number. Fewer are\n"
             "faster and CHANGE THE OUTPUT (lossy, but reproducible)"},
    {"--resident", 0, NULL, FLAG(resident), .help = "do not stream: load the model as plain llama.cpp would"},
    {"--csv", 0, "FILE", TEXT(csv, FILE_NAME),
     .help = "write one row per step: where its time went, what was read, hit and\nmissed; settings in comments before "
             "the table"},
    {"--route-trace", 0, "FILE", TEXT(route_trace, FILE_NAME),
     .help = "write one row per routed expert, for `sluice replay`"},
    {"--route-probs", 0, "FILE", TEXT(route_probs, FILE_NAME),
     .help = "write the routers' probabilities of all experts, one line per token and\n"
             "layer. Computes the routers a second time"},
    {"--cache", 0, "SIZE", SETTING("cache", "a size such as 2000MiB or 4GiB, 0 or auto"),
     .help = "memory for experts: 2000MiB, 4GiB, 2048 (MiB); 0 keeps none; auto\n"
             "(the default) takes what machine and cgroup leave"},
    {"--cache-floor", 0, "SIZE", SETTING("cache_floor", "a size such as 512MiB"),
     .help = "what auto leaves free (chosen from the limit)"},
    {"--memory", 0, "SIZE", SETTING("memory", "a size such as 3GiB, not 0"),
     .help = "ceiling for all memory of the process; cache auto fits itself in, a fixed\n"
             "cache that does not fit is refused (what machine and cgroup leave)"},
    {"--staging", 0, "SIZE", SETTING("staging", "a size such as 256MiB, not 0"),
     .help = "how much of the cache a long prompt passes through at a time (256MiB):\n"
             "less keeps more of what the cache holds, more reads further ahead"},
    {"--dense", 0, "WHERE", SETTING("dense", "anon, mmap or lock"),
     .help = "where weights other than experts live: anon, memory of the process (the\n"
             "default); lock, the same and never swapped; mmap, the page cache"},
    {"--cache-policy", 0, "NAME", SETTING("cache_policy", "cycle or lru"),
     .help = "which expert makes room: cycle, the one whose next use is expected latest\n"
             "(the default); lru, the one unused for longest"},
    {"--force-cache", 0, NULL, SWITCH("force_cache", "1"),
     .help = "accept, with lru, a cache under one token's demand, where it never hits"},
    {"--io", 0, "KIND", SETTING("io", "auto or pread (uring was removed: it made no run faster, and some slower)"),
     .help = "who reads: pread, threads; auto (the default), what measured faster, which\n"
             "is threads"},
    {"--io-threads", 0, "N", SETTING("io_threads", "1..64"), .help = "reads in flight, 1..64 (4): so many threads"},
    {"--no-direct-io", 0, NULL, SWITCH("direct_io", "0"), .help = "read through the page cache"},
    {"--no-lookahead", 0, NULL, SWITCH("lookahead", "0"),
     .help = "do not read experts ahead of their use while the disk is idle"},
    {"--no-publish", 0, NULL, SWITCH("publish", "0"), .help = "do not show counters to `sluice top`"},
    {"--drop-cold-experts", 0, "F", SETTING("drop_cold_experts", "a number from 0 to 1"),
     .help = "CHANGES THE OUTPUT: when generating, leave out experts that would have\n"
             "to be read and weigh less than F / top-k (0: none). Needs a cache"},
    {"--drop-renorm", 0, "on|off", SETTING("drop_renorm", "on or off"),
     .help = "on: the others get the weight of those left out (off)"},
    {"--drop-in-prefill", 0, NULL, SWITCH("drop_in_prefill", "1"), .help = "in prompts too"},
    {"--drop-reproducible", 0, NULL, SWITCH("drop_reproducible", "1"),
     .help = "decide by a made-up cache that is empty when a generation begins: the\n"
             "same prompt gives the same text, whatever is in memory"},
    {"--cold-model", 0, "FILE", SETTING("cold_model", FILE_NAME),
     .help = "a smaller quantisation of the same model: experts that would be left out\n"
             "are computed from their copies in it instead. Fewer bytes, less loss"},
    {"--window", 0, "[ADDR:PORT]", SETTING("window", "an address and a port such as 127.0.0.1:8090, or a port"),
     .help = "a page for a browser that shows how it runs and changes settings, at\n"
             "127.0.0.1:8090 or there; a port alone is of 127.0.0.1, 0 any free one.\n"
             "Its address is printed (docs/window.md)",
     .optional = "127.0.0.1:8090"},
    {"--allow-remote", 0, NULL, SWITCH("window_allow_remote", "1"),
     .help = "let --window take an address that other machines reach: anyone there can\n"
             "watch, and with the printed token change settings"},
    {"--n-predict", 'n', "N", INTEGER(n_predict, -1, TOKENS),
     .help = "tokens to generate at most (run: 256, chat: -1; -1: until the\n"
             "model ends or the context is full)"},
    {"--temp", 0, "T", REAL(temp, 0, 100), .help = "temperature (0.8). 0: always the likeliest token"},
    {"--top-k", 0, "N", INTEGER(top_k, 0, 1000000), .help = "choose among the N likeliest tokens (40; 0: all)"},
    {"--top-p", 0, "P", REAL(top_p, 0, 1),
     .help = "choose among the likeliest tokens up to this probability (0.95; 1: all)"},
    {"--min-p", 0, "P", REAL(min_p, 0, 1),
     .help = "leave out tokens less likely than P times the likeliest (0.05; 0: none)"},
    {"--seed", 0, "N", INTEGER(seed, 0, 4294967294.0),
     .help = "makes the random choice repeatable (a random one, named in the summary)"},
    {"--prompt", 'p', "TEXT", ANY_TEXT(prompt), .help = "the prompt", .only = "run"},
    {"--file", 'f', "FILE", TEXT(prompt_file, FILE_NAME), .help = "read the prompt from a file", .only = "run"},
    {"--prompt-cache", 0, "FILE", TEXT(prompt_cache, FILE_NAME),
     .help = "keep the state after the prompt in FILE, and begin with what FILE holds of\n"
             "it: the same prompt is not read again and gives the same text, of a longer\n"
             "one only the rest is read. Each file is of one model and its settings"},
    {"--prompt-tokens", 0, "N", INTEGER(n_prompt, 1, TOKENS),
     .help = "use the first N tokens of the prompt (all). For measurements", .only = "run"},
    {"--ignore-eos", 0, NULL, FLAG(ignore_eos),
     .help = "never choose a token that ends the text, so that exactly -n tokens are\ngenerated. For measurements"},
    {"--json", 0, NULL, FLAG(json), .help = "one JSON object with text and summary on standard output, at the end",
     .only = "run"},
    {"--quiet", 'q', NULL, FLAG(quiet), .help = "no progress, mode line and summary"},
    {"--compare-resident", 0, NULL, FLAG(compare),
     .help = "afterwards load the model fully resident, compute the same batches\n"
             "again and compare the logits byte by byte; exit 1 if any differs.\n"
             "Slow when the model does not fit in memory"},
    {"--system", 0, "TEXT", TEXT(system, "a text"), .help = "the system message (none)"},
    {"--chat-template", 0, "NAME", TEXT(chat_template, "a template's name"),
     .help = "one of llama.cpp's built-in templates, e.g. chatml or llama3\n(the model's own)"},
    {"--file", 'f', "TEXT", TEXT(prompt_file, FILE_NAME),
     .help = "the text to predict (-: standard input). One newline at its end is left\n"
             "out, as llama.cpp's programs do",
     .only = "eval"},
    {"--chunks", 0, "N", INTEGER(eval.chunks, 1, TOKENS),
     .help = "use the first N chunks of -c tokens (all that are whole)"},
    {"--decode", 0, NULL, FLAG(eval.decode),
     .help = "compute one token at a time, as generation does, instead of batches.\n"
             "Always so when a setting is lossy"},
    {"--ref-save", 0, "FILE", TEXT(eval.ref_save, FILE_NAME),
     .help = "write the predictions of this run, which must be lossless:\n"
             "16 + 2 x vocabulary bytes per scored token"},
    {"--ref", 0, "FILE", TEXT(eval.ref, FILE_NAME),
     .help = "compare with the predictions in FILE: KL divergence, agreement on the\n"
             "likeliest token"},
    {"--ref-other-model", 0, NULL, FLAG(eval.other_model),
     .help = "FILE may be of another model file with the same vocabulary, such as\n"
             "another quantisation"},
    {"--json", 0, NULL, FLAG(json), .help = "one JSON object on standard output, at the end", .only = "eval"},
    {"--memory", 0, "SIZE", SETTING("memory", "a size such as 3GiB, not 0"),
     .help = "ceiling for all memory of the process (what machine and cgroup leave)", .only = "plan"},
    {"--ctx", 'c', "N", INTEGER(n_ctx, 0, TOKENS), .help = "context in tokens (4096; 0: as the model was trained)"},
    {"--prompt-tokens", 0, "N", INTEGER(n_prompt, 1, TOKENS),
     .help = "plan for a prompt of N tokens (512): they decide the micro-batch, and it\nthe compute buffers",
     .only = "plan"},
    {"--budgets", 0, "LIST", TEXT(plan.budgets, "sizes with commas"),
     .help = "caches to predict, such as 0,500,4GiB,auto,all (0, auto, all and shares\nof all)", .only = "plan"},
    {"--probe-seconds", 0, "S", REAL(plan.probe_seconds, 0, 60),
     .help = "how long the disk is read, in all (2; 0: not at all, its speed is unknown)", .only = "plan"},
    {"--json", 0, NULL, FLAG(json), .help = "the same as one JSON object", .only = "plan info"},
    {"--host", 0, "ADDRESS", TEXT(serve.host, "an address or name of this machine"),
     .help = "where llama-server listens (127.0.0.1: this machine alone reaches it)"},
    {"--port", 0, "N", INTEGER(serve.port, 0, 65535), .help = "its port (8080; 0: a free one)"},
    {"--parallel", 0, "N", INTEGER(serve.parallel, 1, 256),
     .help = "requests that are answered at once (4). They share the context"},
    {"--server", 0, "PATH", TEXT(serve.server, FILE_NAME),
     .help = "the llama-server to start, of the llama.cpp release that this sluice was\n"
             "built for ($SLUICE_LLAMA_SERVER; beside sluice, as `make server` puts it;\n"
             "installed with sluice; in $PATH)"},
    {"--no-window", 0, NULL, FLAG(serve.no_window), .help = "no window, which is otherwise there (at 127.0.0.1:8090)"},
    {"--verbose", 'v', NULL, FLAG(serve.verbose), .help = "pass on all that llama-server logs, not only its errors"},
    {"--quiet", 'q', NULL, SWITCH("quiet", "1"), .help = "no mode line and no warnings from the plug-in (errors stay)",
     .only = "exec"},
    {"--policy", 0, "LIST", TEXT(replay.policy, "a list of lru, cycle, lfu and belady"),
     .help = "who makes room: lru and cycle are the engine's own code; lfu for\n"
             "comparison; belady, which knows the future, is the bound\n"
             "(lru,cycle,belady)"},
    {"--budget", 0, "LIST", TEXT(replay.budget, "sizes such as 500,2GiB or 250..8000"),
     .help = "cache sizes, MiB without a suffix: 500,2000,4GiB; 250..8000 doubles\n"
             "from one to the other (1/32 to 1/2 of the experts' weights, and what the\n"
             "trace was recorded with)"},
    {"--divide", 0, "HOW", CHOICE(replay.divide, "classes or pool"),
     .help = "classes: slots in size classes, as the engine divides its cache; pool:\n"
             "one pool of bytes (classes where the trace says how large slots are)"},
    {"--drop", 0, "LIST", TEXT(replay.drop, "thresholds above 0, up to 1, e.g. 0.5,0.75,1.0"),
     .help = "also leave out, while generating, experts that would have to be read\n"
             "and have a router weight under F / top-k, for each F"},
    {"--n-expert-used", 0, "K", INTEGER(n_expert_used, 1, 1024),
     .help = "also use only the K strongest experts of each token", .only = "replay"},
    {"--predict", 0, "D,R",
     TEXT(replay.predict, "two numbers above 0: the disk's MiB/s, tokens/s of the resident model"),
     .help = "expected tokens per second, from the disk's MiB/s and the speed of\n"
             "the fully resident model in tokens/s, e.g. 1800,4.6"},
    {"--json", 0, NULL, FLAG(json), .help = "one JSON object instead of tables", .only = "replay"},
    {"--plot", 0, "FILE", TEXT(replay.plot, FILE_NAME), .help = "write hit rate against budget as an SVG picture"},
    {"--once", 0, NULL, FLAG(once), .help = "print one snapshot as text"},
    {"--json", 0, NULL, FLAG(json), .help = "print one snapshot as a JSON object", .only = "top"},
    {"--budgets", 0, "LIST", TEXT(bench.budgets, "a list such as 0,2000,4GiB,all"),
     .help = "cache sizes with commas between: 0, 2000 (MiB), 4GiB, auto, or all,\nthe size of all experts (auto)",
     .only = "bench"},
    {"--variant", 0, "\"NAME: OPTIONS\"", .set = set_variant, .expect = "given 16 times at most",
     .help = "at each budget also measure with these options of sluice run, for\n"
             "example \"lru: --cache-policy lru\". May be given several times"},
    {"--baseline", 0, "LIST", TEXT(bench.baselines, "resident, mmap or both with a comma"),
     .help = "also measure plain llama.cpp: resident, without a limit and only if\n"
             "the model fits in memory; mmap, inside the limit of --memory, where\n"
             "the kernel pages. Ratios are then to the first of them"},
    {"--memory", 0, "SIZE", TEXT(bench.memory, "a size such as 6G"),
     .help = "limit of memory for each run, in a cgroup where that is allowed", .only = "bench"},
    {"--gen", 0, "N", INTEGER(bench.gen, 1, 100000), .help = "tokens that are generated and measured per run (64)"},
    {"--prompt", 0, "N", INTEGER(bench.prompt, 1, 100000), .help = "tokens of the prompt (64)", .only = "bench"},
    {"--file", 'f', "FILE", TEXT(prompt_file, FILE_NAME), .help = "take the prompt from a file (a built-in story)",
     .only = "bench"},
    {"--runs", 0, "N", INTEGER(bench.runs, 1, CLI_RUNS_MAX), .help = "runs of each row (3)"},
    {"--max-seconds", 0, "S", REAL(bench.max_seconds, 1, 1000000),
     .help = "stop a run after so long and use what it did until then (300)"},
    {"--drop-caches", 0, "WHAT", CHOICE(bench.drop, "machine, model or no"),
     .help = "before each run, drop from the page cache: machine, all of it (the\n"
             "default where it is allowed: root; everybody on the machine feels it);\n"
             "model, the model's pages; no, nothing"},
    {"--probe-seconds", 0, "S", REAL(bench.probe_seconds, 0, 60),
     .help = "how long each of the disk's six probes reads (2; 0: no probes and no\nbound)", .only = "bench"},
    {"--json", 0, "FILE", TEXT(bench.json, "a file name or -"),
     .help = "write everything, raw values included, as one JSON object; - is\nstandard output, the table goes to "
             "standard error then",
     .only = "bench"},
    {"--keep", 0, "DIR", TEXT(bench.keep, "a directory"),
     .help = "keep there what each run wrote: run-N.json, run-N.csv, run-N.txt"},
    {"--quiet", 'q', NULL, FLAG(quiet), .help = "no progress and no line per run", .only = "bench"},
    {0},
};
