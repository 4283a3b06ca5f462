/* Private to src/run: what a session is made of. */
#ifndef OB_RUN_SESSION_H
#define OB_RUN_SESSION_H

#include "run/checkpoint.h"
#include "run/model.h"

#define OB_UNSHIFTED SIZE_MAX

struct ob_session {
    struct ob_model *model;
    struct ob_state *state;
    size_t n_ctx;

    int32_t *ids; /* ledger [n_ctx] */
    size_t length;

    float *logits;    /* [n_vocab], after the first logits_at tokens */
    size_t logits_at; /* 0: of nothing; other than length after a read that was stopped */

    /* From this position on the state is not what reading the ledger gives, since a context shift moved
     * it (shift.c); OB_UNSHIFTED: there is none. Nothing from there on is ever reused for a wanted token. */
    size_t shifted_from;

    struct ob_checkpoints checkpoints; /* each of a prefix of the ledger */
    size_t checkpoint_every;           /* tokens, in long reads */
    size_t checkpoint_bytes;

    struct ob_park *park; /* or NULL */

    /* Tables of a run, [max rows]. */
    int32_t (*rope_at)[3];
    int32_t *wanted;

    /* Rows of one scored run, made by the first ob_session_score. */
    float *scored;            /* [max wanted, n_vocab] */
    float *hidden;            /* [n_layers + 1, max wanted, n_embd], with keep_hidden */
    const float **hidden_row; /* [n_layers + 1] */

    ob_progress_fn progress;
    void *progress_context;
};

/* Leave a checkpoint of what the session holds, unless it holds nothing, its logits are missing, or
 * there is one. Fails only where a device's copy does. */
ob_status ob_session_checkpoint(struct ob_session *session, struct ob_error *err);

/* Give the state pages for exactly n_tokens tokens, those after the first `kept` to be written; parked
 * sessions make room, the oldest first. With kept == n_tokens <= length it cannot fail. OB_CONTEXT_FULL. */
ob_status ob_session_reserve(struct ob_session *session, size_t kept, size_t n_tokens,
                             struct ob_error *err);

/* Back to the pages that the session's tokens need, which are no more than it has: cannot fail. */
void ob_session_give_back_pages(struct ob_session *session);

/* Tokens of the session that it could keep on the way to holding ids [n_ids]; *n_common is how many its
 * ledger has in common with them. */
size_t ob_session_usable(const struct ob_session *session, const int32_t *ids, size_t n_ids,
                         size_t *n_common);

/* Exchange what two sessions of one model and one n_ctx hold, checkpoints included. */
void ob_session_swap(struct ob_session *a, struct ob_session *b);

/* Bytes of memory that what the session holds takes. Pages that are shared count for each. */
size_t ob_session_bytes(const struct ob_session *session);

/* Whether sessions of the model can be shifted (ob_session_shift); OB_UNSUPPORTED naming why not. */
ob_status ob_model_can_shift(const struct ob_model *model, struct ob_error *err);

/* After a failed run the ledger follows what the state still holds. Locked. */
void ob_session_follow_state(struct ob_session *session);

#endif
