/* A conversation: messages, the model's template, and one session that holds what was said.
 *
 * Each turn's prompt extends the tokens the session has really processed. What was said before comes from
 * the ledger, token by token, never from its rendering: a thought that was cut or oddly closed and a text
 * that encodes to other ids read differently when rendered. Only what follows the last answer, from the
 * token that ends it, is encoded. Where the template renders the earlier messages differently than
 * before (another system message, say), leaves out what was thought, or ends answers with no end token,
 * the rendering wins and the session reads from where they differ. */
#ifndef OB_RUN_CONVERSATION_H
#define OB_RUN_CONVERSATION_H

#include "run/model.h"
#include "text/chat.h"

struct ob_conversation;

struct ob_conversation_options {
    struct ob_str template_text;    /* instead of the model's; {NULL, 0}: the model's own */
    struct ob_template_clock clock; /* what the template's strftime_now sees */
    bool thinking;
    size_t thinking_budget; /* most tokens of a thought, which is then closed; 0: no limit */
};

/* What a turn cost, and how it ended. */
struct ob_turn {
    struct ob_generated result;
    struct ob_sync_report sync; /* of the prompt with what the session held */
    size_t n_prompt;
    double read_seconds, write_seconds;
    bool kept_ids;        /* the prompt begins with all ids of the turn before but its end token */
    bool dropped_thought; /* it does not, since the template leaves out what was thought there */
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
void ob_conversation_set_thinking(struct ob_conversation *c, bool thinking, size_t budget);

/* Say `text` and write the answer with `options` (max_tokens, sampling, stop). A cancelled or cut
 * answer is part of the conversation; the model also remembers a stop string that it wrote. On failure the conversation is what it was before.
 * OB_CONTEXT_FULL when the prompt does not fit. */
ob_status ob_conversation_ask(struct ob_conversation *c, struct ob_str text,
                              const struct ob_generate_options *options, ob_answer_fn fn,
                              void *context, struct ob_turn *turn, struct ob_error *err);

/* Forget the last question and its answer; false when there is none. */
bool ob_conversation_undo(struct ob_conversation *c);
/* The last question, or {NULL, 0}; valid until the conversation changes. */
struct ob_str ob_conversation_last_question(const struct ob_conversation *c);

/* What was said in one turn. */
struct ob_said {
    struct ob_str question, reasoning,
        content; /* reasoning.ptr is NULL where there was no thought */
};

/* Turn i, the oldest is 0, and the system message, empty if there is none; valid until the
 * conversation changes. */
struct ob_said ob_conversation_turn(const struct ob_conversation *c, size_t i);
struct ob_str ob_conversation_system(const struct ob_conversation *c);

/* Write all of it to a snapshot: the session, and as its note what was said. Sampling has no state of
 * its own: it goes by seed and position. Fails as ob_session_save does, and with OB_INVALID_ARGUMENT when
 * something that was said is not UTF-8. */
ob_status ob_conversation_save(const struct ob_conversation *c, const char *path,
                               struct ob_error *err);

/* Go on from such a snapshot in place of what was said here; system message and thinking are its too.
 * Fails as ob_session_restore does, with the conversation as it was; OB_BAD_FILE also for a snapshot
 * that is not of a conversation. `notice` as there. */
ob_status ob_conversation_restore(struct ob_conversation *c, struct ob_snapshot *snapshot,
                                  const char **notice, struct ob_error *err);

/* Told between chunks while a prompt is read; anything but 0 cancels. */
void ob_conversation_on_progress(struct ob_conversation *c, ob_progress_fn fn, void *context);

size_t ob_conversation_n_turns(const struct ob_conversation *c);
/* The session's ledger: ids [length] that were read, valid until the conversation changes. */
size_t ob_conversation_length(const struct ob_conversation *c);
const int32_t *ob_conversation_ids(const struct ob_conversation *c);

#endif
