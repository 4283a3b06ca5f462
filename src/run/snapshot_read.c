/* Reading a snapshot: everything is checked before a session is touched. */
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/os.h"
#include "run/snapshot.h"

/* A chunk as the manifest names it. */
struct stored {
    const char *name, *hash;
    const unsigned char *data;
    size_t bytes;
};

struct ob_snapshot {
    char *path;
    struct ob_os_map map;
    json_t *manifest;
    struct stored *chunks;
    size_t n_chunks;
    struct ob_snapshot_info info;
    char notice[160];
};

enum { FIRST_CHUNKS = 3 }; /* tokens, logits, note */

void ob_snapshot_close(struct ob_snapshot *s)
{
    if (!s)
        return;
    free(s->chunks);
    json_decref(s->manifest);
    ob_os_unmap(&s->map);
    free(s->path);
    free(s);
}

struct ob_snapshot_info ob_snapshot_get_info(const struct ob_snapshot *s)
{
    return s->info;
}

static ob_status read_header(const struct ob_snapshot *s, struct ob_snapshot_header *h,
                             struct ob_error *err)
{
    if (s->map.bytes < sizeof *h || memcmp(s->map.data, ob_snapshot_magic, sizeof h->magic) != 0)
        return ob_fail(err, OB_BAD_FILE, "%s: is not a snapshot of a session", s->path);
    memcpy(h, s->map.data, sizeof *h);
    if (h->header_hash != XXH3_64bits(h, offsetof(struct ob_snapshot_header, header_hash)))
        return ob_fail(err, OB_BAD_FILE, "%s: the header is damaged", s->path);
    if (h->version != OB_SNAPSHOT_VERSION && h->version != OB_SNAPSHOT_VERSION_SHIFTED)
        return ob_fail(err, OB_UNSUPPORTED, "%s: format version is %u, this engine reads %d and %d",
                       s->path, (unsigned)h->version, OB_SNAPSHOT_VERSION,
                       OB_SNAPSHOT_VERSION_SHIFTED);
    if (h->manifest_at < sizeof *h || h->manifest_at > s->map.bytes ||
        h->manifest_bytes != s->map.bytes - h->manifest_at)
        return ob_fail(err, OB_BAD_FILE, "%s: the file has %zu bytes, its header says otherwise",
                       s->path, s->map.bytes);
    return OB_OK;
}

static ob_status read_manifest(struct ob_snapshot *s, const struct ob_snapshot_header *h,
                               struct ob_error *err)
{
    const char *text = (const char *)s->map.data + h->manifest_at;
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(text, h->manifest_bytes));
    if (memcmp(sum.digest, h->manifest_hash, sizeof h->manifest_hash) != 0)
        return ob_fail(err, OB_BAD_FILE, "%s: the manifest is damaged", s->path);
    json_error_t error;
    s->manifest = json_loadb(text, h->manifest_bytes, JSON_REJECT_DUPLICATES, &error);
    if (s->manifest)
        return OB_OK;
    if (json_error_code(&error) == json_error_out_of_memory)
        return ob_fail(err, OB_NO_MEMORY, "not enough memory for the manifest of %s", s->path);
    return ob_fail(err, OB_BAD_FILE, "%s: the manifest is no JSON: %s", s->path, error.text);
}

/* The chunks follow each other from the header to the manifest. */
static ob_status lay_out(struct ob_snapshot *s, uint64_t manifest_at, struct ob_error *err)
{
    json_t *list = json_object_get(s->manifest, "chunks");
    uint64_t at = sizeof(struct ob_snapshot_header);
    s->n_chunks = json_array_size(list);
    s->chunks = ob_calloc(s->n_chunks, sizeof *s->chunks);
    if (!s->chunks)
        return ob_fail_memory(err, s->n_chunks * sizeof *s->chunks, "a snapshot's chunks");
    for (size_t i = 0; i < s->n_chunks; i++) {
        json_int_t bytes;
        struct stored *c = &s->chunks[i];
        if (json_unpack(json_array_get(list, i), "{s:s, s:I, s:s}", "name", &c->name, "bytes",
                        &bytes, "hash", &c->hash) != 0)
            return ob_fail(err, OB_BAD_FILE, "%s: manifest: chunk %zu has no name, bytes and hash",
                           s->path, i);
        if (bytes < 0 || (uint64_t)bytes > manifest_at - at)
            return ob_fail(err, OB_BAD_FILE, "%s: manifest: chunk '%s' does not fit the file",
                           s->path, c->name);
        c->bytes = (size_t)bytes;
        c->data = (const unsigned char *)s->map.data + at;
        at += c->bytes;
    }
    if (at != manifest_at)
        return ob_fail(err, OB_BAD_FILE, "%s: manifest: the chunks end before it begins", s->path);
    return OB_OK;
}

static ob_status check_chunk(const struct ob_snapshot *s, size_t i, struct ob_error *err)
{
    char hex[OB_HASH_HEX];
    ob_snapshot_hex(XXH3_128bits(s->chunks[i].data, s->chunks[i].bytes), hex);
    if (strcmp(hex, s->chunks[i].hash) != 0)
        return ob_fail(err, OB_BAD_FILE, "%s: chunk '%s' is damaged", s->path, s->chunks[i].name);
    return OB_OK;
}

ob_status ob_snapshot_check(const struct ob_snapshot *s, struct ob_error *err)
{
    for (size_t i = 0; i < s->n_chunks; i++)
        OB_TRY(check_chunk(s, i, err));
    return OB_OK;
}

static ob_status read_info(struct ob_snapshot *s, struct ob_error *err)
{
    static const char *const first[FIRST_CHUNKS] = {"tokens", "logits", "note"};
    struct ob_snapshot_info *info = &s->info;
    if (json_unpack(s->manifest, "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "engine",
                    &info->engine, "arch", &info->arch, "model", &info->model, "model_hash",
                    &info->model_hash, "kv", &info->kv, "activation", &info->activation, "rope",
                    &info->rope, "kernels", &info->kernels) != 0)
        return ob_fail(err, OB_BAD_FILE, "%s: manifest: a field is missing", s->path);
    for (size_t i = 0; i < FIRST_CHUNKS; i++) {
        if (i >= s->n_chunks || strcmp(s->chunks[i].name, first[i]) != 0)
            return ob_fail(err, OB_BAD_FILE, "%s: manifest: there is no chunk '%s'", s->path,
                           first[i]);
        OB_TRY(check_chunk(s, i, err));
    }
    if (s->chunks[0].bytes % sizeof(int32_t) != 0)
        return ob_fail(err, OB_BAD_FILE, "%s: chunk 'tokens' has %zu bytes", s->path,
                       s->chunks[0].bytes);
    info->ids = (const int32_t *)(const void *)s->chunks[0].data; /* the header is 64 bytes */
    info->n_ids = s->chunks[0].bytes / sizeof(int32_t);
    info->note = s->chunks[2].data;
    info->n_note = s->chunks[2].bytes;
    info->n_bytes = s->map.bytes;
    return OB_OK;
}

/* Where a shift began, which both the version and the manifest must say. */
static ob_status read_shift(struct ob_snapshot *s, uint32_t version, struct ob_error *err)
{
    const json_t *from = json_object_get(s->manifest, "shifted_from");
    bool shifted = version == OB_SNAPSHOT_VERSION_SHIFTED;
    s->info.shifted_from = s->info.n_ids;
    if (shifted && json_is_integer(from) && json_integer_value(from) >= 0 &&
        (uint64_t)json_integer_value(from) < s->info.n_ids)
        s->info.shifted_from = (size_t)json_integer_value(from);
    if (shifted != (from != NULL) || (shifted && s->info.shifted_from == s->info.n_ids))
        return ob_fail(err, OB_BAD_FILE,
                       "%s: manifest: shifted_from is not what a session can have", s->path);
    return OB_OK;
}

static ob_status open_parts(struct ob_snapshot *s, struct ob_error *err)
{
    struct ob_snapshot_header header;
    OB_TRY(ob_os_map_file(s->path, &s->map, err));
    OB_TRY(read_header(s, &header, err));
    OB_TRY(read_manifest(s, &header, err));
    OB_TRY(lay_out(s, header.manifest_at, err));
    OB_TRY(read_info(s, err));
    return read_shift(s, header.version, err);
}

ob_status ob_snapshot_open(const char *path, struct ob_snapshot **out, struct ob_error *err)
{
    struct ob_snapshot *s = ob_calloc(1, sizeof *s);
    if (s)
        s->path = ob_calloc(strlen(path) + 1, 1);
    if (!s || !s->path) {
        free(s);
        return ob_fail_memory(err, strlen(path) + 1, "a snapshot");
    }
    memcpy(s->path, path, strlen(path));
    ob_status status = open_parts(s, err);
    if (status != OB_OK) {
        ob_snapshot_close(s);
        return status;
    }
    *out = s;
    return OB_OK;
}

void ob_snapshot_fingerprint(const struct ob_snapshot *s, char hex[OB_HASH_HEX])
{
    const char *values[OB_SNAPSHOT_IDENTITY];
    for (size_t i = 0; i < OB_SNAPSHOT_IDENTITY; i++)
        values[i] =
            json_string_value(json_object_get(s->manifest, ob_snapshot_identity(NULL, i, NULL)));
    ob_snapshot_hash_identity(values, OB_SNAPSHOT_IDENTITY, s->info.kernels,
                              json_integer_value(json_object_get(s->manifest, "arithmetic")), hex);
}

const char *ob_snapshot_path(const struct ob_snapshot *s)
{
    return s->path;
}

const unsigned char *ob_snapshot_bytes(const struct ob_snapshot *s, size_t *n_bytes)
{
    *n_bytes = s->map.bytes;
    return s->map.data;
}

/* ----------------------------------------------------------------------------------- restore */

static ob_status check_identity(const struct ob_snapshot *s, struct ob_model *m,
                                struct ob_error *err)
{
    ob_status status = OB_OK;
    const char *name, *value;
    json_t *arithmetic = json_object_get(s->manifest, "arithmetic");
    if (json_integer_value(arithmetic) != OB_SNAPSHOT_ARITHMETIC)
        return ob_fail(err, OB_INVALID_ARGUMENT,
                       "%s: arithmetic differs: the snapshot has version %lld, this engine %d",
                       s->path, (long long)json_integer_value(arithmetic), OB_SNAPSHOT_ARITHMETIC);
    pthread_mutex_lock(&m->lock);
    for (size_t i = 0; status == OB_OK && (name = ob_snapshot_identity(m, i, &value)) != NULL;
         i++) {
        const char *theirs = json_string_value(json_object_get(s->manifest, name));
        if (strcmp(theirs, value) != 0)
            status = ob_fail(err, OB_INVALID_ARGUMENT,
                             "%s: %s differs: the snapshot has %s, the model here %s", s->path,
                             name, theirs, value);
    }
    pthread_mutex_unlock(&m->lock);
    return status;
}

/* What the stored chunks say they are. Checkpoints are the last ones. */
static ob_status read_content(const struct ob_snapshot *s, struct ob_snapshot_content *content,
                              struct ob_error *err)
{
    const size_t prefix = strlen(OB_CHECKPOINT_NAME);
    size_t first = s->n_chunks, last = 0;
    *content = (struct ob_snapshot_content){
        .n_ids = s->info.n_ids, .n_note = s->info.n_note, .logits = s->chunks[1].bytes > 0};
    while (first > 0 && strncmp(s->chunks[first - 1].name, OB_CHECKPOINT_NAME, prefix) == 0)
        first--;
    for (size_t i = first; i < s->n_chunks; i++) {
        size_t n_tokens = (size_t)strtoull(s->chunks[i].name + prefix, NULL, 10);
        if (n_tokens <= last || n_tokens >= s->info.n_ids || i - first >= OB_SNAPSHOT_CHECKPOINTS)
            return ob_fail(err, OB_BAD_FILE, "%s: chunk '%s' is not what a session can have",
                           s->path, s->chunks[i].name);
        content->checkpoints[content->n_checkpoints++] = last = n_tokens;
    }
    return OB_OK;
}

/* The stored chunks are those of this model, ids and all. */
static ob_status check_chunks(const struct ob_snapshot *s, const struct ob_model *m,
                              const struct ob_chunk *chunks, size_t n, struct ob_error *err)
{
    for (size_t i = 0; i < n || i < s->n_chunks; i++)
        if (i >= n || i >= s->n_chunks || strcmp(chunks[i].name, s->chunks[i].name) != 0 ||
            chunks[i].bytes != s->chunks[i].bytes)
            return ob_fail(err, OB_BAD_FILE, "%s: chunk '%s' is not what the model needs there",
                           s->path, i < s->n_chunks ? s->chunks[i].name : chunks[i].name);
    for (size_t i = 0; i < s->info.n_ids; i++)
        if (s->info.ids[i] < 0 || s->info.ids[i] >= m->plan->n_vocab)
            return ob_fail(err, OB_BAD_FILE, "%s: token %zu has id %d, which the model lacks",
                           s->path, i, (int)s->info.ids[i]);
    return ob_snapshot_check(s, err);
}

/* Fill the state from the checked chunks. Locked. */
static ob_status fill_state(struct ob_session *s, const struct ob_snapshot *snapshot,
                            const struct ob_chunk *chunks, size_t n, struct ob_error *err)
{
    struct ob_engine *engine = s->model->engine;
    size_t n_ids = snapshot->info.n_ids;
    engine->backend->state_set_length(s->state, n_ids);
    for (size_t i = FIRST_CHUNKS; i < n; i++) {
        const unsigned char *from = snapshot->chunks[i].data;
        struct ob_state_place place = chunks[i].place;
        if (chunks[i].kind != OB_CHUNK_STATE)
            break;
        if (engine->plan->states[place.state].kind != OB_STATE_KV)
            OB_TRY(engine->backend->state_write(engine, s->state, place, from, err));
        for (; place.page < chunks[i].n_pages; place.page++) {
            OB_TRY(engine->backend->state_write(engine, s->state, place, from, err));
            from += engine->backend->page_bytes(engine, place.page, n_ids);
        }
    }
    return OB_OK;
}

/* Pages are reserved. Locked. */
static ob_status take_over(struct ob_session *s, const struct ob_snapshot *snapshot,
                           const struct ob_chunk *chunks, size_t n, struct ob_error *err)
{
    size_t n_ids = snapshot->info.n_ids;
    ob_checkpoints_forget_after(&s->checkpoints, 0);
    ob_status status = fill_state(s, snapshot, chunks, n, err);
    if (status != OB_OK) { /* a device failed half-way: nothing is left */
        s->length = 0;
        ob_session_follow_state(s);
        return status;
    }
    for (size_t i = 0; i < n; i++)
        if (chunks[i].kind == OB_CHUNK_CHECKPOINT)
            ob_checkpoints_add(&s->checkpoints, chunks[i].n_tokens, snapshot->chunks[i].data);
    memcpy(s->ids, snapshot->info.ids, n_ids * sizeof *s->ids);
    memcpy(s->logits, snapshot->chunks[1].data, snapshot->chunks[1].bytes);
    s->length = n_ids;
    s->logits_at = snapshot->chunks[1].bytes > 0 ? n_ids : 0;
    s->shifted_from =
        snapshot->info.shifted_from < n_ids ? snapshot->info.shifted_from : OB_UNSHIFTED;
    return OB_OK;
}

ob_status ob_session_restore(struct ob_session *s, struct ob_snapshot *snapshot,
                             const char **notice, struct ob_error *err)
{
    struct ob_model *m = s->model;
    struct ob_snapshot_content content;
    struct ob_chunk *chunks;
    size_t n;
    OB_TRY(check_identity(snapshot, m, err));
    if (snapshot->info.shifted_from < snapshot->info.n_ids)
        OB_TRY(ob_model_can_shift(m, err)); /* else no session of it is ever shifted */
    OB_TRY(read_content(snapshot, &content, err));
    OB_TRY(ob_snapshot_chunks(m, &content, &chunks, &n, err));
    ob_status status = check_chunks(snapshot, m, chunks, n, err);
    if (status == OB_OK && snapshot->info.n_ids > s->n_ctx)
        status = ob_fail(err, OB_CONTEXT_FULL,
                         "%s: its %zu tokens do not fit: the session holds at most %zu",
                         snapshot->path, snapshot->info.n_ids, s->n_ctx);
    if (status == OB_OK)
        status = ob_session_reserve(s, 0, snapshot->info.n_ids, err);
    if (status == OB_OK) {
        pthread_mutex_lock(&m->lock);
        status = take_over(s, snapshot, chunks, n, err);
        pthread_mutex_unlock(&m->lock);
    }
    free(chunks);
    if (status != OB_OK || !notice)
        return status;
    bool same = strcmp(snapshot->info.kernels, m->kernels) == 0;
    snprintf(snapshot->notice, sizeof snapshot->notice,
             "the snapshot was made with kernels '%.32s', this is '%s': bytes may differ",
             snapshot->info.kernels, m->kernels);
    *notice = same ? NULL : snapshot->notice;
    return OB_OK;
}
