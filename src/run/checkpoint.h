/* Checkpoints: what a recurrent state was after earlier tokens of a session.
 *
 * KV can be cut anywhere, except that what is packed in 4 bits stays packed; DeltaNet states and
 * convolution tails cannot. A checkpoint keeps the latter and what such a KV cache has not packed yet, with the
 * logits, after the first n_tokens tokens of the ledger, so that going back means
 * reading again from the nearest one and not from the beginning. Every checkpoint belongs to a
 * prefix of the ledger: whoever shortens the ledger forgets those past its new end.
 *
 * The memory is a slab of equal slots, reserved when the session opens and used as slots are first
 * taken. When all are taken, the one whose loss costs least goes: its cost is the tokens from the
 * checkpoint before it, which going back to it would then have to read. As all slots have one size,
 * that is the fewest tokens saved per byte. The newest is never the one to go, nor is anything
 * kept for models without recurrent layers. */
#ifndef OB_RUN_CHECKPOINT_H
#define OB_RUN_CHECKPOINT_H

#include "backend/backend.h"

enum { OB_MAX_CHECKPOINTS = 64 };

struct ob_checkpoints {
    size_t n_logits;     /* of a slot, and behind them */
    size_t fixed_floats; /* the recurrent part of a state */
    size_t tail_floats;  /* the KV pages that are not full, where full ones are packed; else 0 */
    size_t n_slots;
    float *slab; /* [n_slots, n_logits + fixed_floats + tail_floats] */
    size_t n;
    struct ob_checkpoint {
        size_t n_tokens;
        size_t slot;
    } items[OB_MAX_CHECKPOINTS]; /* n of them, by n_tokens ascending */
};

/* Room for as many as fit budget_bytes; none where the plan has no recurrent states or the backend
 * cannot copy them. OB_NO_MEMORY. */
ob_status ob_checkpoints_create(const struct ob_engine *engine, size_t budget_bytes,
                                struct ob_checkpoints *out, struct ob_error *err);
void ob_checkpoints_destroy(struct ob_checkpoints *c);

/* Bytes of one, of sessions of this engine and of this one. */
size_t ob_checkpoint_bytes(const struct ob_engine *engine);
size_t ob_checkpoints_bytes(const struct ob_checkpoints *c);

/* Keep the state, which holds n_tokens tokens, with its logits. One that is there already stays.
 * Fails only where the backend's copy does; nothing is then kept. Locked, as every engine call. */
ob_status ob_checkpoints_take(struct ob_checkpoints *c, struct ob_engine *engine,
                              struct ob_state *state, size_t n_tokens, const float *logits,
                              struct ob_error *err);

/* The same with what an earlier checkpoint of n_tokens tokens, more than those that are there, was:
 * `data` [ob_checkpoints_bytes] is as ob_checkpoints_data gave it, at any address. */
void ob_checkpoints_add(struct ob_checkpoints *c, size_t n_tokens, const void *data);

/* What checkpoint `i` keeps: the logits, the states of fixed size in the order of the plan, and room for
 * the KV page that is not full, keys and values of each layer, where full ones are packed: zero if all are. */
const float *ob_checkpoints_data(const struct ob_checkpoints *c, size_t i);

/* Tokens of the last checkpoint at or before `most`; 0: there is none. */
size_t ob_checkpoints_find(const struct ob_checkpoints *c, size_t most);

/* Put the state back to the checkpoint of n_tokens tokens, which must exist, with its logits.
 * On failure the state must be emptied by the caller. Locked. */
ob_status ob_checkpoints_restore(const struct ob_checkpoints *c, struct ob_engine *engine,
                                 struct ob_state *state, size_t n_tokens, float *logits,
                                 struct ob_error *err);

/* Drop those of more than n_tokens tokens. */
void ob_checkpoints_forget_after(struct ob_checkpoints *c, size_t n_tokens);

#endif
