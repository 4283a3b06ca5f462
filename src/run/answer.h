/* One answer in the making: generated, taken apart into thought, content and calls, its thought
 * closed when that has had its tokens. The caller reads the tokens, alone (ob_conversation_ask) or
 * those of many answers in one run (the server). */
#ifndef OB_RUN_ANSWER_H
#define OB_RUN_ANSWER_H

#include "run/session.h"
#include "text/output.h"

struct ob_answer;

struct ob_answer_options {
    struct ob_generate_options generate;
    bool plain;                      /* nothing is taken apart: all text is content */
    struct ob_output_options output; /* how it is taken apart, unless plain */
    size_t thinking_budget;          /* most tokens of the thought; 0: no limit */
    struct ob_ids *ids;              /* what is written is appended; or NULL */
    ob_output_fn event;
    ob_delta_fn token; /* every token before its events, whose text is all of its own; or NULL */
    void *context;     /* of both; anything but 0 from either ends the answer */
};

/* Begin. `session` holds the prompt; options->output.tools, ids and context must live on. */
ob_status ob_answer_create(struct ob_session *session, const struct ob_answer_options *options,
                           struct ob_answer **out, struct ob_error *err);
void ob_answer_destroy(struct ob_answer *answer); /* NULL is allowed */

/* Write one token. ids [*n], valid until the next call, are what the caller then reads into the session
 * before the next step; *n is 0 when the answer is over and all its events have come. It is more than
 * one where a thought reaches its budget: "\n</think>\n\n" is read as if the model had written that,
 * and counts as generated. OB_NO_MEMORY, or what ob_generate gives. */
ob_status ob_answer_step(struct ob_answer *answer, const int32_t **ids, size_t *n,
                         struct ob_error *err);

/* What comes next is thought. */
bool ob_answer_in_thought(const struct ob_answer *answer);
struct ob_generated ob_answer_result(const struct ob_answer *answer);

#endif
