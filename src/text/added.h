/* Added tokens: whole strings that are cut out of the raw text before anything else looks at it. */
#ifndef OB_TEXT_ADDED_H
#define OB_TEXT_ADDED_H

#include "text/span.h"
#include "text/tokenizer.h"

struct ob_added_token {
    struct ob_str text; /* borrowed */
    int32_t id;
    bool control;
};

/* The added tokens of a vocabulary, sorted by their bytes. {0} is an empty set. */
struct ob_added {
    struct ob_added_token *tokens;
    size_t n_tokens;
    bool starts[256]; /* some token starts with this byte */
};

/* Collect CONTROL and USER_DEFINED tokens; empty ones can match nothing and are left out. Fails
 * with OB_BAD_FILE when two are equal, or OB_NO_MEMORY. Release with ob_added_free, also after
 * failure. */
ob_status ob_added_init(struct ob_added *added, const struct ob_vocab *vocab, struct ob_error *err);
void ob_added_free(struct ob_added *added);

/* A text and where in it control tokens are looked for: only where all their bytes are in spans
 * that are not data. The lengths of the spans add up to n. Fill the first four fields, zero the
 * rest. */
struct ob_added_text {
    const char *text;
    size_t n;
    const struct ob_span *spans; /* [n_spans] */
    size_t n_spans;
    size_t next, end; /* working state: the next span, and where the run at hand ends */
    bool is_data;
};

/* The first match at or after byte `at`, the longest of those that start there. `at` never goes
 * back from call to call. Returns its id, *start (>= at) and *length, or -1. Time is O(n * length
 * of the longest token * log n_tokens) at worst and about a byte per cycle in ordinary text. */
int32_t ob_added_find(const struct ob_added *added, struct ob_added_text *text, size_t at,
                      size_t *start, size_t *length);

/* The id of the token that is exactly `text`, or -1. */
int32_t ob_added_id(const struct ob_added *added, struct ob_str text);

#endif
