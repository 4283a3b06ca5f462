/* What a snapshot consists of, and what it must agree with. */
#include "run/snapshot.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/os.h"
#include "plan/kv.h"

const char ob_snapshot_magic[16] = "onebit session\n";

void ob_snapshot_hex(XXH128_hash_t hash, char hex[OB_HASH_HEX])
{
    snprintf(hex, OB_HASH_HEX, "%016llx%016llx", (unsigned long long)hash.high64,
             (unsigned long long)hash.low64);
}

/* All bytes of the model file. Its pages need not stay in memory for it. */
static const char *file_hash(struct ob_model *m)
{
    size_t n;
    const void *bytes = ob_gguf_bytes(m->gguf, &n);
    if (!m->file_hash[0]) {
        ob_snapshot_hex(XXH3_128bits(bytes, n), m->file_hash);
        if (ob_gguf_is_mapped(m->gguf))
            ob_os_forget(bytes, n);
    }
    return m->file_hash;
}

static const char *value_of(struct ob_model *m, size_t i)
{
    switch (i) {
    case 0:
        return m->config.arch_name;
    case 1:
        return ob_kv_type_name(m->kv_type);
    case 2:
        return m->activation == OB_ACT_F32 ? "f32" : "int8";
    case 3:
        return m->rope == OB_ROPE_PLAIN ? "plain" : "file";
    default:
        return file_hash(m);
    }
}

const char *ob_snapshot_identity(struct ob_model *m, size_t i, const char **value)
{
    static const char *const names[OB_SNAPSHOT_IDENTITY] = {"arch", "kv", "activation", "rope",
                                                            "model_hash"};
    if (i >= OB_SNAPSHOT_IDENTITY)
        return NULL;
    if (m)
        *value = value_of(m, i);
    return names[i];
}

void ob_snapshot_hash_identity(const char *const *values, size_t n, const char *kernels,
                               long long arithmetic, char hex[OB_HASH_HEX])
{
    char text[512];
    size_t at = 0;
    for (size_t i = 0; i <= n && at < sizeof text; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s\n", i < n ? values[i] : kernels);
    if (at < sizeof text)
        at += (size_t)snprintf(text + at, sizeof text - at, "%lld", arithmetic);
    ob_snapshot_hex(XXH3_128bits(text, at < sizeof text ? at : sizeof text - 1), hex);
}

void ob_model_fingerprint(struct ob_model *m, char hex[OB_HASH_HEX])
{
    const char *values[OB_SNAPSHOT_IDENTITY];
    pthread_mutex_lock(&m->lock);
    for (size_t i = 0; i < OB_SNAPSHOT_IDENTITY; i++)
        ob_snapshot_identity(m, i, &values[i]);
    pthread_mutex_unlock(&m->lock);
    ob_snapshot_hash_identity(values, OB_SNAPSHOT_IDENTITY, m->kernels, OB_SNAPSHOT_ARITHMETIC,
                              hex);
}

/* Pages that hold n_ids tokens, the sink among them. */
static size_t n_pages(size_t n_ids)
{
    return n_ids == 0 ? 0 : ob_page_of(n_ids - 1) + 1;
}

static struct ob_chunk kv_chunk(const struct ob_model *m, int state, bool values, size_t n_ids)
{
    struct ob_chunk chunk = {.kind = OB_CHUNK_STATE,
                             .place = {.state = state, .values = values},
                             .n_pages = n_pages(n_ids)};
    for (size_t page = 0; page < chunk.n_pages; page++)
        chunk.bytes += m->engine->backend->page_bytes(m->engine, page, n_ids);
    snprintf(chunk.name, sizeof chunk.name, "layer %d %s", m->plan->states[state].layer,
             values ? "values" : "keys");
    return chunk;
}

static struct ob_chunk fixed_chunk(const struct ob_model *m, int state)
{
    const struct ob_state_shape *shape = &m->plan->states[state];
    struct ob_chunk chunk = {.kind = OB_CHUNK_STATE,
                             .place = {.state = state},
                             .bytes = ob_state_floats(shape) * sizeof(float)};
    snprintf(chunk.name, sizeof chunk.name, "layer %d %s", shape->layer,
             shape->kind == OB_STATE_DELTA ? "delta" : "conv");
    return chunk;
}

static struct ob_chunk checkpoint_chunk(const struct ob_model *m, size_t n_tokens)
{
    struct ob_chunk chunk = {
        .kind = OB_CHUNK_CHECKPOINT, .bytes = ob_checkpoint_bytes(m->engine), .n_tokens = n_tokens};
    snprintf(chunk.name, sizeof chunk.name, OB_CHECKPOINT_NAME "%zu", n_tokens);
    return chunk;
}

ob_status ob_snapshot_chunks(const struct ob_model *m, const struct ob_snapshot_content *content,
                             struct ob_chunk **out, size_t *n, struct ob_error *err)
{
    size_t most = 3 + 2 * (size_t)m->plan->n_states + content->n_checkpoints, at = 0;
    size_t n_logits = content->logits ? (size_t)m->plan->n_vocab : 0;
    if (!m->engine->backend->state_read)
        return ob_fail(err, OB_UNSUPPORTED, "sessions of the %s backend cannot be saved",
                       m->engine->backend->name);
    struct ob_chunk *c = ob_calloc(most, sizeof *c);
    if (!c)
        return ob_fail_memory(err, most * sizeof *c, "a snapshot's chunks");
    c[at++] =
        (struct ob_chunk){"tokens", content->n_ids * sizeof(int32_t), .kind = OB_CHUNK_TOKENS};
    c[at++] = (struct ob_chunk){"logits", n_logits * sizeof(float), .kind = OB_CHUNK_LOGITS};
    c[at++] = (struct ob_chunk){"note", content->n_note, .kind = OB_CHUNK_NOTE};
    for (int i = 0; i < m->plan->n_states; i++) {
        if (m->plan->states[i].kind == OB_STATE_KV) {
            c[at++] = kv_chunk(m, i, false, content->n_ids);
            c[at++] = kv_chunk(m, i, true, content->n_ids);
        } else {
            c[at++] = fixed_chunk(m, i);
        }
    }
    for (size_t i = 0; i < content->n_checkpoints; i++)
        c[at++] = checkpoint_chunk(m, content->checkpoints[i]);
    *out = c;
    *n = at;
    return OB_OK;
}
