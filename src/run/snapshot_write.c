/* Writing a snapshot: chunks, then the manifest, then the header that points to it, then the rename. */
#include <stdlib.h>

#include "base/memory.h"
#include "file/out_file.h"
#include "run/snapshot.h"

struct writer {
    struct ob_session *session;
    struct ob_out_file *file;
    uint64_t at;
    unsigned char *buffer; /* holds any one piece of a state */
    json_t *chunks;
    const void *note;
};

/* The largest piece that is copied at once. */
static size_t buffer_bytes(const struct ob_model *m)
{
    size_t most = 1;
    for (int i = 0; i < m->plan->n_states; i++) {
        const struct ob_state_shape *shape = &m->plan->states[i];
        size_t bytes =
            shape->kind == OB_STATE_KV /* a page is never larger than before it is full */
                ? m->engine->backend->page_bytes(m->engine, 1, OB_SINK_TOKENS + 1)
                : ob_state_floats(shape) * sizeof(float);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static ob_status write_piece(struct writer *w, const void *bytes, size_t n, XXH3_state_t *hash,
                             struct ob_error *err)
{
    if (n == 0)
        return OB_OK;
    XXH3_128bits_update(hash, bytes, n);
    OB_TRY(ob_out_file_write(w->file, w->at, bytes, n, err));
    w->at += n;
    return OB_OK;
}

static ob_status write_state(struct writer *w, const struct ob_chunk *chunk, XXH3_state_t *hash,
                             struct ob_error *err)
{
    struct ob_model *m = w->session->model;
    struct ob_state_place place = chunk->place;
    size_t n_pieces = m->plan->states[place.state].kind == OB_STATE_KV ? chunk->n_pages : 1;
    for (; place.page < n_pieces; place.page++) {
        size_t n = chunk->n_pages > 0
                       ? m->engine->backend->page_bytes(m->engine, place.page, w->session->length)
                       : chunk->bytes;
        pthread_mutex_lock(&m->lock);
        ob_status status =
            m->engine->backend->state_read(m->engine, w->session->state, place, w->buffer, err);
        pthread_mutex_unlock(&m->lock);
        if (status == OB_OK)
            status = write_piece(w, w->buffer, n, hash, err);
        if (status != OB_OK)
            return status;
    }
    return OB_OK;
}

static const float *checkpoint_data(const struct ob_session *s, size_t n_tokens)
{
    size_t i = 0;
    while (s->checkpoints.items[i].n_tokens != n_tokens)
        i++;
    return ob_checkpoints_data(&s->checkpoints, i);
}

static ob_status write_content(struct writer *w, const struct ob_chunk *chunk, XXH3_state_t *hash,
                               struct ob_error *err)
{
    switch (chunk->kind) {
    case OB_CHUNK_TOKENS:
        return write_piece(w, w->session->ids, chunk->bytes, hash, err);
    case OB_CHUNK_LOGITS:
        return write_piece(w, w->session->logits, chunk->bytes, hash, err);
    case OB_CHUNK_NOTE:
        return write_piece(w, w->note, chunk->bytes, hash, err);
    case OB_CHUNK_CHECKPOINT:
        return write_piece(w, checkpoint_data(w->session, chunk->n_tokens), chunk->bytes, hash,
                           err);
    default:
        return write_state(w, chunk, hash, err);
    }
}

static ob_status write_chunk(struct writer *w, const struct ob_chunk *chunk, XXH3_state_t *hash,
                             struct ob_error *err)
{
    XXH3_128bits_reset(hash);
    OB_TRY(write_content(w, chunk, hash, err));
    char hex[OB_HASH_HEX];
    ob_snapshot_hex(XXH3_128bits_digest(hash), hex);
    json_t *entry = json_pack("{s:s, s:I, s:s}", "name", chunk->name, "bytes",
                              (json_int_t)chunk->bytes, "hash", hex);
    if (!entry || json_array_append_new(w->chunks, entry) != 0)
        return ob_fail(err, OB_NO_MEMORY, "not enough memory for the snapshot's manifest");
    return OB_OK;
}

static bool is_shifted(const struct ob_session *s)
{
    return ob_session_shifted_from(s) < s->length;
}

/* The manifest as text; NULL without memory. */
static char *make_manifest(struct writer *w)
{
    struct ob_model *m = w->session->model;
    const char *name, *value;
    json_t *title = json_string(m->name);
    if (!title) /* a name that is not UTF-8 */
        title = json_string("");
    json_t *root = json_pack("{s:s, s:i, s:o, s:s, s:O}", "engine", OB_VERSION, "arithmetic",
                             OB_SNAPSHOT_ARITHMETIC, "model", title, "kernels", m->kernels,
                             "chunks", w->chunks);
    bool ok = root != NULL;
    pthread_mutex_lock(&m->lock);
    if (ok && is_shifted(w->session))
        ok = json_object_set_new(root, "shifted_from",
                                 json_integer((json_int_t)w->session->shifted_from)) == 0;
    for (size_t i = 0; ok && (name = ob_snapshot_identity(m, i, &value)) != NULL; i++)
        ok = json_object_set_new(root, name, json_string(value)) == 0;
    pthread_mutex_unlock(&m->lock);
    char *text = ok ? json_dumps(root, JSON_INDENT(1) | JSON_SORT_KEYS) : NULL;
    json_decref(root);
    return text;
}

static ob_status write_manifest(struct writer *w, struct ob_error *err)
{
    char *text = make_manifest(w);
    if (!text)
        return ob_fail(err, OB_NO_MEMORY, "not enough memory for the snapshot's manifest");
    struct ob_snapshot_header header = {
        .version = is_shifted(w->session) ? OB_SNAPSHOT_VERSION_SHIFTED : OB_SNAPSHOT_VERSION,
        .manifest_at = w->at,
        .manifest_bytes = strlen(text)};
    memcpy(header.magic, ob_snapshot_magic, sizeof header.magic);
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(text, header.manifest_bytes));
    memcpy(header.manifest_hash, sum.digest, sizeof header.manifest_hash);
    header.header_hash = XXH3_64bits(&header, offsetof(struct ob_snapshot_header, header_hash));
    ob_status status = ob_out_file_write(w->file, w->at, text, header.manifest_bytes, err);
    free(text);
    return status == OB_OK ? ob_out_file_write(w->file, 0, &header, sizeof header, err) : status;
}

static ob_status write_all(struct writer *w, const struct ob_chunk *chunks, size_t n,
                           struct ob_error *err)
{
    XXH3_state_t *hash = XXH3_createState();
    w->buffer = ob_alloc_aligned(buffer_bytes(w->session->model), 1);
    w->chunks = json_array();
    ob_status status = hash && w->buffer && w->chunks
                           ? OB_OK
                           : ob_fail(err, OB_NO_MEMORY, "not enough memory to write a snapshot");
    w->at = sizeof(struct ob_snapshot_header);
    for (size_t i = 0; i < n && status == OB_OK; i++)
        status = write_chunk(w, &chunks[i], hash, err);
    if (status == OB_OK)
        status = write_manifest(w, err);
    json_decref(w->chunks);
    free(w->buffer);
    XXH3_freeState(hash);
    return status;
}

/* A checkpoint of all the tokens would say what the states do. */
static struct ob_snapshot_content content_of(const struct ob_session *s, size_t n_note)
{
    struct ob_snapshot_content content = {
        .n_ids = s->length, .n_note = n_note, .logits = ob_session_logits(s) != NULL};
    const struct ob_checkpoints *c = &s->checkpoints;
    size_t end = c->n;
    while (end > 0 && c->items[end - 1].n_tokens >= s->length)
        end--;
    size_t first = end > OB_SNAPSHOT_CHECKPOINTS ? end - OB_SNAPSHOT_CHECKPOINTS : 0;
    for (size_t i = first; i < end; i++)
        content.checkpoints[content.n_checkpoints++] = c->items[i].n_tokens;
    return content;
}

ob_status ob_session_save(struct ob_session *s, const char *path, const void *note, size_t n_note,
                          struct ob_error *err)
{
    struct writer w = {.session = s, .note = note};
    struct ob_snapshot_content content = content_of(s, n_note);
    struct ob_chunk *chunks;
    size_t n;
    OB_TRY(ob_snapshot_chunks(s->model, &content, &chunks, &n, err));
    ob_status status = ob_out_file_create(path, &w.file, err);
    if (status == OB_OK) {
        status = write_all(&w, chunks, n, err);
        if (status == OB_OK)
            status = ob_out_file_commit(w.file, err);
        else
            ob_out_file_abort(w.file);
    }
    free(chunks);
    return status;
}
