/* The pre-token patterns as PCRE2 runs them: the oracle for src/text/pretokenize.c. Header-only,
 * for the tests that link PCRE2.
 *
 * \s is written out as White_Space. PCRE2's own \s with UCP agrees with it except for U+180E,
 * which is no White_Space since Unicode 6.3; test_text_oracle.c shows that this is the only
 * difference. */
#ifndef TEST_SUPPORT_PCRE_SPLIT_H
#define TEST_SUPPORT_PCRE_SPLIT_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "text/pretokenize.h"

#include <stdio.h>
#include <stdlib.h>

#define WHITE_SPACE "\\t-\\r\\x{85}\\p{Z}"

static const char pattern_qwen2[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
    " ?[^" WHITE_SPACE "\\p{L}\\p{N}]+[\\r\\n]*|[" WHITE_SPACE "]*[\\r\\n]+|"
    "[" WHITE_SPACE "]+(?![^" WHITE_SPACE "])|[" WHITE_SPACE "]+";

static const char pattern_qwen35[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|"
    " ?[^" WHITE_SPACE "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|[" WHITE_SPACE "]*[\\r\\n]+|"
    "[" WHITE_SPACE "]+(?![^" WHITE_SPACE "])|[" WHITE_SPACE "]+";

struct pcre_split {
    pcre2_code *code;
    pcre2_match_data *match;
};

static inline struct pcre_split pcre_split_new(const char *pattern)
{
    int error;
    size_t at;
    struct pcre_split split;
    split.code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP,
                               &error, &at, NULL);
    if (!split.code) {
        fprintf(stderr, "pattern error %d at %zu of %s\n", error, at, pattern);
        abort();
    }
    pcre2_jit_compile(split.code, PCRE2_JIT_COMPLETE);
    split.match = pcre2_match_data_create_from_pattern(split.code, NULL);
    return split;
}

static inline void pcre_split_free(struct pcre_split *split)
{
    pcre2_match_data_free(split->match);
    pcre2_code_free(split->code);
}

/* Length of the match at text + at of well-formed text [n]; 0 if there is none there. */
static inline size_t pcre_split_next(const struct pcre_split *split, const char *text, size_t n,
                                     size_t at)
{
    int rc = pcre2_match(split->code, (PCRE2_SPTR)text, n, at, PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK,
                         split->match, NULL);
    const size_t *ends = pcre2_get_ovector_pointer(split->match);
    return rc > 0 ? ends[1] - ends[0] : 0;
}

#endif
