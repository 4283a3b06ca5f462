/* Private to src/run: how a snapshot lies in its file.
 *
 *   header    64 bytes, written last: magic, version, where the manifest lies, checksums of both
 *   chunks    one after the other, in the order of the manifest, without gaps
 *   manifest  JSON: what made the snapshot, and name, bytes and checksum of every chunk
 *
 * The version is 2, or 3 where a context shift has moved tokens: the manifest then has "shifted_from", and an engine
 * that knows nothing of shifts refuses the file.
 *
 * All numbers are little-endian. Checksums are XXH3, 128 bits for chunks and manifest, against
 * accidents, not against malice. A chunk is independent of the others:
 *
 *   tokens            int32 [n_ids]
 *   logits            f32 [n_vocab] after the last token, or nothing
 *   note              the caller's
 *   layer L keys, layer L values    the KV pages on the grid of batch.h, unused tokens zero; of a 4-bit
 *                     cache the sink and a page that is not full are f32
 *   layer L conv, layer L delta     f32, a state of fixed size
 *   checkpoint N      f32, the logits after the first N tokens and all states of fixed size, of a 4-bit cache
 *                     the page that is not full besides: what lets a recurrent model go back by a message;
 *                     the newest two, if there are any */
#ifndef OB_RUN_SNAPSHOT_H
#define OB_RUN_SNAPSHOT_H

#include <jansson.h>
#include <xxhash.h>

#include "run/session.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "chunks are written and read as they lie in memory, which must be little-endian"
#endif

enum {
    OB_SNAPSHOT_VERSION = 2,
    OB_SNAPSHOT_VERSION_SHIFTED =
        3, /* the same of a session that was shifted: the manifest says from where */
    /* Counts the changes of any result of the kernels in any bit. */
    OB_SNAPSHOT_ARITHMETIC = 1,
    OB_SNAPSHOT_IDENTITY = 5,
    OB_CHUNK_NAME = 32,
    OB_SNAPSHOT_CHECKPOINTS = 2, /* at most */
    OB_HASH_HEX = 33,
};

struct ob_snapshot_header {
    char magic[16];
    uint32_t version, zero;
    uint64_t manifest_at, manifest_bytes;
    unsigned char manifest_hash[16];
    uint64_t header_hash; /* of the bytes before it */
};

extern const char ob_snapshot_magic[16];

/* What a session's chunk is, in file order. */
struct ob_chunk {
    char name[OB_CHUNK_NAME];
    size_t bytes;
    enum ob_chunk_kind {
        OB_CHUNK_TOKENS,
        OB_CHUNK_LOGITS,
        OB_CHUNK_NOTE,
        OB_CHUNK_STATE,
        OB_CHUNK_CHECKPOINT
    } kind;
    struct ob_state_place place; /* of a state; `page` runs over n_pages */
    size_t n_pages;              /* 0: a state of fixed size */
    size_t n_tokens;             /* of a checkpoint */
};

/* What decides the chunks of a session of one model. */
struct ob_snapshot_content {
    size_t n_ids, n_note;
    bool logits;
    size_t checkpoints[OB_SNAPSHOT_CHECKPOINTS]; /* [n_checkpoints] their tokens, ascending */
    size_t n_checkpoints;
};

/* The chunks: *chunks [*n], free() them. OB_NO_MEMORY, OB_UNSUPPORTED by the backend. */
ob_status ob_snapshot_chunks(const struct ob_model *model,
                             const struct ob_snapshot_content *content, struct ob_chunk **chunks,
                             size_t *n, struct ob_error *err);

/* What a model is, as strings that must be equal to go on from a snapshot: name and value, the
 * latter alive as long as the model. NULL past the last. Locked, since it may hash the file. Without
 * a model, the name alone. */
const char *ob_snapshot_identity(struct ob_model *model, size_t i, const char **value);

/* What must be equal for a session to go on with the same bytes: all of the above, the kernels and the
 * version of the arithmetic. */
void ob_model_fingerprint(struct ob_model *model, char hex[OB_HASH_HEX]);
void ob_snapshot_fingerprint(const struct ob_snapshot *snapshot, char hex[OB_HASH_HEX]);

void ob_snapshot_hash_identity(const char *const *values, size_t n, const char *kernels,
                               long long arithmetic, char hex[OB_HASH_HEX]);

/* The file. */
const char *ob_snapshot_path(const struct ob_snapshot *snapshot);
const unsigned char *ob_snapshot_bytes(const struct ob_snapshot *snapshot, size_t *n_bytes);

/* The name of a checkpoint's chunk is this and the number of its tokens. */
#define OB_CHECKPOINT_NAME "checkpoint "

/* A checksum as 32 hexadecimal digits. */
void ob_snapshot_hex(XXH128_hash_t hash, char hex[OB_HASH_HEX]);

#endif
