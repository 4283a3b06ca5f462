/* A conversation: messages, the model's template, and one session that holds what was said.
 *
 * Each turn's prompt extends the tokens the session has really processed: ids that were generated
 * are kept, never encoded again, as long as the template renders them to the same text; where it does
 * not (a template that drops thoughts), the rendering wins and the session reads from where they
 * differ. */
#ifndef OB_RUN_CONVERSATION_H
#define OB_RUN_CONVERSATION_H

#include "run/model.h"
#include "text/chat.h"

struct ob_conversation;

struct ob_conversation_options {
    struct ob_str template_text;    /* instead of the model's; {NULL, 0}: the model's own */
    struct ob_template_clock clock; /* what the template's strftime_now sees */
    bool thinking;
    bool drop_thinking; /* do not pass preserve_thinking */
};

/* What a turn cost, and how it ended. */
struct ob_turn {
    struct ob_generated result;
    struct ob_sync_report sync; /* of the prompt with what the session held */
    size_t n_prompt;
    double read_seconds, write_seconds;
    bool kept_ids; /* the prompt begins with the very ids of the turn before */
};

/* Text of an answer as it comes. `reasoning` says that it belongs to the thought before the answer.
 * Return 0 to go on, anything else to stop. */
typedef int (*ob_answer_fn)(void *context, const char *text, size_t n_bytes, bool reasoning);

/* `model` must outlive it. OB_UNSUPPORTED when the model has no template, or the template's own
 * error; OB_NO_MEMORY. */
ob_status ob_conversation_open(struct ob_model *model,
                               const struct ob_conversation_options *options,
                               struct ob_conversation **out, struct ob_error *err);
void ob_conversation_close(struct ob_conversation *c); /* NULL is allowed */

/* The system message of what follows; an empty one removes it. OB_NO_MEMORY. */
ob_status ob_conversation_set_system(struct ob_conversation *c, struct ob_str text,
                                     struct ob_error *err);
void ob_conversation_set_thinking(struct ob_conversation *c, bool thinking);

/* Say `text` and write the answer with `options` (max_tokens, sampling, stop). A cancelled or cut
 * answer is part of the conversation. On failure the conversation is what it was before.
 * OB_CONTEXT_FULL when the prompt does not fit. */
ob_status ob_conversation_ask(struct ob_conversation *c, struct ob_str text,
                              const struct ob_generate_options *options, ob_answer_fn fn,
                              void *context, struct ob_turn *turn, struct ob_error *err);

/* Forget the last question and its answer; false when there is none. */
bool ob_conversation_undo(struct ob_conversation *c);
/* The last question, or {NULL, 0}; valid until the conversation changes. */
struct ob_str ob_conversation_last_question(const struct ob_conversation *c);

/* Told between chunks while a prompt is read; anything but 0 cancels. */
void ob_conversation_on_progress(struct ob_conversation *c, ob_progress_fn fn, void *context);

size_t ob_conversation_n_turns(const struct ob_conversation *c);
size_t ob_conversation_length(const struct ob_conversation *c); /* tokens in the session */

#endif
