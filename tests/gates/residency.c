/*
 * sluice-residency MODEL - where the weights of a model are after some tokens were computed.
 *
 * It loads MODEL (one file) with stock llama.cpp calls, decodes, and then looks at its own
 * /proc/self/smaps, tensor by tensor. It knows nothing of sluice; the gate that runs it with the
 * plug-in says what the numbers must be. Printed, one `key value` per line:
 *
 *   expert_pages      whole pages of expert tensors, neighbours' pages between two of them included
 *   expert_closed     of those, in mappings that nobody may access
 *   dense_pages       pages that other tensors touch
 *   dense_anon        of those, in anonymous memory
 *   dense_writable    of those, in memory that can be written
 *   dense_locked_kib  anonymous memory under them that is locked
 *   file_kib          pages of the model's file that are mapped and in memory
 *   get               ok when ggml_backend_tensor_get on an expert tensor gives the file's bytes
 *   touch             what becomes of a process that reads an expert page in place: "ok" or the signal
 *   in_place          ok when a graph that reads a view of an expert tensor computes what it should
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ggml-backend.h"
#include "gguf.h"
#include "llama.h"

#include "backends.h"

enum { AREAS_MAX = 65536, TOKENS = 6 };

/* A line of smaps. */
struct area {
    uintptr_t start, end; /* addresses */
    char access[8];       /* rw-p and so on */
    bool file;            /* of the model */
    bool anon;            /* no file at all */
    uint64_t rss, locked; /* KiB */
};
static struct area areas[AREAS_MAX];
static size_t n_areas;

static bool read_areas(const char *model) {
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[4096];
    n_areas = 0;
    while (f && fgets(line, sizeof line, f)) {
        struct area a = {0};
        uint64_t inode, value;
        int at = 0;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s %*s %*s %" SCNu64 " %n", &a.start, &a.end, a.access, &inode,
                   &at) == 4) {
            line[strcspn(line, "\n")] = 0;
            a.file = strcmp(line + at, model) == 0;
            a.anon = inode == 0;
            if (n_areas == AREAS_MAX) {
                break;
            }
            areas[n_areas++] = a;
        } else if (n_areas && sscanf(line, "Rss: %" SCNu64, &value) == 1) {
            areas[n_areas - 1].rss = value;
        } else if (n_areas && sscanf(line, "Locked: %" SCNu64, &value) == 1) {
            areas[n_areas - 1].locked = value;
        }
    }
    if (f) {
        fclose(f);
    }
    return n_areas > 0 && n_areas < AREAS_MAX;
}

static const struct area *area_of(uintptr_t address) {
    for (size_t i = 0; i < n_areas; i++) {
        if (address >= areas[i].start && address < areas[i].end) {
            return &areas[i];
        }
    }
    return NULL;
}

/* Where the file's first byte would be: the mapping's own offset tells. 0: not mapped. */
static uintptr_t mapping_start(const char *model) {
    FILE *f = fopen("/proc/self/maps", "r");
    char line[4096];
    uintptr_t found = 0;
    while (f && !found && fgets(line, sizeof line, f)) {
        uintptr_t start;
        uint64_t offset;
        int at = 0;
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%" SCNxPTR "-%*x %*s %" SCNx64 " %*s %*s %n", &start, &offset, &at) == 2 && at &&
            strcmp(line + at, model) == 0) {
            found = start - offset;
        }
    }
    if (f) {
        fclose(f);
    }
    return found;
}

static bool is_expert(const struct gguf_context *g, int64_t id) {
    return strstr(gguf_get_tensor_name(g, id), "exps.weight") && gguf_get_tensor_ne(g, id)[2] > 1;
}

static void print_pages(const struct gguf_context *g, uintptr_t base) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), data = base + gguf_get_data_offset(g);
    uint64_t experts = 0, closed = 0, dense = 0, anon = 0, writable = 0, locked = 0, file = 0;
    const struct area *last = NULL;
    uintptr_t seen = 0;
    for (int64_t i = 0; i < gguf_get_n_tensors(g); i++) {
        const uintptr_t from = data + gguf_get_tensor_offset(g, i), to = from + gguf_get_tensor_size(g, i);
        const bool expert = is_expert(g, i);
        const uintptr_t a = expert ? (from + page - 1) / page * page : from / page * page;
        const uintptr_t b = expert ? to / page * page : (to + page - 1) / page * page;
        for (uintptr_t p = a; p < b; p += page) {
            const struct area *in = area_of(p);
            if (expert) {
                experts++;
                closed += in && strncmp(in->access, "---", 3) == 0;
            } else if (p != seen) { /* small tensors share pages */
                seen = p;
                dense++;
                anon += in && in->anon && in->access[0] == 'r';
                writable += in && in->access[1] == 'w';
                locked += in && in != last && in->anon ? in->locked : 0;
                last = in;
            }
        }
    }
    for (size_t i = 0; i < n_areas; i++) {
        file += areas[i].file ? areas[i].rss : 0;
    }
    printf("expert_pages %" PRIu64 "\nexpert_closed %" PRIu64 "\ndense_pages %" PRIu64 "\ndense_anon %" PRIu64
           "\ndense_writable %" PRIu64 "\ndense_locked_kib %" PRIu64 "\nfile_kib %" PRIu64 "\n",
           experts, closed, dense, anon, writable, locked, file);
}

/* Before a node is computed: remember an expert tensor. */
static bool on_node(struct ggml_tensor *t, bool ask, void *user) {
    struct ggml_tensor **found = user;
    if (ask && t->op == GGML_OP_MUL_MAT_ID && !*found) {
        *found = t->src[0];
    }
    return false;
}

/* The middle of the tensor, past any page that it shares. */
static void check_get(const struct ggml_tensor *w, uintptr_t base, const char *model) {
    const size_t n = ggml_nbytes(w) / 2, skip = ggml_nbytes(w) / 4;
    char *got = malloc(n), *want = malloc(n);
    FILE *f = fopen(model, "rb");
    bool ok = got && want && f && fseeko(f, (off_t)((uintptr_t)w->data - base + skip), SEEK_SET) == 0 &&
              fread(want, 1, n, f) == n;
    if (ok) {
        ggml_backend_tensor_get(w, got, skip, n);
        ok = memcmp(got, want, n) == 0;
    }
    printf("get %s\n", ok ? "ok" : "wrong");
    if (f) {
        fclose(f);
    }
    free(got);
    free(want);
}

static void check_touch(const struct ggml_tensor *w) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        const volatile char *p = (const volatile char *)w->data + ggml_nbytes(w) / 2;
        _exit(*p == 0 ? 0 : 0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        printf("touch unknown\n");
    } else if (WIFSIGNALED(status)) {
        printf("touch signal %d\n", WTERMSIG(status));
    } else {
        printf("touch ok\n");
    }
}

/* rows = (last expert of w) x ones, once on a view of w in place and once on a copy of its bytes. */
static bool multiply(struct ggml_tensor *w, ggml_backend_t ours, ggml_backend_t cpu, bool in_place, float *rows) {
    const struct ggml_init_params params = {.mem_size = 64 * ggml_tensor_overhead() + ggml_graph_overhead(),
                                            .no_alloc = true};
    struct ggml_context *ctx = ggml_init(params);
    ggml_backend_t backends[2] = {ours, cpu};
    ggml_backend_sched_t sched = ggml_backend_sched_new(backends, NULL, ours == cpu ? 1 : 2, 64, false, false);
    struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, w->ne[0]);
    const size_t skip = (size_t)(w->ne[2] - 1) * w->nb[2];
    struct ggml_tensor *slice = in_place ? ggml_view_2d(ctx, w, w->ne[0], w->ne[1], w->nb[1], skip)
                                         : ggml_new_tensor_2d(ctx, w->type, w->ne[0], w->ne[1]);
    ggml_set_input(x);
    if (!in_place) {
        ggml_set_input(slice);
    }
    struct ggml_tensor *y = ggml_mul_mat(ctx, slice, x);
    ggml_set_output(y);
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, y);
    bool ok = ggml_backend_sched_alloc_graph(sched, graph);
    if (ok) {
        for (int64_t i = 0; i < w->ne[0]; i++) {
            const float one = 1.0f;
            ggml_backend_tensor_set(x, &one, (size_t)i * sizeof one, sizeof one);
        }
        if (!in_place) {
            char *copy = malloc(w->nb[2]);
            ok = copy != NULL;
            if (ok) {
                ggml_backend_tensor_get(w, copy, skip, w->nb[2]);
                ggml_backend_tensor_set(slice, copy, 0, w->nb[2]);
            }
            free(copy);
        }
        ok = ok && ggml_backend_sched_graph_compute(sched, graph) == GGML_STATUS_SUCCESS;
    }
    if (ok) {
        ggml_backend_tensor_get(y, rows, 0, (size_t)w->ne[1] * sizeof *rows);
    }
    ggml_backend_sched_free(sched);
    ggml_free(ctx);
    return ok;
}

static void check_in_place(struct ggml_tensor *w) {
    ggml_backend_t ours = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_ACCEL, NULL);
    ggml_backend_t cpu = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    float *got = calloc((size_t)w->ne[1], sizeof *got), *want = calloc((size_t)w->ne[1], sizeof *want);
    const bool ok = cpu && got && want && multiply(w, cpu, cpu, false, want) &&
                    multiply(w, ours ? ours : cpu, cpu, true, got) &&
                    memcmp(got, want, (size_t)w->ne[1] * sizeof *got) == 0 && got[0] != 0;
    printf("in_place %s\n", ok ? "ok" : "wrong");
    free(got);
    free(want);
    ggml_backend_free(cpu);
    if (ours) {
        ggml_backend_free(ours);
    }
}

static void log_errors(enum ggml_log_level level, const char *text, void *user) {
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR) {
        fputs(text, stderr);
    }
}

int main(int argc, char **argv) {
    char path[4096];
    if (argc != 2 || !realpath(argv[1], path)) {
        fprintf(stderr, "usage: sluice-residency MODEL\n");
        return 2;
    }
    llama_log_set(log_errors, NULL);
    load_backends();
    struct llama_model_params mp = llama_model_default_params();
    mp.use_extra_bufts = false;
    struct llama_model *model = llama_model_load_from_file(path, mp);
    const uintptr_t base = model ? mapping_start(path) : 0;
    struct ggml_tensor *w = NULL;
    struct llama_context_params cp = llama_context_default_params();
    cp.n_ctx = 64;
    cp.n_threads = cp.n_threads_batch = 1;
    cp.cb_eval = on_node;
    cp.cb_eval_user_data = &w;
    struct llama_context *ctx = model ? llama_init_from_model(model, cp) : NULL;
    bool ok = ctx && base;
    for (int i = 0; ok && i < TOKENS; i++) {
        llama_token token = i;
        ok = llama_decode(ctx, llama_batch_get_one(&token, 1)) == 0;
    }
    const struct gguf_init_params gp = {.no_alloc = true, .ctx = NULL};
    struct gguf_context *g = gguf_init_from_file(path, gp);
    ok = ok && g && w && read_areas(path);
    if (ok) {
        print_pages(g, base);
        check_get(w, base, path);
        check_touch(w);
        check_in_place(w);
        /* And it goes on. */
        llama_token token = 1;
        ok = llama_decode(ctx, llama_batch_get_one(&token, 1)) == 0;
    }
    if (!ok) {
        fprintf(stderr, "sluice-residency: %s: no tokens, no mapping or no experts\n", path);
    }
    gguf_free(g);
    llama_free(ctx);
    llama_model_free(model);
    return ok ? 0 : 1;
}
