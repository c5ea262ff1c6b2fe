/*
 * fuzz_saved.c - binary files that a run left for a later one: --prompt-cache, --ref, and the counters of `sluice top`.
 *
 * The magic at an input's beginning tells whose it is; everything else is a process's counters.
 *
 * A prompt cache is opened as it is, and then with its lengths and its checksum put right: mutations do not find a
 * checksum of 128 bits, and behind it is all that matters. Counters shorter than their layout are laid over zeros under
 * a right head, so that inputs can be small; what is accepted is printed as a page and as JSON.
 *
 * What must hold: all parts of a prompt cache lie inside the file (every byte is read); rows of a reference are what a
 * run can have written, and their divergence is a number; counters that were accepted can be printed.
 */
#include "fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/top.h"
#include "run/prompt_file.c" /* for the checksum, which is its own affair */
#include "run/quality.h"
#include "run/reference.h"

static double table[SLUICE_CODES]; /* e to the power of minus each code */

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    sluice_code_table(table);
    fuzz_quiet();
    return 0;
}

/* ---- prompt caches --------------------------------------------------------------------------- */

/* Read all of it: a sanitizer tells where that is outside. */
static uint64_t touch(const void *data, uint64_t n) {
    return fuzz_hash(data, n);
}

static void check_prompt(const char *path, uint64_t size) {
    static const char facts[] = "model=1\ncontext size=4096\n";
    const int32_t tokens[] = {1, 2, 3, 4};
    struct sluice_prompt_file *f = NULL;
    struct sluice_prompt_parts p = {0};
    struct sluice_error err;
    bool absent = true;
    char why[128] = "";
    const int rc = sluice_prompt_file_open(&f, path, &p, &absent, &err);
    FUZZ_CHECK(!absent && (rc == 0) == (f != NULL) && (rc == 0 || err.message[0]));
    if (rc == 0) {
        FUZZ_CHECK(p.n_facts <= size && p.n_tokens <= size / 4 && p.n_logits <= size / 4 && p.n_state <= size);
        FUZZ_CHECK(p.n_facts + 4 * p.n_tokens + 4 * p.n_logits + p.n_state <= size);
        FUZZ_CHECK((uintptr_t)p.tokens % 4 == 0 && (uintptr_t)p.logits % 4 == 0);
        uint64_t sum = touch(p.facts, p.n_facts) + touch(p.tokens, 4 * p.n_tokens);
        sum += touch(p.logits, 4 * p.n_logits) + touch(p.state, p.n_state);
        FUZZ_CHECK(sum != 1);
        const bool fits = sluice_prompt_parts_fit(&p, facts, sizeof facts - 1, p.n_logits, path, why, sizeof why);
        FUZZ_CHECK(fits == (why[0] == '\0') && memchr(why, 0, sizeof why));
        FUZZ_CHECK(sluice_prompt_parts_same(&p, tokens, 4) <= 4);
        FUZZ_CHECK(!sluice_prompt_parts_fit(&p, facts, sizeof facts - 1, p.n_logits + 1, path, why, sizeof why));
    }
    sluice_prompt_file_close(f);
}

static void fuzz_prompt(const uint8_t *data, size_t size) {
    check_prompt(fuzz_write("saved", data, size), size);
    struct file_head h;
    if (size < FILE_HEAD) {
        return;
    }
    uint8_t *copy = malloc(size);
    FUZZ_CHECK(copy != NULL);
    memcpy(copy, data, size);
    memcpy(&h, copy, sizeof h);
    h.version = FILE_VERSION;
    h.order = FILE_ORDER;
    h.total = size;
    struct sluice_prompt_parts parts = {.n_facts = h.n_facts, .n_tokens = h.n_tokens, .n_logits = h.n_logits};
    const uint64_t state = lay_out(&parts, NULL); /* where it begins: it has no length yet */
    if (state && state <= size) {
        h.n_state = size - state;
    }
    memcpy(copy, &h, sizeof h);
    fuzz_write("saved", copy, size);
    const int fd = open(fuzz_path("saved"), O_RDWR | O_CLOEXEC);
    FUZZ_CHECK(fd >= 0);
    FUZZ_CHECK(digest_of(fd, size, copy + FILE_DIGEST_AT));
    FUZZ_CHECK(pwrite(fd, copy + FILE_DIGEST_AT, sizeof(XXH128_canonical_t), FILE_DIGEST_AT) > 0);
    close(fd);
    free(copy);
    check_prompt(fuzz_path("saved"), size);
}

/* ---- references ------------------------------------------------------------------------------ */

static void fuzz_reference(const uint8_t *data, size_t size) {
    struct sluice_reference *r = NULL;
    struct sluice_error err;
    const char *path = fuzz_write("saved", data, size);
    const int rc = sluice_reference_open(&r, path, &err);
    FUZZ_CHECK((rc == 0) == (r != NULL) && (rc == 0 || err.message[0]));
    if (rc) {
        return;
    }
    const struct sluice_reference_head *h = sluice_reference_get_head(r);
    const uint64_t tokens = (uint64_t)h->n_chunks * h->n_ctx;
    const uint64_t rows = (uint64_t)h->n_chunks * sluice_scored_per_chunk(h->n_ctx);
    FUZZ_CHECK(size ==
               sizeof *h + 4 * tokens + rows * (sizeof(struct sluice_reference_row) + 2 * (uint64_t)h->n_vocab));
    int32_t *text = malloc(4 * tokens);
    uint16_t *codes = malloc(2 * (size_t)h->n_vocab), *last = calloc(h->n_vocab, 2);
    FUZZ_CHECK(text && codes && last);
    memcpy(text, data + sizeof *h, 4 * tokens);
    FUZZ_CHECK(sluice_reference_match(r, h->n_vocab + 1, text, tokens, &err) != 0);
    FUZZ_CHECK(sluice_reference_match(r, h->n_vocab, text, tokens, &err) == 0);
    struct sluice_reference_row row;
    struct sluice_tally tally = {.per_chunk = sluice_scored_per_chunk(h->n_ctx)};
    struct sluice_quality q;
    FUZZ_CHECK(sluice_tally_make(&tally, rows));
    for (uint64_t i = 0; i < rows && sluice_reference_read(r, &row, codes, &err) == 0; i++) {
        FUZZ_CHECK(row.top < h->n_vocab && isfinite(row.nll));
        const double kl = sluice_divergence(table, codes, last, h->n_vocab);
        FUZZ_CHECK(kl >= 0 && isfinite(kl));
        sluice_tally_add(&tally, row.nll, row.nll / 2, kl, row.top == 0);
        memcpy(last, codes, 2 * (size_t)h->n_vocab);
    }
    sluice_tally_finish(&tally, true, &q);
    sluice_tally_free(&tally);
    free(text);
    free(codes);
    free(last);
    sluice_reference_close(r);
}

/* ---- counters -------------------------------------------------------------------------------- */

static void fuzz_counters(const uint8_t *data, size_t size) {
    static struct stat_layout layout;
    static struct top_list list;
    struct top_process *process = &list.p[0];
    struct sluice_error err;
    const uint8_t *bytes = data;
    size_t n = size;
    memset(&layout, 0, sizeof layout);
    if (size < sizeof layout) {
        layout.magic = STAT_MAGIC;
        layout.version = STAT_VERSION;
        layout.size = sizeof layout;
        const size_t room = sizeof layout - offsetof(struct stat_layout, word);
        memcpy((char *)&layout + offsetof(struct stat_layout, word), data, size < room ? size : room);
        bytes = (const uint8_t *)&layout;
        n = sizeof layout;
    }
    const int fd = open(fuzz_write("saved", bytes, n), O_RDONLY | O_CLOEXEC);
    FUZZ_CHECK(fd >= 0);
    const int rc = stat_read(fd, &process->d, &err);
    close(fd);
    if (rc) {
        FUZZ_CHECK(err.message[0]);
        return;
    }
    const int shapes[][3] = {{80, 24, 0}, {80, 60, 1}, {0, 0, 0}, {300, 2000, 1}, {14, 1000, 0}};
    process->memory = process->d.pid;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char *page = top_page(process, 1e6, shapes[i][0], shapes[i][1], shapes[i][2]);
        int lines = 0, columns = 0;
        FUZZ_CHECK(page);
        for (const char *c = page; *c; c++) {
            FUZZ_CHECK(*c == '\n' || (*c >= ' ' && *c <= '~')); /* no escape sequence reaches a terminal */
            columns = *c == '\n' ? 0 : columns + 1;
            lines += *c == '\n';
            FUZZ_CHECK(columns < TOP_WIDTH);
        }
        FUZZ_CHECK(lines <= shapes[i][1] && columns == 0);
        free(page);
    }
    list.n = 1;
    FUZZ_CHECK(top_json(&list, 1e6, "fuzz") == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size >= 8 && memcmp(data, file_magic, 8) == 0) {
        fuzz_prompt(data, size);
    } else if (size >= 8 && memcmp(data, "sluiceKL", 8) == 0) {
        fuzz_reference(data, size);
    } else {
        fuzz_counters(data, size);
    }
    return 0;
}
