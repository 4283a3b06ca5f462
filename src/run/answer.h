/* One answer of a conversation: generated, taken apart into thought and content, its ids recorded,
 * its thought closed when that has had its tokens. */
#ifndef OB_RUN_ANSWER_H
#define OB_RUN_ANSWER_H

#include "run/conversation.h"

struct ob_answer {
    struct ob_session *session;          /* holds the prompt */
    struct ob_ids *ids;                  /* the prompt's; what is written is appended */
    struct ob_text *reasoning, *content; /* appended to */
    bool in_thought;                     /* the prompt leaves a thought open */
    size_t thinking_budget;              /* most tokens of the thought; 0: no limit */
    ob_answer_fn fn;
    void *context;
};

/* Write it. A thought that reaches its budget is closed for the model, "\n</think>\n\n" read as if it had
 * written that, and the answer goes on; these tokens count as generated. OB_NO_MEMORY, or what
 * ob_generate gives. */
ob_status ob_answer_write(const struct ob_answer *answer, const struct ob_generate_options *options,
                          struct ob_generated *result, struct ob_error *err);

#endif
