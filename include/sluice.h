/*
 * sluice.h - the one public header of libsluice.
 *
 * Sluice runs Mixture-of-Experts models that are bigger than memory. It registers one device with
 * ggml; from then on every llama.cpp model that this process loads keeps its expert weights on
 * disk, and each expert is read at the moment the router picks it. The results are the bytes that
 * a fully resident run gives (stock llama.cpp, same batch, weight repacking off).
 *
 * An embedder needs three calls, before it loads a model:
 *
 *     struct sluice_settings s;
 *     struct sluice_error err;
 *     sluice_settings_default(&s);
 *     s.cache = SLUICE_CACHE_FIXED, s.cache_bytes = 2000ull << 20;
 *     if (sluice_register(&s, &err)) fprintf(stderr, "%s\n", err.message);
 *
 * Programs that cannot be changed load the plug-in libggml-sluice.so instead and are configured
 * by the environment (sluice_settings_from_env).
 *
 * Every function is safe to call from any thread unless its comment says otherwise. No function
 * keeps a pointer that it was given. Functions that can fail return 0 (SLUICE_OK) or the status
 * that they also put into *err; err may be NULL.
 */
#ifndef SLUICE_H
#define SLUICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SLUICE_API __attribute__((visibility("default")))
#else
#define SLUICE_API
#endif

enum {
    SLUICE_PATH_MAX = 4096,  /* bytes of a file name in settings, terminator included */
    SLUICE_ADDRESS_MAX = 64, /* bytes of an address with a port, likewise */
};

/* What went wrong, for programs. The message beside it is for people. */
enum sluice_status {
    SLUICE_OK = 0,
    SLUICE_ERR_ARG,    /* a setting or argument has no meaning: nothing was done */
    SLUICE_ERR_MEMORY, /* an allocation failed */
    SLUICE_ERR_IO,     /* a file could not be opened, read or verified */
    SLUICE_ERR_FORMAT, /* a file is not what it should be */
    SLUICE_ERR_BUDGET, /* the cache budget cannot work; the message gives the numbers */
    SLUICE_ERR_STATE,  /* called at the wrong time (registered twice, no model, ...) */
    SLUICE_ERR_LLAMA,  /* llama.cpp refused or failed */
};

struct sluice_error {
    enum sluice_status status; /* SLUICE_OK when nothing went wrong */
    char message[512];         /* one line of UTF-8 without a newline; "" when nothing went wrong */
};

/* How much memory the expert cache may take. */
enum sluice_cache_mode {
    SLUICE_CACHE_AUTO,  /* what machine and cgroup leave at the first token, less a floor */
    SLUICE_CACHE_OFF,   /* nothing is kept between uses; only staging slots are allocated */
    SLUICE_CACHE_FIXED, /* cache_bytes */
};

enum sluice_policy {
    SLUICE_POLICY_CYCLE, /* evict the expert whose next use is expected latest: its layer's turn, and how often it is
                            used */
    SLUICE_POLICY_LRU,   /* evict the expert whose last use is longest ago */
};

/* Where the dense weights (all that are not experts) live while a model streams. */
enum sluice_dense {
    SLUICE_DENSE_ANON, /* in memory of the process, which replaces the file's mapping under them */
    SLUICE_DENSE_MMAP, /* in the page cache, through llama.cpp's mapping; the kernel may take them away */
    SLUICE_DENSE_LOCK, /* as anon, and locked: never swapped out. Needs RLIMIT_MEMLOCK or CAP_IPC_LOCK */
};

/* Who reads. 1 was one thread with an io_uring, which was removed: no run was faster with it, and some were slower. */
enum sluice_io {
    SLUICE_IO_AUTO = 0,  /* what measured faster: threads */
    SLUICE_IO_PREAD = 2, /* threads that each wait for one read */
};

struct sluice_settings {
    enum sluice_cache_mode cache; /* see above */
    uint64_t cache_bytes;         /* bytes of slot memory, with SLUICE_CACHE_FIXED only */
    uint64_t floor_bytes;         /* bytes that SLUICE_CACHE_AUTO leaves free; 0: chosen from the limit */
    uint64_t memory_bytes;        /* bytes that this process may use in all; 0: what machine and cgroup leave */
    uint64_t staging_bytes;       /* bytes of the cache that the experts of one prompt block may take anew at a time */
    enum sluice_dense dense;      /* see above */
    enum sluice_policy policy;    /* which expert is evicted */
    bool force_cache;             /* accept a budget under one token's demand */
    bool lookahead;               /* read experts that the next layer will probably pick, when the disk is idle */
    bool direct_io;               /* read around the page cache where that is verified to work */
    enum sluice_io io;            /* who reads */
    int io_threads;               /* reads in flight, 1..64: so many threads read */
    bool reference_kernel;        /* compute every expert by a stock ggml node, for comparison; slower, same bytes */
    bool publish;                 /* show counters to `sluice top` */
    bool quiet;                   /* no mode line and no warnings on stderr (errors stay) */
    bool window_allow_remote;     /* the window may listen where other machines reach it */
    char window[SLUICE_ADDRESS_MAX]; /* where the window listens, e.g. "127.0.0.1:8090", port 0: any free one; "": there
                                        is none. docs/window.md */

    /* Lossy: these change the output. docs/quality.md says what they do. */
    double drop_cold_experts; /* 0..1; leave out a routed expert that would have to be read and whose final weight is
                                 below this times 1 / top-k; 0: none. Needs a cache */
    bool drop_renorm;         /* the others of a token get the weight of those left out */
    bool drop_in_prefill;     /* in prompts too */
    bool drop_reproducible;   /* decide by a made-up cache that is empty when a generation begins */
    char cold_model[SLUICE_PATH_MAX]; /* a second, smaller quantisation of the model: experts that would be left out
                                         are computed from their copies in it. "": none */
};

/* Fill *s with the defaults: cache auto, staging 256 MiB, dense anon, policy cycle, lookahead, direct I/O, 4 reads in
 * flight, lossless. */
SLUICE_API void sluice_settings_default(struct sluice_settings *s);

/*
 * Overlay *s with the environment. Unset variables leave their field alone; a value that does not
 * parse completely is SLUICE_ERR_ARG, names the variable, and leaves *s unchanged.
 *
 *   SLUICE_CACHE         auto | off | 0 | SIZE            SIZE: 2000MiB, 4GiB, 4G, 2048 (MiB)
 *   SLUICE_CACHE_FLOOR   SIZE                              left free by auto
 *   SLUICE_MEMORY        SIZE                              ceiling for the whole process
 *   SLUICE_STAGING       SIZE                              cache memory that a prompt passes through at a time
 *   SLUICE_DENSE         anon | mmap | lock
 *   SLUICE_CACHE_POLICY  cycle | lru
 *   SLUICE_FORCE_CACHE   0 | 1
 *   SLUICE_IO            auto | pread
 *   SLUICE_IO_THREADS    1..64
 *   SLUICE_DIRECT_IO     0 | 1
 *   SLUICE_LOOKAHEAD     0 | 1
 *   SLUICE_KERNEL        fused | reference                 reference: for comparison, same bytes
 *   SLUICE_PUBLISH       0 | 1                             0: `sluice top` does not see this process
 *   SLUICE_PUBLISH_DIR   DIR                               where counters are shown; read where it is used, no setting
 *   SLUICE_QUIET         0 | 1
 *   SLUICE_DROP_COLD_EXPERTS  0..1, e.g. 0.5               lossy; 0: off
 *   SLUICE_DROP_RENORM        on | off
 *   SLUICE_DROP_IN_PREFILL    0 | 1
 *   SLUICE_DROP_REPRODUCIBLE  0 | 1
 *   SLUICE_COLD_MODEL         FILE                        a GGUF file; of a split one the first shard
 *   SLUICE_WINDOW              ADDR:PORT | PORT | off      the window: 127.0.0.1:8090; a port alone is on 127.0.0.1
 *   SLUICE_WINDOW_ALLOW_REMOTE 0 | 1                       an address that other machines reach is no mistake
 */
SLUICE_API int sluice_settings_from_env(struct sluice_settings *s, struct sluice_error *err);

/*
 * Set one setting from text, by the same names and rules as the environment, in lower case without
 * the prefix: "cache", "cache_floor", "memory", "staging", "dense", "cache_policy", "force_cache", "lookahead", "io",
 * "io_threads", "direct_io", "kernel", "publish", "quiet", "drop_cold_experts", "drop_renorm",
 * "drop_in_prefill", "drop_reproducible", "cold_model", "window", "window_allow_remote". An unknown name or a bad value
 * is SLUICE_ERR_ARG and leaves *s unchanged.
 */
SLUICE_API int sluice_settings_set(struct sluice_settings *s, const char *name, const char *value,
                                   struct sluice_error *err);

/*
 * Parse a size: digits, an optional decimal fraction, an optional suffix B, K, KB, KiB, M, MB, MiB,
 * G, GB, GiB, T, TB, TiB (any case; every suffix counts in powers of 1024). No suffix means MiB,
 * the unit of llama.cpp's own tools. Returns false, leaving *bytes alone, for anything else:
 * empty, negative, trailing text, or more than 2^63 - 1 bytes.
 */
SLUICE_API bool sluice_parse_size(const char *text, uint64_t *bytes);

/*
 * Register the streaming device with this process's ggml. Call once, before loading a model. A
 * second call is SLUICE_ERR_STATE. The CPU backend may be loaded before or after; without one, contexts cannot be made,
 * with a message that says so.
 */
SLUICE_API int sluice_register(const struct sluice_settings *s, struct sluice_error *err);

/*
 * Choose, for models that THIS THREAD loads from now on, whether they stream (true, the default) or
 * load as plain llama.cpp would load them. Models that are already loaded stay as they are.
 */
SLUICE_API void sluice_set_streaming(bool on);

/*
 * What the lossy settings left out. A routing is one expert of one token in one layer; experts are counted once per
 * block, however many tokens share them.
 */
struct sluice_drop_stats {
    uint64_t examined;         /* routings whose weight was looked at */
    uint64_t dropped;          /* of those, left out */
    uint64_t substituted;      /* of those, computed from the cold model's copy of the expert */
    uint64_t experts;          /* the experts of the routings left out or substituted */
    uint64_t experts_there;    /* of those, in memory all the same: only drop_reproducible does that */
    uint64_t avoided_bytes;    /* weight bytes of the others, which were not read */
    double weight;             /* final router weights of the routings examined, added up */
    double dropped_weight;     /* of those left out */
    double substituted_weight; /* of those substituted */
};

/* The cold model's copies. What was read for them is in the phases' reads and read_bytes as well. */
struct sluice_cold_stats {
    uint64_t copies;      /* copies asked for, counted once per block */
    uint64_t hits;        /* of those, in memory or on their way */
    uint64_t reads;       /* read requests completed */
    uint64_t read_bytes;  /* bytes read from the cold model's file, direct-I/O rounding included */
    uint64_t cache_bytes; /* slot memory of the copies, bytes */
    uint32_t tensors;     /* expert tensors that have a copy; 0: there is no cold model */
};

/*
 * One set of counters per phase: prompt and generation (see sluice_route_trace_mark). In every snapshot, hits and
 * misses add up to routed. An expert of one layer counts as one, here and below. Bytes are counted by the slice: an
 * expert of which one slice was there and another was not is a miss with bytes in both sums. A block whose experts
 * cannot all be held at once is computed in passes: its hits are those of the first pass, its bytes those of all.
 */
struct sluice_phase_stats {
    uint64_t blocks;     /* MoE blocks executed (one layer of one batch) */
    uint64_t tokens;     /* tokens computed: those of a batch when its first block begins */
    uint64_t rows;       /* token rows through those blocks, summed over blocks: how far a long batch is */
    uint64_t routed;     /* distinct experts asked for, summed over blocks */
    uint64_t hits;       /* of those, experts whose slices were all in memory or on their way */
    uint64_t misses;     /* of those, the others: something of them had to be read */
    uint64_t hit_bytes;  /* weight bytes asked for that were in memory or on their way */
    uint64_t miss_bytes; /* weight bytes asked for that had to be read */
    uint64_t read_bytes; /* bytes read from the files, direct-I/O rounding included, failed requests not; what was read
                            ahead is in generation's */
    uint64_t reads;      /* read requests completed, likewise */
    double stall_s;      /* seconds in which a block waited for a read with nothing to compute */
    double compute_s;    /* seconds in expert matmuls and the cheap operations between them, stall_s not included */
    struct sluice_drop_stats drop; /* what was left out: it is in none of the counts above */
};

/* Experts read before they were asked for. */
struct sluice_foresee_stats {
    uint64_t asked;      /* experts that were expected and not in memory */
    uint64_t begun;      /* of those, experts whose reading began before the demand */
    uint64_t used;       /* of those, experts that the router then picked */
    uint64_t read_bytes; /* bytes read for them */
    uint64_t pauses;     /* how often it was switched off for a while, being of no use */
};

struct sluice_stats {
    struct sluice_phase_stats prompt;     /* batches of prompts */
    struct sluice_phase_stats generation; /* batches of the next tokens of one sequence or several */
    uint64_t cache_bytes;                 /* slot memory allocated, bytes */
    uint64_t bank_bytes;                  /* expert weights that stream, bytes, all models */
    uint64_t token_bytes;                 /* one token's demand, bytes: sum over layers of top-k experts */
    uint64_t layer_bytes;                 /* the largest layer's demand, bytes */
    uint64_t resident;                    /* experts in memory now */
    uint64_t slots;                       /* experts that fit */
    uint64_t evictions;                   /* experts evicted so far */
    struct sluice_foresee_stats foreseen; /* reading ahead */
    struct sluice_cold_stats cold;        /* the cold model's copies; in none of the sizes and evictions above */
    uint64_t submits;                     /* times that reads were queued, several at once as a rule */
    uint64_t queue_sum;                   /* read requests outstanding after each of those, added up */
    uint32_t tensors;                     /* expert tensors that stream */
    uint32_t layers;                      /* groups of expert tensors that share a router */
    uint32_t lanes;                       /* reads in flight at most */
    enum sluice_io io;                    /* by whom: SLUICE_IO_PREAD */
    bool direct_io;                       /* true when every file is read directly */
};

/* Copy the counters since registration. All zero before the first model. */
SLUICE_API void sluice_get_stats(struct sluice_stats *out);

/* What a step is part of. */
enum sluice_phase {
    SLUICE_PHASE_PROMPT,     /* reading a prompt */
    SLUICE_PHASE_GENERATION, /* generating a token */
};

/*
 * One step: one llama_decode, measured. wall_s is the sum of the next four, each of which is measured
 * by itself. The counts are of the whole process: when two threads compute at once, a step's counts
 * are what happened since the last step that ended.
 */
struct sluice_step {
    enum sluice_phase phase; /* as sluice_step_end was told */
    uint64_t tokens;         /* the same */
    double wall_s;           /* seconds from begin to end */
    double stall_s;          /* waiting for reads while no compute thread had anything to compute */
    double expert_s;         /* computing experts */
    double other_s;          /* outside of sluice's backend: attention, routers, output head */
    double bookkeeping_s;    /* in sluice's backend: routing, locks, making graphs, gathering rows */
    uint64_t read_bytes;     /* bytes read from disk, alignment included */
    uint64_t cold_bytes;     /* of those, from the cold model's file */
    uint64_t reads;          /* read requests completed */
    uint64_t routed;         /* distinct experts asked for, summed over blocks */
    uint64_t hits;           /* as in sluice_phase_stats, and the next three */
    uint64_t misses;
    uint64_t hit_bytes;
    uint64_t miss_bytes;
    uint64_t evictions;    /* experts evicted */
    uint64_t submits;      /* times that reads were queued */
    double queue_mean;     /* read requests outstanding after reads were queued, mean over those times; 0: none were */
    uint64_t queue_max;    /* the same, maximum */
    uint64_t minor_faults; /* of the process, without disk reads */
    uint64_t major_faults; /* of the process, with disk reads */
    double cpu_s;          /* processor seconds of the process, user and system */
    struct sluice_drop_stats drop; /* as in sluice_phase_stats */
};

/*
 * Around a llama_decode, on the thread that calls it: measure it as one step. Works without a
 * registered device too: all but the times, faults and cpu_s is 0 then. Threads may each have a step of
 * their own. A step that failed ends like any other (tokens 0: it is not shown as a step in
 * `sluice top`). *out may be NULL. Without a begin before it, sluice_step_end gives zeros.
 *
 * Programs that do not call these are measured by what the backend sees: a step begins when the
 * blocks of a context begin anew with an early layer. It lacks what is before the first and after the
 * last MoE block.
 */
SLUICE_API void sluice_step_begin(void);
SLUICE_API void sluice_step_end(enum sluice_phase phase, uint32_t tokens, struct sluice_step *out);

/*
 * A route trace: a row per routed expert of every block that streams, in the format of docs/replay.md,
 * from now on until it is closed. `probs` gets the routers' probabilities of all experts, a line per token
 * and layer, which costs computing the routers again. Either may be NULL. SLUICE_ERR_IO;
 * SLUICE_ERR_STATE when one is being written. A process has one at a time. It is of one set of models: it ends, with a
 * message on standard error, when the cache begins anew because models were loaded or freed.
 */
SLUICE_API int sluice_route_trace_open(const char *path, const char *probs, struct sluice_error *err);

/*
 * End it. SLUICE_ERR_IO when some of it could not be written; SLUICE_ERR_ARG when probabilities were asked for
 * and a layer's could not be had (the rows of the trace are complete then). Without one, SLUICE_OK.
 */
SLUICE_API int sluice_route_trace_close(struct sluice_error *err);

/*
 * Tell what the batches are that this thread computes from now on: which turn of the conversation, a prompt or
 * generated tokens, and the position of the first batch's first token in the context. Counters, lossy settings and
 * the trace go by it. Programs that do not call it are judged by their batches: one token, or several of which all
 * want logits, are generation.
 */
SLUICE_API void sluice_route_trace_mark(uint32_t turn, enum sluice_phase phase, uint32_t position);

/*
 * This thread begins a generation: what it computes from now on belongs to a new prompt. With drop_reproducible
 * the cache that decides is empty from here on, so that the same prompt gives the same text. Programs that do not call
 * it are judged by their batches: every batch of a prompt begins one.
 */
SLUICE_API void sluice_generation_begin(void);

/*
 * Change drop_cold_experts while models run, from the next block on. SLUICE_ERR_ARG: not within 0..1, or more than 0
 * without a cache.
 */
SLUICE_API int sluice_set_drop_cold_experts(double below, struct sluice_error *err);

/* Change drop_renorm while models run, from the next block on. SLUICE_ERR_STATE: not registered. */
SLUICE_API int sluice_set_drop_renorm(bool on, struct sluice_error *err);

/* Change lookahead while models run, from the next block on. The output stays the same. SLUICE_ERR_STATE likewise. */
SLUICE_API int sluice_set_lookahead(bool on, struct sluice_error *err);

/*
 * Where the window is, with the token that changing settings needs: "window: http://127.0.0.1:8090/#token=...". "" when
 * there is none (yet): it opens when the first context is made. At most cap bytes with the terminator; returns what
 * snprintf would.
 */
SLUICE_API int sluice_window_line(char *buf, size_t cap);

/*
 * What the user should know of the settings in force, e.g. that a model with few experts per token loses much with
 * each; "" when there is nothing. At most cap bytes with the terminator; returns what snprintf would. Final after the
 * first decode.
 */
SLUICE_API int sluice_warning_line(char *buf, size_t cap);

/*
 * The memory plan: what the process is expected to use at most, row by row, decided when the cache
 * is sized (at the first token). A row is bytes; total_bytes is the sum of those from process_bytes
 * to scratch_bytes. The kernel's own peak is meant to stay within it.
 */
struct sluice_plan {
    uint64_t limit_bytes;     /* what the process may use: the tightest of the three below; 0: not known */
    bool limit_by_setting;    /* limit_bytes is memory_bytes of the settings; else cgroup's or machine's */
    uint64_t total_bytes;     /* the plan */
    uint64_t process_bytes;   /* anonymous memory in use already, dense weights not counted */
    uint64_t files_bytes;     /* mapped file pages in use: programs and libraries */
    uint64_t untouched_bytes; /* allocated and not touched yet: compute buffers, KV cache */
    uint64_t dense_bytes;     /* dense weights of the models that stream */
    uint64_t cache_bytes;     /* slot memory: the expert cache, or staging when there is none */
    uint64_t scratch_bytes;   /* page tables, gathered rows, tables of slots */
    uint64_t floor_bytes;     /* beyond the plan: what cache auto leaves free of the limit */
    bool dense_mapped;        /* dense_bytes are page cache, which the kernel may take away */
};

/* Copy the plan. False, and all zero, before the first token of a model that streams. */
SLUICE_API bool sluice_get_plan(struct sluice_plan *out);

/*
 * Write the plan as one line, e.g. "memory: plan 2890 MiB of 3072 (cgroup or machine): dense 964, ...".
 * "" when there is none. At most cap bytes with the terminator; returns what snprintf would.
 */
SLUICE_API int sluice_plan_line(char *buf, size_t cap);

/*
 * The last failure while streaming (a read that failed, a budget that cannot work), for the caller
 * who saw llama_decode fail. Returns false and an empty *out when there was none since the last
 * call; a reported failure is cleared.
 */
SLUICE_API bool sluice_take_error(struct sluice_error *out);

/*
 * Change how much memory the expert cache may take, while models run: `cache` and `bytes` as in
 * sluice_settings. Waits for the MoE blocks that are running and the reads that are under way, at
 * most a few layers' time; what is cached stays, as far as it fits; results stay the same to the
 * bit. Before the first token it just changes the setting. SLUICE_ERR_BUDGET, with the numbers, when
 * it cannot work, SLUICE_ERR_MEMORY; then all is as it was. Not from within a computation's callback.
 */
SLUICE_API int sluice_set_cache_budget(enum sluice_cache_mode cache, uint64_t bytes, struct sluice_error *err);

/*
 * Write the mode line, e.g. "streaming 144 expert tensors (17.0 GiB), cache 2000 MiB lru, direct
 * reads, 4 lanes, lossless" (or what is lossy) or "resident: ...". At most cap
 * bytes with the terminator; returns what snprintf would. Final only after the first decode (auto is decided there).
 */
SLUICE_API int sluice_mode_line(char *buf, size_t cap);

/* "0.1.0" */
SLUICE_API const char *sluice_version(void);

#ifdef __cplusplus
}
#endif

#endif
