/* Operations on strings that filters and methods share. Every byte of a result keeps the origin of
 * the byte it comes from. */
#ifndef OB_TEXT_TEMPLATE_STRINGS_H
#define OB_TEXT_TEMPLATE_STRINGS_H

#include "text/template_eval.h"

enum ob_string_case {
    OB_STRING_UPPER,
    OB_STRING_LOWER,
    OB_STRING_CAPITALIZE,
    OB_STRING_TITLE, /* str.title: words are runs of letters */
    OB_STRING_SWAP,
    OB_STRING_HEADLINE, /* the filter `title`: words begin after blanks, '-' and brackets */
};
bool ob_string_case(struct ob_run *run, const struct ob_vstring *s, enum ob_string_case to,
                    struct ob_value *out);

/* Without the characters of `chars` (NULL: white space) at the left and the right end. */
bool ob_string_trim(struct ob_run *run, const struct ob_vstring *s, const struct ob_vstring *chars,
                    bool left, bool right, struct ob_value *out);
/* The first `count` occurrences (< 0: all). */
bool ob_string_replace(struct ob_run *run, const struct ob_vstring *s, const struct ob_vstring *old,
                       const struct ob_vstring *new, int64_t count, struct ob_value *out);
/* separator NULL: runs of white space; max < 0: no limit. */
bool ob_string_split(struct ob_run *run, const struct ob_vstring *s,
                     const struct ob_vstring *separator, int64_t max, struct ob_value *out);
bool ob_string_split_right(struct ob_run *run, const struct ob_vstring *s,
                           const struct ob_vstring *separator, int64_t max, struct ob_value *out);
bool ob_string_lines(struct ob_run *run, const struct ob_vstring *s, bool keep_ends,
                     struct ob_value *out);
/* The items of a list as text, with `separator` (may be NULL) between them. */
bool ob_string_join_list(struct ob_run *run, const struct ob_vstring *separator,
                         const struct ob_value *list, struct ob_value *out);
/* Blanks (or `fill`) up to `width` characters; align is '<', '>' or '^' (str.center). */
bool ob_string_pad(struct ob_run *run, struct ob_vstring *s, int64_t width,
                   const struct ob_vstring *fill, char align, struct ob_value *out);
bool ob_string_indent(struct ob_run *run, const struct ob_vstring *s,
                      const struct ob_vstring *indent, bool first, bool blank,
                      struct ob_value *out);

#endif
