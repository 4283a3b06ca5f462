/* Private to src/run: what a conversation is made of. */
#ifndef OB_RUN_CONVERSATION_PARTS_H
#define OB_RUN_CONVERSATION_PARTS_H

#include "run/conversation.h"
#include "run/session.h"

/* A question and its answer, as messages. */
struct ob_exchange {
    struct ob_text question, reasoning, content;
    bool thought; /* it has a reasoning, be it empty */

    /* How much of the conversation's `ids` and `history` there was after it; 0 when its ids are not
     * known, since what came later was rendered anew. */
    size_t n_ids, n_bytes;
};

struct ob_conversation {
    struct ob_model *model;
    struct ob_session *session;
    struct ob_template *template;
    struct ob_template_clock clock;
    bool thinking;
    size_t thinking_budget;
    struct ob_text system;
    struct ob_exchange *exchanges;
    size_t n_exchanges, capacity;

    /* All that was said: the ids of the last prompt and its answer, without a token that ended it,
     * and the rendering of all messages up to the last question. */
    struct ob_ids ids;
    struct ob_text history;
};

void ob_exchange_free(struct ob_exchange *exchange);

#endif
