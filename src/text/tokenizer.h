/* Byte-level BPE tokenizer of the Qwen2/Qwen3 and Qwen3.5 families.
 *
 * Owns: added tokens, NFC, pre-tokenization, merging, decoding. Does not own: the strings of the
 * vocabulary (borrowed), files, templates. A tokenizer is immutable after creation and may be used
 * by any number of threads. Builds without any library (wasm32). */
#ifndef OB_TEXT_TOKENIZER_H
#define OB_TEXT_TOKENIZER_H

#include "base/error.h"
#include "base/str.h"
#include "text/span.h"

/* As in `tokenizer.ggml.token_type`. */
enum ob_token_type {
    OB_TOKEN_NORMAL = 1,
    OB_TOKEN_UNKNOWN = 2,
    OB_TOKEN_CONTROL = 3,      /* matched in text only when the caller allows control tokens */
    OB_TOKEN_USER_DEFINED = 4, /* always matched in text */
    OB_TOKEN_UNUSED = 5,
    OB_TOKEN_BYTE = 6,
};

enum ob_pretokenizer { OB_PRE_QWEN2, OB_PRE_QWEN35 };

/* What a vocabulary is made from; all memory is borrowed and must outlive the tokenizer. */
struct ob_vocab {
    size_t n_tokens;
    /* [n_tokens] NORMAL ones in the byte-to-printable spelling of GPT-2, CONTROL and USER_DEFINED
     * ones as plain text */
    const struct ob_str *tokens;
    const int32_t *types; /* [n_tokens] enum ob_token_type */
    size_t n_merges;
    const struct ob_str *merges; /* [n_merges] "left right", most important first */
    enum ob_pretokenizer pre;
};

struct ob_tokenizer;

/* A growing list of ids; {0} is an empty one, free() its data. */
struct ob_ids {
    int32_t *data;
    size_t len, capacity;
};

/* Append one list of ids to another; false when there is no memory, `ids` is then as it was. */
bool ob_ids_append(struct ob_ids *ids, const int32_t *more, size_t n);

/* Fails with OB_BAD_FILE (naming token or merge and index: a merge whose parts or result are not
 * in the vocabulary, a byte that no token spells, two equal added tokens, an unknown type), with
 * OB_UNSUPPORTED (BYTE tokens, another pre-tokenizer) or OB_NO_MEMORY. `vocab` itself is not kept,
 * only its types and the texts of its added tokens.
 *
 * Padding is harmless: UNUSED, UNKNOWN and empty tokens may repeat and are never produced. Of
 * equal NORMAL tokens the first is produced and all decode. Of merges with the same parts the last
 * counts, as in HF `tokenizers`. Memory: at most 64 bytes per merge, and per token its text and 40
 * bytes, of which 32 only during the call. */
ob_status ob_tokenizer_create(const struct ob_vocab *vocab, struct ob_tokenizer **out,
                              struct ob_error *err);
void ob_tokenizer_destroy(struct ob_tokenizer *tokenizer);

/* Append the ids of text [n_bytes] to `ids`. With `special`, CONTROL tokens in the text become
 * their ids; USER_DEFINED ones always do. The leftmost match counts, of those that start there the
 * longest; a CONTROL token that is not looked for hides nothing. The text between is
 * NFC-normalized piece by piece. Ill-formed UTF-8 is encoded byte by byte, unchanged by NFC. Time
 * is O(n log n) at worst; memory is at most a small multiple of the text (36 bytes for each byte
 * of its longest word). Only OB_NO_MEMORY can fail (also for a word of 2^31 bytes); `ids` then
 * holds what it held. */
ob_status ob_tokenizer_encode(const struct ob_tokenizer *tokenizer, const char *text,
                              size_t n_bytes, bool special, struct ob_ids *ids,
                              struct ob_error *err);

/* The same for a text whose parts differ in origin, such as a rendered chat template: CONTROL tokens
 * are matched only where all their bytes are in spans that are not data, so nothing a user writes
 * becomes one, alone or together with its neighbours. USER_DEFINED tokens match everywhere. Spans
 * are no borders: what stands between two matches is encoded as one text. The lengths of spans
 * [n_spans] must add up to n_bytes, else OB_INVALID_ARGUMENT. */
ob_status ob_tokenizer_encode_spans(const struct ob_tokenizer *tokenizer, const char *text,
                                    size_t n_bytes, const struct ob_span *spans, size_t n_spans,
                                    struct ob_ids *ids, struct ob_error *err);

/* The bytes an id stands for; {NULL, 0} for ids out of range, UNUSED and UNKNOWN ones. */
struct ob_str ob_tokenizer_bytes(const struct ob_tokenizer *tokenizer, int32_t id);

/* Out of range is UNUSED. */
enum ob_token_type ob_tokenizer_type(const struct ob_tokenizer *tokenizer, int32_t id);
size_t ob_tokenizer_n_tokens(const struct ob_tokenizer *tokenizer);

/* The id whose text is exactly `text` among CONTROL and USER_DEFINED tokens, or -1. */
int32_t ob_tokenizer_added_id(const struct ob_tokenizer *tokenizer, struct ob_str text);

#endif
