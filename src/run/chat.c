/*
 * chat.c - see chat.h.
 *
 * A chat template turns the whole conversation into one text. Computing that text anew at every turn
 * would read every expert again for every old message, so the context is kept and only what is new
 * is computed. What is new is found by text and not by tokens: `fed` is the exact text whose tokens
 * the context holds, the model's answers as it generated them. When the template's text for the
 * next turn starts with `fed`, the rest is new. (Comparing tokens instead would often fail: tokens of
 * an answer, joined and split again, are not always the same tokens.)
 *
 * Some templates rewrite old messages (they trim them, or drop thinking). Then the text no longer
 * starts with `fed`: the whole text is split into tokens, as many as agree with the context are kept,
 * the rest is forgotten and computed again. Right, only slower.
 *
 * llama_chat_apply_template knows a list of templates and does not run the template language. A
 * model whose template is not on the list gets ChatML, and the user is told.
 *
 * A user who types the markup of a special token gets the special token, as in llama.cpp's own
 * programs: the text is tokenised in one piece with the template's markup.
 */
#include "run/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/error.h"
#include "run/internal.h"

struct sluice_chat {
    struct sluice_runner *r;             /* not owned */
    const char *tmpl;                    /* what llama_chat_apply_template gets; the model's own, a name, or "chatml" */
    const char *notice;                  /* static text or NULL */
    struct llama_chat_message *messages; /* role is static, content owned */
    size_t n_messages;                   /* used entries */
    size_t n_system;                     /* messages that survive clear: 0 or 1 */
    char *fed;                           /* the text whose tokens the context holds, owned; NULL: none */
    size_t n_fed;                        /* its bytes */
    uint32_t n_held;                     /* tokens in the context when the last question had been computed */
};

static int no_memory(struct sluice_error *err) {
    return sluice_fail(err, SLUICE_ERR_MEMORY, "no memory for the conversation");
}

static bool template_known(const char *tmpl) {
    struct llama_chat_message hello = {.role = "user", .content = "hello"};
    char ignored[8];
    return llama_chat_apply_template(tmpl, &hello, 1, true, ignored, sizeof ignored) >= 0;
}

static int add_message(struct sluice_chat *c, const char *role, const char *text, size_t n, struct sluice_error *err) {
    struct llama_chat_message *more = realloc(c->messages, (c->n_messages + 1) * sizeof *more);
    c->messages = more ? more : c->messages;
    char *copy = more ? strndup(text, n) : NULL;
    if (!copy) {
        return no_memory(err);
    }
    c->messages[c->n_messages++] = (struct llama_chat_message){.role = role, .content = copy};
    return 0;
}

static void drop_messages(struct sluice_chat *c, size_t keep) {
    while (c->n_messages > keep) {
        free((char *)c->messages[--c->n_messages].content);
    }
}

static void forget_fed(struct sluice_chat *c) {
    free(c->fed);
    c->fed = NULL;
    c->n_fed = 0;
}

int sluice_chat_new(struct sluice_chat **out, struct sluice_runner *r, const char *template_name, const char *system,
                    struct sluice_error *err) {
    *out = NULL;
    struct sluice_chat *c = calloc(1, sizeof *c);
    if (!c) {
        return no_memory(err);
    }
    c->r = r;
    c->tmpl = template_name ? template_name : llama_model_chat_template(r->model, NULL);
    if (template_name && !template_known(template_name)) {
        free(c);
        return sluice_fail(err, SLUICE_ERR_ARG, "not one of llama.cpp's built-in chat templates");
    }
    if (!c->tmpl || !template_known(c->tmpl)) {
        c->notice = c->tmpl ? "llama.cpp's C interface does not know this model's chat template: using ChatML"
                            : "this model has no chat template: using ChatML";
        c->tmpl = "chatml";
    }
    if (system && add_message(c, "system", system, strlen(system), err)) {
        sluice_chat_free(c);
        return SLUICE_ERR_MEMORY;
    }
    c->n_system = c->n_messages;
    *out = c;
    return 0;
}

void sluice_chat_free(struct sluice_chat *c) {
    if (c) {
        drop_messages(c, 0);
        forget_fed(c);
        free(c->messages);
        free(c);
    }
}

const char *sluice_chat_notice(const struct sluice_chat *c) {
    return c->notice;
}

void sluice_chat_clear(struct sluice_chat *c) {
    drop_messages(c, c->n_system);
    forget_fed(c);
    sluice_runner_keep(c->r, 0);
}

/* The whole conversation as the template writes it, up to where the answer begins. To be freed. */
static int render(const struct sluice_chat *c, char **out, size_t *n_out, struct sluice_error *err) {
    int32_t cap = 4096;
    char *text = NULL;
    for (;;) {
        char *more = realloc(text, (size_t)cap);
        if (!more) {
            free(text);
            return no_memory(err);
        }
        text = more;
        int32_t n = llama_chat_apply_template(c->tmpl, c->messages, c->n_messages, true, text, cap);
        if (n < 0) {
            free(text);
            return sluice_fail(err, SLUICE_ERR_LLAMA, "the chat template could not be applied");
        }
        if (n <= cap) {
            *out = text;
            *n_out = (size_t)n;
            return 0;
        }
        cap = n;
    }
}

/* Compute the part of the rendered text that the context does not hold. */
static int feed_text(struct sluice_chat *c, const char *text, size_t n, enum sluice_stop *stop, uint64_t *fed,
                     struct sluice_error *err) {
    /* A recurrent model forgets everything when an answer is interrupted inside a step: see runner_after_abort. */
    bool held = c->fed && sluice_runner_n_used(c->r) >= c->n_held;
    bool continues = held && n > c->n_fed && memcmp(text, c->fed, c->n_fed) == 0;
    size_t from = continues ? c->n_fed : 0, n_tokens, skip = 0;
    int32_t *tokens;
    int rc = sluice_runner_tokenize(c->r, text + from, n - from, !continues, true, &tokens, &n_tokens, err);
    if (rc) {
        return rc;
    }
    if (!continues) {
        uint32_t same = sluice_runner_match(c->r, tokens, n_tokens);
        same = same && same == n_tokens ? same - 1 : same; /* the last token must be computed: its logits are needed */
        if (n_tokens > sluice_runner_n_ctx(c->r)) {
            rc = sluice_fail(err, SLUICE_ERR_STATE, "the conversation has %zu tokens, the context %u", n_tokens,
                             (unsigned)sluice_runner_n_ctx(c->r));
        } else {
            skip = sluice_runner_keep(c->r, same);
            forget_fed(c);
        }
    }
    if (rc == 0 && n_tokens == skip) {
        rc = sluice_fail(err, SLUICE_ERR_ARG, "there is nothing to compute");
    }
    if (rc == 0) {
        uint32_t before = sluice_runner_n_used(c->r);
        rc = sluice_runner_feed(c->r, tokens + skip, n_tokens - skip, stop, err);
        *fed = n_tokens - skip;
        if ((rc || *stop) && sluice_runner_n_used(c->r) != before) {
            forget_fed(c); /* a part of it is in the context: sort it out by tokens at the next turn */
        }
    }
    free(tokens);
    return rc;
}

int sluice_chat_ask(struct sluice_chat *c, const char *text, size_t n, enum sluice_stop *stop, uint64_t *fed,
                    struct sluice_error *err) {
    char *all = NULL;
    size_t n_all = 0, before = c->n_messages;
    *stop = SLUICE_STOP_NONE;
    *fed = 0;
    int rc = add_message(c, "user", text, n, err);
    rc = rc ? rc : render(c, &all, &n_all, err);
    rc = rc ? rc : feed_text(c, all, n_all, stop, fed, err);
    if (rc || *stop) {
        drop_messages(c, before);
        free(all);
        return rc;
    }
    free(c->fed);
    c->fed = all;
    c->n_fed = n_all;
    c->n_held = sluice_runner_n_used(c->r);
    return 0;
}

int sluice_chat_answer(struct sluice_chat *c, const char *text, size_t n, struct sluice_error *err) {
    int rc = add_message(c, "assistant", text, n, err);
    if (rc || !c->fed) {
        return rc;
    }
    char *more = realloc(c->fed, c->n_fed + n + 1);
    if (!more) {
        forget_fed(c);
        return no_memory(err);
    }
    memcpy(more + c->n_fed, text, n);
    c->fed = more;
    c->n_fed += n;
    return 0;
}
