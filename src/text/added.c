#include "text/added.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static bool is_added(int32_t type)
{
    return type == OB_TOKEN_CONTROL || type == OB_TOKEN_USER_DEFINED;
}

/* By bytes, a prefix before what it is a prefix of, equal texts by id. */
static int compare_tokens(const void *a, const void *b)
{
    const struct ob_added_token *x = a, *y = b;
    size_t n = x->text.len < y->text.len ? x->text.len : y->text.len;
    int order = memcmp(x->text.ptr, y->text.ptr, n);
    if (order != 0)
        return order;
    if (x->text.len != y->text.len)
        return x->text.len < y->text.len ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

ob_status ob_added_init(struct ob_added *added, const struct ob_vocab *vocab, struct ob_error *err)
{
    *added = (struct ob_added){0};
    size_t n = 0;
    for (size_t i = 0; i < vocab->n_tokens; i++)
        n += is_added(vocab->types[i]) && vocab->tokens[i].len > 0;
    added->tokens = ob_calloc(n, sizeof *added->tokens);
    if (!added->tokens)
        return ob_fail_memory(err, n * sizeof *added->tokens, "the added tokens");
    for (size_t i = 0; i < vocab->n_tokens; i++) {
        struct ob_str text = vocab->tokens[i];
        if (!is_added(vocab->types[i]) || text.len == 0)
            continue;
        added->tokens[added->n_tokens++] =
            (struct ob_added_token){text, (int32_t)i, vocab->types[i] == OB_TOKEN_CONTROL};
        added->starts[(unsigned char)text.ptr[0]] = true;
    }
    if (n > 1)
        qsort(added->tokens, n, sizeof *added->tokens, compare_tokens);
    for (size_t i = 1; i < n; i++) {
        const struct ob_added_token *a = &added->tokens[i - 1], *b = &added->tokens[i];
        if (ob_str_equal(a->text, b->text))
            return ob_fail(err, OB_BAD_FILE, "added tokens %d and %d are both '%.*s'", (int)a->id,
                           (int)b->id, OB_STR_ARG(a->text));
    }
    return OB_OK;
}

void ob_added_free(struct ob_added *added)
{
    free(added->tokens);
    *added = (struct ob_added){0};
}

/* In tokens [low, high), which share their first `depth` bytes and are longer: the first whose next
 * byte is at least `byte`. */
static size_t lower_bound(const struct ob_added *added, size_t low, size_t high, size_t depth,
                          unsigned byte)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((unsigned char)added->tokens[middle].text.ptr[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest token that text [n] starts with, CONTROL tokens of at most n_control bytes; NULL if
 * none does. */
static const struct ob_added_token *longest_at(const struct ob_added *added, const char *text,
                                               size_t n, size_t n_control)
{
    const struct ob_added_token *best = NULL;
    size_t low = 0, high = added->n_tokens;
    for (size_t depth = 0; depth < n; depth++) {
        unsigned byte = (unsigned char)text[depth];
        low = lower_bound(added, low, high, depth, byte);
        high = lower_bound(added, low, high, depth, byte + 1);
        if (low == high)
            break;
        const struct ob_added_token *token = &added->tokens[low];
        if (token->text.len == depth + 1) {
            if (!token->control || depth < n_control)
                best = token;
            low++; /* the rest are longer, as lower_bound wants */
        }
    }
    return best;
}

/* Bytes from `at` on that are not data. */
static size_t control_reach(struct ob_added_text *text, size_t at)
{
    while (text->end <= at && text->next < text->n_spans) {
        text->is_data = text->spans[text->next].is_data;
        /* Neighbours of the same origin are one run, and empty spans are nothing. */
        for (; text->next < text->n_spans; text->next++) {
            const struct ob_span *span = &text->spans[text->next];
            if (span->n_bytes > 0 && span->is_data != text->is_data)
                break;
            text->end += span->n_bytes;
        }
    }
    return text->is_data ? 0 : text->end - at;
}

int32_t ob_added_find(const struct ob_added *added, struct ob_added_text *text, size_t at,
                      size_t *start, size_t *length)
{
    for (; at < text->n; at++) {
        if (!added->starts[(unsigned char)text->text[at]])
            continue;
        const struct ob_added_token *token =
            longest_at(added, text->text + at, text->n - at, control_reach(text, at));
        if (!token)
            continue;
        *start = at;
        *length = token->text.len;
        return token->id;
    }
    return -1;
}

int32_t ob_added_id(const struct ob_added *added, struct ob_str text)
{
    size_t low = 0, high = added->n_tokens;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        struct ob_str token = added->tokens[middle].text;
        if (ob_str_equal(token, text))
            return added->tokens[middle].id;
        struct ob_added_token wanted = {text, -1, false};
        if (text.len == 0 || compare_tokens(&wanted, &added->tokens[middle]) < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}
