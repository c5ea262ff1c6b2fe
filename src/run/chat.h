/*
 * chat.h - a conversation: messages, the model's template, and what of it the context already holds.
 */
#ifndef SLUICE_RUN_CHAT_H
#define SLUICE_RUN_CHAT_H

#include "run/runner.h"

struct sluice_chat;

/*
 * Start a conversation with an open runner (which must outlive it). `template_name` is one of
 * llama.cpp's built-in templates or NULL for the model's own; `system` is the system message or NULL.
 * SLUICE_ERR_ARG for an unknown template name.
 */
int sluice_chat_new(struct sluice_chat **out, struct sluice_runner *r, const char *template_name, const char *system,
                    struct sluice_error *err);

/* Free it. NULL is fine. */
void sluice_chat_free(struct sluice_chat *c);

/* A line that the user should see once, when the model's own template could not be used; else NULL. */
const char *sluice_chat_notice(const struct sluice_chat *c);

/*
 * Say something: computes what the context does not hold yet. Then call sluice_runner_generate and
 * sluice_chat_answer. When it fails or is interrupted, the message is not part of the conversation
 * and the next question may follow; SLUICE_ERR_STATE means that it did not fit in the context.
 * *fed is the number of tokens that were computed.
 */
int sluice_chat_ask(struct sluice_chat *c, const char *text, size_t n, enum sluice_stop *stop, uint64_t *fed,
                    struct sluice_error *err);

/* Note what the model answered, whole or cut short. */
int sluice_chat_answer(struct sluice_chat *c, const char *text, size_t n, struct sluice_error *err);

/* Forget all messages but the system message, and the context. */
void sluice_chat_clear(struct sluice_chat *c);

#endif
