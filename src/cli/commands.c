/*
 * commands.c - the list of commands, and what `sluice --help` says before it.
 */
#include "cli/commands.h"

#include <stddef.h>

const struct cli_entry cli_commands[] = {
    {"run", "generate text from a prompt", cli_run},
    {"chat", "talk to a model", cli_chat},
    {"serve", "serve a model: llama-server with streaming, and a page to watch it", cli_serve},
    {"exec", "start a llama.cpp program with streaming", cli_exec},
    {"bench", "measure speed, bytes and memory at several cache sizes", cli_bench},
    {"eval", "what a setting costs: perplexity, and the distance to the lossless run", cli_eval},
    {"replay", "what other cache sizes and policies would have read: route traces", cli_replay},
    {"info", "what a model needs: experts, bytes per token, dense bytes", cli_info},
    {"plan", "will it fit, and how fast will it be: before anything is loaded", cli_plan},
    {"top", "watch the processes that stream", cli_top},
    {NULL, NULL, NULL},
};

const char cli_about[] = "Runs Mixture-of-Experts models that are bigger than memory: each expert is read from\n"
                         "disk when the router picks it. The results are those of the fully resident model, to\n"
                         "the last bit.";
