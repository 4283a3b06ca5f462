/* A park: sessions in memory that nobody is using, to be gone on with when their tokens are wanted again.
 *
 * A session that has been given a park (ob_session_use_park) looks there on every ob_session_sync: if a
 * parked session has a longer usable prefix of the wanted tokens, the session goes on from that one; and
 * what it would throw away itself is parked, not lost. Nothing else changes: the result of a sync
 * is the same bytes, only sooner, and its report says "parked" as the source.
 *
 *     struct ob_park *park;
 *     ob_park_create(model, 4 << 30, &park, &err);
 *     ob_session_use_park(session, park);                      // each slot of a server, once
 *     ob_session_sync(session, ids, n_ids, &report, &err);     // each request
 *     ob_session_park(session, &err);                          // optional: leave the slot empty
 *
 * Memory. Parked KV stays in the model's page pool, pages of common prefixes held once, so a model must be
 * opened with more sessions (ob_model_options.n_sessions) than are used at a time; on the CPU
 * that costs address space only. The budget counts what each parked session takes: its pages, its
 * recurrent states and checkpoints. When it is exceeded, or the pool has no page left for a session that
 * has the park, the one goes that was used longest ago.
 *
 * With a store (ob_park_use_store) a sync looks there too, and what memory has no room for goes there
 * instead of being lost, as do all parked sessions on ob_park_save: so a server that is started
 * again goes on where it was.
 *
 * Threads: a park has a lock of its own, and any number of sessions of its model, each with its owner
 * thread, may use it. It must outlive them (or they be told to use none) and be destroyed before the
 * model is closed. */
#ifndef OB_RUN_PARK_H
#define OB_RUN_PARK_H

#include "run/store.h"

struct ob_park;

/* A discarded tail or a gain of fewer tokens is not worth a parked session. */
enum { OB_PARK_LEAST = 32 };

/* A park of at most budget_bytes for sessions of `model`. OB_NO_MEMORY. */
ob_status ob_park_create(struct ob_model *model, size_t budget_bytes, struct ob_park **park,
                         struct ob_error *err);
void ob_park_destroy(struct ob_park *park); /* with all that is in it; NULL is allowed */

/* `park` is of the session's model; NULL: none. */
void ob_session_use_park(struct ob_session *session, struct ob_park *park);

/* Move what the session holds to its park: it is then empty. What is shorter than OB_PARK_LEAST is
 * dropped. OB_NO_MEMORY: nothing changed. OB_INVALID_ARGUMENT: it has no park. */
ob_status ob_session_park(struct ob_session *session, struct ob_error *err);

/* The store's budget limits what is kept there; it must outlive the park, which calls it under a lock of
 * its own. NULL: none. */
void ob_park_use_store(struct ob_park *park, struct ob_store *store);

/* Save all parked sessions to the park's store, as auto-... , and drop them. The first failure stops it,
 * with what is not saved still parked. */
ob_status ob_park_save(struct ob_park *park, struct ob_error *err);

/* Tokens of ids [n_ids] that the best parked session would save reading; 0: none. To choose among slots:
 * what a slot's own session would save is ob_session_usable. */
size_t ob_park_find(struct ob_park *park, const int32_t *ids, size_t n_ids);

struct ob_park_stats {
    size_t n_sessions, n_tokens, n_bytes; /* now */
    size_t n_parked, n_used, n_given_up;  /* so far */
    size_t n_stored, n_restored; /* of those given up, saved to the store; taken from there */
};
struct ob_park_stats ob_park_get_stats(struct ob_park *park);

/* ---------------------------------------------------------------------------- for ob_session_sync */

/* Let the session, which has this park, hold the best of what it and the park have for ids [n_ids], and
 * park what it would lose. "parked" or "stored" if it was another session's, else NULL. Where memory or pages do
 * not suffice, less is parked; nothing fails. */
const char *ob_park_choose(struct ob_park *park, struct ob_session *session, const int32_t *ids,
                           size_t n_ids);

/* Drop the session that was used longest ago; false when there is none. */
bool ob_park_give_up_oldest(struct ob_park *park);

#endif
