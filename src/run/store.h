/* A store of sessions: a folder of snapshots (NAME.session) and an index of them, index.sqlite.
 *
 * The files are the truth, the index is what makes them quick to list and to search; it can be deleted at
 * any time, and ob_store_open brings it up to date with the folder. Several processes may use one
 * store: a file is written beside the others and put in its place together with its row of the index,
 * inside one transaction. Of two that save under one name, the later wins, and both files are whole. A save
 * that is killed leaves what was there, and a temporary file that is removed when the store is
 * opened an hour later or more.
 *
 * When the snapshots take more than the budget, those go that were used longest ago.
 *
 * Names are 1 to 64 letters, digits and "._-" and do not begin with a dot. Threads: one call at a time on one
 * ob_store; open another one for another thread. */
#ifndef OB_RUN_STORE_H
#define OB_RUN_STORE_H

#include "run/session.h"

struct ob_store;

enum { OB_STORE_NAME = 65 };

/* Open the store in `folder`, which is made if it is not there (its parent is not). budget_bytes 0: no
 * limit. OB_IO_ERROR, OB_BAD_FILE (the index is damaged), OB_NO_MEMORY. */
ob_status ob_store_open(const char *folder, uint64_t budget_bytes, struct ob_store **store,
                        struct ob_error *err);
void ob_store_close(struct ob_store *store); /* NULL is allowed */

/* Save the session under `name`, as ob_session_save. OB_INVALID_ARGUMENT: no name for a session, or larger
 * than the budget; then and on any failure what had this name is as it was. */
ob_status ob_store_save(struct ob_store *store, struct ob_session *session, const char *name,
                        const void *note, size_t n_note, struct ob_error *err);

/* Open the snapshot of `name`, which is then the one used last. OB_INVALID_ARGUMENT: there is none. */
ob_status ob_store_load(struct ob_store *store, const char *name, struct ob_snapshot **snapshot,
                        struct ob_error *err);

/* Put a checked copy of the snapshot at `path` into the store, or the other way round. */
ob_status ob_store_import(struct ob_store *store, const char *path, const char *name,
                          struct ob_error *err);
ob_status ob_store_export(struct ob_store *store, const char *name, const char *path,
                          struct ob_error *err);

/* OB_INVALID_ARGUMENT: there is none. */
ob_status ob_store_remove(struct ob_store *store, const char *name, struct ob_error *err);

/* Strings are valid during the call only. */
struct ob_stored {
    const char *name, *model; /* general.name, or the architecture where it has none */
    uint64_t n_tokens, n_bytes;
    int64_t last_used; /* seconds since 1970 */
};

/* Every session, the one used last first. Returning anything but 0 stops. */
ob_status ob_store_list(struct ob_store *store,
                        int (*fn)(void *context, const struct ob_stored *entry), void *context,
                        struct ob_error *err);

/* The session with the longest prefix of ids [n_ids] that a session of this model could go on from byte
 * for byte (same model file, options and kernels, not behind a context shift): *n_tokens of it, and its name.
 * 0: none. */
ob_status ob_store_find(struct ob_store *store, struct ob_model *model, const int32_t *ids,
                        size_t n_ids, char name[OB_STORE_NAME], size_t *n_tokens,
                        struct ob_error *err);

#endif
