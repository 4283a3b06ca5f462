/* Fuzz target: any bytes through the tokenizer.
 *
 * Properties, for a vocabulary with merges over letters, marks, spaces and ill-formed bytes:
 *   - the ids decode to the text, NFC-normalized between added tokens;
 *   - text that is NFC already comes back byte for byte;
 *   - decoding through the stream, id by id, equals decoding everything at once;
 *   - normalizing twice is normalizing once.
 * The first input byte chooses pre-tokenizer and special tokens; the rest is the text. */
#include "fuzz.h"

#include <string.h>

#include "text/byte_level.h"
#include "text/tokenizer.h"
#include "text/unicode.h"
#include "text/utf8.h"

static const char *const merged[] = {
    "a a", "aa aa", "a b",           "aa b", "e r",           "\u0120 \u0120", "\u0120 a",
    "t h", "th e",  "\u010a \u010a", "' s",  "\u00c3 \u00a9", "\u00cc \u0123", "\u00f0 \u0141"};
static const char *const added[] = {"<|im_start|>", "<|im_end|>", "<a>", "<a>b", "<"};

enum { N_MERGED = sizeof merged / sizeof *merged, N_ADDED = sizeof added / sizeof *added };
enum { N_TOKENS = 256 + N_MERGED + N_ADDED };

struct vocab {
    struct ob_vocab vocab;
    struct ob_str tokens[N_TOKENS], merges[N_MERGED];
    int32_t types[N_TOKENS];
    char spelled[256][2], joined[N_MERGED][16];
};

static struct ob_tokenizer *make_tokenizer(struct vocab *v, enum ob_pretokenizer pre)
{
    size_t n = 0;
    for (; n < 256; n++) {
        size_t length = ob_byte_level_spell((unsigned char)n, v->spelled[n]);
        v->tokens[n] = (struct ob_str){v->spelled[n], length};
        v->types[n] = OB_TOKEN_NORMAL;
    }
    for (size_t i = 0; i < N_MERGED; i++, n++) {
        size_t left = strcspn(merged[i], " "), length = strlen(merged[i]);
        v->merges[i] = (struct ob_str){merged[i], length};
        memcpy(v->joined[i], merged[i], left);
        memcpy(v->joined[i] + left, merged[i] + left + 1, length - left - 1);
        v->tokens[n] = (struct ob_str){v->joined[i], length - 1};
        v->types[n] = OB_TOKEN_NORMAL;
    }
    for (size_t i = 0; i < N_ADDED; i++, n++) {
        v->tokens[n] = ob_str_from(added[i]);
        v->types[n] = i < 2 ? OB_TOKEN_CONTROL : OB_TOKEN_USER_DEFINED;
    }
    v->vocab = (struct ob_vocab){n, v->tokens, v->types, N_MERGED, v->merges, pre};
    struct ob_tokenizer *tokenizer = NULL;
    FUZZ_CHECK(ob_tokenizer_create(&v->vocab, &tokenizer, NULL) == OB_OK);
    return tokenizer;
}

static char *allocate(size_t n)
{
    char *bytes = malloc(n + 1);
    FUZZ_CHECK(bytes);
    return bytes;
}

/* The bytes of ids [n], end to end; free() them. */
static struct ob_str decode(const struct ob_tokenizer *tokenizer, const int32_t *ids, size_t n)
{
    size_t n_bytes = 0;
    for (size_t i = 0; i < n; i++)
        n_bytes += ob_tokenizer_bytes(tokenizer, ids[i]).len;
    char *bytes = allocate(n_bytes);
    n_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        struct ob_str text = ob_tokenizer_bytes(tokenizer, ids[i]);
        memcpy(bytes + n_bytes, text.ptr, text.len);
        n_bytes += text.len;
    }
    return (struct ob_str){bytes, n_bytes};
}

static size_t find(const char *text, size_t n, size_t at, struct ob_str token)
{
    while (at + token.len <= n && memcmp(text + at, token.ptr, token.len) != 0)
        at++;
    return at;
}

/* Every added token among the ids stands in the text, in order, and what the ids between them spell
 * is the text between them, normalized. */
static void check_decoded(const struct ob_tokenizer *tokenizer, const struct ob_ids *ids,
                          const char *text, size_t n)
{
    struct ob_nfc nfc = {0};
    size_t at = 0, i = 0;
    while (i < ids->len || at < n) {
        size_t first = i, end = n, n_normal;
        const char *normal;
        struct ob_str token = {NULL, 0};
        while (i < ids->len && ob_tokenizer_type(tokenizer, ids->data[i]) == OB_TOKEN_NORMAL)
            i++;
        struct ob_str decoded = decode(tokenizer, ids->len ? ids->data + first : NULL, i - first);
        if (i < ids->len) {
            token = ob_tokenizer_bytes(tokenizer, ids->data[i++]);
            end = find(text, n, at, token);
        }
        FUZZ_CHECK(end + token.len <= n);
        FUZZ_CHECK(ob_nfc_normalize(&nfc, text + at, end - at, &normal, &n_normal));
        FUZZ_CHECK(ob_str_equal(decoded, (struct ob_str){normal, n_normal}));
        free((char *)(uintptr_t)decoded.ptr);
        at = end + token.len;
    }
    ob_nfc_free(&nfc);
}

static void check_stream(const struct ob_tokenizer *tokenizer, const struct ob_ids *ids)
{
    struct ob_str all = decode(tokenizer, ids->data, ids->len);
    char *whole = allocate(3 * (all.len + 3)), *parts = allocate(3 * (all.len + 3));
    struct ob_utf8_stream stream = {0};
    size_t n_whole = 0, n_parts = 0;
    for (size_t i = 0; i < ids->len; i++) {
        struct ob_str text = ob_tokenizer_bytes(tokenizer, ids->data[i]);
        n_parts +=
            ob_utf8_stream_bytes(&stream, text.ptr, text.len, parts + n_parts, 3 * (text.len + 3));
    }
    n_parts += ob_utf8_stream_finish(&stream, parts + n_parts, 3);
    n_whole = ob_utf8_stream_bytes(&stream, all.ptr, all.len, whole, 3 * (all.len + 3));
    n_whole += ob_utf8_stream_finish(&stream, whole + n_whole, 3);
    FUZZ_CHECK(n_parts == n_whole && memcmp(parts, whole, n_whole) == 0);
    for (size_t at = 0, length; at < n_whole; at += length)
        FUZZ_CHECK(ob_utf8_decode(whole + at, n_whole - at, &length) >= 0);
    free((char *)(uintptr_t)all.ptr);
    free(whole);
    free(parts);
}

static void check_normal_twice(const char *text, size_t n)
{
    struct ob_nfc once = {0}, twice = {0};
    const char *first, *second;
    size_t n_first, n_second;
    FUZZ_CHECK(ob_nfc_normalize(&once, text, n, &first, &n_first));
    FUZZ_CHECK(ob_nfc_normalize(&twice, first, n_first, &second, &n_second));
    FUZZ_CHECK(n_first == n_second && (n_first == 0 || !memcmp(first, second, n_first)));
    ob_nfc_free(&once);
    ob_nfc_free(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct vocab vocab = {0};
    enum ob_pretokenizer pre = data[0] & 1 ? OB_PRE_QWEN35 : OB_PRE_QWEN2;
    struct ob_tokenizer *tokenizer = make_tokenizer(&vocab, pre);
    const char *text = (const char *)data + 1;
    struct ob_ids ids = {0};
    FUZZ_CHECK(ob_tokenizer_encode(tokenizer, text, size - 1, data[0] & 2, &ids, NULL) == OB_OK);
    check_decoded(tokenizer, &ids, text, size - 1);
    check_stream(tokenizer, &ids);
    check_normal_twice(text, size - 1);
    free(ids.data);
    ob_tokenizer_destroy(tokenizer);
    return 0;
}
