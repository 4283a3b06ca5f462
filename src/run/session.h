/* Private to src/run: what a session is made of. */
#ifndef OB_RUN_SESSION_H
#define OB_RUN_SESSION_H

#include "run/checkpoint.h"
#include "run/model.h"

struct ob_session {
    struct ob_model *model;
    struct ob_state *state;
    size_t n_ctx;

    int32_t *ids; /* ledger [n_ctx] */
    size_t length;

    float *logits;    /* [n_vocab], after the first logits_at tokens */
    size_t logits_at; /* 0: of nothing; other than length after a read that was stopped */

    struct ob_checkpoints checkpoints; /* each of a prefix of the ledger */
    size_t checkpoint_every;           /* tokens, in long reads */

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

/* After a failed run the ledger follows what the state still holds. Locked. */
void ob_session_follow_state(struct ob_session *session);

#endif
