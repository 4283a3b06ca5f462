#include "text/tokenizer.h"

#include "base/memory.h"
#include "text/added.h"
#include "text/bpe.h"
#include "text/byte_level.h"
#include "text/pretokenize.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

struct ob_tokenizer {
    size_t n_tokens;
    const int32_t *types; /* [n_tokens], borrowed */
    enum ob_pretokenizer pre;
    struct ob_bpe bpe;
    struct ob_added added;
    char *bytes;     /* what every token stands for, end to end */
    size_t *offsets; /* [n_tokens + 1] into bytes */
};

bool ob_ids_append(struct ob_ids *ids, const int32_t *more, size_t n)
{
    size_t need;
    void *items = ids->data;
    if (!ob_add_size(ids->len, n, &need) ||
        !ob_grow(&items, &ids->capacity, need, sizeof *ids->data))
        return false;
    ids->data = items;
    if (n > 0)
        memcpy(ids->data + ids->len, more, n * sizeof *more);
    ids->len = need;
    return true;
}

/* ---------------------------------------------------------------------------------- creation */

static ob_status check_types(const struct ob_vocab *vocab, struct ob_error *err)
{
    if (vocab->n_tokens > INT32_MAX)
        return ob_fail(err, OB_BAD_FILE, "a vocabulary of %zu tokens is too large",
                       vocab->n_tokens);
    for (size_t i = 0; i < vocab->n_tokens; i++) {
        int32_t type = vocab->types[i];
        if (type == OB_TOKEN_BYTE)
            return ob_fail(err, OB_UNSUPPORTED,
                           "token %zu is of type BYTE, which byte-level BPE "
                           "does not have",
                           i);
        if (type < OB_TOKEN_NORMAL || type > OB_TOKEN_BYTE)
            return ob_fail(err, OB_BAD_FILE, "token %zu has type %d, which does not exist", i,
                           (int)type);
    }
    if (vocab->pre != OB_PRE_QWEN2 && vocab->pre != OB_PRE_QWEN35)
        return ob_fail(err, OB_UNSUPPORTED, "pre-tokenizer %d does not exist", (int)vocab->pre);
    return OB_OK;
}

static size_t write_token(const struct ob_vocab *vocab, size_t i, char *out)
{
    struct ob_str text = vocab->tokens[i];
    switch (vocab->types[i]) {
    case OB_TOKEN_NORMAL:
        return ob_byte_level_read(text, out);
    case OB_TOKEN_CONTROL:
    case OB_TOKEN_USER_DEFINED:
        if (text.len > 0)
            memcpy(out, text.ptr, text.len);
        return text.len;
    default:
        return 0;
    }
}

static ob_status write_tokens(struct ob_tokenizer *tokenizer, const struct ob_vocab *vocab,
                              struct ob_error *err)
{
    size_t total = 0, n = vocab->n_tokens;
    for (size_t i = 0; i < n; i++)
        if (!ob_add_size(total, vocab->tokens[i].len, &total))
            return ob_fail_memory(err, SIZE_MAX, "the texts of the tokens");
    tokenizer->bytes = ob_calloc(total, 1);
    tokenizer->offsets = ob_calloc(n + 1, sizeof *tokenizer->offsets);
    if (!tokenizer->bytes || !tokenizer->offsets)
        return ob_fail_memory(err, total, "the texts of the tokens");
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        tokenizer->offsets[i] = used;
        used += write_token(vocab, i, tokenizer->bytes + used);
    }
    tokenizer->offsets[n] = used;
    return OB_OK;
}

ob_status ob_tokenizer_create(const struct ob_vocab *vocab, struct ob_tokenizer **out,
                              struct ob_error *err)
{
    OB_TRY(check_types(vocab, err));
    struct ob_tokenizer *tokenizer = ob_calloc(1, sizeof *tokenizer);
    if (!tokenizer)
        return ob_fail_memory(err, sizeof *tokenizer, "the tokenizer");
    tokenizer->n_tokens = vocab->n_tokens;
    tokenizer->types = vocab->types;
    tokenizer->pre = vocab->pre;
    ob_status status = ob_bpe_init(&tokenizer->bpe, vocab, err);
    if (status == OB_OK)
        status = ob_added_init(&tokenizer->added, vocab, err);
    if (status == OB_OK)
        status = write_tokens(tokenizer, vocab, err);
    if (status != OB_OK) {
        ob_tokenizer_destroy(tokenizer);
        return status;
    }
    *out = tokenizer;
    return OB_OK;
}

void ob_tokenizer_destroy(struct ob_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    ob_bpe_free(&tokenizer->bpe);
    ob_added_free(&tokenizer->added);
    free(tokenizer->bytes);
    free(tokenizer->offsets);
    free(tokenizer);
}

/* ----------------------------------------------------------------------------------- encoding */

/* Words seen in this call. Direct-mapped: no choice of words makes it slower than a miss. */
enum { CACHED_BYTES = 23, CACHED_IDS = 9, MIN_CACHED_TEXT = 256, MAX_SLOTS = 8192 };

struct cached_word {
    uint64_t key[3]; /* bytes of the word, zeros, and its length in the last byte; 0 is free */
    int32_t n_ids;
    int32_t ids[CACHED_IDS];
};

struct encoder {
    const struct ob_tokenizer *tokenizer;
    struct ob_ids *ids;
    struct ob_nfc nfc;
    struct ob_bpe_scratch bpe;
    struct cached_word *cache; /* [mask + 1], or NULL */
    size_t mask;
};

/* A cache that costs less than the text it serves: an eighth as many slots as bytes. */
static bool make_cache(struct encoder *encoder, size_t n_bytes)
{
    if (n_bytes < MIN_CACHED_TEXT)
        return true;
    size_t n = MIN_CACHED_TEXT / 8;
    while (n < MAX_SLOTS && n < n_bytes / 8)
        n *= 2;
    encoder->cache = ob_calloc(n, sizeof *encoder->cache);
    encoder->mask = n - 1;
    return encoder->cache != NULL;
}

static size_t hash_key(const uint64_t *key)
{
    uint64_t hash = key[0] * 0x9e3779b97f4a7c15u;
    hash = (hash ^ hash >> 32 ^ key[1]) * 0xc2b2ae3d27d4eb4fu;
    hash = (hash ^ hash >> 32 ^ key[2]) * 0x165667b19e3779f9u;
    return (size_t)(hash >> 40);
}

static bool encode_cached(struct encoder *encoder, const char *word, size_t n)
{
    uint64_t key[3] = {0};
    unsigned char length = (unsigned char)n;
    memcpy(key, word, n);
    memcpy((char *)key + CACHED_BYTES, &length, 1);
    struct cached_word *slot = &encoder->cache[hash_key(key) & encoder->mask];
    if (slot->key[0] == key[0] && slot->key[1] == key[1] && slot->key[2] == key[2])
        return ob_ids_append(encoder->ids, slot->ids, (size_t)slot->n_ids);
    size_t before = encoder->ids->len;
    if (!ob_bpe_word(&encoder->tokenizer->bpe, &encoder->bpe, word, n, encoder->ids))
        return false;
    size_t n_ids = encoder->ids->len - before;
    if (n_ids <= CACHED_IDS) {
        memcpy(slot->key, key, sizeof key);
        memcpy(slot->ids, encoder->ids->data + before, n_ids * sizeof *slot->ids);
        slot->n_ids = (int32_t)n_ids;
    }
    return true;
}

static bool encode_word(struct encoder *encoder, const char *word, size_t n)
{
    if (n == 1)
        return ob_ids_append(encoder->ids,
                             &encoder->tokenizer->bpe.byte_ids[(unsigned char)word[0]], 1);
    if (encoder->cache && n <= CACHED_BYTES)
        return encode_cached(encoder, word, n);
    return ob_bpe_word(&encoder->tokenizer->bpe, &encoder->bpe, word, n, encoder->ids);
}

/* Text without added tokens. */
static bool encode_plain(struct encoder *encoder, const char *text, size_t n)
{
    if (!ob_nfc_normalize(&encoder->nfc, text, n, &text, &n))
        return false;
    for (size_t at = 0; at < n;) {
        size_t length = ob_pretokenize_next(encoder->tokenizer->pre, text + at, n - at);
        if (!encode_word(encoder, text + at, length))
            return false;
        at += length;
    }
    return true;
}

static bool encode_text(struct encoder *encoder, struct ob_added_text *text)
{
    size_t at = 0;
    while (at < text->n) {
        size_t start = text->n, length = 0;
        int32_t id = ob_added_find(&encoder->tokenizer->added, text, at, &start, &length);
        if (!encode_plain(encoder, text->text + at, start - at))
            return false;
        if (id >= 0 && !ob_ids_append(encoder->ids, &id, 1))
            return false;
        at = start + length;
    }
    return true;
}

ob_status ob_tokenizer_encode_spans(const struct ob_tokenizer *tokenizer, const char *text,
                                    size_t n_bytes, const struct ob_span *spans, size_t n_spans,
                                    struct ob_ids *ids, struct ob_error *err)
{
    struct ob_added_text added = {.text = text, .n = n_bytes, .spans = spans, .n_spans = n_spans};
    struct encoder encoder = {.tokenizer = tokenizer, .ids = ids};
    size_t len = ids->len, covered = 0;
    for (size_t i = 0; i < n_spans; i++)
        if (!ob_add_size(covered, spans[i].n_bytes, &covered))
            covered = SIZE_MAX;
    if (covered != n_bytes)
        return ob_fail(err, OB_INVALID_ARGUMENT, "spans of %zu bytes for a text of %zu bytes",
                       covered, n_bytes);
    bool ok = make_cache(&encoder, n_bytes) && encode_text(&encoder, &added);
    free(encoder.cache);
    ob_nfc_free(&encoder.nfc);
    ob_bpe_scratch_free(&encoder.bpe);
    if (ok)
        return OB_OK;
    ids->len = len;
    return ob_fail(err, OB_NO_MEMORY, "not enough memory to encode a text of %zu bytes", n_bytes);
}

ob_status ob_tokenizer_encode(const struct ob_tokenizer *tokenizer, const char *text,
                              size_t n_bytes, bool special, struct ob_ids *ids,
                              struct ob_error *err)
{
    const struct ob_span all = {n_bytes, !special};
    return ob_tokenizer_encode_spans(tokenizer, text, n_bytes, &all, 1, ids, err);
}

/* ---------------------------------------------------------------------------------- questions */

static bool is_id(const struct ob_tokenizer *tokenizer, int32_t id)
{
    return id >= 0 && (size_t)id < tokenizer->n_tokens;
}

struct ob_str ob_tokenizer_bytes(const struct ob_tokenizer *tokenizer, int32_t id)
{
    struct ob_str none = {NULL, 0};
    if (!is_id(tokenizer, id) || tokenizer->types[id] == OB_TOKEN_UNUSED ||
        tokenizer->types[id] == OB_TOKEN_UNKNOWN)
        return none;
    size_t start = tokenizer->offsets[id];
    return (struct ob_str){tokenizer->bytes + start, tokenizer->offsets[id + 1] - start};
}

size_t ob_tokenizer_n_tokens(const struct ob_tokenizer *tokenizer)
{
    return tokenizer->n_tokens;
}

enum ob_token_type ob_tokenizer_type(const struct ob_tokenizer *tokenizer, int32_t id)
{
    return is_id(tokenizer, id) ? (enum ob_token_type)tokenizer->types[id] : OB_TOKEN_UNUSED;
}

int32_t ob_tokenizer_added_id(const struct ob_tokenizer *tokenizer, struct ob_str text)
{
    return ob_added_id(&tokenizer->added, text);
}
