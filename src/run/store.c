#include "run/store.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "file/out_file.h"
#include "run/snapshot.h"

enum {
    WAIT_MS = 30000,  /* for another process's transaction */
    STALE_S = 3600,   /* after which a temporary file is nobody's */
    HEAD_TOKENS = 16, /* by which a search looks up the index */
    COPY_BYTES = 1 << 20
};

static const char suffix[] = ".session";

struct ob_store {
    char *folder;
    uint64_t budget_bytes;
    sqlite3 *db;
    unsigned n_files; /* temporary ones so far, for their names */
};

/* A column per thing that is searched or listed; `stamp` tells a file from the one that was indexed. */
static const char schema[] = "CREATE TABLE IF NOT EXISTS sessions("
                             "name TEXT PRIMARY KEY, stamp TEXT NOT NULL, model TEXT NOT NULL,"
                             "fingerprint TEXT NOT NULL, n_tokens INTEGER NOT NULL,"
                             "n_bytes INTEGER NOT NULL, used INTEGER NOT NULL,"
                             "head BLOB, ids BLOB);"
                             "CREATE INDEX IF NOT EXISTS by_head ON sessions(fingerprint, head);";

/* ------------------------------------------------------------------------------------- the index */

static ob_status fail_index(const struct ob_store *s, int code, struct ob_error *err)
{
    if (code == SQLITE_NOMEM)
        return ob_fail(err, OB_NO_MEMORY, "not enough memory for the index of %s", s->folder);
    if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB)
        return ob_fail(err, OB_BAD_FILE,
                       "%s/index.sqlite: is damaged; remove it, it is made again from the sessions",
                       s->folder);
    return ob_fail(err, OB_IO_ERROR, "%s/index.sqlite: %s", s->folder, sqlite3_errmsg(s->db));
}

static ob_status run_sql(struct ob_store *s, const char *sql, struct ob_error *err)
{
    int code = sqlite3_exec(s->db, sql, NULL, NULL, NULL);
    return code == SQLITE_OK ? OB_OK : fail_index(s, code, err);
}

static ob_status prepare(struct ob_store *s, const char *sql, sqlite3_stmt **out,
                         struct ob_error *err)
{
    int code = sqlite3_prepare_v2(s->db, sql, -1, out, NULL);
    return code == SQLITE_OK ? OB_OK : fail_index(s, code, err);
}

/* Run a statement that gives no rows, and free it. */
static ob_status finish(struct ob_store *s, sqlite3_stmt *statement, struct ob_error *err)
{
    int code = sqlite3_step(statement);
    ob_status status = code == SQLITE_DONE ? OB_OK : fail_index(s, code, err);
    sqlite3_finalize(statement);
    return status;
}

/* Writers take turns from here on. */
static ob_status begin(struct ob_store *s, struct ob_error *err)
{
    return run_sql(s, "BEGIN IMMEDIATE", err);
}

/* Keep what was done since begin if `status` is OB_OK, else undo it. */
static ob_status end(struct ob_store *s, ob_status status, struct ob_error *err)
{
    if (status == OB_OK)
        status = run_sql(s, "COMMIT", err);
    if (status != OB_OK)
        sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

/* ------------------------------------------------------------------------------- names and files */

static ob_status check_name(const char *name, struct ob_error *err)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t n = strlen(name);
    if (n == 0 || n >= OB_STORE_NAME || name[0] == '.' || strspn(name, allowed) != n)
        return ob_fail(err, OB_INVALID_ARGUMENT,
                       "'%s' cannot name a session: 1 to %d letters, digits and ._- can, not "
                       "beginning with a dot",
                       name, OB_STORE_NAME - 1);
    return OB_OK;
}

static ob_status path_of(const struct ob_store *s, const char *name, const char *ending,
                         char path[PATH_MAX], struct ob_error *err)
{
    int n = snprintf(path, PATH_MAX, "%s/%s%s", s->folder, name, ending);
    return n < PATH_MAX ? OB_OK : ob_fail(err, OB_IO_ERROR, "%s: the name is too long", s->folder);
}

static ob_status temporary_path(struct ob_store *s, char path[PATH_MAX], struct ob_error *err)
{
    char name[64];
    snprintf(name, sizeof name, ".%ld-%p-%u", (long)getpid(), (void *)s, s->n_files++);
    return path_of(s, name, ".part", path, err);
}

static ob_status fail_file(const char *path, const char *action, struct ob_error *err)
{
    return ob_fail(err, OB_IO_ERROR, "%s: cannot %s: %s", path, action, strerror(errno));
}

/* What changes when another file takes the name. */
static bool stamp_of(const char *path, char stamp[96])
{
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return false;
    snprintf(stamp, 96, "%llu-%lld-%lld.%09ld", (unsigned long long)info.st_ino,
             (long long)info.st_size, (long long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
    return true;
}

/* Index the snapshot at `path`, which is or will be NAME.session. In a transaction. */
static ob_status put_row(struct ob_store *s, const char *name, const char *path, int64_t used,
                         struct ob_error *err)
{
    char stamp[96], fingerprint[OB_HASH_HEX];
    struct ob_snapshot *snapshot;
    sqlite3_stmt *put;
    if (!stamp_of(path, stamp))
        return fail_file(path, "read it", err);
    OB_TRY(ob_snapshot_open(path, &snapshot, err));
    ob_snapshot_fingerprint(snapshot, fingerprint);
    struct ob_snapshot_info info = ob_snapshot_get_info(snapshot);
    ob_status status =
        prepare(s, "INSERT OR REPLACE INTO sessions VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)", &put, err);
    if (status == OB_OK) {
        size_t n = info.shifted_from; /* what can be found */
        size_t n_head = n < HEAD_TOKENS ? n : HEAD_TOKENS;
        sqlite3_bind_text(put, 1, name, -1, SQLITE_TRANSIENT);
        sqlite3_bind_text(put, 2, stamp, -1, SQLITE_TRANSIENT);
        sqlite3_bind_text(put, 3, info.model[0] ? info.model : info.arch, -1, SQLITE_TRANSIENT);
        sqlite3_bind_text(put, 4, fingerprint, -1, SQLITE_TRANSIENT);
        sqlite3_bind_int64(put, 5, (sqlite3_int64)info.n_ids);
        sqlite3_bind_int64(put, 6, (sqlite3_int64)info.n_bytes);
        sqlite3_bind_int64(put, 7, used);
        sqlite3_bind_blob64(put, 8, info.ids, n_head * sizeof *info.ids, SQLITE_STATIC);
        sqlite3_bind_blob64(put, 9, info.ids, n * sizeof *info.ids, SQLITE_STATIC);
        status = finish(s, put, err);
    }
    ob_snapshot_close(snapshot);
    return status;
}

static ob_status delete_row(struct ob_store *s, const char *name, struct ob_error *err)
{
    sqlite3_stmt *statement;
    OB_TRY(prepare(s, "DELETE FROM sessions WHERE name = ?", &statement, err));
    sqlite3_bind_text(statement, 1, name, -1, SQLITE_TRANSIENT);
    return finish(s, statement, err);
}

/* File and row. In a transaction. */
static ob_status remove_both(struct ob_store *s, const char *name, struct ob_error *err)
{
    char path[PATH_MAX];
    OB_TRY(path_of(s, name, suffix, path, err));
    if (unlink(path) != 0 && errno != ENOENT)
        return fail_file(path, "remove it", err);
    return delete_row(s, name, err);
}

/* The stamp of the row of `name`: true if there is one. */
static ob_status indexed_stamp(struct ob_store *s, const char *name, char stamp[96], bool *found,
                               struct ob_error *err)
{
    sqlite3_stmt *statement;
    OB_TRY(prepare(s, "SELECT stamp FROM sessions WHERE name = ?", &statement, err));
    sqlite3_bind_text(statement, 1, name, -1, SQLITE_TRANSIENT);
    int code = sqlite3_step(statement);
    *found = code == SQLITE_ROW;
    if (*found)
        snprintf(stamp, 96, "%s", (const char *)sqlite3_column_text(statement, 0));
    sqlite3_finalize(statement);
    return code == SQLITE_ROW || code == SQLITE_DONE ? OB_OK : fail_index(s, code, err);
}

/* --------------------------------------------------------------------- the folder and the index */

/* A file of the folder: what a killed save left is removed, a session that the index does not know, or
 * knows another file of, is indexed. A file that is no snapshot stays, and is none of ours. */
static ob_status take_in(struct ob_store *s, const char *file, struct ob_error *err)
{
    char path[PATH_MAX], name[OB_STORE_NAME], stamp[96], indexed[96];
    struct stat info;
    size_t n = strlen(file), n_suffix = sizeof suffix - 1;
    bool found;
    OB_TRY(path_of(s, file, "", path, err));
    if (strstr(file, ".part") && stat(path, &info) == 0 && info.st_mtime + STALE_S < time(NULL))
        unlink(path);
    if (n <= n_suffix || n - n_suffix >= sizeof name || strcmp(file + n - n_suffix, suffix) != 0)
        return OB_OK;
    memcpy(name, file, n - n_suffix);
    name[n - n_suffix] = '\0';
    if (check_name(name, NULL) != OB_OK || !stamp_of(path, stamp))
        return OB_OK;
    OB_TRY(indexed_stamp(s, name, indexed, &found, err));
    if (found && strcmp(indexed, stamp) == 0)
        return OB_OK;
    ob_status status = put_row(s, name, path, stat(path, &info) == 0 ? info.st_mtime : 0, err);
    return status == OB_BAD_FILE || status == OB_UNSUPPORTED ? delete_row(s, name, err) : status;
}

/* Rows whose files are gone. */
static ob_status drop_rows(struct ob_store *s, struct ob_error *err)
{
    sqlite3_stmt *list;
    char path[PATH_MAX], stamp[96];
    ob_status status = OB_OK;
    int code = SQLITE_DONE;
    OB_TRY(prepare(s, "SELECT name FROM sessions", &list, err));
    while (status == OB_OK && (code = sqlite3_step(list)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(list, 0);
        status = path_of(s, name, suffix, path, err);
        if (status == OB_OK && !stamp_of(path, stamp))
            status = delete_row(s, name, err);
    }
    sqlite3_finalize(list);
    return status != OB_OK || code == SQLITE_DONE ? status : fail_index(s, code, err);
}

static ob_status reconcile(struct ob_store *s, struct ob_error *err)
{
    DIR *folder = opendir(s->folder);
    struct dirent *entry;
    if (!folder)
        return fail_file(s->folder, "list it", err);
    ob_status status = begin(s, err);
    if (status == OB_OK) {
        while (status == OB_OK && (entry = readdir(folder)) != NULL)
            status = take_in(s, entry->d_name, err);
        if (status == OB_OK)
            status = drop_rows(s, err);
        status = end(s, status, err);
    }
    closedir(folder);
    return status;
}

static ob_status open_parts(struct ob_store *s, struct ob_error *err)
{
    char path[PATH_MAX];
    if (mkdir(s->folder, 0777) != 0 && errno != EEXIST)
        return fail_file(s->folder, "make the folder", err);
    OB_TRY(path_of(s, "index", ".sqlite", path, err));
    int code = sqlite3_open_v2(path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL);
    if (code != SQLITE_OK)
        return s->db
                   ? fail_index(s, code, err)
                   : ob_fail(err, OB_NO_MEMORY, "not enough memory for the index of %s", s->folder);
    sqlite3_busy_timeout(s->db, WAIT_MS);
    OB_TRY(run_sql(s, schema, err));
    return reconcile(s, err);
}

ob_status ob_store_open(const char *folder, uint64_t budget_bytes, struct ob_store **out,
                        struct ob_error *err)
{
    struct ob_store *s = ob_calloc(1, sizeof *s);
    if (s)
        s->folder = ob_calloc(strlen(folder) + 1, 1);
    if (!s || !s->folder) {
        free(s);
        return ob_fail_memory(err, strlen(folder) + 1, "a session store");
    }
    memcpy(s->folder, folder, strlen(folder));
    s->budget_bytes = budget_bytes;
    ob_status status = open_parts(s, err);
    if (status != OB_OK) {
        ob_store_close(s);
        return status;
    }
    *out = s;
    return OB_OK;
}

void ob_store_close(struct ob_store *s)
{
    if (!s)
        return;
    sqlite3_close(s->db);
    free(s->folder);
    free(s);
}

/* ------------------------------------------------------------------------------------ putting in */

/* The session used longest ago that is not `name`, and the bytes of all. */
static ob_status oldest(struct ob_store *s, const char *name, char victim[OB_STORE_NAME],
                        uint64_t *total, struct ob_error *err)
{
    sqlite3_stmt *q;
    victim[0] = '\0';
    *total = 0;
    OB_TRY(prepare(s,
                   "SELECT (SELECT sum(n_bytes) FROM sessions), (SELECT name FROM sessions WHERE "
                   "name <> ? ORDER BY used, rowid LIMIT 1)",
                   &q, err));
    sqlite3_bind_text(q, 1, name, -1, SQLITE_TRANSIENT);
    int code = sqlite3_step(q);
    if (code == SQLITE_ROW) {
        *total = (uint64_t)sqlite3_column_int64(q, 0);
        if (sqlite3_column_text(q, 1))
            snprintf(victim, OB_STORE_NAME, "%s", (const char *)sqlite3_column_text(q, 1));
    }
    sqlite3_finalize(q);
    return code == SQLITE_ROW ? OB_OK : fail_index(s, code, err);
}

/* Keep the budget. In a transaction, after `name` was put in. */
static ob_status make_room(struct ob_store *s, const char *name, struct ob_error *err)
{
    for (;;) {
        char victim[OB_STORE_NAME];
        uint64_t total;
        OB_TRY(oldest(s, name, victim, &total, err));
        if (s->budget_bytes == 0 || total <= s->budget_bytes || !victim[0])
            return OB_OK;
        OB_TRY(remove_both(s, victim, err));
    }
}

static ob_status put_in_locked(struct ob_store *s, const char *part, const char *name,
                               struct ob_error *err)
{
    char path[PATH_MAX];
    struct stat info;
    OB_TRY(path_of(s, name, suffix, path, err));
    if (stat(part, &info) != 0)
        return fail_file(part, "read it", err);
    if (s->budget_bytes > 0 && (uint64_t)info.st_size > s->budget_bytes)
        return ob_fail(err, OB_INVALID_ARGUMENT,
                       "the session takes %lld bytes, more than the %llu that %s may hold",
                       (long long)info.st_size, (unsigned long long)s->budget_bytes, s->folder);
    OB_TRY(put_row(s, name, part, time(NULL), err));
    if (rename(part, path) != 0)
        return fail_file(path, "replace it", err);
    return make_room(s, name, err);
}

/* Give the snapshot at `part`, a temporary file that is gone afterwards, its name. */
static ob_status put_in(struct ob_store *s, const char *part, const char *name,
                        struct ob_error *err)
{
    ob_status status = begin(s, err);
    if (status == OB_OK)
        status = end(s, put_in_locked(s, part, name, err), err);
    if (status != OB_OK)
        unlink(part);
    return status;
}

ob_status ob_store_save(struct ob_store *s, struct ob_session *session, const char *name,
                        const void *note, size_t n_note, struct ob_error *err)
{
    char part[PATH_MAX];
    OB_TRY(check_name(name, err));
    OB_TRY(temporary_path(s, part, err));
    OB_TRY(ob_session_save(session, part, note, n_note, err));
    return put_in(s, part, name, err);
}

/* A copy of a snapshot, checked first. */
static ob_status copy_file(const char *from, const char *to, struct ob_error *err)
{
    struct ob_snapshot *snapshot;
    struct ob_out_file *file;
    OB_TRY(ob_snapshot_open(from, &snapshot, err));
    size_t n;
    const unsigned char *bytes = ob_snapshot_bytes(snapshot, &n);
    ob_status status = ob_snapshot_check(snapshot, err);
    if (status == OB_OK)
        status = ob_out_file_create(to, &file, err);
    if (status == OB_OK) {
        for (size_t at = 0; at < n && status == OB_OK; at += COPY_BYTES)
            status = ob_out_file_write(file, at, bytes + at,
                                       n - at < COPY_BYTES ? n - at : COPY_BYTES, err);
        if (status == OB_OK)
            status = ob_out_file_commit(file, err);
        else
            ob_out_file_abort(file);
    }
    ob_snapshot_close(snapshot);
    return status;
}

ob_status ob_store_import(struct ob_store *s, const char *path, const char *name,
                          struct ob_error *err)
{
    char part[PATH_MAX];
    OB_TRY(check_name(name, err));
    OB_TRY(temporary_path(s, part, err));
    OB_TRY(copy_file(path, part, err));
    return put_in(s, part, name, err);
}

/* ----------------------------------------------------------------------------------- taking out */

static ob_status no_such(const struct ob_store *s, const char *name, struct ob_error *err)
{
    return ob_fail(err, OB_INVALID_ARGUMENT, "%s has no session '%s'", s->folder, name);
}

/* The path of a session that is there. */
static ob_status existing(const struct ob_store *s, const char *name, char path[PATH_MAX],
                          struct ob_error *err)
{
    OB_TRY(check_name(name, err));
    OB_TRY(path_of(s, name, suffix, path, err));
    return access(path, F_OK) == 0 ? OB_OK : no_such(s, name, err);
}

static ob_status touch(struct ob_store *s, const char *name, struct ob_error *err)
{
    sqlite3_stmt *statement;
    OB_TRY(prepare(s, "UPDATE sessions SET used = ? WHERE name = ?", &statement, err));
    sqlite3_bind_int64(statement, 1, time(NULL));
    sqlite3_bind_text(statement, 2, name, -1, SQLITE_TRANSIENT);
    return finish(s, statement, err);
}

ob_status ob_store_load(struct ob_store *s, const char *name, struct ob_snapshot **snapshot,
                        struct ob_error *err)
{
    char path[PATH_MAX];
    OB_TRY(existing(s, name, path, err));
    OB_TRY(touch(s, name, err));
    return ob_snapshot_open(path, snapshot, err);
}

ob_status ob_store_export(struct ob_store *s, const char *name, const char *path,
                          struct ob_error *err)
{
    char from[PATH_MAX];
    OB_TRY(existing(s, name, from, err));
    return copy_file(from, path, err);
}

ob_status ob_store_remove(struct ob_store *s, const char *name, struct ob_error *err)
{
    char path[PATH_MAX];
    OB_TRY(existing(s, name, path, err));
    OB_TRY(begin(s, err));
    return end(s, remove_both(s, name, err), err);
}

ob_status ob_store_list(struct ob_store *s, int (*fn)(void *, const struct ob_stored *),
                        void *context, struct ob_error *err)
{
    sqlite3_stmt *list;
    int code;
    OB_TRY(prepare(s,
                   "SELECT name, model, n_tokens, n_bytes, used FROM sessions "
                   "ORDER BY used DESC, name",
                   &list, err));
    while ((code = sqlite3_step(list)) == SQLITE_ROW) {
        struct ob_stored entry = {
            .name = (const char *)sqlite3_column_text(list, 0),
            .model = (const char *)sqlite3_column_text(list, 1),
            .n_tokens = (uint64_t)sqlite3_column_int64(list, 2),
            .n_bytes = (uint64_t)sqlite3_column_int64(list, 3),
            .last_used = sqlite3_column_int64(list, 4),
        };
        if (fn(context, &entry) != 0) {
            code = SQLITE_DONE;
            break;
        }
    }
    sqlite3_finalize(list);
    return code == SQLITE_DONE ? OB_OK : fail_index(s, code, err);
}

/* How many of a row's tokens are of use for ids: a recurrent state is of use whole or not at all. */
static size_t usable(const struct ob_model *m, const int32_t *held, size_t n_held,
                     const int32_t *ids, size_t n_ids)
{
    size_t common = 0;
    while (common < n_held && common < n_ids && held[common] == ids[common])
        common++;
    for (int i = 0; i < m->plan->n_states; i++)
        if (m->plan->states[i].kind != OB_STATE_KV && common < n_held)
            return 0;
    return common;
}

ob_status ob_store_find(struct ob_store *s, struct ob_model *m, const int32_t *ids, size_t n_ids,
                        char name[OB_STORE_NAME], size_t *n_tokens, struct ob_error *err)
{
    char fingerprint[OB_HASH_HEX];
    sqlite3_stmt *rows;
    int code;
    *n_tokens = 0;
    if (n_ids < HEAD_TOKENS)
        return OB_OK;
    ob_model_fingerprint(m, fingerprint);
    OB_TRY(prepare(s, "SELECT name, ids FROM sessions WHERE fingerprint = ? AND head = ?", &rows,
                   err));
    sqlite3_bind_text(rows, 1, fingerprint, -1, SQLITE_TRANSIENT);
    sqlite3_bind_blob(rows, 2, ids, HEAD_TOKENS * sizeof *ids, SQLITE_STATIC);
    while ((code = sqlite3_step(rows)) == SQLITE_ROW) {
        const void *held = sqlite3_column_blob(rows, 1);
        size_t n_held = (size_t)sqlite3_column_bytes(rows, 1) / sizeof *ids;
        size_t n = usable(m, held, n_held, ids, n_ids);
        if (n > *n_tokens) {
            *n_tokens = n;
            snprintf(name, OB_STORE_NAME, "%s", (const char *)sqlite3_column_text(rows, 0));
        }
    }
    sqlite3_finalize(rows);
    return code == SQLITE_DONE ? OB_OK : fail_index(s, code, err);
}
