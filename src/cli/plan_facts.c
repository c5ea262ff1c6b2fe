/*
 * plan_facts.c - the numbers of `sluice plan`, each with where it comes from.
 *
 * One table for people and for JSON, so that neither can say more than the other. Four words: measured, on this machine
 * just now; derived, by arithmetic from the model's header or by llama.cpp's own from it; assumed, because it has to be
 * something and nobody said what; and unknown, with the reason.
 */
#include <stddef.h>

#include "cli/plan.h"

const char *outlook_source_name(enum outlook_source s) {
    static const char *const names[] = {
        [PLAN_NOT_KNOWN] = "unknown",
        [PLAN_MEASURED] = "measured",
        [PLAN_DERIVED] = "derived",
        [PLAN_ASSUMED] = "assumed",
    };
    return names[s];
}

const char *outlook_mode_name(enum outlook_mode m) {
    static const char *const names[] = {
        [PLAN_UNKNOWN] = NULL, [PLAN_RESIDENT] = "resident", [PLAN_STREAMING] = "streaming", [PLAN_NONE] = "none"};
    return names[m];
}

/* The table while it is filled. */
struct table {
    struct outlook_fact *f; /* rows */
    size_t n;               /* of them */
};

static void add(struct table *t, const char *key, const char *label, const char *unit, enum outlook_source source,
                double value, const char *how) {
    if (t->n < PLAN_FACTS_MAX) {
        t->f[t->n++] = (struct outlook_fact){
            .key = key, .label = label, .unit = unit, .value = value, .source = source, .how = how};
    }
}

/* A number that is there if `known`, else unknown for the reason `why`. */
static void add_if(struct table *t, bool known, const char *key, const char *label, const char *unit,
                   enum outlook_source source, double value, const char *how, const char *why) {
    add(t, key, label, unit, known ? source : PLAN_NOT_KNOWN, known ? value : 0, known ? how : why);
}

static void add_model(struct table *t, const struct outlook *p) {
    const struct sluice_info *i = &p->info;
    const char *header = "from the header";
    add(t, "layers", "layers", "", PLAN_DERIVED, (double)i->layers, header);
    add(t, "moe_layers", "with experts", "", PLAN_DERIVED, (double)i->moe_layers, header);
    add(t, "experts", "experts in each", "", PLAN_DERIVED, (double)i->experts, header);
    const bool routed = i->expert_tensors && i->top_k_max;
    const char *why = i->expert_tensors ? "the header does not say how many experts a token uses" : "it has no experts";
    add_if(t, routed, "top_k", "used by a token", "", PLAN_DERIVED, (double)i->top_k_max, header, why);
    add(t, "expert_weights", "expert weights", "bytes", PLAN_DERIVED, (double)i->expert_bytes, header);
    add(t, "dense_weights", "other weights", "bytes", PLAN_DERIVED, (double)i->dense_bytes,
        "from the header; always in memory");
    add_if(t, routed, "expert_bytes_per_token", "experts of a token", "bytes", PLAN_DERIVED, (double)i->token_bytes,
           "layers x top-k x slices", why);
    add(t, "file_present", "of the files, there", "bytes", PLAN_MEASURED, (double)p->present_bytes,
        p->present_bytes < p->whole_bytes ? "the download is not complete" : "all of them");
}

static void add_memory(struct table *t, const struct outlook *p) {
    const bool dry = !p->dry_why[0];
    const char *lost = dry ? "llama.cpp did not say" : p->dry_why;
    const bool asked = p->config->n_prompt != 0;
    add(t, "prompt", "planned for a prompt of", "tokens", PLAN_ASSUMED, (double)p->tokens,
        asked ? "as given" : "nothing else was said (--prompt-tokens)");
    add_if(t, dry, "context", "context", "tokens", PLAN_ASSUMED, p->dry.n_ctx,
           "as given, or the default of run (--ctx)", p->dry_why);
    add_if(t, dry, "micro_batch", "micro-batch", "tokens", PLAN_DERIVED, p->dry.n_ubatch, "what run chooses for that",
           p->dry_why);
    add_if(t, dry && p->dry.kv_known, "kv_cache", "KV cache", "bytes", PLAN_DERIVED, (double)p->dry.kv_bytes,
           "llama.cpp's arithmetic, nothing allocated", lost);
    add_if(t, dry && p->dry.compute_known, "compute_buffers", "compute buffers", "bytes", PLAN_DERIVED,
           (double)p->dry.compute_bytes, "llama.cpp's arithmetic, nothing allocated", lost);
    const bool has = p->has_memory;
    const double kv = p->dry.kv_known ? (double)p->dry.kv_bytes : 0;
    add_if(t, has, "program", "program and vocabulary", "bytes", PLAN_MEASURED,
           (double)p->memory.process_bytes + (double)p->memory.files_bytes - kv,
           "this process, which has just what a run has", lost);
    add_if(t, has, "cache", "expert cache", "bytes", PLAN_DERIVED, (double)p->memory.cache_bytes,
           "what run takes by itself", lost);
    add_if(t, has, "memory_needed", "all memory of the process", "bytes", PLAN_DERIVED, (double)p->memory.total_bytes,
           "the memory plan that run makes", lost);
    add_if(t, has, "memory_peak", "touched in the end", "bytes", PLAN_DERIVED, (double)outlook_peak(p, &p->memory),
           "when the cache is full", lost);
    add_if(t, has && p->memory.limit_bytes, "memory_limit", "memory it may use", "bytes",
           p->memory.limit_by_setting ? PLAN_ASSUMED : PLAN_MEASURED, (double)p->memory.limit_bytes,
           p->memory.limit_by_setting ? "as given (--memory)" : "what machine and cgroup leave",
           has ? "the kernel does not say" : lost);
}

static void add_speed(struct table *t, const struct outlook *p) {
    const bool computed = !p->speed_why[0];
    const bool read = p->input.disk.mid > 0;
    add_if(t, read, "disk", "disk, as run reads", "bytes/s", PLAN_MEASURED, p->input.disk.mid,
           "direct reads of this file's experts", p->disk_why);
    add_if(t, computed, "token_compute", "computing a token", "seconds", PLAN_MEASURED, p->speed.token_s,
           "a made-up token of this model's matmuls", p->speed_why);
    add_if(t, computed, "computation_start", "starting a computation", "seconds", PLAN_MEASURED, p->speed.graph_s,
           "a graph of one small operation", p->speed_why);
    add_if(t, computed, "resident_tokens_per_second", "all in memory", "tokens/s", PLAN_DERIVED,
           p->resident.tokens_per_s.mid, "from it; attention over a long context is left out", p->speed_why);
}

/*
 * The memory plan is a promise: it counts every byte that was allocated, whoever may touch it, and an allowance for
 * tables. The kernel counts pages that were touched: those of the program, the KV cache, weights, slots, and the
 * compute buffers of a prompt, which fill the micro-batch that was chosen for it.
 */
uint64_t outlook_peak(const struct outlook *p, const struct sluice_plan *memory) {
    return memory->process_bytes + memory->files_bytes + memory->dense_bytes + memory->cache_bytes +
           p->dry.compute_bytes;
}

size_t outlook_facts(const struct outlook *p, struct outlook_fact *f) {
    struct table t = {.f = f};
    add_model(&t, p);
    add_memory(&t, p);
    add_speed(&t, p);
    return t.n;
}
